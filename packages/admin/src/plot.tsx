// A plot of some numbers over time, with their values as text: the newest ones, or those at the chosen time.

import { useEffect, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import { timeOfDay, type Point } from './figures.ts';

export interface Series {
  label: string;
  of: (point: Point) => number | null;
}

export interface PlotProps {
  title: string;
  points: readonly Point[];
  series: readonly Series[];
  show: (value: number) => string;
  /** Seconds that the plot shows. */
  range: number;
  /** The chosen point; without it the newest one. */
  chosen: Point | undefined;
  /** The pointer is over the point with this index, or over none. */
  onHover: (index: number | undefined) => void;
}

const HEIGHT = 130;
const COLOURS = ['--first', '--second'];

/** Whether the system prefers dark colours. When that changes, the canvas must be drawn again. */
function useDark(): boolean {
  const wish = matchMedia('(prefers-color-scheme: dark)');
  const [isDark, setDark] = useState(wish.matches);
  useEffect(() => {
    const change = (): void => setDark(wish.matches);
    wish.addEventListener('change', change);
    return () => wish.removeEventListener('change', change);
  }, []);
  return isDark;
}

export function Plot({ title, points, series, show, range, chosen, onHover }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>();
  const isDark = useDark();
  const hover = useRef(onHover);
  hover.current = onHover;

  useEffect(() => {
    const element = place.current as HTMLDivElement;
    const style = getComputedStyle(element);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui' };
    const time = (_plot: UPlot, values: number[]): string[] => values.map((at) => timeOfDay(at, range <= 300));
    plot.current = new UPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        // The plot always shows the whole range, so a short past does not look like a long one.
        scales: { x: { range: (_plot, _low, high) => [high - range, high] }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: range <= 300 ? 90 : 70, values: time }, { ...axis, size: 72, values: (_plot, values) => values.map(show) }],
        series: [{}, ...series.map(({ label }, index) => ({ label, stroke: colour(COLOURS[index] as string), width: 2, points: { show: false } }))],
        // New data fires the hook, too, and would move a time that was chosen with the slider.
        hooks: { setCursor: [(drawn) => drawn.over.matches(':hover') && hover.current(drawn.cursor.idx ?? undefined)] },
      },
      [[], ...series.map(() => [])],
      element,
    );
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [isDark, range]);

  useEffect(() => {
    plot.current?.setData([points.map(({ at }) => at), ...series.map(({ of }) => points.map(of))]);
  }, [points, isDark, range]);
  useEffect(() => {
    const [drawn, newest] = [plot.current, points.at(-1)];
    // Without the hook, because the time is known. A negative position hides the cursor. The position is computed here, because the plot
    // computes its scale only after this effect.
    const part = chosen === undefined || newest === undefined ? NaN : 1 - (newest.at - chosen.at) / range;
    drawn?.setCursor({ left: part >= 0 ? part * drawn.over.clientWidth : -10, top: 0 }, false);
  }, [chosen, points, range]);

  const point = chosen ?? points.at(-1);
  const text = (value: number | null | undefined): string => (value === null || value === undefined ? '–' : show(value));
  const values = series.map(({ label, of }) => `${label} ${text(point && of(point))}`);
  return (
    <figure class="card plot">
      <figcaption>
        <strong>{title}</strong>
        {values.map((value, index) => (
          <span class={`key key-${index}`} key={index}>
            {value}
          </span>
        ))}
      </figcaption>
      <div ref={place} onMouseLeave={() => onHover(undefined)} role="img" aria-label={`${title}: ${values.join(', ')}`} />
    </figure>
  );
}

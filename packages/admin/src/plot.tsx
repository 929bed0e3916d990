// A plot of some numbers over the last minutes, with their newest values as text.

import { useEffect, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import type { Point } from './figures.ts';

export interface Series {
  label: string;
  of: (point: Point) => number;
}

export interface PlotProps {
  title: string;
  points: readonly Point[];
  series: readonly Series[];
  show: (value: number) => string;
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

export function Plot({ title, points, series, show }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>();
  const isDark = useDark();

  useEffect(() => {
    const element = place.current as HTMLDivElement;
    const style = getComputedStyle(element);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui' };
    plot.current = new UPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, space: 70 }, { ...axis, size: 64, values: (_plot, values) => values.map(show) }],
        series: [{}, ...series.map(({ label }, index) => ({ label, stroke: colour(COLOURS[index] as string), width: 2, points: { show: false } }))],
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
  }, [isDark]);

  useEffect(() => {
    plot.current?.setData([points.map(({ at }) => at), ...series.map(({ of }) => points.map(of))]);
  }, [points, isDark]);

  const last = points.at(-1);
  const values = series.map(({ label, of }) => `${label} ${last ? show(of(last)) : '–'}`);
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
      <div ref={place} role="img" aria-label={`${title}: ${values.join(', ')}`} />
    </figure>
  );
}

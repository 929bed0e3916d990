// A line on a canvas, in the colours of the page.

import { useLayoutEffect, useRef } from 'preact/hooks';

const PADDING = 6;
/** Space for the numbers on the right. */
const NUMBERS = 56;

export function Plot({ label, points, places }: { label: string; points: number[]; places: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(points);
  latest.current = points;

  useLayoutEffect(() => {
    if (canvas.current) draw(canvas.current, points);
  }, [points]);

  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const again = (): void => draw(element, latest.current);
    const observer = new ResizeObserver(again);
    observer.observe(element);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', again);
    return () => {
      observer.disconnect();
      scheme.removeEventListener('change', again);
    };
  }, []);

  return <canvas class="plot" role="img" aria-label={label} ref={canvas} data-points={points.length} data-places={places} />;
}

function draw(canvas: HTMLCanvasElement, points: number[]): void {
  const context = canvas.getContext('2d');
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!context || width === 0) return;
  const scale = devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.scale(scale, scale);
  if (points.length < 2) return;

  const style = getComputedStyle(canvas);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const places = Number(canvas.dataset['places']);
  const [low, high] = [Math.min(...points), Math.max(...points)];
  const range = high - low || 1;
  const x = (index: number): number => PADDING + (index / (points.length - 1)) * (width - NUMBERS - PADDING);
  const y = (point: number): number => height - PADDING - ((point - low) / range) * (height - 2 * PADDING);

  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = colour('--quiet');
  context.strokeStyle = colour('--line');
  context.lineWidth = 1;
  context.textBaseline = 'middle';
  for (const point of [low, (low + high) / 2, high]) {
    const at = Math.min(Math.max(y(point), 8), height - 8);
    context.beginPath();
    context.moveTo(PADDING, y(point));
    context.lineTo(width - NUMBERS, y(point));
    context.stroke();
    context.fillText(point.toFixed(places), width - NUMBERS + 6, at);
  }

  context.strokeStyle = colour('--accent');
  context.lineWidth = 2;
  context.lineJoin = 'round';
  context.beginPath();
  points.forEach((point, index) => context.lineTo(x(index), y(point)));
  context.stroke();
}

// A long list of which only the rows that can be seen are in the page, and the one with the keyboard's focus.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

/** Pixels. The style sheet gives rows the same height. */
const ROW_HEIGHT = 48;
/** Rows above and below those that can be seen, so that Tab finds the next one. */
const AROUND = 4;

export interface VirtualRowsProps<Row> {
  label: string;
  rows: Row[];
  idOf: (row: Row) => string;
  /** What stands in a row. */
  children: (row: Row) => ComponentChildren;
}

export function VirtualRows<Row>({ label, rows, idOf, children }: VirtualRowsProps<Row>) {
  const scroller = useRef<HTMLUListElement>(null);
  const [{ top, height }, setView] = useState({ top: 0, height: 0 });
  const [focused, setFocused] = useState<string>();

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const measure = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, []);

  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - AROUND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_HEIGHT) + AROUND);
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
  const kept = focused === undefined ? -1 : rows.findIndex((row) => idOf(row) === focused);
  if (kept >= 0 && kept < first) shown.unshift(kept);
  if (kept >= last) shown.push(kept);

  return (
    <ul class="rows" aria-label={label} ref={scroller}>
      <li class="rows-end" aria-hidden="true" style={{ top: `${rows.length * ROW_HEIGHT - 1}px` }} />
      {shown.map((index) => {
        const row = rows[index] as Row;
        const id = idOf(row);
        return (
          <li
            class="row"
            key={id}
            aria-setsize={rows.length}
            aria-posinset={index + 1}
            style={{ transform: `translateY(${index * ROW_HEIGHT}px)` }}
            onFocusIn={() => setFocused(id)}
            onFocusOut={() => setFocused(undefined)}
          >
            {children(row)}
          </li>
        );
      })}
    </ul>
  );
}

// A long list. The page contains only the visible rows and the row that last had the focus: Tab leads into that row
// and out of the list again, the arrow keys lead from row to row.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

/** Pixels. The style sheet gives rows the same height. */
const ROW_HEIGHT = 48;
/** Rows above and below the visible ones, so that they exist before the user scrolls to them. */
const AROUND = 6;
const CONTROLS = 'input, button';

export interface VirtualRowsProps<Row> {
  label: string;
  rows: Row[];
  idOf: (row: Row) => string;
  /** Called with the id of the row that has the focus, otherwise of the row that has the pointer. */
  onEnter: (id: string | null) => void;
  /** Renders the content of a row; its controls have this `tabIndex`. */
  children: (row: Row, tabIndex: number) => ComponentChildren;
}

/** The control with the focus. */
interface Focus {
  id: string;
  index: number;
  /** The index of the control in its row. */
  control: number;
}

export function VirtualRows<Row>({ label, rows, idOf, onEnter, children }: VirtualRowsProps<Row>) {
  const scroller = useRef<HTMLUListElement>(null);
  const [{ top, height }, setView] = useState({ top: 0, height: 0 });
  const [focus, setFocus] = useState<Focus>();
  const [active, setActive] = useState<string>();

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

  const controlsOf = (index: number): HTMLElement[] => {
    const row = scroller.current?.querySelector(`[data-index="${index}"]`);
    return [...(row?.querySelectorAll<HTMLElement>(CONTROLS) ?? [])];
  };
  const indexOf = (id: string | undefined): number => (id === undefined ? -1 : rows.findIndex((row) => idOf(row) === id));
  const focused = indexOf(focus?.id);

  // If the row with the focus was removed, its successor gets the focus.
  useLayoutEffect(() => {
    if (!focus || focused >= 0) return;
    const index = Math.min(focus.index, rows.length - 1);
    setFocus(undefined);
    controlsOf(index)[focus.control]?.focus();
  }, [rows]);

  /** Scrolls to a row, so that it is rendered, and gives it the focus. */
  const go = (index: number, control: number): void => {
    const element = scroller.current;
    if (!element || index < 0 || index >= rows.length) return;
    const above = index * ROW_HEIGHT;
    if (above < element.scrollTop) element.scrollTop = above;
    else if (above + ROW_HEIGHT > element.scrollTop + element.clientHeight) element.scrollTop = above + ROW_HEIGHT - element.clientHeight;
    const controls = controlsOf(index);
    if (controls.length > 0) controls[control]?.focus();
    else requestAnimationFrame(() => controlsOf(index)[control]?.focus());
  };

  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - AROUND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_HEIGHT) + AROUND);
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
  const tabbed = Math.max(0, indexOf(active));
  if (tabbed < rows.length) {
    if (tabbed < first) shown.unshift(tabbed);
    else if (tabbed >= last) shown.push(tabbed);
  }

  return (
    <ul class="rows" aria-label={label} ref={scroller} onPointerLeave={() => onEnter(focus?.id ?? null)}>
      <li class="rows-end" aria-hidden="true" style={{ top: `${Math.max(0, rows.length * ROW_HEIGHT - 1)}px` }} />
      {shown.map((index) => {
        const row = rows[index] as Row;
        const id = idOf(row);
        return (
          <li
            class="row"
            key={id}
            data-index={index}
            aria-setsize={rows.length}
            aria-posinset={index + 1}
            style={{ transform: `translateY(${index * ROW_HEIGHT}px)` }}
            onPointerEnter={() => focus ?? onEnter(id)}
            onFocusIn={({ target }) => {
              setFocus({ id, index, control: controlsOf(index).indexOf(target as HTMLElement) });
              setActive(id);
              onEnter(id);
            }}
            onFocusOut={() => {
              setFocus(undefined);
              onEnter(null);
            }}
            onKeyDown={(event) => {
              const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
              if (step === undefined) return;
              event.preventDefault();
              go(index + step, controlsOf(index).indexOf(event.target as HTMLElement));
            }}
          >
            {children(row, index === tabbed ? 0 : -1)}
          </li>
        );
      })}
    </ul>
  );
}

// A dense table with sortable heads. Only the visible rows are elements of the page, so a list may have any number of rows.
//
// The rows are one stop of the Tab key: the arrow keys, Page Up, Page Down, Home and End move its active row, and Enter opens it.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Column<Row> {
  /** The name by which the list is sorted; without it the head is only text. */
  sort?: string;
  head: string;
  /** The width as a track of a CSS grid. The first column stays visible, so on a phone it must leave room for others: its text must not widen it. */
  width: string;
  isNumber?: boolean;
  cell: (row: Row) => ComponentChildren;
}

export interface TableProps<Row> {
  label: string;
  columns: ReadonlyArray<Column<Row>>;
  /** Rows of the whole list. */
  total: number;
  /** The loaded part of the list. */
  rows: readonly Row[];
  /** The number of rows before that part; 0 by default. */
  first?: number;
  idOf: (row: Row) => string;
  /** The column of the order, with `-` in front if the largest value is first. */
  sort?: string;
  onSort?: (sort: string) => void;
  /** The index of the first visible row has changed. */
  onScroll?: (firstVisible: number) => void;
  onOpen?: (row: Row) => void;
  /** The id of the row that is open. */
  open?: string;
}

/** Height of a row: at least as high as a finger needs, if there is no mouse. */
const ROW_PIXELS = matchMedia('(pointer: coarse)').matches ? 40 : 30;
/** Rows above and below the visible ones, so that slow scrolling shows no empty rows. */
const OVERSCAN = 6;
/** Rows that are rendered before the size of the window is known. */
const ROWS_AT_FIRST = 30;

export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, total, rows, first = 0, idOf, sort, onSort, onScroll, onOpen, open } = props;
  const id = useId();
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(ROWS_AT_FIRST * ROW_PIXELS);
  const [active, setActive] = useState(0);

  useLayoutEffect(() => {
    const element = scroller.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const firstVisible = Math.min(Math.floor(top / ROW_PIXELS), Math.max(total - 1, 0));
  useEffect(() => onScroll?.(firstVisible), [firstVisible]);
  const isFirstOrder = useRef(true);
  useEffect(() => {
    // A new order begins at its start.
    if (!isFirstOrder.current) scroller.current?.scrollTo({ top: 0 });
    isFirstOrder.current = false;
    setActive(0);
  }, [sort]);

  const from = Math.max(firstVisible - OVERSCAN, 0);
  const to = Math.min(firstVisible + Math.ceil(height / ROW_PIXELS) + OVERSCAN, total);
  const activeRow = Math.min(active, Math.max(total - 1, 0));

  const move = (index: number): void => {
    const row = Math.max(0, Math.min(index, total - 1));
    setActive(row);
    const element = scroller.current as HTMLDivElement;
    // The head covers the first line of the window.
    const visible = element.clientHeight - ROW_PIXELS;
    const above = row * ROW_PIXELS;
    if (above < element.scrollTop) element.scrollTop = above;
    else if (above + ROW_PIXELS > element.scrollTop + visible) element.scrollTop = above + ROW_PIXELS - visible;
  };
  const press = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.target !== scroller.current || total === 0) return;
    const page = Math.max(Math.floor(event.currentTarget.clientHeight / ROW_PIXELS) - 2, 1);
    const moves: Record<string, number> = {
      ArrowDown: activeRow + 1,
      ArrowUp: activeRow - 1,
      PageDown: activeRow + page,
      PageUp: activeRow - page,
      Home: 0,
      End: total - 1,
    };
    const target = moves[event.key];
    const row = rows[activeRow - first];
    if (target !== undefined) move(target);
    else if (event.key === 'Enter' && row !== undefined && onOpen) onOpen(row);
    else return;
    event.preventDefault();
  };

  const tracks = { gridTemplateColumns: columns.map(({ width }) => width).join(' ') };
  const shown = Array.from({ length: Math.max(to - from, 0) }, (_, index) => from + index);
  return (
    <div
      class="table"
      role="grid"
      aria-label={label}
      aria-rowcount={total + 1}
      aria-colcount={columns.length}
      aria-activedescendant={activeRow >= from && activeRow < to ? `${id}-${activeRow}` : undefined}
      tabIndex={0}
      ref={scroller}
      style={{ '--row': `${ROW_PIXELS}px` }}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={press}
    >
      <div role="rowgroup" class="head">
        <div role="row" aria-rowindex={1} style={tracks}>
          {columns.map((column) => (
            <Head key={column.head} column={column} sort={sort} onSort={onSort} />
          ))}
        </div>
      </div>
      {total > 0 && (
        <div role="rowgroup" class="body" style={{ height: `${total * ROW_PIXELS}px` }}>
          {shown.map((index) => {
            const row = rows[index - first];
            const isActive = index === activeRow;
            return (
              <div
                role="row"
                key={row === undefined ? `waits ${index}` : idOf(row)}
                id={`${id}-${index}`}
                aria-rowindex={index + 2}
                aria-selected={onOpen ? row !== undefined && idOf(row) === open : undefined}
                class={isActive ? 'active' : undefined}
                style={{ ...tracks, top: `${index * ROW_PIXELS}px` }}
                onClick={() => {
                  setActive(index);
                  if (row !== undefined) onOpen?.(row);
                }}
              >
                {columns.map((column, place) => (
                  <Cell key={column.head} isNumber={column.isNumber} isFirst={place === 0} isLink={place === 0 && onOpen !== undefined}>
                    {row === undefined ? '…' : column.cell(row)}
                  </Cell>
                ))}
              </div>
            );
          })}
        </div>
      )}
    </div>
  );
}

interface CellProps {
  isNumber: boolean | undefined;
  isFirst: boolean;
  isLink: boolean;
  children: ComponentChildren;
}

function Cell({ isNumber, isFirst, isLink, children }: CellProps) {
  const text = typeof children === 'string' ? children : undefined;
  return (
    <div role={isFirst ? 'rowheader' : 'gridcell'} class={isNumber ? 'number' : undefined} title={text}>
      {isLink ? <span class="link">{children}</span> : children}
    </div>
  );
}

interface HeadProps<Row> {
  column: Column<Row>;
  sort: string | undefined;
  onSort: ((sort: string) => void) | undefined;
}

function Head<Row>({ column, sort, onSort }: HeadProps<Row>) {
  const { sort: name, head, isNumber } = column;
  const style = isNumber ? 'number' : undefined;
  if (name === undefined || onSort === undefined) {
    return (
      <div role="columnheader" class={style}>
        <span>{head}</span>
      </div>
    );
  }
  const isRising = sort === name;
  const isFalling = sort === `-${name}`;
  // A column of numbers begins with the largest one, a column of text with the letter A.
  const next = isFalling || (!isRising && !isNumber) ? name : `-${name}`;
  return (
    <div role="columnheader" class={style} aria-sort={isRising ? 'ascending' : isFalling ? 'descending' : 'none'}>
      <button type="button" onClick={() => onSort(next)}>
        {head}
        <span aria-hidden="true">{isRising ? ' ▲' : isFalling ? ' ▼' : ''}</span>
      </button>
    </div>
  );
}

/** The rows in an order that the page itself makes, because it has all of them. */
export function sorted<Row>(rows: readonly Row[], sort: string, values: Record<string, (row: Row) => string | number>): Row[] {
  const name = sort.replace(/^-/, '');
  const value = values[name];
  if (value === undefined) return [...rows];
  const direction = sort.startsWith('-') ? -1 : 1;
  const compare = (left: string | number, right: string | number): number =>
    typeof left === 'number' && typeof right === 'number' ? left - right : String(left).localeCompare(String(right));
  return [...rows].sort((left, right) => direction * compare(value(left), value(right)));
}

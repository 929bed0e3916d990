// A live tail: the events that clients publish, or all messages of one session. The page takes the lines that the server kept for it, and
// shows how many it lost.

import { useEffect, useState } from 'preact/hooks';
import { refine, type Parameters } from './address.ts';
import { bytes, count, timeOfDay } from './figures.ts';
import { reason, type Server } from './server.ts';
import { Table, type Column } from './table.tsx';

/** A message without its content. */
interface Line {
  /** Milliseconds since 1970. */
  at: number;
  sent: boolean;
  topic: string;
  action: string;
  name: string;
  /** Number of further names. */
  more: number;
  bytes: number;
  user: string | null;
}

interface Row extends Line {
  /** Counts the lines of this tail. */
  number: number;
}

interface Seen {
  /** The newest lines, the newest first. */
  rows: Row[];
  count: number;
  lost: number;
}

const REFRESH_MS = 500;
/** Lines in the table. Older ones are dropped. */
const ROWS_MAX = 1_000;
const NOTHING: Seen = { rows: [], count: 0, lost: 0 };

/** The time of day with milliseconds. */
function time(at: number): string {
  return `${timeOfDay(at / 1000, true)} .${String(at % 1000).padStart(3, '0')}`;
}

const COLUMNS: ReadonlyArray<Column<Row>> = [
  { head: 'Name', width: 'minmax(140px, 30vw)', cell: (row) => `${row.name || '–'}${row.more > 0 ? ` and ${count(row.more)} more` : ''}` },
  { head: 'Topic', width: '100px', cell: (row) => row.topic },
  { head: 'Action', width: 'minmax(130px, 1fr)', cell: (row) => row.action },
  { head: 'Direction', width: '110px', cell: (row) => (row.sent ? 'to client' : 'from client') },
  { head: 'Size', width: '90px', isNumber: true, cell: (row) => bytes(row.bytes) },
  { head: 'User', width: 'minmax(110px, 1fr)', cell: (row) => row.user ?? '–' },
  { head: 'Time', width: '160px', isNumber: true, cell: (row) => time(row.at) },
];

function add(before: Seen, lines: readonly Line[], lost: number): Seen {
  const rows = lines.map((line, index) => ({ ...line, number: before.count + index })).reverse();
  return { rows: [...rows, ...before.rows].slice(0, ROWS_MAX), count: before.count + lines.length, lost: before.lost + lost };
}

export function TailView({ server, parameters }: { server: Server; parameters: Parameters }) {
  const { connection = '', events = '', on = '' } = parameters;
  const isOn = on !== '';
  const [prefix, setPrefix] = useState(events);
  const [seen, setSeen] = useState(NOTHING);
  const [state, setState] = useState('');

  useEffect(() => {
    if (!isOn) return setState('');
    let isOver = false;
    let timer: ReturnType<typeof setTimeout>;
    let path: string | undefined;
    const close = (): void => {
      if (path !== undefined) server.answer('DELETE', path).catch(() => {});
    };
    const take = async (): Promise<void> => {
      const answer = await server.ask<{ lines: Line[]; lost: number; ended: boolean }>('GET', path as string);
      if (isOver) return;
      setSeen((before) => add(before, answer.lines, answer.lost));
      if (answer.ended) return setState('The connection has ended.');
      timer = setTimeout(() => void take().catch(fail), REFRESH_MS);
    };
    const fail = (error: unknown): void => {
      if (!isOver) setState(`The tail has stopped: ${reason(error)}`);
    };
    const start = async (): Promise<void> => {
      const { tail } = await server.ask<{ tail: number }>('POST', '/tails', connection === '' ? { events } : { connection });
      path = `/tails/${tail}`;
      if (isOver) return close();
      setState('Following');
      await take();
    };
    setSeen(NOTHING);
    start().catch(fail);
    return () => {
      isOver = true;
      clearTimeout(timer);
      close();
    };
  }, [connection, events, isOn]);

  return (
    <section aria-labelledby="tail">
      <h2 id="tail">Live tail</h2>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          refine({ on: isOn ? '' : '1', ...(connection === '' && { events: prefix }) });
        }}
      >
        {connection === '' ? (
          <label>
            Beginning of the events' names
            <input value={prefix} disabled={isOn} onInput={(event) => setPrefix(event.currentTarget.value)} autocomplete="off" />
          </label>
        ) : (
          <span>Messages of connection {connection}</span>
        )}
        <button>{isOn ? 'Stop' : 'Follow'}</button>
        {connection !== '' && (
          <button type="button" onClick={() => refine({ connection: '', on: '' })}>
            Events instead
          </button>
        )}
        <span class="quiet" role="status">
          {state}
        </span>
      </form>
      <p class="quiet">
        {count(seen.count)} lines, {count(seen.lost)} lost because they came faster than the page takes them. Values are not shown.
      </p>
      <Table label="Messages" columns={COLUMNS} total={seen.rows.length} rows={seen.rows} idOf={(row) => String(row.number)} />
    </section>
  );
}

// Stored records by a prefix of their names, and an editor that reads, watches and saves one of them.

import { useEffect, useState } from 'preact/hooks';
import { refine, visit, type Parameters } from './address.ts';
import { bytes, count } from './figures.ts';
import { RecordEditor } from './record.tsx';
import { query, reason, type Server } from './server.ts';
import { Table, type Column } from './table.tsx';

interface Row {
  name: string;
  version?: number;
  bytes?: number;
  damaged?: boolean;
}

interface Page {
  records: Row[];
  next: string | null;
}

/** The next records are loaded when fewer than this number are below the first visible row. */
const AHEAD = 60;

const COLUMNS: ReadonlyArray<Column<Row>> = [
  { head: 'Name', width: 'minmax(150px, 3fr)', cell: (row) => row.name },
  { head: 'Version', width: '110px', isNumber: true, cell: (row) => (row.damaged ? <span class="bad">damaged</span> : count(row.version ?? 0)) },
  { head: 'Size', width: '90px', isNumber: true, cell: (row) => (row.damaged ? '–' : bytes(row.bytes ?? 0)) },
];

interface Loading {
  records: readonly Row[];
  /** Where the next part begins; `null` at the end of the list. */
  next: string | null;
  isLoading: boolean;
  problem: string;
}

/** The records of a prefix, part by part in the order of their names, because the store returns them so. */
function useRecords(server: Server, prefix: string, round: number): [Loading, () => void] {
  const [loading, setLoading] = useState<Loading>({ records: [], next: '', isLoading: true, problem: '' });
  const [wanted, setWanted] = useState(0);
  useEffect(() => {
    setLoading((before) => ({ ...before, next: '', isLoading: true }));
    setWanted((number) => number + 1);
  }, [prefix, round]);
  useEffect(() => {
    if (wanted === 0) return;
    let isOver = false;
    const after = loading.next ?? '';
    const kept = after === '' ? [] : loading.records;
    server.ask<Page>('GET', `/records${query({ prefix, after })}`).then(
      ({ records, next }) => isOver || setLoading({ records: [...kept, ...records], next, isLoading: false, problem: '' }),
      (error: unknown) => isOver || setLoading((before) => ({ ...before, isLoading: false, problem: reason(error) })),
    );
    return () => void (isOver = true);
  }, [wanted]);
  const more = (): void => {
    if (loading.isLoading || loading.next === null || loading.problem !== '') return;
    setLoading((before) => ({ ...before, isLoading: true }));
    setWanted(wanted + 1);
  };
  return [loading, more];
}

export function Records({ server, parameters }: { server: Server; parameters: Parameters }) {
  const { prefix = '', open = '' } = parameters;
  const [round, setRound] = useState(0);
  const [firstVisible, setFirstVisible] = useState(0);
  const [{ records, next, problem }, more] = useRecords(server, prefix, round);
  useEffect(() => {
    if (records.length - firstVisible < AHEAD) more();
  }, [records, firstVisible]);

  return (
    <section aria-labelledby="records">
      <h2 id="records">Records</h2>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          visit('records', { prefix, open: prefix });
        }}
      >
        <label>
          Name, or its beginning
          <input value={prefix} onInput={(event) => refine({ prefix: event.currentTarget.value })} autocomplete="off" />
        </label>
        <button disabled={prefix === ''}>Open this name</button>
        <button type="button" onClick={() => setRound(round + 1)}>
          Refresh
        </button>
        <span class="quiet" role="status">
          {next === null ? `${count(records.length)} records` : `${count(records.length)} records and more`}
        </span>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      {open !== '' && (
        <RecordEditor
          key={open}
          server={server}
          name={open}
          onClose={() => {
            visit('records', { prefix });
            setRound(round + 1);
          }}
        />
      )}
      <Table
        label="Records"
        columns={COLUMNS}
        total={records.length}
        rows={records}
        idOf={(row) => row.name}
        onScroll={setFirstVisible}
        onOpen={(row) => visit('records', { prefix, open: row.name })}
        open={open}
      />
      {next === null && records.length === 0 && <p class="quiet">No stored record begins with this.</p>}
    </section>
  );
}

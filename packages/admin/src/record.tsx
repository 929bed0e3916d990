// One record: its value as text, which a separate client of the page watches. Saving succeeds only on the version that was edited.

import { Client } from '@tidewire/client';
import { useEffect, useState } from 'preact/hooks';
import { useConfirm } from './confirm.tsx';
import { Refused, reason, type Server } from './server.ts';

interface Read {
  text: string;
  /** Absent if the record does not exist. */
  tag?: string;
}

const shown = (value: unknown): string => JSON.stringify(value, null, 2) ?? '';

export function RecordEditor({ server, name, onClose }: { server: Server; name: string; onClose: () => void }) {
  const path = `/records/${encodeURIComponent(name)}`;
  const [read, setRead] = useState<Read>();
  const [text, setText] = useState('');
  const [notice, setNotice] = useState('');
  const [watched, setWatched] = useState<string>();
  const [question, confirm] = useConfirm();

  const load = async (): Promise<void> => {
    try {
      const answer = await server.answer('GET', path);
      const value = shown(await answer.json());
      setRead({ text: value, tag: answer.headers.get('etag') ?? '' });
      setText(value);
      setNotice('');
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) return setNotice(reason(error));
      setRead({ text: '' });
      setText('{}');
      setNotice('The record does not exist; saving creates it.');
    }
  };
  useEffect(() => void load(), []);

  const exists = read?.tag !== undefined;
  useEffect(() => {
    // Opening a missing record would create it.
    if (!exists) return;
    const client = new Client(undefined, {
      auth: async () => (await server.ask<{ login: Record<string, string> }>('POST', '/ticket')).login,
    });
    client.onError((error) => setNotice(error.message));
    const record = client.record.open(name);
    const removal = record.subscribe((value: unknown) => setWatched(value === undefined ? 'The record was deleted.' : shown(value)));
    client.connect().catch((error: unknown) => setNotice(`It can't be watched: ${reason(error)}`));
    return () => {
      removal();
      client.close();
    };
  }, [exists]);

  const change = async (method: 'PUT' | 'DELETE', body?: string): Promise<void> => {
    try {
      const headers: Record<string, string> = read?.tag === undefined ? { 'if-none-match': '*' } : { 'if-match': read.tag };
      await server.answer(method, path, { headers, ...(body !== undefined && { body }) });
      if (method === 'DELETE') return onClose();
      await load();
      setNotice('Saved.');
    } catch (error) {
      const isNewer = error instanceof Refused && error.status === 412;
      setNotice(isNewer ? 'The record has changed: load it again, then edit.' : reason(error));
    }
  };

  return (
    <div class="card record" role="group" aria-label="One record">
      <h3 class="name">{name}</h3>
      {question}
      <label>
        Value as JSON
        <textarea rows={10} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p class="notice" role="status">
        {notice}
      </p>
      <div class="bar">
        <button type="button" onClick={() => change('PUT', text)}>
          Save
        </button>
        <button type="button" onClick={load}>
          Load anew
        </button>
        <button type="button" disabled={!exists} onClick={() => confirm({ text: `Delete the record ${name}? All clients lose its value.`, action: 'Delete', run: () => change('DELETE') })}>
          Delete
        </button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
      {watched !== undefined && watched !== text && (
        <>
          <h4>As it is now</h4>
          <pre tabIndex={0}>{watched}</pre>
        </>
      )}
    </div>
  );
}

// A reader of server-sent events that sees everything: kinds, ids, data and comments.

import { atEnd } from './cleanup.ts';
import type { TestContext } from 'node:test';
import { Inbox } from './wait.ts';

/** One event or comment of a stream. */
export interface Piece {
  event: string;
  id?: string;
  data: any;
}

/** An open stream. */
export interface EventStream {
  answer: Response;
  pieces: Inbox<Piece>;
  comments: Inbox<string>;
  /** The received ids, with or without data, as an EventSource keeps the last of them. */
  ids: Inbox<string>;
  close: () => void;
}

/** Opens a stream that is closed at the end of `test`. */
export async function openStream(
  test: TestContext,
  address: string,
  headers: Record<string, string> = {},
): Promise<EventStream> {
  const stop = new AbortController();
  const answer = await fetch(address, { headers, signal: stop.signal });
  const pieces = new Inbox<Piece>('pieces');
  const comments = new Inbox<string>('comments');
  const ids = new Inbox<string>('ids');
  const close = (): void => stop.abort();
  atEnd(test, close);
  if (answer.status === 200 && answer.body !== null) void readStream(answer.body as unknown as AsyncIterable<Uint8Array>, pieces, comments, ids);
  return { answer, pieces, comments, ids, close };
}

/** Parses a stream until it ends. */
export async function readStream(
  body: AsyncIterable<Uint8Array>,
  pieces: Inbox<Piece>,
  comments: Inbox<string>,
  ids?: Inbox<string>,
): Promise<void> {
  let text = '';
  const decoder = new TextDecoder();
  try {
    for await (const bytes of body) {
      text += decoder.decode(bytes, { stream: true });
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        take(text.slice(0, end), pieces, comments, ids);
        text = text.slice(end + 2);
      }
    }
  } catch {
    // The test has closed the stream.
  }
}

function take(block: string, pieces: Inbox<Piece>, comments: Inbox<string>, ids?: Inbox<string>): void {
  const fields = new Map<string, string>();
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon === 0) comments.push(line.slice(1).trim());
    else fields.set(line.slice(0, colon), line.slice(colon + 1).trimStart());
  }
  const id = fields.get('id');
  if (id !== undefined) ids?.push(id);
  const data = fields.get('data');
  if (data === undefined) return;
  pieces.push({ event: fields.get('event') ?? 'message', data: JSON.parse(data), ...(id !== undefined && { id }) });
}

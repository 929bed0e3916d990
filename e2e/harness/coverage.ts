// Claims of test coverage: every public method of the client in every situation of a connection. Tests claim a cell with
// `covers`; the runner compares the claims with the client's declarations (see `coverage-table.ts`).

import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DeepstreamClient } from '@deepstream/client';
import type { AnonymousRecord } from '@deepstream/client/dist/src/record/anonymous-record.js';
import type { Dequeue } from '@deepstream/client/dist/src/record/dequeue.js';
import type { List } from '@deepstream/client/dist/src/record/list.js';
import type { Record as DeepstreamRecord } from '@deepstream/client/dist/src/record/record.js';
import type { RPCResponse } from '@deepstream/client/dist/src/rpc/rpc-response.js';
import type { ListenResponse } from '@deepstream/client/dist/src/util/listener.js';

export const SITUATIONS = ['success', 'refusal', 'loss', 'before login', 'after close'] as const;
export type Situation = (typeof SITUATIONS)[number];

type Methods<Name extends string, Class> = `${Name}.${keyof Class & string}`;

/** A method that applications call, as `Class.method`. */
export type Method =
  | Methods<'DeepstreamClient', DeepstreamClient>
  | Methods<'EventHandler', DeepstreamClient['event']>
  | Methods<'RPCHandler', DeepstreamClient['rpc']>
  | Methods<'RPCResponse', RPCResponse>
  | Methods<'PresenceHandler', DeepstreamClient['presence']>
  | Methods<'RecordHandler', DeepstreamClient['record']>
  | Methods<'Record', DeepstreamRecord>
  | Methods<'List', List>
  | Methods<'Dequeue', Dequeue>
  | Methods<'AnonymousRecord', AnonymousRecord>
  | Methods<'ListenResponse', ListenResponse>
  | Methods<'Emitter', Pick<DeepstreamClient, EmitterMethod>>;

type EmitterMethod = 'on' | 'once' | 'off' | 'emit' | 'hasListeners' | 'eventNames' | 'removeContext';

/** The folder that collects the claims of all test processes; without it `covers` writes nothing. */
const folder = process.env['E2E_CLAIMS'];

/** Claims that the calling test covers `method` in `situations`. */
export function covers(method: Method | readonly Method[], ...situations: Situation[]): void {
  if (!folder) return;
  const lines = [method].flat().flatMap((one) => situations.map((situation) => `${one}\t${situation}\n`));
  appendFileSync(join(folder, `${process.pid}.tsv`), lines.join(''));
}

// A process with one client that subscribes to an event and reports its counters to the parent. It is a separate process, so that a test
// can stop it completely, as a laptop that sleeps.

import { C, open } from './client.ts';

/** The report of a receiver. It sends one after its login, on request, and when its connection changes. */
export interface Report {
  /** State of the connection. */
  state: string;
  /** Events since the start. */
  count: number;
  /** Events on one connection whose number did not follow the previous number. */
  jumps: number;
  /** Number of the last event. */
  last: number;
  connections: number;
}

const [address, name] = process.argv.slice(2) as [string, string];
const seen = { count: 0, jumps: 0, last: -1, connections: 0 };
const client = open(address);
let isFirst = true;

function report(): void {
  process.send?.({ ...seen, state: client.getConnectionState() } satisfies Report);
}

client.on('connectionStateChanged', (state: string) => {
  if (state !== C.CONNECTION_STATE.OPEN) return;
  seen.connections += 1;
  isFirst = true;
});
client.event.subscribe(name, (data) => {
  const event = data as unknown as { number: number };
  seen.count += 1;
  if (!isFirst && event.number !== seen.last + 1) seen.jumps += 1;
  isFirst = false;
  seen.last = event.number;
});
process.on('message', report);
process.on('disconnect', () => process.exit());
await client.login();
await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
report();

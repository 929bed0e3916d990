// Reports queries for which the server and the client decide differently.
//
// Reads lines of JSON from stdin, written by crates/tidewire-query/tests/node_parity.rs: records, and queries with the server's results.
// Writes one line per disagreement and a summary at the end.

import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import { Query, type QueryInput } from '../../packages/client/src/query.ts';

interface Case {
  records: Array<{ id: string; version: number; value: unknown }>;
  query: QueryInput;
  /** Ids of the result, with the projected values. */
  result: Array<[id: string, value: unknown]>;
}

let pairs = 0;
let selected = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { records, query, result } = JSON.parse(line) as Case;
  pairs += records.length;
  selected += result.length;
  const parsed = new Query(query);
  const client = parsed.run(records).map(({ id, value }) => [id, parsed.project(value)]);
  if (!isDeepStrictEqual(client, result)) console.log(JSON.stringify({ query, records, server: result, client }));
}
console.log(JSON.stringify({ summary: { pairs, selected } }));

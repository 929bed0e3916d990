// The initial state of the server for attacks: large records, and permission rules.

import { C } from '../../harness/client.ts';
import { ACCOUNTS } from './account.ts';
import { Connection, framed } from './connection.ts';

const { TOPIC, RECORD_ACTION } = C;

/** Bytes of one member of a large record, with its key. */
const MEMBER_BYTES = 75;

/** A JSON object of about `bytes` bytes in many small members. */
export function largeValue(bytes: number): string {
  const members = Array.from({ length: Math.floor(bytes / MEMBER_BYTES) }, (_, i) => `"k${String(i).padStart(6, '0')}":"${'x'.repeat(MEMBER_BYTES - 13)}"`);
  return `{${members.join(',')}}`;
}

/**
 * Writes records as the first bystander, who may write everything, and waits until all are durable. Then it reads each record twice: the
 * cache is as full before the attack as on a server that has run for a while.
 */
export async function seedRecords(address: string, names: string[], data: string): Promise<void> {
  const connection = await Connection.login(address, { username: 'bystander0', password: ACCOUNTS.password });
  if (connection === undefined) throw new Error('the server refuses the login of the seed');
  for (const [index, name] of names.entries()) {
    const write = { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name, version: -1, data, isWriteAck: true, correlationId: String(index) };
    connection.send(framed(write));
    const isDurable = await connection.until(() => connection.count(TOPIC.RECORD, RECORD_ACTION.WRITE_ACKNOWLEDGEMENT) > index);
    if (!isDurable) throw new Error(`the server closed the connection of the seed at ${name}`);
  }
  for (const [index, name] of [...names, ...names].entries()) {
    connection.send(framed({ topic: TOPIC.RECORD, action: RECORD_ACTION.READ, name }));
    const isRead = await connection.until(() => connection.count(TOPIC.RECORD, RECORD_ACTION.READ_RESPONSE) > index);
    if (!isRead) throw new Error(`the server closed the connection of the seed at ${name}`);
  }
  connection.end();
}

/** Writes `count` records with the names `prefix/0`, `prefix/1` and so on. */
export function records(prefix: string, count: number, bytes: number): (address: string) => Promise<void> {
  const names = Array.from({ length: count }, (_, index) => `${prefix}/${index}`);
  return (address) => seedRecords(address, names, largeValue(bytes));
}

/** Permission rules for `record` and `event`, in addition to rules that allow everything. */
export function rules(record: object, event: object = {}): string {
  const all = { create: true, read: true, write: true, delete: true, listen: true, notify: true };
  return JSON.stringify({
    record: { '*': all, ...record },
    event: { '*': { publish: true, subscribe: true, listen: true }, ...event },
    rpc: { '*': { provide: true, request: true } },
    presence: { '*': { allow: true } },
  });
}

// The process of the attackers. It prepares one attack, starts it when the test sends `go`, reports its counters when the test requests
// them, and then closes all connections.

import { ATTACKS } from './list.ts';
import { baseline } from './baseline.ts';
import { Seat, SHAPES } from './attack.ts';
import type { AttackReport } from './report.ts';

const [name, shapeName, address] = process.argv.slice(2) as [string, string, string];
const attack = name.startsWith('{') ? baseline(JSON.parse(name)) : ATTACKS.find((attack) => attack.name === name);
const shape = SHAPES.find((shape) => shape.name === shapeName);
if (attack === undefined || shape === undefined) throw new Error(`unknown attack ${name} or shape ${shapeName}`);

const seats = Array.from({ length: shape.connections }, (_, index) => new Seat(address, index, shape));
const runs = seats.map((seat) => attack.prepare(seat));

process.on('message', (order: 'go' | 'stop') => {
  if (order === 'go') {
    seats.forEach((seat) => seat.start());
    runs.forEach((run) => void run());
    return;
  }
  seats.forEach((seat) => seat.end());
  const sum = (of: (done: AttackReport) => number): number => seats.reduce((sum, seat) => sum + of(seat.done), 0);
  const report: AttackReport = {
    touchedBytes: sum((done) => done.touchedBytes),
    operations: sum((done) => done.operations),
    sentBytes: sum((done) => done.sentBytes),
    receivedBytes: sum((done) => done.receivedBytes),
    closed: sum((done) => done.closed),
    seconds: Math.max(...seats.map((seat) => seat.done.seconds)),
  };
  process.send?.(report, () => process.exit());
});
process.send?.('ready');

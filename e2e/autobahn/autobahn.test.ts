// Autobahn's WebSocket test suite against an echo over our frames and event loop, against the server itself for the cases
// that need no echo, and against four servers that break the RFC, which it must detect. `AUTOBAHN_GROUPS="6 9"`
// selects groups of cases for the echo. With AUTOBAHN_RESUME, cases that already ran with the same program do not
// run again.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { Server } from '../harness/server.ts';
import { type Report, earlierReport, fuzz } from './fuzz.ts';
import { QUICK, WITHOUT_ECHO, caseCount, groupsNamed, partsOf } from './groups.ts';
import { installed } from './install.ts';
import { type Built, built, startEcho } from './servers.ts';
import { failures, summary } from './verdict.ts';

const groups = groupsNamed(process.env['AUTOBAHN_GROUPS'] ?? QUICK.join(' '));

const resumes = process.env['AUTOBAHN_RESUME'] !== undefined;

const FAULTS = [
  { fault: 'payload', breaks: '1.2.2', keeps: '2.2' },
  { fault: 'pong', breaks: '2.2', keeps: '1.2.2' },
  { fault: 'close-code', breaks: '6.3.1', keeps: '2.2' },
  { fault: 'inflate', breaks: '12.1.1', keeps: '1.2.2' },
];

let binaries: Built;
before(async () => {
  await installed();
  binaries = await built();
});

test(`the cases of the groups ${groups.join(', ')} hold`, async (t) => {
  const url = await startEcho(t, binaries.echo);
  const report: Report = {};
  for (const { name, cases } of groups.flatMap(partsOf)) {
    const earlier = resumes ? earlierReport(`echo-${name}`, binaries.echo) : undefined;
    Object.assign(report, earlier ?? (await fuzz(`echo-${name}`, url, cases)));
  }
  console.log(`autobahn: ${summary(report)}`);
  assert.deepEqual(failures(report, caseCount(groups)), []);
});

test('the server passes the cases that need no echo', async (t) => {
  const { address } = await Server.during(t, { binary: binaries.tidewire });
  const { cases, except, count } = WITHOUT_ECHO;
  const report = await fuzz('server', `ws://${address}/deepstream`, cases, except);
  console.log(`autobahn without echo: ${summary(report)}`);
  assert.deepEqual(failures(report, count), []);
});

for (const { fault, breaks, keeps } of FAULTS) {
  test(`a server with a wrong ${fault} is detected by case ${breaks}`, async (t) => {
    const url = await startEcho(t, binaries.echo, fault);
    const found = failures(await fuzz(`fault-${fault}`, url, [breaks, keeps]), 2);
    assert.equal(found.length, 1, found.join('; '));
    assert.ok(found[0]?.startsWith(`${breaks}: `), found[0]);
  });
}

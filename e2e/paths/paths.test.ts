// The tables "The life of one publish" and "The life of one record write" of ARCHITECTURE.md name exactly the files that these messages
// cross in a debug build, and a message crosses few of them. `path.ts` defines a path, a stop, a touched file and a border.
//
// The write shares the stops of the transport with the publish. Its table names the files that it adds, and the limit of its files applies
// to these.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Described, described, filesIn, without } from './document.ts';
import { MESSAGES, measure } from './measure.ts';
import { type Action, pathOf } from './path.ts';

const DOCUMENT = readFileSync(join(import.meta.dirname, '../../ARCHITECTURE.md'), 'utf8');
const PUBLISH_TITLE = 'The life of one publish';
const WRITE_TITLE = 'The life of one record write';

const STOPS_MAX = 14;
const BORDERS_MAX = 6;

/** The functions that move a message on, in the order of a publish. */
const PUBLISH: Action[] = [
  { file: 'net/src/read_buffer.rs', name: 'read' },
  { file: 'wire/src/frame/websocket/decoder.rs', name: 'decode_inflated' },
  { file: 'wire/src/protocol/deepstream/mod.rs', name: 'decode' },
  { file: 'message/src/permission.rs', name: 'decide' },
  { file: 'wire/src/protocol/deepstream/mod.rs', name: 'encode_frame' },
  { file: 'net/src/turn_log.rs', name: 'append' },
  { file: 'core/src/hub/flush.rs', name: 'publish' },
  { file: 'net/src/event_loop.rs', name: 'push_ranges' },
  { file: 'net/src/send_batch/mod.rs', name: 'send_plainly' },
];

/** The same for a write: it also reaches the owner, is applied, goes to the store's thread and back, and is acknowledged. */
const WRITE: Action[] = [
  ...PUBLISH,
  { file: 'core/src/context.rs', name: 'post' },
  { file: 'core/src/record/apply.rs', name: 'apply' },
  { file: 'store/src/thread.rs', name: 'request' },
  { file: 'store/src/sqlite.rs', name: 'commit' },
  { file: 'shard/src/handle.rs', name: 'complete' },
  { file: 'core/src/hub/flush.rs', name: 'answer' },
];

/** The changes after which the document describes the measured files. */
function differences(described: Described, measured: Described): string[] {
  const compare = (place: keyof Described): string[] => [
    ...without(measured[place], described[place]).map((file) => `add ${file} to the ${place}`),
    ...without(described[place], measured[place]).map((file) => `remove ${file} from the ${place}`),
  ];
  return [...compare('stops'), ...compare('touched')];
}

test('ARCHITECTURE.md names the files that a publish and a write cross', async (t) => {
  const { idle, publish: publishing, write: writing } = await measure(t);
  const publish = pathOf(idle, publishing, MESSAGES, PUBLISH);
  const write = pathOf(idle, writing, MESSAGES, WRITE);
  const shared = [...publish.stops, ...publish.touched];
  const added = { stops: without(write.stops, publish.stops), touched: without(write.touched, shared) };

  await t.test('a publish crosses the files of its table', () => {
    assert.deepEqual(differences(described(DOCUMENT, PUBLISH_TITLE), publish), []);
  });

  await t.test('a write adds the files of its table', () => {
    assert.deepEqual(differences(described(DOCUMENT, WRITE_TITLE), added), []);
  });

  await t.test('a message crosses few files and borders', () => {
    assert.ok(publish.stops.length <= STOPS_MAX, `a publish has ${publish.stops.length} stops: ${publish.stops.join(', ')}`);
    assert.ok(publish.borders.length <= BORDERS_MAX, `a publish crosses ${publish.borders.length} borders: ${publish.borders.join(', ')}`);
    assert.ok(added.stops.length <= STOPS_MAX, `a write adds ${added.stops.length} stops: ${added.stops.join(', ')}`);
  });

  await t.test('finds a row that is missing, a row too many, and a touched file that is missing', () => {
    const planted = (plant: (document: string) => string): string[] => {
      const document = plant(DOCUMENT);
      assert.notEqual(document, DOCUMENT);
      return differences(described(document, PUBLISH_TITLE), publish);
    };
    const row = /^\| \d+ \|[^|]*\| `core\/src\/event\.rs`.*\n/m;
    assert.deepEqual(planted((document) => document.replace(row, '')), ['add core/src/event.rs to the stops']);
    const further = planted((document) => document.replace(row, (known) => `${known}| 5 | rpc | \`core/src/rpc.rs\` | |\n`));
    assert.deepEqual(further, ['remove core/src/rpc.rs from the stops']);
    const untouched = planted((document) => document.replace(/^(Touched.*)`work.rs`/m, '$1'));
    assert.deepEqual(untouched, ['add collections/src/work.rs to the touched']);
  });
});

test('a list of files may abbreviate', () => {
  const text = '`core/src/hub.rs` `find`, `hub/{due,span}.rs`; `net/src/tls.rs`, not `take_in`';
  assert.deepEqual(filesIn(text), ['core/src/hub.rs', 'core/src/hub/due.rs', 'core/src/hub/span.rs', 'net/src/tls.rs']);
  assert.throws(() => filesIn('`hub.rs`'), /does not say its crate/);
});

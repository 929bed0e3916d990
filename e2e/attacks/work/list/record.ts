// Attacks with large records: a message of a few bytes makes the server send, scan, splice or copy the whole value.

import { C } from '../../../harness/client.ts';
import { repeated, bursts, type Burst, type WorkAttack } from '../attack.ts';
import { burst } from '../connection.ts';
import { WITHOUT_WORK_LIMITS } from '../limit.ts';
import { largeValue, records, rules } from '../seed.ts';
import type { Said } from '../../peer.ts';

const { TOPIC, RECORD_ACTION } = C;
/** An action that deepstream's package does not define. */
const PATCH_MULTI = 35;

const LARGE_BYTES = 1_000_000;
const ACKNOWLEDGED: Burst['answers'] = [[TOPIC.RECORD, RECORD_ACTION.WRITE_ACKNOWLEDGEMENT]];
const DENIED: Burst['answers'] = [[TOPIC.RECORD, RECORD_ACTION.MESSAGE_DENIED], [TOPIC.RECORD, RECORD_ACTION.MESSAGE_PERMISSION_ERROR]];
const FAIR_STORE = { because: 'a store takes the writes of users in turn, and large records evict no small ones, whatever the limits on work' };
/** The first bystander writes the seed, so it may write everything. */
const SEEDING = "user.id === 'bystander0'";

const read = (name: string): Said => ({ topic: TOPIC.RECORD, action: RECORD_ACTION.READ, name });
const acknowledged = (message: Said, index: number): Said => ({ ...message, isWriteAck: true, correlationId: String(index) });

/** Writes, of which each `every`th requests an acknowledgement, which covers all writes before it. */
function writes(count: number, every: number, touchedEach: number, message: (index: number) => Said): Burst {
  const messages = Array.from({ length: count }, (_, index) => (index % every === every - 1 ? acknowledged(message(index), index) : message(index)));
  return { bytes: burst(messages), answers: ACKNOWLEDGED, count: Math.floor(count / every), touchedBytes: every * touchedEach };
}

const patch = (name: string, path: string, data: string): Said => {
  return { topic: TOPIC.RECORD, action: RECORD_ACTION.PATCH, name, version: -1, path, data };
};
const key = (index: number): string => `k${String(index).padStart(6, '0')}`;

/** A patch of many paths of one record. */
const patchMany = (name: string, paths: number, round: number): Said => {
  const changes = Array.from({ length: paths }, (_, index) => ({ path: key((index * 137 + round) % 13_000), data: round }));
  return { topic: TOPIC.RECORD, action: PATCH_MULTI as number, name, version: -1, data: JSON.stringify(changes) };
};

const reads = (name: string, count: number, bytes: number): Pick<WorkAttack, 'seed' | 'prepare' | 'harm' | 'off'> => ({
  harm: 'latency',
  off: WITHOUT_WORK_LIMITS,
  seed: records(name, 1, bytes),
  prepare: repeated(() => ({
    bytes: burst(Array.from({ length: count }, () => read(`${name}/0`))), answers: [[TOPIC.RECORD, RECORD_ACTION.READ_RESPONSE]], count, touchedBytes: bytes,
  })),
});

export const RECORDS: WorkAttack[] = [
  { name: 'reads of one large record in a burst', ...reads('large', 4_000, LARGE_BYTES) },
  { name: 'reads of a record of 150 KB in a burst', ...reads('middling', 9_000, 150_000) },
  {
    name: 'patches of one large record',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => writes(2_000, 50, LARGE_BYTES, (index) => patch('large/0', key((index * 977) % 13_000), String(index)))),
  },
  {
    name: 'patches of many paths of one large record',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => writes(250, 10, LARGE_BYTES, (index) => patchMany('large/0', 50, index))),
  },
  {
    name: 'patches of many paths at a rate',
    options: { rates: { connection: { write: '200/s' } } },
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => writes(250, 10, LARGE_BYTES, (index) => patchMany('large/0', 40, index))),
  },
  {
    name: 'forbidden patches of one large record',
    options: { permissions: rules({ 'large/*': { write: SEEDING } }) },
    harm: 'latency',
    off: { because: 'the server authorizes the patch before it reads the record, so a denial is cheap without the limit too' },
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => ({
      bytes: burst(Array.from({ length: 5_000 }, (_, index) => acknowledged(patch('large/0', key(index), '1'), index))),
      answers: DENIED, count: 5_000, touchedBytes: 100,
    })),
  },
  {
    name: 'patches of one large record that its rule forbids by the new value',
    options: { permissions: rules({ 'large/*': { write: `${SEEDING} || data.open === true` } }) },
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => ({
      bytes: burst(Array.from({ length: 1_000 }, (_, index) => acknowledged(patch('large/0', key(index), '1'), index))),
      answers: DENIED, count: 1_000, touchedBytes: LARGE_BYTES,
    })),
  },
  {
    name: 'writes that are answered with the large record',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('large', 1, LARGE_BYTES),
    prepare: repeated(() => ({
      bytes: burst(Array.from({ length: 1_500 }, () => ({ topic: TOPIC.RECORD, action: RECORD_ACTION.UPDATE, name: 'large/0', version: 1, data: '{}' }))),
      answers: [[TOPIC.RECORD, RECORD_ACTION.VERSION_EXISTS]], count: 1_500, touchedBytes: LARGE_BYTES,
    })),
  },
  {
    name: 'writes of whole records of 30 KB',
    harm: 'latency',
    off: FAIR_STORE,
    prepare: repeated(({ index: seat }) => {
      const data = largeValue(30_000);
      return writes(100, 1, data.length, (index) => {
        return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name: `written/${seat}/${index}`, version: -1, data };
      });
    }),
  },
  {
    name: 'writes of whole records of 1 MB',
    harm: 'latency',
    off: FAIR_STORE,
    prepare: repeated(({ index: seat }) => {
      const data = largeValue(990_000);
      return writes(6, 1, data.length, (index) => {
        return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name: `written/${seat}/${index % 3}`, version: -1, data };
      });
    }),
  },
  {
    name: 'acknowledged writes of one small record',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: repeated(() => writes(10_000, 1, 60, (index) => {
      return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name: 'small', version: -1, data: `{"n":${index}}` };
    })),
  },
  {
    name: 'lists with one entry far away',
    harm: 'latency',
    off: { limits: { ...WITHOUT_WORK_LIMITS.limits, array_gap_max: 1_000_000 } },
    prepare: bursts(({ index: seat }) => (round) => {
      const count = 500;
      const messages = Array.from({ length: count }, (_, index): Said => acknowledged({
        topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDPATCH, name: `far/${seat}/${round}/${index}`, version: -1, path: 'x[150000]', data: '1',
      }, index));
      return { bytes: burst(messages), answers: [...ACKNOWLEDGED, [TOPIC.RECORD, RECORD_ACTION.INVALID_MESSAGE_DATA]], count, touchedBytes: 100 };
    }),
  },
  {
    name: 'reads, patches and subscriptions of large records in turns',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: records('mixed', 5, 700_000),
    prepare: repeated(() => {
      const messages = Array.from({ length: 600 }, (_, index): Said => {
        const name = `mixed/${index % 5}`;
        return index % 3 === 0 ? acknowledged(patch(name, key(index), String(index)), index) : read(name);
      });
      return { bytes: burst(messages), answers: [...ACKNOWLEDGED, [TOPIC.RECORD, RECORD_ACTION.READ_RESPONSE]], count: 600, touchedBytes: 700_000 };
    }),
  },
];

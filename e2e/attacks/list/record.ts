// Attacks on records: large, deep or sparse values, and objects that repeat one key.

import { type Attack, MEBIBYTE, TEXT, patch, refused, say, write } from '../attack.ts';

export const RECORDS: Attack[] = [
  {
    name: 'a record that grows by patches',
    limit: 'limits.record_bytes_max',
    metric: refused('too_large'),
    options: { limits: { record_bytes_max: 65_536 } },
    off: { limits: { record_bytes_max: 512 * MEBIBYTE } },
    harm: 'tidewire_record_bytes',
    bound: MEBIBYTE / 4,
    run: (target) => say(target, (round) => patch('attack/record', `field${round}`, JSON.stringify(TEXT))),
  },
  {
    name: 'a list with one entry far away',
    limit: 'limits.array_gap_max',
    metric: refused('array_gaps'),
    off: { limits: { array_gap_max: 1_000_000, record_bytes_max: 16 * MEBIBYTE } },
    harm: 'tidewire_record_bytes',
    bound: 2 * MEBIBYTE,
    run: (target) => say(target, (round) => patch(`attack/list${round % 10}`, 'list[100000]', '1'), { pauseMs: 20 }),
  },
  {
    name: 'paths that nest',
    limit: 'limits.nesting_max',
    metric: refused('too_deep'),
    off: { limits: { nesting_max: 1_000_000, name_bytes_max: 1_000_000 } },
    harm: 'tidewire_record_bytes',
    // For a while the server remembers records that do not exist but were read.
    bound: 65_536,
    run: (target) => say(target, (round) => patch(`attack/${round % 100}`, Array.from({ length: 500 }, () => 'a').join('.'), '1')),
  },
  {
    name: 'an object with one key many times',
    limit: 'limits.record_bytes_max, counted before keys are compared',
    metric: refused('too_large'),
    options: { limits: { record_bytes_max: 65_536 } },
    off: {},
    harm: 'tidewire_record_bytes',
    bound: MEBIBYTE / 4,
    run: (target) => {
      const object = `{${Array.from({ length: 20_000 }, () => '"k":1').join(',')}}`;
      return say(target, (round) => write(`attack/${round % 100}`, object), { pauseMs: 5 });
    },
  },
];

// The positions of moved cards.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { positions, type Placed } from '../../examples/board/src/order.ts';

const placed = (...all: number[]): Placed[] => all.map((position, at) => ({ id: 'abcdef'[at] as string, position }));

test('a move changes the position of one card', () => {
  assert.deepEqual(positions([], 'x', 0), [{ id: 'x', position: 0 }]);
  assert.deepEqual(positions(placed(1, 2), 'x', 0), [{ id: 'x', position: 0 }]);
  assert.deepEqual(positions(placed(1, 2), 'x', 1), [{ id: 'x', position: 1.5 }]);
  assert.deepEqual(positions(placed(1, 2), 'x', 2), [{ id: 'x', position: 3 }]);
});

test('if no number is between two positions, all cards of the column get new ones', () => {
  const all = [{ id: 'a', position: 0 }, { id: 'x', position: 1 }, { id: 'b', position: 2 }];
  assert.deepEqual(positions(placed(1, 1), 'x', 1), all);
  assert.deepEqual(positions(placed(1, 1 + Number.EPSILON), 'x', 1), all);
  assert.deepEqual(positions(placed(2 ** 53), 'x', 1), [{ id: 'a', position: 0 }, { id: 'x', position: 1 }]);
});

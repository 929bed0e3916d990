// The behaviour that every storage of offline records has. The cases run in Node and in a page, so they use no globals of either.

import type { Edit, Rejection } from '../../packages/client/src/offline/edit.ts';
import type { OfflineStorage } from '../../packages/client/src/offline/storage.ts';

/** Opens the database with this name, as a new start of the app does. */
export type Opener = (name: string) => Promise<OfflineStorage>;

function equal(actual: unknown, expected: unknown, what: string): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: ${a} instead of ${b}`);
}

const edit = (id: string, fields: Partial<Edit> = {}): Edit => ({ id, name: 'todo', patches: [{ path: 'title', value: id }], tab: 'tab', on: -1, ...fields });
const rejection = (id: string): Rejection => ({ id, name: 'todo', changes: [{ path: 'title', value: id }], reason: 'denied', code: 'MESSAGE_DENIED' });
const at = (one: Edit, seq: number): Edit => ({ ...one, seq });
const idsOf = (list: ReadonlyArray<{ id: string }>): string[] => list.map(({ id }) => id);

/** Runs `act` on the storage and closes it. */
async function once<Result>(open: Opener, name: string, act: (storage: OfflineStorage) => Promise<Result>): Promise<Result> {
  const storage = await open(name);
  try {
    return await act(storage);
  } finally {
    storage.close();
  }
}

async function fails(promise: Promise<unknown>, what: string): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) throw new Error(`${what} did not fail`);
}

export const CASES: Record<string, (open: Opener, name: string) => Promise<void>> = {
  async 'a new database is empty'(open, name) {
    await once(open, name, async (storage) => {
      equal(await storage.load(), { edits: [], rejections: [] }, 'the queue');
      equal(await storage.read('todo'), undefined, 'the record');
    });
  },

  async 'edits keep their order and content until the next start'(open, name) {
    const places = await once(open, name, async (storage) => {
      const first = await storage.change({ add: [edit('a', { base: { title: 'old' } }), edit('b', { patches: [], list: ['add', 'milk', 0] })] });
      return [...first, ...(await storage.change({ add: [edit('c')] }))];
    });
    const { edits } = await once(open, name, (storage) => storage.load());
    equal(idsOf(edits), ['a', 'b', 'c'], 'the queue');
    equal(edits.map(({ seq }) => seq), places, 'the positions');
    equal([edits[0]?.base, edits[1]?.list, edits[2]?.patches], [{ title: 'old' }, ['add', 'milk', 0], [{ path: 'title', value: 'c' }]], 'the content');
  },

  async 'the position of a removed edit is not used again, also after a start'(open, name) {
    const last = await once(open, name, async (storage) => {
      const places = await storage.change({ add: [edit('a'), edit('b')] });
      await storage.change({ remove: [at(edit('b'), places[1] as number)] });
      return places[1] as number;
    });
    const [place = 0] = await once(open, name, (storage) => storage.change({ add: [edit('c')] }));
    equal(place > last, true, `position ${place} after ${last}`);
    equal(idsOf((await once(open, name, (storage) => storage.load())).edits), ['a', 'c'], 'the queue');
  },

  async 'an edit is replaced at its position'(open, name) {
    const { edits } = await once(open, name, async (storage) => {
      const [first] = await storage.change({ add: [edit('a'), edit('b')] });
      await storage.change({ put: [at(edit('a', { sent: 'key', seen: { seenVersion: 3 } }), first as number)] });
      return storage.load();
    });
    equal(edits.map(({ id, sent, seen }) => [id, sent, seen]), [['a', 'key', { seenVersion: 3 }], ['b', undefined, undefined]], 'the queue');
  },

  async 'a removed value stays removed'(open, name) {
    const { edits } = await once(open, name, async (storage) => {
      await storage.change({ add: [edit('a', { patches: [{ path: 'title', value: undefined }] })] });
      return storage.load();
    });
    equal(edits[0]?.patches, [{ path: 'title' }], 'the patch');
  },

  async 'a settled edit becomes a rejection, which stays until it is dismissed'(open, name) {
    await once(open, name, async (storage) => {
      const [first] = await storage.change({ add: [edit('a'), edit('b')] });
      await storage.change({ remove: [at(edit('a'), first as number)], reject: [rejection('a')] });
    });
    const before = await once(open, name, async (storage) => {
      const loaded = await storage.load();
      await storage.change({ dismiss: 'a' });
      return loaded;
    });
    equal([idsOf(before.edits), before.rejections], [['b'], [rejection('a')]], 'before');
    equal((await once(open, name, (storage) => storage.load())).rejections, [], 'after');
  },

  async 'records keep their newest value, and can be forgotten'(open, name) {
    const keep = async (storage: OfflineStorage, version: number): Promise<unknown> => storage.change({ cache: [{ name: 'todo', value: { count: version }, version }] });
    const found = await once(open, name, async (storage) => {
      await keep(storage, 1);
      await keep(storage, 2);
      return storage.read('todo');
    });
    equal([found?.value, found?.version], [{ count: 2 }, 2], 'the record');
    await once(open, name, (storage) => storage.change({ forget: 'todo' }));
    equal(await once(open, name, (storage) => storage.read('todo')), undefined, 'after it was forgotten');
  },

  async 'the records whose values were stored longest ago are removed first'(open, name) {
    await once(open, name, async (storage) => {
      for (const of of ['one', 'two', 'three', 'one', 'four']) {
        await storage.change({ cache: [{ name: of, value: {}, version: 1 }] }, 3);
        // The clock of a page counts milliseconds.
        const now = Date.now();
        while (Date.now() === now) await Promise.resolve();
      }
      const left: string[] = [];
      for (const of of ['one', 'two', 'three', 'four']) if (await storage.read(of)) left.push(of);
      equal(left, ['one', 'three', 'four'], 'the records');
    });
  },

  async 'changes are made all or not at all'(open, name) {
    await once(open, name, async (storage) => {
      await storage.change({ add: [edit('a')] });
      const broken = {
        get value(): unknown {
          throw new Error('not a value');
        },
      };
      await fails(storage.change({ add: [edit('b'), edit('c', { patches: [broken] })] }), 'a change that cannot be stored');
      await storage.change({ add: [edit('d')] });
      equal(idsOf((await storage.load()).edits), ['a', 'd'], 'the queue');
    });
  },

  async 'many changes at the same time are all made, in the order of the calls'(open, name) {
    const wanted = Array.from({ length: 100 }, (_, number) => `edit${number}`);
    const { edits } = await once(open, name, async (storage) => {
      await Promise.all(wanted.map((id, number) => storage.change({ add: [edit(id)], cache: [{ name: id, value: { number }, version: 1 }] })));
      equal((await storage.read('edit99'))?.value, { number: 99 }, 'a record');
      return storage.load();
    });
    equal(idsOf(edits), wanted, 'the queue');
  },

  async 'a later change of an object does not change what is stored'(open, name) {
    const value = { title: 'stored' };
    const { edits } = await once(open, name, async (storage) => {
      await storage.change({ add: [edit('a', { patches: [{ value }] })], cache: [{ name: 'todo', value, version: 1 }] });
      value.title = 'changed';
      equal((await storage.read('todo'))?.value, { title: 'stored' }, 'the record');
      return storage.load();
    });
    equal(edits[0]?.patches, [{ value: { title: 'stored' } }], 'the edit');
  },

  async 'two names are two databases'(open, name) {
    await once(open, `${name}-one`, (storage) => storage.change({ add: [edit('a')] }));
    equal((await once(open, `${name}-two`, (storage) => storage.load())).edits, [], 'the other one');
    equal(idsOf((await once(open, `${name}-one`, (storage) => storage.load())).edits), ['a'], 'the first one');
  },
};

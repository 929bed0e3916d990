// The list as rows, and new entries. Any program may write the record, so the code checks every value.

import type { Todo, Todos } from './app.ts';

export interface Row extends Todo {
  id: string;
}

/** The entries, the newest first. An id begins with its time of creation, so all tabs have the same order. */
export function rowsOf(value: Todos | undefined): Row[] {
  const items: unknown = value?.items;
  if (typeof items !== 'object' || items === null) return [];
  const rows = Object.entries(items as Record<string, unknown>).flatMap(([id, item]): Row[] => {
    if (typeof item !== 'object' || item === null) return [];
    const { text, done } = item as Partial<Todo>;
    return typeof text === 'string' ? [{ id, text, done: done === true }] : [];
  });
  return rows.sort((one, other) => (one.id < other.id ? 1 : -1));
}

/** `count` ids that no other tab generates; the first one is the newest. */
export function newIds(count: number, now = Date.now()): string[] {
  const random = Math.random().toString(36).slice(2, 8);
  return Array.from({ length: count }, (_, i) => `t${now.toString(36)}${(count - i).toString(36).padStart(4, '0')}${random}`);
}

/** `count` example entries. */
export function examples(count: number): { [id: string]: Todo } {
  return Object.fromEntries(newIds(count).map((id, i) => [id, { text: `Entry ${i + 1} of ${count}`, done: i % 5 === 4 }]));
}

/** The list without completed entries. */
export function withoutDone(value: Todos): Todos {
  const items = Object.entries(value.items ?? {}).filter(([, item]) => item?.done !== true);
  return { ...value, items: Object.fromEntries(items) };
}

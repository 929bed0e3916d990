// What a test leaves behind is ended in reverse order: clients before the server that they are connected to.

import type { TestContext } from 'node:test';

type Cleanup = () => void | Promise<void>;

const stacks = new WeakMap<TestContext, Cleanup[]>();

/** Runs `cleanup` when `test` is over, before everything that was registered earlier. */
export function atEnd(test: TestContext, cleanup: Cleanup): void {
  const known = stacks.get(test);
  if (known) {
    known.push(cleanup);
    return;
  }
  const stack = [cleanup];
  stacks.set(test, stack);
  test.after(() => unwind(stack));
}

/** All cleanups run, also after one has failed; the first failure is reported. */
async function unwind(stack: Cleanup[]): Promise<void> {
  const failures: unknown[] = [];
  for (let cleanup = stack.pop(); cleanup; cleanup = stack.pop()) {
    try {
      await cleanup();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

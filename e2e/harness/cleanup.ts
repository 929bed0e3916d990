// Cleanups of a test run in reverse order: a client closes before the server to which it is connected.

import type { TestContext } from 'node:test';

type Cleanup = () => void | Promise<void>;

const stacks = new WeakMap<TestContext, Cleanup[]>();

/** Runs `cleanup` at the end of `test`, before all cleanups that were registered earlier. */
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

/** Runs all cleanups, even if one fails, and throws the first error. */
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

// The package as it is published: its entry and types, and its size.

import { resolve } from 'node:path';
import { testBinding } from '../../client/tests/binding.js';

testBinding(resolve(import.meta.dirname, '..'), ['vue'], ['hooks', 'listHooks', 'useRecord', 'useList'], `
  const same = hooks().useRecord === useRecord && listHooks().useList === useList
  if (!same) process.exit(1)`);

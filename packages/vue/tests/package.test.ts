// The package as it is published: its entry and types, and its size.

import { resolve } from 'node:path';
import { testBinding } from '../../client/tests/binding.js';

testBinding(resolve(import.meta.dirname, '..'), ['vue'], ['hooks', 'listHooks', 'queryHooks', 'scopeHooks', 'useRecord', 'useList', 'useQuery', 'useMembers'], `
  const same = hooks().useRecord === useRecord && listHooks().useList === useList && queryHooks().useQuery === useQuery && scopeHooks().useMembers === useMembers
  if (!same) process.exit(1)`);

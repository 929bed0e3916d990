// The first half of the attacks. It runs in parallel with the second half: the slack covers the delay of two servers on one machine.

import { half } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(half(0));

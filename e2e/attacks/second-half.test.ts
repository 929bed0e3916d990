// The second half of the attacks. It runs in parallel with the first half: the slack covers the delay of two servers on one machine.

import { half } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(half(1));

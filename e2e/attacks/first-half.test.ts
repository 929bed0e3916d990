// The first half of the attacks, beside the second one: where the slack is more than two servers on one machine make each other wait.

import { half } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(half(0));

// The second half of the attacks, beside the first one: where the slack is more than two servers on one machine make each other wait.

import { half } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(half(1));

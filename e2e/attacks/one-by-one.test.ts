// All attacks in order, so that only one attack at a time affects the control pairs: for a check in milliseconds.

import { ATTACKS } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(ATTACKS);

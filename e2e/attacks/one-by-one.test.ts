// All attacks, one after the other, so that pairs feel nothing but their own: where milliseconds are judged.

import { ATTACKS } from './list.ts';
import { testAttacks } from './tests.ts';

testAttacks(ATTACKS);

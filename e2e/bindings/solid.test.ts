// The behaviour that all bindings share, in Solid.

import { join } from 'node:path';
import { PACKAGES, driver } from './stage.ts';
import { suite } from './suite.ts';

suite('Solid', () => driver('solid', { 'solid-js': join(PACKAGES, 'solid/node_modules/solid-js') }));

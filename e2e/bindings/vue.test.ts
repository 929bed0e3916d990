// The behaviour that all bindings share, in Vue.

import { join } from 'node:path';
import { PACKAGES, driver } from './stage.ts';
import { suite } from './suite.ts';

suite('Vue 3', () => driver('vue', { vue: join(PACKAGES, 'vue/node_modules/vue') }));

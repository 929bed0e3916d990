// The behaviour that all bindings share, in Svelte 4 and 5.

import { join } from 'node:path';
import { PACKAGES, driver } from './stage.ts';
import { suite } from './suite.ts';

for (const [version, folder] of Object.entries({ 'Svelte 4': 'svelte-4', 'Svelte 5': 'svelte' })) {
  suite(version, () => driver('svelte', { svelte: join(PACKAGES, 'svelte/node_modules', folder) }));
}

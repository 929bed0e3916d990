// The script for pages that need more than the core: what all entries export at run time, as properties of one global.

import * as all from './all.js';

Object.assign(globalThis, { Tidewire: { ...all } });

// The script for a page without a bundler: all exports that exist at run time, as properties of one global.

import { Client, TidewireError } from './index.js';

Object.assign(globalThis, { Tidewire: { Client, TidewireError } });

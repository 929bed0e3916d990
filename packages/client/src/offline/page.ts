// The script for pages that work without a connection; a page loads it in place of the script without `Offline`.

import { Client, TidewireError } from '../index.js';
import { Offline } from '../offline.js';

Object.assign(globalThis, { Tidewire: { Client, Offline, TidewireError } });

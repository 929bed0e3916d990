// The script for pages that need more than the core: what all entries export at run time, as properties of one global.

import * as anonymous from './anonymous.js';
import * as devtools from './devtools.js';
import * as client from './index.js';
import * as inspect from './inspect.js';
import * as listen from './listen.js';
import * as lists from './lists.js';
import * as offline from './offline.js';
import * as patterns from './patterns.js';
import * as presence from './presence.js';
import * as provide from './provide.js';
import * as validation from './validation.js';

const ENTRIES = [client, anonymous, devtools, inspect, listen, lists, offline, patterns, presence, provide, validation];

Object.assign(globalThis, { Tidewire: Object.assign({}, ...ENTRIES) });

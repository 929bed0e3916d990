// The script for pages that need more than the core: what all entries export at run time, as properties of one global.

import * as anonymous from './anonymous.js';
import * as client from './index.js';
import * as listen from './listen.js';
import * as lists from './lists.js';
import * as offline from './offline.js';
import * as patterns from './patterns.js';
import * as presence from './presence.js';
import * as provide from './provide.js';
import * as validation from './validation.js';

Object.assign(globalThis, { Tidewire: { ...client, ...anonymous, ...listen, ...lists, ...offline, ...patterns, ...presence, ...provide, ...validation } });

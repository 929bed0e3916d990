// What a page without a bundler loads: everything that has a value, as properties of one global.

import { Client, RpcError, RpcReject, TidewireError } from './index.js';

Object.assign(globalThis, { Tidewire: { Client, RpcError, RpcReject, TidewireError } });

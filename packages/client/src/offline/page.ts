// The same for pages that go on without a connection; it is loaded in place of the other.

import { Client, RpcError, RpcReject, TidewireError } from '../index.js';
import { Offline } from '../offline.js';

Object.assign(globalThis, { Tidewire: { Client, Offline, RpcError, RpcReject, TidewireError } });

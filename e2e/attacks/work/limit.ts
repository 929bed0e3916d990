// Options that switch off the limits against the attacks.

import type { ServerOptions } from '../../harness/server.ts';

/** A connection may do any amount of work in a turn, and a turn has no time limit. */
export const WITHOUT_WORK_LIMITS: ServerOptions = { limits: { connection_work_max: 0, turn_work_max: 2 ** 40 } };
/** The server's memory is not bounded. */
export const WITHOUT_MEMORY_LIMIT: ServerOptions = { limits: { memory_bytes_max: 2 ** 40 } };

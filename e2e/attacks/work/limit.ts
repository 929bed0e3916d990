// The limits that hold the attacks, switched off.

import type { ServerOptions } from '../../harness/server.ts';

/** A connection may do as much in a turn as it likes, and a turn may take as long as it takes. */
export const WITHOUT_WORK_LIMITS: ServerOptions = { limits: { connection_work_max: 0, turn_work_max: 2 ** 40 } };
/** What the server holds is not bounded. */
export const WITHOUT_MEMORY_LIMIT: ServerOptions = { limits: { memory_bytes_max: 2 ** 40 } };

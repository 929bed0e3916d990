// Attacks before a login: large login messages on connections that end immediately.

import { C } from '../../../harness/client.ts';
import type { WorkAttack } from '../attack.ts';
import { framed } from '../connection.ts';
import { WITHOUT_MEMORY_LIMIT } from '../limit.ts';

const { TOPIC, AUTH_ACTION, CONNECTION_ACTION } = C;

export const LOGINS: WorkAttack[] = [
  {
    name: 'login messages of 1 MB on connections that end at once',
    harm: 'either',
    off: { auth: { login_bytes_max: 2_000_000 }, ...WITHOUT_MEMORY_LIMIT },
    prepare: (seat) => {
      const objects = Array.from({ length: 145_000 }, () => '{"":1}').join(',');
      const data = `{"username":"attacker0","password":"wrong","a":[${objects.slice(0, 139_000 * 7 - 1)}]}`;
      const login = Buffer.concat([
        framed({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: seat.address }),
        framed({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data }),
      ]);
      return async () => {
        while (!seat.isOver) {
          const connection = await Promise.race([seat.open(), seat.over()]);
          if (!connection) continue;
          await Promise.race([connection.sendAll(login), seat.over()]);
          seat.complete(1, data.length);
          await connection.finish();
          seat.release(connection);
        }
      };
    },
  },
];

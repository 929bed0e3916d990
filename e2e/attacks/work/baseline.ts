// The baseline: sends and receives as many bytes as an attack, with a null server, which only moves bytes.

import { C } from '../../harness/client.ts';
import { repeated, type WorkAttack } from './attack.ts';
import { framed } from './connection.ts';

const { TOPIC, EVENT_ACTION, RPC_ACTION } = C;

/** The most bytes of one message to or from the null server. */
const MESSAGE_BYTES = 500_000;

export interface Bytes {
  sent: number;
  received: number;
}

/** An attack that makes the null server receive and send bytes in this proportion. */
export function baseline({ sent, received }: Bytes): WorkAttack {
  const share = MESSAGE_BYTES / Math.max(sent, received, 1);
  const [up, down] = [Math.ceil(sent * share), Math.ceil(received * share)];
  return {
    name: 'null server',
    harm: 'latency',
    off: { because: 'the null server has no limits' },
    prepare: repeated(() => {
      const emit = framed({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: 'null', data: `"${'x'.repeat(up)}"` });
      const request = framed({ topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name: 'bytes', correlationId: '1', data: String(down) });
      return { bytes: Buffer.concat([emit, request]), answers: [[TOPIC.RPC, RPC_ACTION.RESPONSE]], count: 1, touchedBytes: up + down };
    }),
  };
}

// A remote procedure call: the server chooses a tab, which throws the die.

import { TidewireError, type Client } from '@tidewire/client';
import { provide } from '@tidewire/client/provide';
import { useEffect, useState } from 'preact/hooks';
import { Action } from './action.tsx';
import type { Demo } from './app.ts';
import { CALL, Code } from './code.tsx';
import { nameOf } from './user.ts';

const SIDES = 6;

export function Die({ client, user }: { client: Client<Demo>; user: string }) {
  const [result, setResult] = useState('');
  const [isCalling, setCalling] = useState(false);
  const [served, setServed] = useState(0);

  useEffect(() => {
    return provide(client.rpc, 'tidewire-demo/throw', ({ sides }) => {
      setServed((count) => count + 1);
      return { number: 1 + Math.floor(Math.random() * sides), by: user };
    });
  }, [client, user]);

  const call = async (): Promise<void> => {
    setCalling(true);
    try {
      const { number, by } = await client.rpc.call('tidewire-demo/throw', { sides: SIDES });
      setResult(`${by === user ? 'Your own tab' : `The tab of ${nameOf(String(by))}`} threw ${number}.`);
    } catch (error) {
      setResult(`The call failed: ${error instanceof TidewireError ? error.code : String(error)}.`);
    }
    setCalling(false);
  };

  return (
    <section class="card feature" aria-labelledby="die-title">
      <div class="live">
        <h2 id="die-title">Remote call</h2>
        <div class="actions">
          <Action isOff={isCalling} act={() => void call()} isMain>
            Throw a die
          </Action>
          <span class="result" role="status">
            {result}
          </span>
        </div>
        <p class="hint">
          Every tab offers to throw, and the server asks one of them. This one has thrown {served} {served === 1 ? 'time' : 'times'}.
        </p>
      </div>
      <Code of="the call" text={CALL} />
    </section>
  );
}

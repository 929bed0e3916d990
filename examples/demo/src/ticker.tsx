// The live price with its plot.

import type { Client } from '@tidewire/client';
import type { Demo } from './app.ts';
import { Code, PRICE } from './code.tsx';
import { Plot } from './plot.tsx';
import { usePrices } from './prices.ts';

export function Ticker({ client }: { client: Client<Demo> }) {
  const points = usePrices(client);
  const [last, before = last] = [points.at(-1), points.at(-2)];
  const change = last === undefined || before === undefined ? 0 : last - before;
  const range = points.length > 0 ? `between ${Math.min(...points).toFixed(2)} and ${Math.max(...points).toFixed(2)}` : 'not available yet';
  return (
    <section class="card feature" aria-labelledby="price-title">
      <div class="live">
      <h2 id="price-title">Live price</h2>
      <p class="price">
        <span class="number">{last === undefined ? '–' : last.toFixed(2)}</span>{' '}
        <span class={change < 0 ? 'down' : 'up'}>
          {change < 0 ? '▼' : '▲'} {Math.abs(change).toFixed(2)}
        </span>
      </p>
      <Plot label={`The price of the last minute: ${range}`} points={points} places={2} />
      <p class="hint">A record that all tabs follow. Whichever is first makes the next price; the server refuses the others.</p>
      </div>
      <Code of="the price" text={PRICE} />
    </section>
  );
}

// A thousand bots on a few connections, and how long their events take: from the call in this page to the callback in this page.

import { Client } from '@tidewire/client';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Action } from './action.tsx';
import type { Demo, Sent } from './app.ts';
import { BOTS, Code } from './code.tsx';
import { BOT, userId } from './user.ts';

const BOTS_COUNT = 1_000;
/** A browser opens at most about 200 WebSockets, and the page has to handle what arrives on each of them. */
const CONNECTIONS = 10;
const BOTS_EACH = BOTS_COUNT / CONNECTIONS;
/** Each bot publishes once in this time. */
const INTERVAL_MS = 2_000;
const STEP_MS = 20;
const SHOW_MS = 1_000;
const PAGE = Math.random().toString(36).slice(2);

interface Figures {
  perSecond: number;
  p50: number;
  p99: number;
}

/** The value below which `share` of the sorted values are. */
const quantile = (sorted: number[], share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;

class Bots {
  readonly #clients = Array.from({ length: CONNECTIONS }, () => new Client<Demo>(undefined, { auth: { username: userId(BOT) }, reconnectMinMs: 100, reconnectMaxMs: 2_000 }));
  readonly #timers: Array<ReturnType<typeof setInterval>>;
  #delays: number[] = [];

  /** Calls `show` once a second, with undefined if nothing has arrived. */
  constructor(show: (figures: Figures | undefined) => void) {
    for (const client of this.#clients) {
      client.onError(() => undefined);
      client.event.subscribe('tidewire-demo/bots', (sent: Partial<Sent> | null) => {
        // The bots of another page have another clock.
        if (sent?.page === PAGE && typeof sent.at === 'number') this.#delays.push(performance.now() - sent.at);
      });
      client.connect().catch(() => undefined);
    }
    // In each step a part of the bots of each connection publish.
    const each = (BOTS_EACH * STEP_MS) / INTERVAL_MS;
    const publish = setInterval(() => {
      for (const client of this.#clients) {
        for (let bot = 0; bot < each && client.state === 'open'; bot += 1) client.event.emit('tidewire-demo/bots', { page: PAGE, at: performance.now() });
      }
    }, STEP_MS);
    let shown = performance.now();
    const figures = setInterval(() => {
      const sorted = this.#delays.sort((a, b) => a - b);
      this.#delays = [];
      // A busy page is late.
      const ms = performance.now() - shown;
      shown += ms;
      const perSecond = Math.round((sorted.length * 1_000) / ms);
      show(sorted.length === 0 ? undefined : { perSecond, p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99) });
    }, SHOW_MS);
    this.#timers = [publish, figures];
  }

  stop(): void {
    this.#timers.forEach((timer) => clearInterval(timer));
    this.#clients.forEach((client) => client.close());
  }
}

export interface BotsProps {
  /** Called with the p99 of the last second, or undefined without bots. */
  onP99: (ms: number | undefined) => void;
}

export function BotsCard({ onP99 }: BotsProps) {
  const [figures, setFigures] = useState<Figures>();
  const bots = useRef<Bots>();
  const [isRunning, setRunning] = useState(false);
  const stop = (): void => {
    bots.current?.stop();
    bots.current = undefined;
  };
  useEffect(() => stop, []);

  const toggle = (): void => {
    if (isRunning) stop();
    else {
      bots.current = new Bots((next) => {
        setFigures(next);
        onP99(next?.p99);
      });
    }
    setFigures(undefined);
    onP99(undefined);
    setRunning(!isRunning);
  };

  const ms = (value: number): string => `${value.toFixed(1)} ms`;
  let text = isRunning ? 'The bots connect.' : 'No bots.';
  if (figures) text = `${figures.perSecond.toLocaleString('en')} deliveries a second, p50 ${ms(figures.p50)}, p99 ${ms(figures.p99)}`;
  return (
    <section class="card feature" aria-labelledby="bots-title">
      <div class="live">
        <h2 id="bots-title">Load</h2>
        <div class="actions">
          <Action isOff={false} act={toggle} isMain>
            {isRunning ? 'Stop the bots' : `Start ${BOTS_COUNT.toLocaleString('en')} bots`}
          </Action>
        </div>
        <p class="figures">{text}</p>
        <p class="hint">
          Each bot publishes every {INTERVAL_MS / 1_000} seconds. The bots share {CONNECTIONS} connections of this page, and each connection receives all events.
          The times include the work of the browser.
        </p>
      </div>
      <Code of="the bots" text={BOTS} />
    </section>
  );
}

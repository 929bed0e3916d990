// A price that moves. No tab is in charge: after an interval the fastest tab writes the next price. The server refuses the writes of the
// other tabs, because they are based on an outdated price.

import type { Client, RecordHandle } from '@tidewire/client';
import { useEffect, useState } from 'preact/hooks';
import type { Demo, Prices } from './app.ts';

const INTERVAL_MS = 500;
/** A random addition to the interval, so that the tabs do not write at the same time. */
const SPREAD_MS = 150;
/** One minute of prices. */
const POINTS_MAX = 120;
const FIRST = 100;

/** The valid prices in the record, whatever it contains. */
export function pointsOf(value: Prices | undefined): number[] {
  const points: unknown = value?.points;
  return Array.isArray(points) ? points.filter((point) => typeof point === 'number' && Number.isFinite(point)).slice(-POINTS_MAX) : [];
}

/** A random price near the last one, with a tendency towards the first one. */
export function following(last: number, random = Math.random()): number {
  const next = last + (FIRST - last) * 0.01 + (random - 0.5) * last * 0.02;
  return Math.round(Math.min(Math.max(next, 1), FIRST * 10) * 100) / 100;
}

/** The latest prices. While the page is visible, this tab also makes prices. */
export function usePrices(client: Client<Demo>): number[] {
  const [points, setPoints] = useState<number[]>([]);
  useEffect(() => {
    // If another tab wrote first, drop this tab's price.
    const handle = client.record.open('tidewire-demo/prices', { merge: 'remote', onEnd: () => undefined });
    handle.ready.catch(() => undefined);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const wait = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (client.state === 'open' && !document.hidden && handle.isSaved) make(handle);
        wait();
      }, INTERVAL_MS + Math.random() * SPREAD_MS);
    };
    handle.subscribe((value) => {
      setPoints(pointsOf(value));
      wait();
    });
    return () => {
      clearTimeout(timer);
      handle.close();
    };
  }, [client]);
  return points;
}

function make(handle: RecordHandle<Prices>): void {
  const next = handle.update((value) => {
    const points = pointsOf(value);
    return { points: [...points, following(points.at(-1) ?? FIRST)].slice(-POINTS_MAX) };
  });
  next.catch(() => undefined);
}

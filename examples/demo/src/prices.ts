// A price that moves. No tab is the master of it: when the time has come, whoever is first makes the next one, and the server refuses
// those of the others, which are made of a price that is not the last one any more.

import type { Client, RecordHandle } from '@tidewire/client';
import { useEffect, useState } from 'preact/hooks';
import type { Demo, Prices } from './app.ts';

const INTERVAL_MS = 500;
/** So that not all tabs are first. */
const SPREAD_MS = 150;
/** A minute. */
const POINTS_MAX = 120;
const FIRST = 100;

/** The prices in the record, whatever stands there. */
export function pointsOf(value: Prices | undefined): number[] {
  const points: unknown = value?.points;
  return Array.isArray(points) ? points.filter((point) => typeof point === 'number' && Number.isFinite(point)).slice(-POINTS_MAX) : [];
}

/** A price near the last one, drawn back to the first one if it is far. */
export function following(last: number, random = Math.random()): number {
  const next = last + (FIRST - last) * 0.01 + (random - 0.5) * last * 0.02;
  return Math.round(Math.min(Math.max(next, 1), FIRST * 10) * 100) / 100;
}

/** The latest prices; while the page is to be seen, this tab makes some of them. */
export function usePrices(client: Client<Demo>): number[] {
  const [points, setPoints] = useState<number[]>([]);
  useEffect(() => {
    // What another tab was faster with is not made again: it is given up.
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

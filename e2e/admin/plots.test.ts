// The plots of the admin page: p50 and p99 of deliveries and acknowledged writes, an hour of history that the server keeps, hover, a time
// slider for the keyboard, and ranges in the address.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { Operator } from '../harness/admin-page.ts';
import { connect, subscribed } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { enter, overflow } from './page.ts';

const SCREENS = [
  { width: 1440, height: 900 },
  { width: 360, height: 640 },
];

/** The number of deliveries, once as a counter and once as the sum of the histogram, of one answer. */
async function deliveries(server: Server): Promise<[counter: number, histogram: number]> {
  const text = await (await server.get('/metrics')).text();
  const number = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? NaN);
  return [number('tidewire_deliveries_total'), number('tidewire_delivery_seconds_count')];
}

/** The number of deliveries once both counts agree: an answer in the middle of a turn has listed deliveries that are not sent yet. */
async function settledDeliveries(server: Server): Promise<number> {
  let found = NaN;
  await eventually(async () => {
    const [counter, histogram] = await deliveries(server);
    found = counter;
    return counter === histogram;
  }, 'each delivery is in the histogram');
  return found;
}

describe('the plots of the admin page', () => {
  test('each delivery and each acknowledged write is counted by its latency', async (t) => {
    const server = await Server.during(t);
    const [publisher, ...readers] = await Promise.all([0, 1, 2, 3].map(() => connect(t, server, { login: {} })));
    const name = fresh('event');
    const inboxes = await Promise.all(readers.map((reader) => subscribed(reader, name)));
    const before = await settledDeliveries(server);
    const numbers = Array.from({ length: 100 }, (_, number) => number);
    for (const number of numbers) publisher!.event.emit(name, number);
    for (const inbox of inboxes) assert.deepEqual(await inbox.count(numbers.length), numbers);
    const operator = await Operator.of(server);
    for (let number = 0; number < 5; number++) assert.ok((await operator.fetch('PUT', `/records/${name}`, { number })).ok);
    await eventually(async () => (await server.metric('tidewire_write_acknowledgement_seconds_count')) === 5, 'five writes are counted');
    const after = await settledDeliveries(server);
    assert.ok(after - before >= 300, String(after - before));
    const { latencies } = await operator.ask('GET', '/figures');
    assert.equal(latencies.delivery.length, latencies.upTo.length + 1);
    assert.equal(latencies.acknowledgement.reduce((sum: number, count: number) => sum + count, 0), 5);
  });

  test('an hour of history is the server\'s, so a page that opens later shows it', async (t) => {
    const [server, browser] = [await Server.during(t, { keepsOutput: true }), await browserDuring(t)];
    const [publisher, reader] = [await connect(t, server, { login: {} }), await connect(t, server, { login: {} })];
    const name = fresh('event');
    await subscribed(reader, name);
    const operator = await Operator.of(server);
    const history = async (after = 0): Promise<{ names: string[]; points: Array<Array<number | null>> }> => operator.ask('GET', `/history?after=${after}`);
    const busy = async (): Promise<number> => {
      publisher.event.emit(name, 1);
      await operator.fetch('PUT', `/records/${name}`, { number: 1 });
      const { names, points } = await history();
      return points.filter((point) => point[names.indexOf('delivery99') + 1] !== null && point[names.indexOf('acknowledgement99') + 1] !== null).length;
    };
    await eventually(async () => (await busy()) >= 3, 'the history has latencies of three seconds');
    const { points } = await history();
    assert.deepEqual((await history(points.at(-2)![0] as number)).points.slice(0, 1), [points.at(-1)]);
    assert.equal((await operator.fetch('GET', '/history?after=x')).status, 400);
    // A server without other work has no latencies in the newest point; those of the past are still there.
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      // The keyboard moves by one second a key, so the second that it searches must not be far in the past.
      const seen = await busy();
      await eventually(async () => (await busy()) > seen, `${where}: the history has a new second with latencies`);
      const page = await enter(t, browser, server, { viewport });
      const slider = page.getByRole('slider', { name: 'Time' });
      await page.getByText('Newest values').waitFor();
      await slider.focus();
      const delivery = page.getByRole('img', { name: /^Delivery: p50 [\d.]+ (µs|ms), p99 [\d.]+ (µs|ms)$/ });
      const write = page.getByRole('img', { name: /^Acknowledged write: p50 [\d.]+ (µs|ms|s), p99 [\d.]+ (µs|ms|s)$/ });
      await eventually(async () => {
        await page.keyboard.press('ArrowLeft');
        return (await delivery.count()) === 1 && (await write.count()) === 1;
      }, `${where}: the keyboard reaches a second with both latencies`);
      const output = page.locator('output');
      const chosen = await output.textContent();
      assert.match(chosen ?? '', /^Values at /);
      const last = await slider.getAttribute('max');
      await eventually(async () => (await slider.getAttribute('max')) !== last, `${where}: newer points arrive`);
      assert.equal(await output.textContent(), chosen, `${where}: the chosen time stays`);
      assert.deepEqual(await findings(page), [], where);
      assert.deepEqual(await overflow(page), { by: 0, wide: [] }, where);

      await page.keyboard.press('End');
      await page.getByText('Newest values').waitFor();
      const canvas = page.getByRole('img', { name: /^Connections/ });
      await canvas.scrollIntoViewIfNeeded();
      let moves = 0;
      // New values move the page's parts, so a pointer can miss the place where the plot was.
      await eventually(async () => {
        const box = (await canvas.boundingBox())!;
        await page.mouse.move(box.x + box.width / 2 + (moves++ % 2), box.y + box.height / 2);
        return (await page.getByText(/^Values at /).count()) === 1;
      }, `${where}: the pointer chooses a time`);
      await page.mouse.move(1, 1);
      await page.getByText('Newest values').waitFor();

      await page.getByLabel('Range').selectOption('1 hour');
      assert.match(page.url(), /#\/overview\?range=3600$/);
      await page.reload();
      await page.getByText('Newest values').waitFor();
      assert.equal(await page.getByLabel('Range').inputValue(), '3600');
      await page.context().close();
    }
  });
});

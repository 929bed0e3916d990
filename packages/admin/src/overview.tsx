// The server's health: latencies, message and byte rates, turn times, memory, stores, and warnings, over the last hour.

import { useState } from 'preact/hooks';
import { refine, type Parameters } from './address.ts';
import { bytes, count, date, seconds, type Figures, type Point, type Store } from './figures.ts';
import { Plot, type Series } from './plot.tsx';
import { Table, type Column } from './table.tsx';

/** Ranges of the plots in seconds. */
const RANGES: ReadonlyArray<[seconds: number, name: string]> = [
  [300, '5 minutes'],
  [900, '15 minutes'],
  [3_600, '1 hour'],
];

const PLOTS: ReadonlyArray<{ title: string; show: (value: number) => string; series: readonly Series[] }> = [
  { title: 'Delivery', show: seconds, series: [{ label: 'p50', of: (at) => at.deliveryMedian }, { label: 'p99', of: (at) => at.delivery99 }] },
  { title: 'Acknowledged write', show: seconds, series: [{ label: 'p50', of: (at) => at.acknowledgementMedian }, { label: 'p99', of: (at) => at.acknowledgement99 }] },
  { title: 'Messages per second', show: count, series: [{ label: 'received', of: (at) => at.messagesIn }, { label: 'delivered', of: (at) => at.deliveries }] },
  { title: 'Bytes per second', show: bytes, series: [{ label: 'in', of: (at) => at.bytesIn }, { label: 'out', of: (at) => at.bytesOut }] },
  { title: 'Turn time', show: seconds, series: [{ label: 'p50', of: (at) => at.turnMedian }, { label: 'p99', of: (at) => at.turn99 }] },
  { title: 'Round trip of this page', show: seconds, series: [{ label: 'now', of: (at) => at.roundTrip }] },
  { title: 'Connections', show: count, series: [{ label: 'open', of: (at) => at.connections }] },
  { title: 'Memory', show: bytes, series: [{ label: 'process', of: (at) => at.residentBytes }, { label: 'outboxes', of: (at) => at.outboxBytes }] },
  { title: 'Records waiting for the store', show: count, series: [{ label: 'waiting', of: (at) => at.dirtyRecords }, { label: 'written per second', of: (at) => at.writes }] },
];

export interface OverviewProps {
  figures: Figures | undefined;
  points: readonly Point[];
  parameters: Parameters;
}

export function Overview({ figures, points, parameters }: OverviewProps) {
  const range = RANGES.find(([seconds]) => String(seconds) === parameters['range'])?.[0] ?? 300;
  const [chosenAt, setChosenAt] = useState<number>();
  const since = (points.at(-1)?.at ?? 0) - range;
  const shown = points.filter(({ at }) => at >= since);
  const place = shown.findIndex(({ at }) => at === chosenAt);
  const chosen = shown[place];
  const choose = (index: number | undefined): void => setChosenAt(index === undefined ? undefined : shown[index]?.at);
  const last = Math.max(shown.length - 1, 0);
  const time = chosen === undefined ? 'now' : date(chosen.at);
  return (
    <section aria-labelledby="overview">
      <h2 id="overview">Overview</h2>
      {figures && <Health figures={figures} />}
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          Range
          <select value={String(range)} onChange={(event) => refine({ range: event.currentTarget.value })}>
            {RANGES.map(([seconds, name]) => (
              <option key={seconds} value={String(seconds)}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="wide">
          Time
          <input
            type="range"
            min={0}
            max={last}
            value={chosen === undefined ? last : place}
            aria-valuetext={time}
            onInput={(event) => choose(event.currentTarget.valueAsNumber === last ? undefined : event.currentTarget.valueAsNumber)}
          />
        </label>
        <output class="quiet">{time === 'now' ? 'Newest values' : `Values at ${time}`}</output>
      </form>
      <div class="plots">
        {PLOTS.map((plot) => (
          <Plot key={plot.title} {...plot} points={shown} range={range} chosen={chosen} onHover={choose} />
        ))}
      </div>
      {figures && <Stores figures={figures} />}
    </section>
  );
}

function Health({ figures }: { figures: Figures }) {
  const told = [...figures.reasons, ...figures.warnings];
  return (
    <div class="card" role="status">
      <p class={figures.ready ? 'good' : 'bad'}>{figures.ready ? 'The server is ready.' : 'The server is not ready.'}</p>
      {told.map(({ code, text }) => (
        <p key={text} class="bad">
          {code}: {text}
        </p>
      ))}
    </div>
  );
}

const STORES: ReadonlyArray<Column<Store>> = [
  { head: 'Store', width: 'minmax(100px, 1fr)', cell: (store) => store.name },
  { head: 'Acknowledged write', width: 'minmax(180px, 3fr)', cell: (store) => store.promise },
  { head: 'Commits', width: '90px', isNumber: true, cell: (store) => count(store.store_commits) },
  { head: 'Writes', width: '90px', isNumber: true, cell: (store) => count(store.store_writes) },
  { head: 'Per commit', width: '100px', isNumber: true, cell: (store) => (store.store_commits > 0 ? seconds(store.store_commit_seconds / store.store_commits) : '–') },
  { head: 'Waiting', width: '90px', isNumber: true, cell: (store) => count(store.store_dirty_records) },
  { head: 'Failed', width: '80px', isNumber: true, cell: (store) => <span class={store.store_failed_commits > 0 ? 'bad' : ''}>{count(store.store_failed_commits)}</span> },
];

function Stores({ figures }: { figures: Figures }) {
  return (
    <>
      <h3>Stores</h3>
      <Table label="Stores" columns={STORES} total={figures.stores.length} rows={figures.stores} idOf={(store) => store.name} />
    </>
  );
}

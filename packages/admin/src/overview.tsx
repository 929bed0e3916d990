// The server's health: message and byte rates, turn times, memory, stores, and warnings.

import { bytes, count, type Figures, type Point } from './figures.ts';
import { Plot } from './plot.tsx';

const milliseconds = (value: number): string => `${count(value)} ms`;

export interface OverviewProps {
  figures: Figures | undefined;
  points: readonly Point[];
}

export function Overview({ figures, points }: OverviewProps) {
  return (
    <section aria-labelledby="overview">
      <h2 id="overview">Overview</h2>
      {figures && <Health figures={figures} />}
      <div class="plots">
        <Plot title="Messages per second" points={points} show={count} series={[{ label: 'received', of: (at) => at.messagesIn }, { label: 'delivered', of: (at) => at.deliveries }]} />
        <Plot title="Bytes per second" points={points} show={bytes} series={[{ label: 'in', of: (at) => at.bytesIn }, { label: 'out', of: (at) => at.bytesOut }]} />
        <Plot title="Turn time" points={points} show={milliseconds} series={[{ label: 'median', of: (at) => at.turnMedian }, { label: '99th percentile', of: (at) => at.turn99 }]} />
        <Plot title="Round trip of this page" points={points} show={milliseconds} series={[{ label: 'now', of: (at) => at.roundTrip }]} />
        <Plot title="Connections" points={points} show={count} series={[{ label: 'open', of: (at) => at.connections }]} />
        <Plot title="Memory" points={points} show={bytes} series={[{ label: 'process', of: (at) => at.residentBytes }, { label: 'outboxes', of: (at) => at.outboxBytes }]} />
        <Plot title="Records waiting for the store" points={points} show={count} series={[{ label: 'waiting', of: (at) => at.dirtyRecords }, { label: 'written per second', of: (at) => at.writes }]} />
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

function Stores({ figures }: { figures: Figures }) {
  return (
    <>
      <h3>Stores</h3>
      <ul class="rows">
        {figures.stores.map((store) => (
          <li class="card" key={store.name}>
            <strong>{store.name}</strong>
            <span>{store.promise}</span>
            <span>
              {count(store.store_commits)} commits of {count(store.store_writes)} writes,{' '}
              {store.store_commits > 0 ? milliseconds((store.store_commit_seconds / store.store_commits) * 1000) : '–'} each
            </span>
            <span>
              {count(store.store_dirty_records)} records wait, {count(store.store_failed_commits)} commits failed
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

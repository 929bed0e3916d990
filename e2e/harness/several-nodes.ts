// Suites on several nodes: with `E2E_NODES=3` each server of a suite is a cluster of three, and its clients and requests go to all nodes
// in turn. `E2E_NODES_STORE` is the store of the clusters, and `E2E_NODES_LINK` the broker of their links, which are direct without it.

import { Database, type DatabaseKind } from './database.ts';
import type { ServerOptions } from './server.ts';

export const NODE_COUNT = Number(process.env['E2E_NODES'] ?? 1);
const STORE = process.env['E2E_NODES_STORE'] ?? 'redis';
const LINK = process.env['E2E_NODES_LINK'] as DatabaseKind | undefined;

/** One store and one broker serve all clusters of a suite. */
let running: Promise<{ store: Database; broker: Database | undefined }> | undefined;
let clusterCount = 0;

/** The options of the nodes of a new cluster, or `undefined` where the run has one node or `options` choose a store or a cluster. */
export async function clusterOptions(options: ServerOptions): Promise<Required<Pick<ServerOptions, 'cluster' | 'store'>> | undefined> {
  const isPlaced = options.cluster !== undefined || options.store !== undefined || options.stores !== undefined || options.dataFolder !== undefined;
  if (NODE_COUNT === 1 || isPlaced) return undefined;
  if (STORE !== 'redis' && STORE !== 'postgres') throw new Error(`E2E_NODES_STORE is redis or postgres, and not ${STORE}`);
  running ??= start(STORE);
  const { store, broker } = await running;
  clusterCount += 1;
  const name = STORE === 'redis' ? String(clusterCount) : store.newDatabase(`suite_${clusterCount}`);
  return {
    cluster: { enabled: true, host: '127.0.0.1', port: 0, link: broker?.url },
    store: { kind: STORE, [STORE]: { url: `${store.url}/${name}` } },
  };
}

async function start(kind: 'redis' | 'postgres'): Promise<{ store: Database; broker: Database | undefined }> {
  return { store: await Database.duringProcess(kind), broker: LINK && (await Database.duringProcess(LINK)) };
}

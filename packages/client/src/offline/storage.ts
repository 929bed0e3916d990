// Where offline records are stored: the interface that each storage has, and the rows that it keeps.

import { TidewireError } from '../index.js';
import type { Edit, Rejection } from './edit.js';

/** A record as the server last sent it. */
export interface CachedRecord {
  name: string;
  value: unknown;
  version: number;
}

/** The changes of one transaction. */
export interface Changes {
  /** New edits, which get the next positions of the queue. */
  add?: readonly Edit[];
  /** Edits in place of the ones at their positions. */
  put?: readonly Edit[];
  remove?: readonly Edit[];
  cache?: readonly CachedRecord[];
  /** The name of a record. */
  forget?: string;
  reject?: readonly Rejection[];
  /** The id of a rejection. */
  dismiss?: string;
}

/**
 * The data of one app and user: records as the server last sent them, the queue of edits, and the rejected edits. A value without a
 * property and one whose property is undefined are the same. If a function fails, the storage counts as lost.
 */
export interface OfflineStorage {
  /** Whether the data outlives the process. */
  readonly isDurable: boolean;
  /** All edits that are not settled, in the order of the queue, and the rejections that were not dismissed. */
  load(): Promise<{ edits: Edit[]; rejections: Rejection[] }>;
  read(name: string): Promise<CachedRecord | undefined>;
  /**
   * Makes all changes or none, in the order of the calls. Fulfilled with the queue positions of the added edits, when the changes are stored.
   * A position is larger than all earlier ones and is never used again. If more than `recordsMax` records are stored, the ones whose values
   * were stored longest ago are removed.
   */
  change(changes: Changes, recordsMax?: number): Promise<number[]>;
  /**
   * Only for a storage that several tabs use at the same time: they elect one that leads. Makes `tab` the leader for the next `LEASE_MS`,
   * unless another tab leads; or ends its lease. True if `tab` leads.
   */
  lease?(tab: string, isWanted: boolean): Promise<boolean>;
  close(): void;
}

export interface StorageUse {
  /** The most milliseconds to open the storage, and for each transaction. */
  timeoutMs: number;
  /** Called if the storage is lost after it was opened. */
  onLost(error: unknown): void;
}

/** Opens the storage with this name, the option `database`; rejected if that is impossible. */
export type OpenStorage = (name: string, use: StorageUse) => Promise<OfflineStorage>;

/** The length of a lease: a tab without locks leads for this time, unless it renews the lease. */
export const LEASE_MS = 3_000;

/** The error of a storage that can't be used. */
export function storageError(cause: unknown): TidewireError {
  const { name, message } = (cause ?? {}) as Partial<Error>;
  const text = name === 'QuotaExceededError' ? 'its space is used up' : String(message ?? cause);
  return new TidewireError('NO_STORAGE', `this device no longer stores records: ${text}`, { cause });
}

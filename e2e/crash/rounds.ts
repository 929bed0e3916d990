// One round of a crash test: load, a crash at a random moment, a check of the stored files, a new start, and a comparison of every
// record with the acknowledgements. The ledger covers all rounds of a test.

import { execFile } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { atEnd } from '../harness/cleanup.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { Ledger } from './ledger.ts';
import { Volume } from './volume.ts';
import { Writers, verify } from './writers.ts';

/** `CRASH_ROUNDS` of each kind of crash; the proof before a release uses fifty. */
export const ROUND_COUNT = Number(process.env['CRASH_ROUNDS'] ?? 15);
/** One round takes about a second; a round that takes this long hangs. */
export const ROUND_TIMEOUT_MS = 60_000;

/** Acknowledgements before the crash. The first arrive while records are still being created. */
const ACKNOWLEDGED_MIN = 50;
const ACKNOWLEDGED_MAX = 600;
/** The most milliseconds from an acknowledgement to the crash, so that crashes happen anywhere between two of them. */
const LATER_MS = 30;

export class Rounds {
  readonly ledger = new Ledger();
  readonly #numbers = { next: 1 };

  constructor(
    private readonly server: Server,
    /** Ends the server without a shutdown and leaves its data folder as the crash left it. */
    private readonly crash: (writers: Writers) => Promise<void>,
    /** The launcher for programs that read the data folder. */
    private readonly launcher: string[] = [],
  ) {}

  /** Rounds that cut the power of a server whose data is on a separate volume. */
  static async onVolume(test: TestContext, options: ServerOptions = {}): Promise<Rounds> {
    const volume = await Volume.create();
    atEnd(test, () => volume.dispose());
    // A server that is broken on purpose starts only in a data folder of the torture test.
    mkdirSync(join(volume.outside, 'data'));
    writeFileSync(join(volume.outside, 'data/made-by-tidewire-torture'), '');
    const launcher = [...volume.launcher, ...(options.launcher ?? [])];
    const server = await Server.start({ ...options, dataFolder: join(volume.path, 'data'), launcher });
    atEnd(test, async () => {
      await server.kill();
      await server.dispose();
    });
    const crash = async (writers: Writers): Promise<void> => {
      // Ignore later acknowledgements: ext4 may report a sync as done that the power cut interrupted. A server without power sends nothing.
      writers.hearNoMore();
      volume.cutPower();
      await server.kill();
      volume.unmount();
      volume.mount();
    };
    return new Rounds(server, crash, volume.launcher);
  }

  /**
   * Runs one round and returns the faults. The server runs before and after the round. `before` runs between the load and the crash, under
   * load.
   */
  async run(before?: (server: Server, writers: Writers) => Promise<void>): Promise<string[]> {
    const writers = await Writers.start(this.server.address, this.ledger, this.#numbers);
    try {
      await writers.reach(randomInt(ACKNOWLEDGED_MIN, ACKNOWLEDGED_MAX));
      await before?.(this.server, writers);
      await pause(randomInt(LATER_MS));
      await this.crash(writers);
    } finally {
      writers.stop();
    }
    const faults = await this.#checkStore();
    try {
      await this.server.start();
    } catch (error) {
      return [...faults, (error as Error).message];
    }
    return [...faults, ...(await verify(this.server.address, this.ledger))];
  }

  /** Runs `tidewire store check` on the data of a server that does not run. */
  async #checkStore(): Promise<string[]> {
    const { binary, dataFolder } = this.server;
    const [program = '', ...args] = [...this.launcher, binary, 'store', 'check', '--data', dataFolder];
    try {
      await promisify(execFile)(program, args);
      return [];
    } catch (error) {
      const { message, stdout = '', stderr = '' } = error as Error & { stdout?: string; stderr?: string };
      return [`${message} ${stdout} ${stderr}`];
    }
  }
}

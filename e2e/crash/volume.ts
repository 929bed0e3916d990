// A disk with simulated power cuts: an ext4 in a file, mounted over a loop device in a separate namespace. The cut is the file
// system's own shutdown without a flush of its journal: unsynced data is lost, synced data stays.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Mounts } from '../harness/mounts.ts';
import { run } from '../harness/program.ts';

const VOLUME_BYTES = 256 * 1024 * 1024;

/** EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH; Node has no `ioctl`. */
const CUT_PROGRAM = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))
`;

export class Volume {
  #isFrozen = false;

  private constructor(
    private readonly folder: string,
    private readonly mounts: Mounts,
  ) {}

  /** Makes and mounts an empty volume. */
  static async create(): Promise<Volume> {
    requireTools();
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-volume-'));
    const volume = new Volume(folder, await Mounts.made(':'));
    writeFileSync(volume.#image, '');
    truncateSync(volume.#image, VOLUME_BYTES);
    mkdirSync(volume.path);
    run('mkfs.ext4', ['-q', '-F', volume.#image]);
    volume.mount();
    return volume;
  }

  /** The mount point, for programs that start with `launcher`. */
  get path(): string {
    return join(this.folder, 'mounted');
  }

  /** The mount point, for this process. */
  get outside(): string {
    return this.mounts.outside(this.path);
  }

  /** The launcher for programs that use the volume. */
  get launcher(): string[] {
    return this.mounts.launcher;
  }

  mount(): void {
    this.mounts.run('mount', '-o', 'loop', this.#image, this.path);
  }

  /** Cuts the power: every later access fails, and no more data reaches the disk. */
  cutPower(): void {
    this.mounts.run('python3', '-c', CUT_PROGRAM, this.path);
  }

  /** Freezes the volume: a process that writes to it waits in the kernel. */
  freeze(): void {
    this.mounts.run('fsfreeze', '--freeze', this.path);
    this.#isFrozen = true;
  }

  /** Ends a freeze, if the volume is frozen. */
  thaw(): void {
    if (this.#isFrozen) this.mounts.run('fsfreeze', '--unfreeze', this.path);
    this.#isFrozen = false;
  }

  /** Fails while a process has a file open on the volume. */
  unmount(): void {
    this.mounts.run('umount', this.path);
  }

  /** Removes the volume as soon as no process uses it. */
  dispose(): void {
    this.thaw();
    this.mounts.end();
    rmSync(this.folder, { recursive: true, force: true });
  }

  get #image(): string {
    return join(this.folder, 'image');
  }
}

/** Power-cut tests can't be skipped: without them nothing shows that writes survive a power cut. */
function requireTools(): void {
  if (process.getuid?.() !== 0) throw new Error('the power-cut test mounts a volume and must run as root');
  if (!existsSync('/dev/loop-control')) throw new Error('the power-cut test needs loop devices: /dev/loop-control is missing');
  for (const tool of ['mkfs.ext4', 'mount', 'umount', 'unshare', 'nsenter', 'fsfreeze', 'python3']) {
    try {
      execFileSync('which', [tool], { stdio: 'ignore' });
    } catch {
      throw new Error(`the power-cut test needs the program ${tool}; apt-get install -y e2fsprogs mount util-linux python3`);
    }
  }
}

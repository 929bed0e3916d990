// A disk whose power can be cut: an ext4 in a file, mounted over a loop device in a namespace of its own. The cut is the file
// system's own shutdown without a flush of its journal, so what was not synced is gone and what was synced stays.

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

  /** Where it is mounted, for whoever is launched with `launcher`. */
  get path(): string {
    return join(this.folder, 'mounted');
  }

  /** The same for this process. */
  get outside(): string {
    return this.mounts.outside(this.path);
  }

  /** What programs are to be launched with that use it. */
  get launcher(): string[] {
    return this.mounts.launcher;
  }

  mount(): void {
    this.mounts.run('mount', '-o', 'loop', this.#image, this.path);
  }

  /** From here on every access fails, and nothing more reaches the disk. */
  cutPower(): void {
    this.mounts.run('python3', '-c', CUT_PROGRAM, this.path);
  }

  /** From here on whoever writes to it waits in the kernel. */
  freeze(): void {
    this.mounts.run('fsfreeze', '--freeze', this.path);
    this.#isFrozen = true;
  }

  /** Ends that, if it is so. */
  thaw(): void {
    if (this.#isFrozen) this.mounts.run('fsfreeze', '--unfreeze', this.path);
    this.#isFrozen = false;
  }

  /** Fails while a process has a file open on the volume. */
  unmount(): void {
    this.mounts.run('umount', this.path);
  }

  /** Removes the volume, which goes when nobody uses it any more. */
  dispose(): void {
    this.thaw();
    this.mounts.end();
    rmSync(this.folder, { recursive: true, force: true });
  }

  get #image(): string {
    return join(this.folder, 'image');
  }
}

/** Power cuts can't be skipped: a machine that can't make them has not shown that writes survive them. */
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

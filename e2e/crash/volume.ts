// A disk whose power can be cut: an ext4 in a file, mounted over a loop device. The cut is the file system's own
// shutdown without a flush of its journal, so what was not synced is gone and what was synced stays.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../harness/program.ts';

const VOLUME_BYTES = 256 * 1024 * 1024;

/** EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH; Node has no `ioctl`. */
const CUT_PROGRAM = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))
`;

const mounted = new Set<Volume>();
process.on('exit', () => mounted.forEach((volume) => volume.dispose()));

export class Volume {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tidewire-volume-'));
  readonly #image = join(this.#folder, 'image');
  #isFrozen = false;
  /** Where the volume is mounted. */
  readonly path = join(this.#folder, 'mounted');

  /** Makes and mounts an empty volume. */
  static create(): Volume {
    requireTools();
    const volume = new Volume();
    writeFileSync(volume.#image, '');
    truncateSync(volume.#image, VOLUME_BYTES);
    mkdirSync(volume.path);
    run('mkfs.ext4', ['-q', '-F', volume.#image]);
    volume.mount();
    return volume;
  }

  mount(): void {
    run('mount', ['-o', 'loop', this.#image, this.path]);
    mounted.add(this);
  }

  /** From here on every access fails, and nothing more reaches the disk. */
  cutPower(): void {
    run('python3', ['-c', CUT_PROGRAM, this.path]);
  }

  /** From here on whoever writes to it waits in the kernel. */
  freeze(): void {
    run('fsfreeze', ['--freeze', this.path]);
    this.#isFrozen = true;
  }

  /** Ends that, if it is so. */
  thaw(): void {
    if (this.#isFrozen) run('fsfreeze', ['--unfreeze', this.path]);
    this.#isFrozen = false;
  }

  /** Fails while a process has a file open on the volume. */
  unmount(): void {
    run('umount', [this.path]);
    mounted.delete(this);
  }

  /** Unmounts the volume whatever uses it, and removes it. */
  dispose(): void {
    this.thaw();
    if (mounted.delete(this)) run('umount', ['--lazy', this.path]);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Power cuts can't be skipped: a machine that can't make them has not shown that writes survive them. */
function requireTools(): void {
  if (process.getuid?.() !== 0) throw new Error('the power-cut test mounts a volume and must run as root');
  if (!existsSync('/dev/loop-control')) throw new Error('the power-cut test needs loop devices: /dev/loop-control is missing');
  for (const tool of ['mkfs.ext4', 'mount', 'umount', 'fsfreeze', 'python3']) {
    try {
      execFileSync('which', [tool], { stdio: 'ignore' });
    } catch {
      throw new Error(`the power-cut test needs the program ${tool}; apt-get install -y e2fsprogs mount util-linux python3`);
    }
  }
}

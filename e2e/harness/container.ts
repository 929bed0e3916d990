// Servers in a container as hardened deployments run them: the image of packaging/Dockerfile, a user without rights, a read-only
// root, 1,024 descriptors, only the data folder writable, and only the system calls that containers may make, which excludes io_uring.
// `container/main.ts` builds the image; the functions here start each server of a run in it.

import { chmodSync, chownSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { IMAGE, buildImage, buildah, storage } from '../packaging/image.ts';
import { versionOf } from '../packaging/version.ts';

/** The user in the container. It has no name. */
export const USER = 1000;
export const DESCRIPTORS = 1024;

const REPOSITORY = resolve(import.meta.dirname, '../..');
const NAME = 'tidewire';

/** The settings in the image's metadata. */
export interface ImageSettings {
  User: string;
  Entrypoint: string[];
  Env: string[];
  Labels: Record<string, string>;
  Healthcheck: { Test: string[] };
}

/**
 * Makes the container's root read-only and runs a command, in a mount namespace that ends with the command. buildah has no option for
 * that. buildah removes its files under /run at its end, so /run stays writable, for root only.
 */
const ENTER = `
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -o remount,ro,bind "$1"
shift
exec "$@"
`;

/** The folder of the container that servers start in; undefined without a container. */
export function containerFolder(): string | undefined {
  return process.env['E2E_CONTAINER'] || undefined;
}

/** Builds the image, and a container of it in `folder`. */
export function buildContainer(folder: string, binary: string): void {
  buildImage(folder, { source: REPOSITORY, program: binary, version: versionOf(REPOSITORY), architecture: 'amd64' });
  const limit = `nofile=${DESCRIPTORS}:${DESCRIPTORS}`;
  buildah(folder, 'from', '--quiet', '--isolation', 'chroot', '--ulimit', limit, '--name', NAME, IMAGE);
  const root = buildah(folder, 'mount', NAME).trim();
  // Mount points of buildah, which it can't create later in a read-only root.
  for (const path of ['dev', 'etc', 'proc', 'run', 'sys', tmpdir()]) mkdirSync(join(root, path), { recursive: true });
  for (const file of ['hostname', 'hosts', 'resolv.conf']) writeFileSync(join(root, 'etc', file), '');
  writeFileSync(join(folder, 'root'), root);
  writeFileSync(join(folder, 'enter.sh'), ENTER);
}

/** The path of the container's root on this machine. */
export function containerRoot(folder: string): string {
  return readFileSync(join(folder, 'root'), 'utf8');
}

/** The settings of the container's image. */
export function imageSettings(folder: string): ImageSettings {
  const { Docker } = JSON.parse(buildah(folder, 'inspect', '--type', 'image', IMAGE)) as { Docker: { config: ImageSettings } };
  return Docker.config;
}

/** The command line that runs the server's `command` in the container of `folder`. The server reads `own` and writes `data`. */
export function containedCommand(folder: string, command: string[], own: string, data: string): string[] {
  mkdirSync(data, { recursive: true });
  chmodSync(own, 0o755);
  chownSync(data, USER, USER);
  const volumes = [`${tmpdir()}:${tmpdir()}:ro`, `${data}:${data}`].flatMap((volume) => ['--volume', volume]);
  const [, ...args] = command;
  return insideCommand(folder, [...imageSettings(folder).Entrypoint, ...args], volumes);
}

/** The command line that runs `command` as the image's user in the container of `folder`, with options of `buildah run`. */
export function insideCommand(folder: string, command: string[], options: string[]): string[] {
  const inside = ['run', '--isolation', 'chroot', ...options, NAME, '--', ...command];
  return ['unshare', '--mount', 'sh', join(folder, 'enter.sh'), containerRoot(folder), 'buildah', ...storage(folder), ...inside];
}

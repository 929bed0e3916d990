// Servers in a container as hardened deployments run them: the image of packaging/Dockerfile, whose user has no rights, a read-only
// root, 1,024 descriptors, only the data folder writable, and the system calls that a container may make, among which io_uring is not.
// `container/main.ts` builds the image; here each server of a run is started in it.

import { chmodSync, chownSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { run } from './program.ts';

/** The user inside, who has no name. */
export const USER = 1000;
export const DESCRIPTORS = 1024;

const DOCKERFILE = resolve(import.meta.dirname, '../../packaging/Dockerfile');
/** What the image stands on: no shell, no user, nothing that the server does not need. */
const BASE = 'localhost/base';
const IMAGE = 'localhost/tidewire';
const NAME = 'tidewire';

/** What the image says of itself. */
export interface ImageSettings {
  User: string;
  Entrypoint: string[];
  Env: string[];
  Healthcheck: { Test: string[] };
}

/**
 * Makes the container's root read-only and runs a command, in a mount namespace that ends with it. buildah has no option for
 * that. It removes what it made under /run when it ends, so that stays writable, for root.
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

/** The folder with the container that servers are started in, if they are. */
export function containerFolder(): string | undefined {
  return process.env['E2E_CONTAINER'] || undefined;
}

/** Makes the image of the smallest system that the binary needs, and a container of it in `folder`. */
export function buildContainer(folder: string, binary: string): void {
  if (process.getuid?.() !== 0) throw new Error('mmdebstrap and buildah make the container as root: run this as root');
  const system = join(folder, 'system.tar');
  run('mmdebstrap', ['--quiet', '--variant=extract', '--include=libc6,libgcc-s1', 'bookworm', system]);
  const base = buildah(folder, 'from', '--quiet', 'scratch').trim();
  buildah(folder, 'add', '--quiet', base, system, '/');
  buildah(folder, 'commit', '--quiet', '--rm', base, BASE);
  const context = join(folder, 'context');
  mkdirSync(context);
  copyFileSync(binary, join(context, 'tidewire'));
  // Only this format has health checks.
  const chosen = ['--format', 'docker', '--isolation', 'chroot', '--build-arg', `BASE=${BASE}`];
  buildah(folder, 'build', '--quiet', ...chosen, '--file', DOCKERFILE, '--tag', IMAGE, context);
  const limit = `nofile=${DESCRIPTORS}:${DESCRIPTORS}`;
  buildah(folder, 'from', '--quiet', '--isolation', 'chroot', '--ulimit', limit, '--name', NAME, IMAGE);
  const root = buildah(folder, 'mount', NAME).trim();
  // What buildah mounts something on, since it can't make it later.
  for (const path of ['dev', 'etc', 'proc', 'run', 'sys', tmpdir()]) mkdirSync(join(root, path), { recursive: true });
  for (const file of ['hosts', 'resolv.conf']) writeFileSync(join(root, 'etc', file), '');
  writeFileSync(join(folder, 'root'), root);
  writeFileSync(join(folder, 'enter.sh'), ENTER);
}

/** The root of the container, as this machine sees it. */
export function containerRoot(folder: string): string {
  return readFileSync(join(folder, 'root'), 'utf8');
}

/** What the image of the container says of itself. */
export function imageSettings(folder: string): ImageSettings {
  const { Docker } = JSON.parse(buildah(folder, 'inspect', '--type', 'image', IMAGE)) as { Docker: { config: ImageSettings } };
  return Docker.config;
}

/** The command that runs `command`, the server's own, in the container of `folder`. It reads `own` and writes `data`. */
export function containedCommand(folder: string, command: string[], own: string, data: string): string[] {
  mkdirSync(data, { recursive: true });
  chmodSync(own, 0o755);
  chownSync(data, USER, USER);
  const volumes = [`${tmpdir()}:${tmpdir()}:ro`, `${data}:${data}`].flatMap((volume) => ['--volume', volume]);
  const [, ...args] = command;
  return insideCommand(folder, [...imageSettings(folder).Entrypoint, ...args], volumes);
}

/** The command that runs `command` as the image's user in the container of `folder`, with options of `buildah run`. */
export function insideCommand(folder: string, command: string[], options: string[]): string[] {
  const inside = ['run', '--isolation', 'chroot', ...options, NAME, '--', ...command];
  return ['unshare', '--mount', 'sh', join(folder, 'enter.sh'), containerRoot(folder), 'buildah', ...storage(folder), ...inside];
}

/** The container keeps nothing outside its folder. */
function storage(folder: string): string[] {
  return ['--root', join(folder, 'store'), '--runroot', join(folder, 'run'), '--storage-driver', 'vfs'];
}

function buildah(folder: string, ...args: string[]): string {
  return run('buildah', [...storage(folder), ...args]);
}

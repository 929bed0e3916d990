// The container image of `packaging/Dockerfile`, built with buildah as root. The base of its first stage comes from Debian's archive.

import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../harness/program.ts';

export const IMAGE = 'localhost/tidewire';
const BASE = 'localhost/base';

/** The parts of an image. */
export interface ImageParts {
  /** The repository. */
  source: string;
  program: string;
  version: string;
  /** Debian's name of the processor, which is also the name in images. */
  architecture: string;
  /** The time of all files, in seconds since 1970, so that two builds are the same; without it, the time of the build. */
  seconds?: string;
}

/** Options that keep all files of buildah in `folder`. */
export function storage(folder: string): string[] {
  return ['--root', join(folder, 'store'), '--runroot', join(folder, 'run'), '--storage-driver', 'vfs'];
}

export function buildah(folder: string, ...args: string[]): string {
  return run('buildah', [...storage(folder), ...args]);
}

/** Builds the image in `folder`, which is buildah's storage. */
export function buildImage(folder: string, { source, program, version, architecture, seconds }: ImageParts): void {
  if (process.getuid?.() !== 0) throw new Error('mmdebstrap and buildah make the image as root: run this as root');
  const system = join(folder, 'system.tar');
  run('mmdebstrap', ['--quiet', '--variant=extract', `--architectures=${architecture}`, '--include=libc6,libgcc-s1,busybox-static', 'bookworm', system]);
  const platform = ['--arch', architecture];
  const base = buildah(folder, 'from', '--quiet', ...platform, 'scratch').trim();
  buildah(folder, 'add', '--quiet', base, system, '/');
  // The shell and the tools that the first stage runs; the packages are only extracted.
  buildah(folder, 'run', '--isolation', 'chroot', base, '--', '/bin/busybox', '--install', '-s', '/bin');
  buildah(folder, 'commit', '--quiet', '--rm', base, BASE);
  const context = join(folder, 'context');
  mkdirSync(context);
  copyFileSync(program, join(context, 'tidewire'));
  const values = ['--build-arg', `BASE=${BASE}`, '--build-arg', `VERSION=${version}`];
  const time = seconds === undefined ? [] : ['--timestamp', seconds];
  // Only the Docker format supports health checks.
  const chosen = ['--format', 'docker', '--isolation', 'chroot', ...platform, ...time, ...values];
  buildah(folder, 'build', '--quiet', ...chosen, '--file', join(source, 'packaging/Dockerfile'), '--tag', IMAGE, context);
}

/** Builds the image and writes it as an archive that `docker load` and `podman load` read. */
export function saveImage(parts: ImageParts, archive: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-image-'));
  try {
    buildImage(folder, parts);
    rmSync(archive, { force: true });
    buildah(folder, 'push', '--quiet', IMAGE, `docker-archive:${archive}:${IMAGE}:latest`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Joins the images of several processors into one archive in the OCI format, from which a registry serves each its own. */
export function saveManifest(archives: string[], target: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-manifest-'));
  try {
    buildah(folder, 'manifest', 'create', IMAGE);
    for (const archive of archives) buildah(folder, 'manifest', 'add', IMAGE, `docker-archive:${archive}`);
    rmSync(target, { force: true });
    buildah(folder, 'manifest', 'push', '--quiet', '--all', IMAGE, `oci-archive:${target}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

// Folders with the files that the blocks of the documents name: clients, certificates, secrets, records of stores.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { Authority, certify } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { binary } from '../harness/server.ts';
import { REPOSITORY } from './block.ts';

export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-documents-'));
  atEnd(t, () => rmSync(folder, { recursive: true }));
  return folder;
}

/** A folder for programs, with the clients installed. */
export function programFolder(t: TestContext): string {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'node_modules/@types'), { recursive: true });
  for (const name of ['@deepstream', 'socket.io-client', 'ws', '@types/ws', '@types/node']) {
    symlinkSync(join(REPOSITORY, 'e2e/node_modules', name), join(folder, 'node_modules', name));
  }
  symlinkSync(join(REPOSITORY, 'packages'), join(folder, 'node_modules/@tidewire'));
  symlinkSync(join(REPOSITORY, 'packages/client/node_modules/valibot'), join(folder, 'node_modules/valibot'));
  for (const name of ['react', 'react-dom', '@types/react', '@types/react-dom']) {
    symlinkSync(join(REPOSITORY, 'packages/react/node_modules', name), join(folder, 'node_modules', name));
  }
  for (const [binding, name] of [['vue', 'vue'], ['svelte', 'svelte'], ['solid', 'solid-js']] as const) {
    symlinkSync(join(REPOSITORY, 'packages', binding, 'node_modules', name), join(folder, 'node_modules', name));
  }
  return folder;
}

/** The paths of a server's certificate in the documents, and its names in a test's folder. */
const CERTIFICATES = [
  ['/etc/letsencrypt/live/app.example.com/fullchain.pem', 'server.pem'],
  ['/etc/letsencrypt/live/app.example.com/privkey.pem', 'server.key'],
  ['/etc/haproxy/app.example.com.pem', 'server-and-key.pem'],
] as const;

/** The text with the certificates of a test's folder, which `configurationFolder` has written. */
export function withCertificates(text: string, folder: string): string {
  return CERTIFICATES.reduce((changed, [path, name]) => changed.replaceAll(path, join(folder, name)), text);
}

/** A folder with a configuration, these rules, and the files that configurations of the documents name. */
export function configurationFolder(t: TestContext, configuration: string, rules: string): string {
  const folder = temporaryFolder(t);
  const write = (name: string, content: string): void => writeFileSync(join(folder, name), content, { mode: 0o600 });
  if (rules === '') {
    const made = spawnSync(binary(), ['rules', 'init'], { cwd: folder, encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
  } else {
    write('permissions.yml', rules);
  }
  const { certificate, key } = certify();
  write('server.pem', certificate);
  write('server.key', key);
  write('server-and-key.pem', certificate + key);
  write('authorities.pem', new Authority(t).certificate);
  write('secret', 'a secret that is long enough for HMAC');
  write('password.txt', 'correct horse battery');
  if (configuration !== '') write('tidewire.yml', withCertificates(configuration, folder));
  return folder;
}

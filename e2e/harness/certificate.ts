// Certificates for tests, made by openssl: self-signed, for loopback names.

import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';

/** Certificate and key as PEM. */
export interface Certified {
  certificate: string;
  key: string;
  /** What tells the certificate from others. */
  fingerprint: string;
}

/** A new certificate with its key. */
export function certify(): Certified {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-certificate-'));
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  const args = ['req', '-x509', ...curve, ...names, '-days', '30', '-out', certificate, '-keyout', key];
  execFileSync('openssl', args, { stdio: 'pipe' });
  const made = { certificate: readFileSync(certificate, 'utf8'), key: readFileSync(key, 'utf8') };
  rmSync(folder, { recursive: true });
  return { ...made, fingerprint: new X509Certificate(made.certificate).fingerprint256 };
}

/** The files that a server shows its certificate from; they end with `test`. */
export class CertificateFiles {
  readonly certificate: string;
  readonly key: string;

  constructor(test: TestContext, content: Certified) {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-tls-'));
    // A server in a container reads them as another user.
    chmodSync(folder, 0o755);
    atEnd(test, () => rmSync(folder, { recursive: true }));
    this.certificate = join(folder, 'certificate.pem');
    this.key = join(folder, 'key.pem');
    this.replace(content);
  }

  /** Replaces both files as renewal tools do: each at once, one after the other. */
  replace(content: Pick<Certified, 'certificate' | 'key'>): void {
    for (const [path, text] of [[this.key, content.key], [this.certificate, content.certificate]] as const) {
      writeFileSync(`${path}.new`, text);
      renameSync(`${path}.new`, path);
    }
  }
}

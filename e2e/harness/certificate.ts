// Certificates for tests, made by openssl: self-signed server certificates for loopback names, and client certificates of an authority.

import { execFileSync } from 'node:child_process';
import { X509Certificate, randomUUID } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';

/** Certificate and key as PEM. */
export interface Certified {
  certificate: string;
  key: string;
  /** Identifies the certificate. */
  fingerprint: string;
}

/** Makes a new key of a type that is generated quickly. */
const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** A new certificate with its key. */
export function certify(): Certified {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-certificate-'));
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  const args = ['req', '-x509', ...CURVE, ...names, '-days', '30', '-out', certificate, '-keyout', key];
  execFileSync('openssl', args, { stdio: 'pipe' });
  const made = { certificate: readFileSync(certificate, 'utf8'), key: readFileSync(key, 'utf8') };
  rmSync(folder, { recursive: true });
  return { ...made, fingerprint: new X509Certificate(made.certificate).fingerprint256 };
}

/** A client's certificate, with the names of Node's TLS options. */
export interface ClientCertificate {
  cert: string;
  key: string;
  /** The serial number in Node's format. */
  serial: string;
}

/** The content of a certificate. */
interface Issue {
  /** Seconds until it expires, and since its validity began. */
  seconds?: number;
  /** Alternative names, as `DNS:a.example`. */
  names?: string;
  /** The extended key usage. */
  usage?: 'clientAuth' | 'serverAuth';
}

/** An authority that issues certificates to clients; its files end with `test`. */
export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tidewire-authority-'));
  #count = 0;
  /** Its own certificate. */
  readonly certificate: string;

  constructor(test: TestContext) {
    const folder = this.#folder;
    atEnd(test, () => rmSync(folder, { recursive: true }));
    const subject = ['-subj', `/CN=authority ${randomUUID()}`, '-addext', 'keyUsage=keyCertSign'];
    const files = ['-keyout', join(folder, 'key.pem'), '-out', join(folder, 'certificate.pem')];
    execFileSync('openssl', ['req', '-x509', ...CURVE, ...subject, '-days', '30', ...files], { stdio: 'pipe' });
    this.certificate = readFileSync(join(folder, 'certificate.pem'), 'utf8');
    writeFileSync(join(folder, 'issued'), '');
  }

  /** A new certificate for a client with this common name. */
  issue(commonName: string, { seconds = 3_600, names, usage = 'clientAuth' }: Issue = {}): ClientCertificate {
    const at = (name: string): string => join(this.#folder, name);
    const number = (this.#count += 1);
    const [request, key, issued] = [at(`request-${number}`), at(`key-${number}`), at(`issued-${number}`)];
    const subject = ['-subj', `/CN=${commonName}`, '-keyout', key, '-out', request];
    execFileSync('openssl', ['req', '-new', ...CURVE, ...subject], { stdio: 'pipe' });
    const extensions = ['basicConstraints=CA:FALSE', `extendedKeyUsage=${usage}`, ...(names ? [`subjectAltName=${names}`] : [])];
    const lines = [
      '[ca]\ndefault_ca=d\n[d]\npolicy=p\ndefault_md=sha256\nunique_subject=no\nrand_serial=yes\nx509_extensions=e',
      `database=${at('issued')}\nnew_certs_dir=${this.#folder}\ncertificate=${at('certificate.pem')}\nprivate_key=${at('key.pem')}`,
      `[p]\ncommonName=supplied\n[e]\n${extensions.join('\n')}\n`,
    ];
    writeFileSync(at('configuration'), lines.join('\n'));
    const time = (inSeconds: number): string => {
      return `${new Date(Date.now() + inSeconds * 1_000).toISOString().replace(/[-:T]|\..*/g, '')}Z`;
    };
    const dates = ['-startdate', time(-7_200), '-enddate', time(seconds)];
    const files = ['-in', request, '-out', issued, '-notext', '-batch', '-config', at('configuration')];
    execFileSync('openssl', ['ca', ...dates, ...files], { stdio: 'pipe' });
    const cert = readFileSync(issued, 'utf8');
    return { cert, key: readFileSync(key, 'utf8'), serial: new X509Certificate(cert).serialNumber };
  }
}

/** The files from which a server reads its certificate; they are removed at the end of `test`. */
export class CertificateFiles {
  readonly certificate: string;
  readonly key: string;

  constructor(test: TestContext, content: Certified) {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-tls-'));
    // A server in a container reads the files as another user.
    chmodSync(folder, 0o755);
    atEnd(test, () => rmSync(folder, { recursive: true }));
    this.certificate = join(folder, 'certificate.pem');
    this.key = join(folder, 'key.pem');
    this.replace(content);
  }

  /** Replaces both files as renewal tools do: each atomically, first one, then the other. */
  replace(content: Pick<Certified, 'certificate' | 'key'>): void {
    for (const [path, text] of [[this.key, content.key], [this.certificate, content.certificate]] as const) {
      writeFileSync(`${path}.new`, text);
      renameSync(`${path}.new`, path);
    }
  }
}

// A real OpenID Connect issuer (npm `oidc-provider`): discovery, a key set, signed access tokens, and key rotation.

import { createPrivateKey, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { TestContext } from 'node:test';
import { Provider } from 'oidc-provider';
import { atEnd } from './cleanup.ts';
import { freePort } from './ports.ts';

/** The audience of the tokens. */
export const AUDIENCE = 'urn:tidewire:e2e';
const SECRET = 'the secret of every client of the issuer';

/** A private key in the issuer's format. */
function newKey(): Record<string, unknown> {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
}

export class Issuer {
  #server: Server | undefined;
  #keys = [newKey()];
  /** Seconds for which tokens are valid. */
  #lifetimeSeconds = 300;
  /** Requests for the key set. */
  keyReads = 0;

  private constructor(
    private readonly users: string[],
    private readonly port: number,
  ) {}

  /** An issuer whose clients have the names `users`; it stops at the end of `test`. */
  static async during(test: TestContext, users: string[]): Promise<Issuer> {
    const issuer = new Issuer(users, await freePort());
    atEnd(test, () => issuer.stop());
    await issuer.start();
    return issuer;
  }

  /** Its issuer identifier. */
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts the issuer; a second start uses the same port. */
  async start(): Promise<void> {
    let handle: RequestListener = (_request, response) => void response.writeHead(503).end();
    const server = createServer((request, response) => {
      if (request.url === '/jwks') this.keyReads += 1;
      handle(request, response);
    });
    server.listen(this.port, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
    handle = this.#provider().callback();
  }

  /** Stops the issuer, but keeps its keys. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }

  /** Signs with a new key and removes the old one from the key set. */
  async rotate(): Promise<void> {
    this.#keys = [newKey()];
    await this.stop();
    await this.start();
  }

  /** A token for one of the issuer's clients. */
  async token(user: string, lifetimeSeconds = 300): Promise<string> {
    this.#lifetimeSeconds = lifetimeSeconds;
    const response = await fetch(`${this.url}/token`, {
      method: 'POST',
      headers: {
        authorization: `Basic ${Buffer.from(`${user}:${encodeURIComponent(SECRET)}`).toString('base64')}`,
        // A keep-alive connection would break at the next rotation.
        connection: 'close',
      },
      body: new URLSearchParams({ grant_type: 'client_credentials', resource: AUDIENCE }),
    });
    const answer = (await response.json()) as { access_token?: string };
    if (answer.access_token === undefined) throw new Error(`the issuer gave no token: ${JSON.stringify(answer)}`);
    return answer.access_token;
  }

  /** A token that is signed with the issuer's key and has arbitrary claims. */
  forged(claims: Record<string, unknown>): string {
    const key = this.#keys[0] as Record<string, unknown>;
    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const message = `${part({ alg: 'RS256', kid: key['kid'] })}.${part({ iss: this.url, aud: AUDIENCE, ...claims })}`;
    const signature = sign('sha256', Buffer.from(message), createPrivateKey({ key: key as never, format: 'jwk' }));
    return `${message}.${signature.toString('base64url')}`;
  }

  #provider(): Provider {
    return new Provider(this.url, {
      jwks: { keys: this.#keys },
      clients: this.users.map((name) => ({
        client_id: name,
        client_secret: SECRET,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      })),
      features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: () => ({
            scope: '',
            audience: AUDIENCE,
            accessTokenTTL: this.#lifetimeSeconds,
            accessTokenFormat: 'jwt' as const,
            jwt: { sign: { alg: 'RS256' as const } },
          }),
        },
      },
    });
  }
}

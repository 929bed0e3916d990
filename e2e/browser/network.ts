// The network between a browser and the server, which tests can cut. Chromium cuts it itself and then knows that it is offline. Other
// browsers keep WebSockets open or have no such function, so a proxy cuts the connection.

import type { TestContext } from 'node:test';
import type { BrowserContext } from 'playwright-core';
import { Proxy } from '../harness/proxy.ts';
import type { Server } from '../harness/server.ts';
import { BROWSER } from './page.ts';

export class Network {
  private constructor(
    /** The address of the server for pages. */
    readonly address: string,
    private readonly proxy: Proxy | undefined,
  ) {}

  static async during(test: TestContext, server: Server): Promise<Network> {
    const proxy = BROWSER === 'chromium' ? undefined : await Proxy.during(test, server);
    return new Network(proxy?.address ?? server.address, proxy);
  }

  /** Closes the connections of the context's pages, and refuses new ones until `restore`. */
  async cut(context: BrowserContext): Promise<void> {
    if (this.proxy) this.proxy.cut();
    else await context.setOffline(true);
  }

  async restore(context: BrowserContext): Promise<void> {
    if (this.proxy) this.proxy.restore();
    else await context.setOffline(false);
  }
}

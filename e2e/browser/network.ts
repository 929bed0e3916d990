// The network between a browser and the server, which can be cut: by Chromium itself, which then knows that it is offline; for others,
// which leave WebSockets open when they are told so or can't be told, by a proxy.

import type { TestContext } from 'node:test';
import type { BrowserContext } from 'playwright-core';
import { Proxy } from '../harness/proxy.ts';
import type { Server } from '../harness/server.ts';
import { BROWSER } from './page.ts';

export class Network {
  private constructor(
    /** Where pages find the server. */
    readonly address: string,
    private readonly proxy: Proxy | undefined,
  ) {}

  static async during(test: TestContext, server: Server): Promise<Network> {
    const proxy = BROWSER === 'chromium' ? undefined : await Proxy.during(test, server);
    return new Network(proxy?.address ?? server.address, proxy);
  }

  /** Ends the connections of the context's pages, and refuses new ones until `restore`. */
  async cut(context: BrowserContext): Promise<void> {
    if (this.proxy) this.proxy.cut();
    else await context.setOffline(true);
  }

  async restore(context: BrowserContext): Promise<void> {
    if (this.proxy) this.proxy.restore();
    else await context.setOffline(false);
  }
}

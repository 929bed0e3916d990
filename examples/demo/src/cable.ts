// The sockets of a user, which the visitor can cut: they close, and new ones close too until the visitor restores the connection.

export class Cable {
  #isCut = false;
  readonly #sockets = new Set<WebSocket>();

  /** The class of the sockets that go through this cable. */
  readonly webSocket: typeof WebSocket;

  constructor() {
    const isCut = (): boolean => this.#isCut;
    const sockets = this.#sockets;
    this.webSocket = class extends WebSocket {
      constructor(url: string) {
        super(url);
        sockets.add(this);
        this.addEventListener('close', () => sockets.delete(this));
        // A browser cannot make a socket that never opens, so this one closes before it does.
        if (isCut()) this.close();
      }
    } as typeof WebSocket;
  }

  cut(): void {
    this.#isCut = true;
    this.#sockets.forEach((socket) => socket.close());
  }

  restore(): void {
    this.#isCut = false;
  }
}

// What is shown in several places of an app and asked of the server once. It knows nothing of React.

import type { Client, TidewireError } from '@tidewire/client';

/** What is known of one thing that the server tells about. */
export interface State<Value> {
  readonly value: Value | undefined;
  /** Whether the value is the server's. */
  readonly isReady: boolean;
  /** Why there is none. */
  readonly error: TidewireError | undefined;
}

export const NOTHING: State<never> = { value: undefined, isReady: false, error: undefined };

export type Tell<Value> = (change: Partial<State<Value>>) => void;

/** One way to follow something of a name. */
export interface Kind<Value> {
  /** Tells what there is and every change of it, until what it gives back is called. */
  start(client: Client, name: string, tell: Tell<Value>): () => void;
}

/** Does `start` as soon as `client` is not closed, and what that gave back at the end. */
export function whileUsable(client: Client, start: () => () => void): () => void {
  let stop: (() => void) | undefined;
  const run = (): void => {
    if (!client.closeReason) stop ??= start();
  };
  run();
  const ignore = client.onState(run);
  return () => {
    ignore();
    stop?.();
  };
}

/** One thing with all who look at it. It is followed while somebody does, and a little longer. */
export class Shared<Value> {
  state: State<Value> = NOTHING;
  readonly #listeners = new Set<() => void>();
  #stop: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #settle: () => void = () => {};
  #settled: Promise<void> | undefined;

  constructor(
    private readonly client: Client,
    private readonly kind: Kind<Value>,
    private readonly name: string,
    private readonly over: () => void,
  ) {}

  /** Calls `listener` with every change until the removal; after the last one everything is kept for `keepMs`. */
  subscribe(listener: () => void, keepMs: number): () => void {
    clearTimeout(this.#timer);
    this.#listeners.add(listener);
    this.#run();
    return () => {
      this.#listeners.delete(listener);
      this.#keep(keepMs);
    };
  }

  /** Fulfilled when there is a value or an error. Whoever waits has not subscribed yet, and has `keepMs` for that from then on. */
  wait(keepMs: number): Promise<void> {
    this.#run();
    this.#settled ??= new Promise<void>((done) => (this.#settle = done)).then(() => this.#keep(keepMs));
    this.#tellWaiting();
    return this.#settled;
  }

  /** Asks anew. */
  retry(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#settled = undefined;
    this.state = NOTHING;
    this.#run();
    this.#listeners.forEach((listener) => listener());
  }

  #run(): void {
    if (this.#stop) return;
    if (this.client.closeReason) this.state = { ...NOTHING, error: this.client.closeReason };
    let isOver = false;
    const stop = whileUsable(this.client, () =>
      this.kind.start(this.client, this.name, (change) => {
        if (!isOver) this.#tell(change);
      }),
    );
    this.#stop = () => {
      isOver = true;
      stop();
    };
  }

  #tell(change: Partial<State<Value>>): void {
    this.state = { ...this.state, ...change };
    this.#tellWaiting();
    this.#listeners.forEach((listener) => listener());
  }

  #tellWaiting(): void {
    if (this.state.isReady || this.state.error) this.#settle();
  }

  #keep(keepMs: number): void {
    clearTimeout(this.#timer);
    if (this.#listeners.size > 0) return;
    this.#timer = setTimeout(() => {
      this.#stop?.();
      this.over();
    }, keepMs);
    // Outside of pages a program does not wait for this to end.
    (this.#timer as { unref?(): void }).unref?.();
  }
}

/** Everything that is followed of one client. */
export class Store {
  static readonly #all = new WeakMap<Client, Store>();
  readonly #shared = new Map<Kind<unknown>, Map<string, Shared<unknown>>>();

  private constructor(readonly client: Client) {}

  /** That of `client`: it outlives components, which lose what they had when they suspend before they were ever shown. */
  static of(client: Client): Store {
    let store = Store.#all.get(client);
    if (!store) Store.#all.set(client, (store = new Store(client)));
    return store;
  }

  /** What is known already. */
  find<Value>(kind: Kind<Value>, name: string): Shared<Value> | undefined {
    return this.#shared.get(kind)?.get(name) as Shared<Value> | undefined;
  }

  take<Value>(kind: Kind<Value>, name: string): Shared<Value> {
    const found = this.find(kind, name);
    if (found) return found;
    const names = this.#shared.get(kind) ?? new Map<string, Shared<unknown>>();
    const made = new Shared(this.client, kind, name, () => names.delete(name));
    this.#shared.set(kind, names.set(name, made as Shared<unknown>));
    return made;
  }
}

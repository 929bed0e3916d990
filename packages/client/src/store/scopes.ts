// Members of scopes: the list that components show, and a component's session as a member. Components with the same scope share one list.

import { payload } from '../data.js';
import type { TidewireError } from '../error.js';
import { scopesOf, type Member, type Membership } from '../scopes.js';
import type { Kind, Store } from './shared.js';

/** The members of a scope, and the one of them that is this session. */
export interface Members {
  readonly all: readonly Member[];
  readonly self: Member | undefined;
}

export const MEMBERS: Kind<Members> = {
  start(client, scope, tell) {
    const followed = scopesOf(client).follow(scope, (all, self) => tell({ value: { all, self }, isReady: true, error: undefined }), {
      onEnd: (error) => tell({ value: undefined, isReady: false, error }),
    });
    followed.ready.catch((error) => tell({ error }));
    return followed;
  },
};

export const allMembers = ({ all }: Members): readonly Member[] => all;
export const selfMember = ({ self }: Members): Member | undefined => self;

export interface JoiningOptions {
  /** The shortest time between two states that are sent, in milliseconds. Default 50. It is read when the session joins. */
  throttleMs?: number | undefined;
}

/** A state as text, so that an equal state is the same text. Without a state there is none. */
export function stateText(state: unknown): string | undefined {
  return payload(state).data as string | undefined;
}

/** This session as a member of a scope, for one component. Without a scope or a state it is not a member. */
export class Joining {
  /** Why the session is not a member, or why the others do not see its newest state. */
  error: TidewireError | undefined;
  readonly #listeners = new Set<() => void>();
  /** The newest state, and the one that the client has. */
  #text: string | undefined;
  #given: string | undefined;
  #options: JoiningOptions = {};
  #membership: Membership | undefined;
  #isEnded = false;
  #ignore: (() => void) | undefined;

  constructor(
    private readonly store: Store,
    private readonly scope: string | undefined,
  ) {}

  /** Calls `listener` after each change of the error; returns the removal. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  /**
   * Joins with this state, replaces the state, or leaves without one. It takes effect after the other changes of this turn; leaving comes
   * after joining, so that a component can replace another one as the same member.
   */
  show(text: string | undefined, options: JoiningOptions = {}): void {
    this.#text = text;
    this.#options = options;
    queueMicrotask(text === undefined ? () => queueMicrotask(this.#apply) : this.#apply);
  }

  /** Asks the server again for what it has refused. */
  retry(): void {
    if (this.scope === undefined) return;
    const list = this.store.find(MEMBERS, this.scope);
    if (!this.error || list?.state.error) list?.retry();
    if (this.#isEnded) this.#leave();
    this.#apply();
  }

  readonly #apply = (): void => {
    const [{ client }, scope, text, { throttleMs }] = [this.store, this.scope, this.#text, this.#options];
    if (scope === undefined || text === undefined) return this.#leave();
    this.#ignore ??= client.onState(this.#apply);
    // The client of a closed connection takes no state.
    if (text === this.#given || this.#isEnded || client.closeReason) return;
    this.#tell(undefined);
    try {
      const state: unknown = JSON.parse(text);
      if (this.#membership) this.#membership.update(state);
      else {
        this.#membership = scopesOf(client).join(scope, state, {
          ...(throttleMs !== undefined && { throttleMs }),
          onEnd: (error) => {
            this.#isEnded = true;
            this.#tell(error);
          },
          onRefused: (error) => this.#tell(error),
        });
      }
      this.#given = text;
    } catch (error) {
      this.#tell(error as TidewireError);
    }
  };

  #leave(): void {
    this.#ignore?.();
    this.#membership?.();
    this.#ignore = this.#membership = this.#given = undefined;
    this.#isEnded = false;
    this.#tell(undefined);
  }

  #tell(error: TidewireError | undefined): void {
    if (error === this.error) return;
    this.error = error;
    this.#listeners.forEach((listener) => listener());
  }
}

// The messages of the server that a backend has handled, in the order in which they came. The server needs only their number.

interface Pending {
  isHeld: boolean;
}

export class Confirmations {
  /** Messages that are handled and not confirmed. */
  #handled = 0;
  /** Messages from the first held one on. */
  #pending: Pending[] = [];
  #current: Pending | undefined;
  readonly #due: () => void;

  /** `due` is called when a message that was held can be confirmed. */
  constructor(due: () => void) {
    this.#due = due;
  }

  /** Handles a message. It counts as handled at the end, unless it is held. */
  handle(message: () => void): void {
    const current = { isHeld: false };
    this.#current = current;
    try {
      message();
    } finally {
      this.#current = undefined;
      if (current.isHeld || this.#pending.length > 0) this.#pending.push(current);
      else this.#handled += 1;
    }
  }

  /** Holds the message that is handled now. The returned function ends that. */
  hold(): () => void {
    const current = this.#current;
    if (!current) throw new Error('only a listener of a message can hold it');
    current.isHeld = true;
    return () => {
      if (!current.isHeld) return;
      current.isHeld = false;
      while (this.#pending[0]?.isHeld === false) {
        this.#pending.shift();
        this.#handled += 1;
      }
      if (this.#handled > 0) this.#due();
    };
  }

  /** The number of messages that were handled since the last call. */
  take(): number {
    const handled = this.#handled;
    this.#handled = 0;
    return handled;
  }

  /** Forgets all messages: the connection that they came from has ended. */
  clear(): void {
    this.#handled = 0;
    this.#pending = [];
  }
}

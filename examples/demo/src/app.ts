// The types of the app: the names on the server and the types of their values.

/** An entry of the list. */
export interface Todo {
  text: string;
  done: boolean;
}

/** The list: entries by id. Each entry has its own path, so edits of different entries never replace each other. */
export interface Todos {
  items?: { [id: string]: Todo };
  /** Whether the server refuses all edits except of this field: see `permissions.yml`. */
  locked?: boolean;
}

/** The latest prices, the newest last. */
export interface Prices {
  points?: number[];
}

/** The edits during a crash of the server, by the run and a number. */
export interface Crashes {
  [run: string]: { [edit: string]: true };
}

/** The row of the list that a user is in, null for none, and the selection in its text, if the user edits it. */
export interface Cursor {
  user: string;
  row: string | null;
  start?: number;
  end?: number;
}

/** When a page has sent an event, by the clock of that page, in milliseconds. */
export interface Sent {
  page: string;
  at: number;
}

export interface Demo {
  records: {
    'tidewire-demo/todos': Todos;
    'tidewire-demo/prices': Prices;
    'tidewire-demo/crash': Crashes;
  };
  events: {
    'tidewire-demo/cursor': Cursor;
    /** An event of a bot. */
    'tidewire-demo/bots': Sent;
  };
  rpcs: {
    /** Throws a die: returns a number from 1 to `sides`, and the user whose tab has thrown it. */
    'tidewire-demo/throw': (argument: { sides: number }) => { number: number; by: string };
  };
}

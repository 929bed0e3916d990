// The types of the app: which names there are on the server, and what they carry.

/** An entry of the list. */
export interface Todo {
  text: string;
  done: boolean;
}

/** The list: entries by id. With a path of its own for each, edits of different entries never replace each other. */
export interface Todos {
  items?: { [id: string]: Todo };
  /** Whether the server refuses all edits but of this: see `permissions.yml`. */
  locked?: boolean;
}

/** The latest prices, the newest last. */
export interface Prices {
  points?: number[];
}

/** In which row of the list a user is; null in none. */
export interface Cursor {
  user: string;
  row: string | null;
}

export interface Demo {
  records: {
    'tidewire-demo/todos': Todos;
    'tidewire-demo/prices': Prices;
  };
  events: {
    'tidewire-demo/cursor': Cursor;
  };
  rpcs: {
    /** A number from 1 to `sides`, and the user whose tab has thrown it. */
    'tidewire-demo/throw': (argument: { sides: number }) => { number: number; by: string };
  };
}

// The types of the app: which names there are on the server, and what they carry.

/** An entry of the list. */
export interface Todo {
  text: string;
  done: boolean;
}

/** The list: entries by id. With a path of its own for each, edits of different entries never replace each other. */
export interface Todos {
  items?: { [id: string]: Todo };
}

export interface Demo {
  records: {
    'tidewire-demo/todos': Todos;
  };
}

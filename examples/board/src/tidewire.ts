// The types of the app, and the client and the hooks with these types.

import { Client } from '@tidewire/client';
import { hooks } from '@tidewire/react';
import { queryHooks } from '@tidewire/react/queries';
import { scopeHooks } from '@tidewire/react/scopes';

/** Each name with the type of its value. A wrong name, path or value does not compile. */
export interface App {
  records: { [name: `board/1/card/${string}`]: Card };
  scopes: { [name: `board/${string}`]: Attention };
}

export type Column = 'todo' | 'doing' | 'done';

export interface Card {
  title: string;
  /** The member who has written the title last. */
  titleBy: string;
  column: Column;
  position: number;
  /** The member who has put the card in its place. */
  movedBy: string;
  /** A deleted card stays as a record, so that a card can be deleted without a connection. */
  isDeleted: boolean;
}

/** The state of a member: the card that has the focus, and whether the member writes its title. */
export interface Attention {
  card: string | null;
  isEditing: boolean;
}

export const BOARD = 'board/1';
export const CARDS = 'board/1/card';

const USER = 'board-user';
/** The name of this user; empty for a visitor, who may only read. */
export const user = localStorage.getItem(USER) ?? '';

/** Another user gets another client, so the page is loaded again. */
export function signIn(name: string): void {
  localStorage.setItem(USER, name);
  location.reload();
}

const address = document.querySelector<HTMLMetaElement>('meta[name=tidewire]')?.content ?? location.host;
export const client = new Client<App>(address, user ? { auth: { username: user } } : {});
/** A database for each user: the next one at this device does not see the cards and edits of the last one. */
export const database = `board-${user}`;

export const { TidewireProvider, useConnection, useEdits, useSync } = hooks<App>();
export const { useQuery } = queryHooks<App>();
export const { useMembers } = scopeHooks<App>();

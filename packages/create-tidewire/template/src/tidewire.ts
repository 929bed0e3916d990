// The types of the app, and the client and the hooks with these types.

import { Client } from '@tidewire/client'
import { hooks } from '@tidewire/react'

/** Each name with the type of its value. A wrong name, path or value does not compile. */
export interface App {
  records: { [name: `lists/${string}`]: List }
  scopes: { [name: `lists/${string}`]: Reader }
}

export interface List {
  title?: string
  items?: { [id: string]: Item }
}

export interface Item {
  text: string
  done: boolean
}

/** The state of a member of a list. */
export interface Reader {
  name: string
  item?: string
}

/** `npm run dev` sets the address. A built page connects to the server that serves it. */
export const client = new Client<App>(import.meta.env.VITE_TIDEWIRE)
export const { TidewireProvider, useConnection, useRecord } = hooks<App>()

// The list of users online.

import type { Client } from '@tidewire/client';
import { presenceOf } from '@tidewire/client/presence';
import { useEffect, useState } from 'preact/hooks';
import type { Demo } from './app.ts';
import { colourOf, isBot, nameOf } from './user.ts';

/** The most names that are shown; others are only counted. */
const SHOWN_MAX = 12;

export interface PeopleProps {
  client: Client<Demo>;
  user: string;
  /** The words behind the name of `user`. */
  own: string;
}

export function People({ client, user, own }: PeopleProps) {
  const [others, setOthers] = useState<string[]>([]);
  useEffect(() => presenceOf(client).subscribeAll((users) => setOthers([...users].filter((one) => !isBot(one)).sort())), [client]);
  const shown = [user, ...others.filter((other) => other !== user)];
  return (
    <ul class="people" aria-label="Users online">
      {shown.slice(0, SHOWN_MAX).map((one) => (
        <li key={one} class={`person ${colourOf(one)}`}>
          {nameOf(one)}
          {one === user ? ` (${own})` : ''}
        </li>
      ))}
      {shown.length > SHOWN_MAX ? <li class="person">and {shown.length - SHOWN_MAX} more</li> : null}
    </ul>
  );
}

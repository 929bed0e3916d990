// Members of scopes: the list, and this session as a member while the component is mounted. A separate entry, `@tidewire/react/scopes`.

import type { Names, Schema, ScopesOf } from '@tidewire/client';
import type { Member } from '@tidewire/client/scopes';
import {
  Joining,
  MEMBERS,
  allMembers,
  selfMember,
  stateText,
  type JoiningOptions,
  type Live,
  type MembersIn,
  type Ready,
  type SelfIn,
  type StateIn,
} from '@tidewire/client/store';
import { useCallback, useEffect, useMemo, useSyncExternalStore } from 'react';
import type { Suspended } from './hooks.js';
import { useLive, type LiveOptions } from './live.js';
import { useScope } from './provider.js';

export type { Member };

export type MemberOptions<Members> = LiveOptions<Members> & JoiningOptions;

export interface ScopeHooks<App extends Schema = {}> {
  /**
   * The members of a scope with their states. With a state, this session is a member while the component is mounted; the state may be a new
   * object in each render. Without a scope, there is no request.
   */
  useMembers<Name extends Names<ScopesOf<App>>>(
    scope: Name,
    state: StateIn<App, Name> | undefined,
    options: MemberOptions<MembersIn<App, Name>> & Suspended,
  ): Ready<MembersIn<App, Name>> & SelfIn<App, Name>;
  useMembers<Name extends Names<ScopesOf<App>>>(
    scope: Name | undefined,
    state?: StateIn<App, Name>,
    options?: MemberOptions<MembersIn<App, Name>>,
  ): Live<MembersIn<App, Name>> & SelfIn<App, Name>;
}

const untyped = { useMembers: useAll } as unknown as ScopeHooks;

/** The hook for any scope; `scopeHooks` returns the hook of an app. */
export const useMembers: ScopeHooks['useMembers'] = untyped.useMembers;

/** The hook, typed by the schema of an app like its client. */
export function scopeHooks<App extends Schema = {}>(): ScopeHooks<App> {
  return untyped as unknown as ScopeHooks<App>;
}

const NO_OPTIONS = {};

function useAll(
  scope: string | undefined,
  state?: unknown,
  { throttleMs, ...options }: MemberOptions<readonly Member[]> = {},
): Live<readonly Member[]> & { self: Member | undefined } {
  const { store } = useScope();
  const text = stateText(state);
  const joining = useMemo(() => new Joining(store, scope), [store, scope]);
  const readError = (): Joining['error'] => joining.error;
  const refused = useSyncExternalStore(joining.subscribe, readError, () => undefined);
  useEffect(() => () => joining.show(undefined), [joining]);
  useEffect(() => joining.show(text, { throttleMs }), [joining, text, throttleMs]);
  const retry = useCallback(() => joining.retry(), [joining]);
  const { value: self } = useLive(MEMBERS, scope, NO_OPTIONS, selfMember);
  const { value, isReady, error = refused } = useLive(MEMBERS, scope, options, allMembers);
  return useMemo(() => ({ value, self, isReady, error, retry }), [value, self, isReady, error, retry]);
}

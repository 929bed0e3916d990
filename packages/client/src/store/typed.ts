// The types of a component's values, from the types of an app.

import type { EventContext } from '../event.js';
import type { EntryOf, ListNames } from '../lists.js';
import type { DocIn, Row, Selected } from '../live-query.js';
import type { AnyPath, Argument, EventsOf, Names, Optional, RecordsOf, Result, RpcsOf, ScopesOf, ValueAt, ValueOf } from '../schema.js';
import type { RpcContext } from '../provide.js';
import type { RequestOptions } from '../request.js';
import type { Member } from '../scopes.js';
import type { Live } from './live.js';

/** The document of a record. */
export type DocOf<App, Name> = Name extends Names<RecordsOf<App>> ? ValueOf<RecordsOf<App>, Name> : never;

/** A path of a document, or none. */
export type Place<Doc> = AnyPath<Doc> | undefined;

/** The value that a component shows of a document: the value at a path, or the whole document. */
export type Part<Doc, At> = [At] extends [undefined] ? Doc : ValueAt<Doc, At> | undefined;

/** A value that is never undefined, because the component is suspended until the value has arrived. */
export type Ready<Value> = Live<Value> & { readonly value: Value };

/** The entries of an app's list. */
export type EntryIn<App, Name> = Name extends ListNames<App> ? EntryOf<ValueOf<RecordsOf<App>, Name>> : never;

/** The rows of a query. */
export type RowsIn<App, Collection extends string> = ReadonlyArray<Row<DocIn<App, Collection>>>;

/** The rows of a query that selects parts of the documents. */
export type PartsIn<App, Collection extends string> = ReadonlyArray<Row<Selected<DocIn<App, Collection>>>>;

/** The state of a member. */
export type StateIn<App, Name> = Name extends Names<ScopesOf<App>> ? ValueOf<ScopesOf<App>, Name> : never;

/** The members of a scope. */
export type MembersIn<App, Name> = ReadonlyArray<Member<StateIn<App, Name>>>;

/** The member that is this session, in addition to the members of a scope. */
export interface SelfIn<App, Name> {
  readonly self: Member<StateIn<App, Name>> | undefined;
}

/** A callback for the events of a name. */
export type Heard<App, Name extends Names<EventsOf<App>>> = (payload: ValueOf<EventsOf<App>, Name>, context: EventContext) => void;

/** A function that publishes an event. */
export type Publish<App, Name extends Names<EventsOf<App>>> = (...payload: Optional<ValueOf<EventsOf<App>, Name>, never>) => void;

/** A function that calls an rpc. */
export type Call<App, Name extends Names<RpcsOf<App>>> = (
  ...args: Optional<Argument<ValueOf<RpcsOf<App>, Name>>, RequestOptions>
) => Promise<Result<ValueOf<RpcsOf<App>, Name>>>;

/** A function that answers the calls of an rpc. */
export type Answer<App, Name extends Names<RpcsOf<App>>> = (
  argument: Argument<ValueOf<RpcsOf<App>, Name>>,
  context: RpcContext,
) => Result<ValueOf<RpcsOf<App>, Name>> | Promise<Result<ValueOf<RpcsOf<App>, Name>>>;

// The values of a client that the components of an app share, without any framework. A separate entry, `@tidewire/client/store`, on which
// the bindings for React, Vue, Svelte and Solid are built.

export { followEvent, publish, type EventHandlers, type EventOptions } from './store/event.js';
export { entries, listEdits, type ListEdits, type ListTarget } from './store/list.js';
export { arrival, follow, missingOnServer, reader, shownValue, type Live, type LiveOptions, type Selection } from './store/live.js';
export { offlineOf, STARTING } from './store/offline.js';
export { presenceKind, type Online } from './store/presence.js';
export { QUERY, queryName, rows } from './store/query.js';
export { mergeBy, partAt, pathText, recordEdits, recordKind, type Edits, type OpenRecord, type RecordOptions, type RecordTarget } from './store/record.js';
export { Calls, answerCalls, type AnswerHandlers, type Progress } from './store/rpc.js';
export { connectionReader, NOT_CONNECTED, scopeOf, type Connection, type Scope, type ScopeOptions } from './store/scope.js';
export { Joining, MEMBERS, allMembers, selfMember, stateText, type JoiningOptions, type Members } from './store/scopes.js';
export { NOTHING, Shared, Store, whileUsable, type Kind, type State, type Tell } from './store/shared.js';
export type { Answer, Call, DocOf, EntryIn, Heard, MembersIn, Part, PartsIn, Place, Publish, Ready, RowsIn, SelfIn, StateIn } from './store/typed.js';
export type { QueuedEdit, Sync } from './offline/state.js';

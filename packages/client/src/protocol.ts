// The numbers of the native protocol, and the positions of its fields. Contract: `spec/deepstream.md`, "Topics and fields".

/** Topics: the first number of every message. */
export const enum Topic {
  Parser = 1,
  Connection,
  Auth,
  Event,
  Record,
  Rpc,
  Presence,
  Query = 32,
}

/** A position in an event's history: the session has received everything up to `offset` of `epoch`. */
export interface Position {
  epoch: number;
  offset: number;
}

/** One message of the protocol. A field that is absent is not sent; `0`, `false` and `""` are. */
export interface Message {
  topic: number;
  action: number;
  /** A JSON text. */
  data?: string;
  correlationId?: string;
  isError?: boolean;
  isAck?: boolean;
  isWriteAck?: boolean;
  name?: string;
  names?: string[];
  subscription?: string;
  originalTopic?: number;
  originalAction?: number;
  path?: string;
  version?: number;
  /** A number of 64 bits; its varint if it may exceed the safe integers. */
  incarnation?: number | Uint8Array;
  only?: number;
  existed?: boolean;
  key?: string;
  seenVersion?: number;
  url?: string;
  protocolVersion?: string;
  sdkVersion?: string;
  sdkType?: string;
  batches?: boolean;
  jumps?: boolean;
  missed?: number;
  epoch?: number;
  offset?: number;
  positions?: Array<{ name: string } & Partial<Position>>;
  traceparent?: string | undefined;
  /** Of `bytes`. */
  contentType?: string;
  /** A payload that is not JSON. */
  bytes?: Uint8Array;
  requestorName?: string;
  requestorData?: string;
}

export type FieldName = Exclude<keyof Message, 'topic'>;

/** The fields with boolean values, which are numbers on the wire. */
export const FLAGS: readonly FieldName[] = ['isError', 'isAck', 'isWriteAck', 'existed', 'batches', 'jumps'];

export type FieldNames = Array<FieldName | undefined>;

/** The fields of each topic, at the index that is their number. A number without a field is a hole. */
// prettier-ignore
export const FIELDS: Record<number, FieldNames> = {
  [Topic.Parser]: [, 'action', 'data', , , , , , 'originalTopic', 'originalAction'],
  [Topic.Connection]: [, 'action', 'data', 'isError', 'isAck', 'url', 'protocolVersion', 'sdkVersion', 'sdkType', , , , , , , 'batches', 'jumps'],
  [Topic.Auth]: [, 'action', 'data', 'isError', 'isAck'],
  [Topic.Event]: [
    , 'action', 'data', 'correlationId', 'isError', 'isAck', 'name', 'names', 'subscription', , 'originalTopic', 'originalAction',
    , , , 'missed', 'epoch', 'offset', 'positions', 'traceparent', 'contentType', 'bytes',
  ],
  [Topic.Record]: [
    , 'action', 'data', 'correlationId', 'isError', 'isAck', 'name', 'names', , 'subscription', 'originalAction', 'isWriteAck',
    'path', 'version', , , , , , , 'incarnation', 'only', 'existed', 'key', 'seenVersion',
  ],
  [Topic.Rpc]: [
    , 'action', 'data', 'correlationId', 'isError', 'isAck', 'names', 'name', , 'originalAction', 'requestorName', 'requestorData',
  ],
  [Topic.Presence]: [, 'action', 'originalTopic', 'originalAction', 'data', 'correlationId', 'isError', 'isAck', 'name', 'names'],
  [Topic.Query]: [, 'action', 'data', 'correlationId', 'isError', , 'name'],
};

/** The fields of an entry of `positions`. */
export const POSITION: FieldNames = [, 'name', 'epoch', 'offset'];

export const enum ConnectionAction {
  Ping = 2,
  Pong = 3,
  Accept = 4,
  Challenge = 5,
  Reject = 6,
  Redirect = 7,
  AuthenticationTimeout = 100,
  InvalidMessage = 101,
}

export const enum AuthAction {
  Request = 2,
  Successful = 3,
  Unsuccessful = 4,
  TooManyAttempts = 100,
  InvalidMessage = 101,
  InvalidMessageData = 102,
}

export const enum EventAction {
  Emit = 2,
  Subscribe = 3,
  Unsubscribe = 4,
  Gap = 120,
  Position = 121,
  SubscribePatterns = 122,
  UnsubscribePatterns = 123,
  PatternGap = 125,
}

export const enum RecordAction {
  Read = 3,
  ReadResponse = 4,
  Delete = 9,
  DeleteSuccess = 10,
  Deleted = 13,
  WriteAcknowledgement = 14,
  CreateAndUpdate = 16,
  Update = 18,
  Patch = 19,
  Erase = 20,
  SubscribeAndRead = 22,
  SubscribeCreateAndRead = 23,
  Unsubscribe = 26,
  HasProvider = 31,
  HasNoProvider = 32,
  PatchMulti = 35,
  Fetch = 60,
  Fetched = 61,
  Commit = 65,
  Committed = 66,
  VersionExists = 102,
  InvalidVersion = 108,
  WriteUnknown = 120,
  TransactionRefused = 121,
}

export const enum RpcAction {
  Request = 2,
  Accept = 4,
  Response = 5,
  Reject = 6,
  RequestError = 7,
  Provide = 8,
  Unprovide = 9,
}

export const enum PresenceAction {
  QueryAll = 2,
  QueryAllResponse = 3,
  Query = 4,
  QueryResponse = 5,
  Join = 6,
  JoinAll = 7,
  Leave = 8,
  LeaveAll = 9,
  Subscribe = 10,
  Unsubscribe = 11,
  SubscribeAll = 12,
  UnsubscribeAll = 13,
}

/** Actions of the topic PRESENCE. */
export const enum ScopeAction {
  Join = 60,
  Joined,
  Update,
  Leave,
  Subscribe,
  Unsubscribe,
  Snapshot,
  Changed,
}

export const enum QueryAction {
  Read = 1,
  ReadAndCount,
  Result,
  Subscribe,
  Unsubscribe,
  Snapshot,
  Changed,
}

const DENIED = 'MESSAGE_DENIED';
const RULE_FAILED = 'MESSAGE_PERMISSION_ERROR';
const INVALID = 'INVALID_MESSAGE_DATA';

/** The codes of the server's refusals by topic; the index is the action, less 100. */
// prettier-ignore
const REFUSALS: Record<number, Array<string | undefined>> = {
  [Topic.Event]: [, , , RULE_FAILED, DENIED, INVALID, , , , , , , , , , , , , , , , , , , 'INVALID_PATTERN'],
  [Topic.Record]: [
    'STORAGE_RETRIEVAL_TIMEOUT', 'STORAGE_RETRIEVAL_TIMEOUT', , 'RECORD_LOAD_ERROR', 'RECORD_CREATE_ERROR', 'RECORD_UPDATE_ERROR',
    'RECORD_DELETE_ERROR', 'RECORD_NOT_FOUND', , 'INVALID_PATCH_ON_HOTPATH', , , , , RULE_FAILED, DENIED, INVALID, , , , 'WRITE_UNKNOWN',
  ],
  [Topic.Rpc]: ['NO_RPC_PROVIDER', 'ACCEPT_TIMEOUT', , 'INVALID_RPC_CORRELATION_ID', 'RESPONSE_TIMEOUT', , RULE_FAILED, DENIED, INVALID],
  [Topic.Presence]: ['INVALID_PRESENCE_USERS', RULE_FAILED, DENIED],
  [Topic.Query]: ['INVALID_QUERY', 'QUERY_TOO_LARGE', 'TOO_MANY_QUERIES', 'QUERY_UNAVAILABLE', 'QUERY_RULE'],
};

/** The code of the refusal, if `message` is one. */
export function refusal({ topic, action }: Message): string | undefined {
  return REFUSALS[topic]?.[action - 100];
}

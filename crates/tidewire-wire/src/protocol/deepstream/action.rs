//! The numbers of the actions, by topic. Actions that neither side sends have no name here. Contract:
//! `spec/deepstream.md`, "Actions".

/// Topic PARSER.
pub mod parser {
    pub const UNKNOWN_TOPIC: u32 = 1;
}

/// Topic CONNECTION.
pub mod connection {
    pub const PING: u32 = 2;
    pub const PONG: u32 = 3;
    pub const ACCEPT: u32 = 4;
    pub const CHALLENGE: u32 = 5;
    pub const REJECT: u32 = 6;
    pub const REDIRECT: u32 = 7;
    pub const AUTHENTICATION_TIMEOUT: u32 = 100;
    pub const INVALID_MESSAGE: u32 = 101;
}

/// Topic AUTH.
pub mod auth {
    pub const REQUEST: u32 = 2;
    pub const SUCCESSFUL: u32 = 3;
    pub const UNSUCCESSFUL: u32 = 4;
    pub const TOO_MANY_ATTEMPTS: u32 = 100;
    pub const INVALID_MESSAGE: u32 = 101;
    pub const INVALID_MESSAGE_DATA: u32 = 102;
}

/// Topic EVENT. `listen.rs` has the numbers of listening.
pub mod event {
    pub const EMIT: u32 = 2;
    pub const SUBSCRIBE: u32 = 3;
    pub const UNSUBSCRIBE: u32 = 4;
    pub const LISTEN: u32 = 5;
    pub const MESSAGE_PERMISSION_ERROR: u32 = 103;
    pub const MESSAGE_DENIED: u32 = 104;
    pub const INVALID_MESSAGE_DATA: u32 = 105;
    pub const MULTIPLE_SUBSCRIPTIONS: u32 = 106;
    /// Tidewire's additions, far from deepstream's possible new numbers.
    pub const GAP: u32 = 120;
    pub const POSITION: u32 = 121;
    pub const SUBSCRIBE_PATTERNS: u32 = 122;
    pub const UNSUBSCRIBE_PATTERNS: u32 = 123;
    pub const INVALID_PATTERN: u32 = 124;
    pub const PATTERN_GAP: u32 = 125;
}

/// Topic RECORD. `listen.rs` has the numbers of listening.
pub mod record {
    pub const NOTIFY: u32 = 2;
    pub const READ: u32 = 3;
    pub const READ_RESPONSE: u32 = 4;
    pub const HEAD: u32 = 5;
    pub const HEAD_RESPONSE: u32 = 6;
    pub const HEAD_RESPONSE_BULK: u32 = 8;
    pub const DELETE: u32 = 9;
    pub const DELETE_SUCCESS: u32 = 10;
    pub const DELETED: u32 = 13;
    pub const WRITE_ACKNOWLEDGEMENT: u32 = 14;
    pub const CREATE_AND_UPDATE: u32 = 16;
    pub const CREATE_AND_PATCH: u32 = 17;
    pub const UPDATE: u32 = 18;
    pub const PATCH: u32 = 19;
    pub const ERASE: u32 = 20;
    pub const SUBSCRIBE_AND_HEAD: u32 = 21;
    pub const SUBSCRIBE_AND_READ: u32 = 22;
    pub const SUBSCRIBE_CREATE_AND_READ: u32 = 23;
    pub const SUBSCRIBE: u32 = 25;
    pub const UNSUBSCRIBE: u32 = 26;
    pub const LISTEN: u32 = 27;
    pub const HAS_PROVIDER: u32 = 31;
    pub const HAS_NO_PROVIDER: u32 = 32;
    pub const PATCH_MULTI: u32 = 35;
    // Tidewire's additions, far from deepstream's possible new numbers.
    pub const FETCH: u32 = 60;
    pub const FETCHED: u32 = 61;
    pub const PUT: u32 = 62;
    pub const STORED: u32 = 63;
    pub const PRECONDITION_FAILED: u32 = 64;
    pub const COMMIT: u32 = 65;
    pub const COMMITTED: u32 = 66;
    pub const CACHE_RETRIEVAL_TIMEOUT: u32 = 100;
    pub const STORAGE_RETRIEVAL_TIMEOUT: u32 = 101;
    pub const VERSION_EXISTS: u32 = 102;
    pub const RECORD_LOAD_ERROR: u32 = 103;
    pub const RECORD_CREATE_ERROR: u32 = 104;
    pub const RECORD_UPDATE_ERROR: u32 = 105;
    pub const RECORD_DELETE_ERROR: u32 = 106;
    pub const RECORD_NOT_FOUND: u32 = 107;
    pub const INVALID_VERSION: u32 = 108;
    pub const INVALID_PATCH_ON_HOTPATH: u32 = 109;
    pub const RECORD_NOTIFY_ERROR: u32 = 113;
    pub const MESSAGE_PERMISSION_ERROR: u32 = 114;
    pub const MESSAGE_DENIED: u32 = 115;
    pub const INVALID_MESSAGE_DATA: u32 = 116;
    pub const MULTIPLE_SUBSCRIPTIONS: u32 = 117;
    // Further additions of Tidewire.
    pub const WRITE_UNKNOWN: u32 = 120;
    pub const TRANSACTION_REFUSED: u32 = 121;
}

/// Topic RPC.
pub mod rpc {
    pub const REQUEST: u32 = 2;
    pub const ACCEPT: u32 = 4;
    pub const RESPONSE: u32 = 5;
    pub const REJECT: u32 = 6;
    pub const REQUEST_ERROR: u32 = 7;
    pub const PROVIDE: u32 = 8;
    pub const UNPROVIDE: u32 = 9;
    pub const NO_RPC_PROVIDER: u32 = 100;
    pub const ACCEPT_TIMEOUT: u32 = 101;
    pub const MULTIPLE_ACCEPT: u32 = 102;
    pub const INVALID_RPC_CORRELATION_ID: u32 = 103;
    pub const RESPONSE_TIMEOUT: u32 = 104;
    pub const MESSAGE_PERMISSION_ERROR: u32 = 106;
    pub const MESSAGE_DENIED: u32 = 107;
    pub const INVALID_MESSAGE_DATA: u32 = 108;
    pub const MULTIPLE_PROVIDERS: u32 = 109;
}

/// Topic PRESENCE.
pub mod presence {
    pub const QUERY_ALL: u32 = 2;
    pub const QUERY_ALL_RESPONSE: u32 = 3;
    pub const QUERY: u32 = 4;
    pub const QUERY_RESPONSE: u32 = 5;
    pub const JOIN: u32 = 6;
    pub const JOIN_ALL: u32 = 7;
    pub const LEAVE: u32 = 8;
    pub const LEAVE_ALL: u32 = 9;
    pub const SUBSCRIBE: u32 = 10;
    pub const UNSUBSCRIBE: u32 = 11;
    pub const SUBSCRIBE_ALL: u32 = 12;
    pub const UNSUBSCRIBE_ALL: u32 = 13;
    pub const INVALID_PRESENCE_USERS: u32 = 100;
    pub const MESSAGE_PERMISSION_ERROR: u32 = 101;
    pub const MESSAGE_DENIED: u32 = 102;
    pub const MULTIPLE_SUBSCRIPTIONS: u32 = 103;
    // Tidewire's additions, far from deepstream's possible new numbers.
    pub const SCOPE_JOIN: u32 = 60;
    pub const SCOPE_JOINED: u32 = 61;
    pub const SCOPE_UPDATE: u32 = 62;
    pub const SCOPE_LEAVE: u32 = 63;
    pub const SCOPE_SUBSCRIBE: u32 = 64;
    pub const SCOPE_UNSUBSCRIBE: u32 = 65;
    pub const SCOPE_SNAPSHOT: u32 = 66;
    pub const SCOPE_CHANGED: u32 = 67;
    pub const INVALID_SCOPE_DATA: u32 = 120;
    pub const STATE_TOO_LARGE: u32 = 121;
    pub const TOO_MANY_SCOPES: u32 = 122;
    pub const SCOPE_FULL: u32 = 123;
    pub const NOT_A_MEMBER: u32 = 124;
    pub const SCOPE_UNAVAILABLE: u32 = 125;
}

/// Topic QUERY, an addition of Tidewire.
pub mod query {
    pub const READ: u32 = 1;
    pub const READ_AND_COUNT: u32 = 2;
    pub const RESULT: u32 = 3;
    pub const SUBSCRIBE: u32 = 4;
    pub const UNSUBSCRIBE: u32 = 5;
    pub const SNAPSHOT: u32 = 6;
    pub const CHANGED: u32 = 7;
    pub const INVALID_QUERY: u32 = 100;
    pub const QUERY_TOO_LARGE: u32 = 101;
    pub const TOO_MANY_QUERIES: u32 = 102;
    pub const QUERY_UNAVAILABLE: u32 = 103;
    pub const QUERY_RULE: u32 = 104;
}

/// Refusals of topic BACKEND. `BackendKind` has all numbers.
pub mod backend {
    pub const NOT_A_BACKEND: u32 = 100;
    pub const INVALID_COMMAND: u32 = 101;
    pub const ASK_FAILED: u32 = 102;
}

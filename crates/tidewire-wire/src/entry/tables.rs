//! The numbers of the fields and variants of entries, as in `spec/entries.md`. A number is never used again for another meaning.

use tidewire_core::address::{Address, SessionId};
use tidewire_core::entry::{
    AnnouncedRecord, AnnouncedUser, Answer, Asker, BackendEntry, BulkName, CallAnswer, CallNotice,
    Entry, ExchangeEntry, ExchangeReply, ExchangeRequest, HistoryEntry, HistoryGap, HistoryPage,
    HistoryRead, InterestEntry, LaggingReader, ListenNotice, Listening, OperationChange,
    OwnedBackend, OwnedCall, OwnedKey, OwnedOperation, OwnedPut, OwnedTransaction, OwnedWrite,
    PendingReplyId, PresenceChange, Published, QueryEntry, Reauthorization, RecordAnswer,
    RecordOperation, RecordRead, RecordRefusal, RecordRequest, RecordRequestKind, ReplyPart,
    Resumed, RpcDelivery, RpcEntry, ScopeEntry, Snapshot, Stored, TransactionResult, UnsavedRow,
    UnsavedValue, ViewEntry, WorkEntry,
};
use tidewire_core::message::{
    BackendKind, Only, Position, QueryReason, RareAttributes, Reason, RecordAction, RecordBulk,
    Tag, Topic,
};
use tidewire_core::principal::Credential;
use tidewire_core::publication::{InterestTopic, OwnedPublication};
use tidewire_core::rate::Operation;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::store::{Dropped, Incarnation, StoredKey, StoredRecord, Version};
use tidewire_core::time::WallTime;
use tidewire_core::view::View;

use super::DecodeError;
use super::field::{
    Field, Source, Value, choices, message_of, numbers, prefixed, present_len, read_fields,
    structs, wrappers, write_present,
};
use crate::protobuf::{Sink, WireType, varint_bytes};

choices! {
    Entry {
        1 Publication[publication],
        2 PresenceChanged[change],
        3 History[entry],
        4 RecordRequest[request],
        5 RecordRelease { 1 name, 2 epoch, 3 session, 4 serial },
        6 RecordAnswer[answer],
        7 RecordPublished { 1 name, 2 what, 3 except },
        8 ReadValue { 1 name, 2 asker },
        9 Value { 1 name, 2 asker, 3 value },
        10 Listening[entry],
        11 ListenNotice { 1 provider, 2 topic, 3 pattern, 4 name, 5 notice },
        12 Rpc[entry],
        13 RpcDelivery[delivery],
        14 Online { 1 user, 2 session, 3 reply },
        15 Offline { 1 user, 2 shard },
        16 PresenceQuery { 1 reply, 2 users },
        17 ReplyPart { 1 reply, 2 part },
        18 RateAsked { 1 user, 2 operation, 3 shard },
        19 RateGranted { 1 user, 2 operation, 3 count },
        20 Rights[marker],
        21 RightsPassed { 1 from, 2 number },
        22 Work[entry],
        23 SessionEnded { 1 session },
        24 View[entry],
        25 Query[entry],
        26 Backend[entry],
        27 Scope[entry],
        28 RightsSent { 1 from, 2 number },
        29 Interest[entry],
        30 Exchange[entry],
    }

    BackendEntry {
        1 Serve { 1 backend, 2 namespaces, 3 sessions, 4 earlier, 5 received },
        2 Lost { 1 backend, 2 sent },
        3 Notice { 1 backend, 2 from, 3 message },
        4 Confirmed { 1 backend, 2 count },
        5 Command { 1 backend, 2 message },
        6 Broadcast[message],
        7 Ask { 1 backend, 2 ask, 3 timeout_ms, 4 message },
        8 Asked { 1 backend, 2 ask, 3 count, 4 is_refused },
        9 Response { 1 backend, 2 ask, 3 message },
        10 AskOver { 1 backend, 2 ask },
        11 HandOver { 1 backend },
        12 HandedOver { 1 backend },
        13 DeliverAgain { 1 backend, 2 namespaces },
    }

    InterestEntry {
        1 Changed { 1 topic, 2 name, 3 wanted, 4 number },
        2 Complete,
        3 Visible { 1 number },
    }

    ExchangeEntry {
        1 Request { 1 session, 2 secret, 3 request, 4 what },
        2 Reply { 1 request, 2 what },
    }

    ExchangeRequest {
        1 Poll,
        2 Post,
        3 Body[body],
        4 LargeBody,
        5 BrokenBody,
        6 MaySwitch,
        7 Gone,
        8 Left,
        9 Release,
    }

    ExchangeReply {
        1 Admitted[bytes_max],
        2 Messages[body],
        3 Taken,
        4 Unknown,
        5 OutOfTurn,
    }

    ScopeEntry {
        1 Join { 1 session, 2 scope, 3 user, 4 state, 5 is_member },
        2 Update { 1 session, 2 scope, 3 state },
        3 Leave { 1 session, 2 scope },
        4 Subscribe { 1 session, 2 serial, 3 scope },
        5 Release { 1 session, 2 scope },
        6 Joined { 1 session, 2 scope },
        7 Full { 1 session, 2 scope },
        8 Snapshot { 1 session, 2 serial, 3 owner, 4 scope, 5 data },
        9 Changed { 1 owner, 2 scope, 3 data },
    }

    QueryEntry {
        1 Collect { 1 run, 2 reader, 3 prefix, 4 query },
        2 Collected { 1 run, 2 shard, 3 rows, 4 is_last },
        3 Subscribe { 1 session, 2 serial, 3 principal, 4 prefix, 5 query },
        4 Release { 1 session, 2 serial },
        5 Refresh { 1 session, 2 serial },
        6 Snapshot { 1 session, 2 serial, 3 owner, 4 query, 5 data },
        7 Ended { 1 session, 2 serial, 3 reason, 4 data },
        8 Changed { 1 owner, 2 query, 3 data },
        9 Watch { 1 query, 2 owner, 3 prefix, 4 text, 5 principal },
        10 Unwatch { 1 query, 2 owner, 3 prefix },
        11 Written { 1 query, 2 row },
    }

    HistoryEntry {
        1 Publish { 1 publication, 2 publisher },
        2 Read[read],
        3 Refused { 1 publisher, 2 name },
        4 Release { 1 name, 2 shard },
        5 Sweep[name],
        6 Published { 1 publication, 2 except },
        7 Page[page],
    }

    RecordRequestKind {
        1 Bulk { 1 action, 2 names, 3 reply, 4 correlation },
        2 One(1 name, 2 operation),
    }

    RecordOperation {
        1 Read[read],
        2 Delete,
        3 Write[write],
        4 Put[put],
        5 Transaction[transaction],
    }

    OperationChange {
        1 Check,
        2 Put[data],
        3 Delete,
    }

    TransactionResult {
        1 Committed { 1 stored },
        2 PreconditionFailed { 1 name, 2 tag },
        3 Refused { 1 name, 2 why },
    }

    RecordRead {
        1 Value,
        2 Version,
        3 State[correlation],
        4 Right[right],
    }

    Only {
        1 Always,
        2 Missing,
        3 Present,
        4 Is[tag],
    }

    Answer {
        1 Granted {
            1 serial,
            2 epoch,
            3 provided,
            4 value_bytes,
            5 snapshot,
            6 action,
            7 correlation,
        },
        2 Reauthorized { 1 ticket, 2 lost },
        3 Lost { 1 serial, 2 why },
        4 Snapshot[snapshot],
        5 NotFound,
        6 Deleted,
        7 Written { 1 correlation },
        8 Fetched { 1 correlation, 2 state },
        9 Stored { 1 correlation, 2 stored },
        10 PreconditionFailed { 1 correlation, 2 tag },
        11 VersionExists { 1 version, 2 data, 3 action, 4 correlation, 5 write_ack },
        12 InvalidVersion { 1 version, 2 action, 3 correlation, 4 write_ack },
        13 Refused { 1 why, 2 action, 3 serial, 4 correlation, 5 write_ack },
        14 Resumed[resumed],
        15 Decided { 1 correlation, 2 result },
    }

    Snapshot {
        1 Read(1 found),
        2 Head(1 version),
        3 Nothing,
        4 Known[tag],
    }

    Published {
        1 Changed { 1 version, 2 change, 3 full },
        2 Deleted,
        3 Provided[provided],
        4 Created[incarnation],
    }

    Asker {
        1 Session[session],
        2 Lagging(1 session, 2 reader),
        3 Listening { 1 owner, 2 topic, 3 name, 4 number },
        4 EventRight { 1 address, 2 ticket },
        5 Reauthorize { 1 address, 2 ticket },
        6 Record { 1 owner, 2 name },
        7 Query { 1 address, 2 run },
    }

    Listening {
        1 Add { 1 topic, 2 pattern, 3 provider, 4 principal, 5 reply },
        2 Remove { 1 topic, 2 pattern, 3 provider, 4 reply },
        3 Renewed { 1 provider, 2 principal },
        4 Answered { 1 topic, 2 pattern, 3 name, 4 provider, 5 accepted },
        5 Census { 1 owner, 2 round },
        6 CensusEnded { 1 owner },
        7 Present { 1 round, 2 shard, 3 names },
        8 Interest { 1 round, 2 shard, 3 name, 4 wanted },
    }

    RpcEntry {
        1 Provide { 1 names, 2 provider, 3 reply },
        2 Unprovide { 1 names, 2 provider, 3 reply },
        3 Revoke { 1 name, 2 provider },
        4 Request[call],
        5 Answer { 1 name, 2 correlation, 3 provider, 4 what, 5 data },
    }

    CallNotice {
        1 Request { 1 data, 2 requestor_name, 3 requestor_data },
        2 Accepted,
        3 Response(1 data),
        4 Error(1 data),
        5 Failed[reason],
        6 MultipleAccept,
        7 Unknown[answer],
    }

    ReplyPart {
        1 Done,
        2 Users(1 users),
    }

    WorkEntry {
        1 Deferred { 1 session, 2 owner, 3 work },
        2 Proceed { 1 session },
        3 Proceeded { 1 session, 2 owner, 3 work, 4 is_done },
        4 SessionEnded { 1 session },
    }

    ViewEntry {
        1 Marker { 1 from, 2 view, 3 returned },
        2 Closed { 1 from, 2 view, 3 slots },
        3 Passed { 1 from, 2 view },
        4 Records { 1 session, 2 principal, 3 names },
        5 Providers { 1 provider, 2 names },
        6 Users { 1 shard, 2 users },
    }

    Revoked {
        1 User[user],
        2 Credential[credential],
    }

    Credential {
        1 Token[id],
        2 Key[id],
        3 Certificate[id],
        4 Password[id],
        5 Operator[id],
        6 Backend[id],
    }

    Dropped {
        1 Nothing,
        2 UpTo[version],
        3 Unordered,
    }
}

structs! {
    OwnedBackend {
        1 kind,
        2 session,
        3 name,
        4 data,
        5 correlation,
        6 names,
        7 except,
        8 attachments,
        9 count,
        10 only,
    }
    UnsavedRow { 1 name, 2 value }
    UnsavedValue { 1 version, 2 data }
    Address { 1 node, 2 shard }
    SessionId { 1 address, 2 index, 3 generation }
    PendingReplyId { 1 address, 2 index, 3 number }
    PresenceChange { 1 everyone, 2 user, 3 online, 4 except }
    OwnedPublication { 1 name, 2 data, 3 rare }
    RareAttributes { 1 offset, 2 trace, 3 binary, 4 attachments }
    Position { 1 epoch, 2 offset }
    HistoryRead { 1 session, 2 name, 3 serial, 4 after, 5 bytes_max, 6 reply }
    HistoryPage {
        1 session,
        2 name,
        3 serial,
        4 is_resumed,
        5 reply,
        6 before,
        7 gap,
        8 events,
        9 is_granted,
    }
    HistoryGap { 1 missed }
    RecordRequest { 1 session, 2 principal, 3 what }
    AnnouncedRecord { 1 name, 2 serial, 3 epoch, 4 shown }
    AnnouncedUser { 1 user, 2 before, 3 count }
    BulkName { 1 name, 2 index, 3 serial }
    Reauthorization { 1 ticket, 2 serial, 3 epoch }
    OwnedWrite {
        1 version,
        2 correlation,
        3 write_ack,
        4 action,
        5 change,
        6 put,
        7 key,
    }
    OwnedKey { 1 text, 2 seen }
    OwnedPut { 1 correlation, 2 only, 3 data }
    OwnedTransaction { 1 correlation, 2 operations }
    OwnedOperation { 1 name, 2 only, 3 change }
    Tag { 1 incarnation, 2 version }
    RecordAnswer { 1 session, 2 name, 3 reply, 4 what }
    Resumed { 1 serial, 2 epoch, 3 provided, 4 shown, 5 snapshot }
    Stored { 1 existed, 2 tag }
    StoredRecord { 1 incarnation, 2 version, 3 data, 4 write_keys }
    StoredKey { 1 user, 2 key, 3 version }
    LaggingReader { 1 principal, 2 serial }
    OwnedCall {
        1 name,
        2 correlation,
        3 requestor,
        4 data,
        5 requestor_name,
        6 requestor_data,
    }
    RpcDelivery { 1 session, 2 name, 3 correlation, 4 kept_bytes, 5 what }
    Revocation { 1 what, 2 until }
}

wrappers! {
    Version(u32)
    Incarnation(u64)
    WallTime(u64)
    View(u64)
}

numbers! {
    InterestTopic { 0 Event, 1 EventPattern, 2 User, 3 Everyone }
    Topic { 0 Connection, 1 Auth, 2 Event, 3 Record, 4 Rpc, 5 Presence, 6 Query, 7 Backend }
    BackendKind {
        1 Serve,
        2 Served,
        3 Opened,
        4 Accept,
        5 Refuse,
        6 Event,
        7 Answer,
        8 Send,
        9 Answered,
        10 Broadcast,
        11 Join,
        12 Leave,
        13 End,
        14 EndConnection,
        15 Closed,
        16 Confirm,
        17 Ask,
        18 Response,
        19 Asked,
        20 Tell,
        21 Told,
        22 Reply,
        23 HandOver,
        24 HandedOver,
        25 Release,
        26 DeliverAgain,
        27 SetData,
        28 Received,
        100 NotABackend,
        101 InvalidCommand,
        102 AskFailed,
    }
    QueryReason { 0 Invalid, 1 TooLarge, 2 TooMany, 3 Unavailable, 4 Rule }
    RecordBulk {
        0 Subscribe,
        1 Unsubscribe,
        2 SubscribeCreateAndRead,
        3 SubscribeAndRead,
        4 SubscribeAndHead,
        5 Notify,
    }
    RecordAction {
        0 Read,
        1 Head,
        2 Delete,
        3 Update,
        4 Patch,
        5 Erase,
        6 PatchMulti,
        7 CreateAndUpdate,
        8 CreateAndPatch,
        9 Listen,
        16 Bulk(RecordBulk::Subscribe),
        17 Bulk(RecordBulk::Unsubscribe),
        18 Bulk(RecordBulk::SubscribeCreateAndRead),
        19 Bulk(RecordBulk::SubscribeAndRead),
        20 Bulk(RecordBulk::SubscribeAndHead),
        21 Bulk(RecordBulk::Notify),
    }
    RecordRefusal {
        0 Denied,
        1 RuleFailed,
        2 LoadTimeout,
        3 LoadFailed,
        4 CreateFailed,
        5 UpdateFailed,
        6 DeleteFailed,
        7 InvalidData,
        8 PatchOnHotPath,
        9 WriteUnknown,
    }
    ListenNotice { 0 Found, 1 Removed, 2 TimedOut }
    CallAnswer { 0 Accept, 1 Reject, 2 Response, 3 Error, 4 Withdrawn }
    Operation { 0 Message, 1 Publish, 2 Write, 3 Read, 4 Subscribe, 5 Call }
    Reason {
        0 Denied,
        1 RuleFailed,
        2 InvalidData,
        3 InvalidPattern,
        4 MultipleSubscriptions,
        5 MultipleProviders,
        6 NoProvider,
        7 AcceptTimeout,
        8 ResponseTimeout,
        9 MultipleAccept,
        10 InvalidCorrelation,
        11 VersionExists,
        12 InvalidVersion,
        13 NotFound,
        14 LoadTimeout,
        15 LoadFailed,
        16 CreateFailed,
        17 UpdateFailed,
        18 DeleteFailed,
        19 NotifyFailed,
        20 PatchOnHotPath,
        21 WriteUnknown,
        22 TransactionRefused,
    }
}

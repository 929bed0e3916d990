//! One entry for each variant and for each field that may be absent, with the names of the vectors.

mod parts;
mod scopes;

use std::sync::Arc;

use tidewire_core::attachments::Attachments;
use tidewire_core::binary::{Binary, EventPayload};
use tidewire_core::entry::*;
use tidewire_core::json::{Path, Token};
use tidewire_core::listen_pattern::ListenPattern;
use tidewire_core::message::{
    Backend, BackendKind, Only, Position, QueryReason, RareAttributes, Reason, RecordAction,
    RecordBulk, Tag, Topic,
};
use tidewire_core::permission::AllowAll;
use tidewire_core::principal::Credential;
use tidewire_core::publication::{InterestTopic, OwnedPublication};
use tidewire_core::rate::Operation;
use tidewire_core::rights::{Revoked, RightsChange};
use tidewire_core::store::{Dropped, Incarnation, StoredKey, StoredRecord, Version, WriteKeys};
use tidewire_core::view::View;

use self::parts::*;

/// The number of each variant of an entry. A new variant does not compile without a row here, and the rows need samples.
pub fn number(entry: &Entry) -> usize {
    match entry {
        Entry::Publication(_) => 1,
        Entry::PresenceChanged(_) => 2,
        Entry::History(_) => 3,
        Entry::RecordRequest(_) => 4,
        Entry::RecordRelease { .. } => 5,
        Entry::RecordAnswer(_) => 6,
        Entry::RecordPublished { .. } => 7,
        Entry::ReadValue { .. } => 8,
        Entry::Value { .. } => 9,
        Entry::Listening(_) => 10,
        Entry::ListenNotice { .. } => 11,
        Entry::Rpc(_) => 12,
        Entry::RpcDelivery(_) => 13,
        Entry::Online { .. } => 14,
        Entry::Offline { .. } => 15,
        Entry::PresenceQuery { .. } => 16,
        Entry::ReplyPart { .. } => 17,
        Entry::RateAsked { .. } => 18,
        Entry::RateGranted { .. } => 19,
        Entry::Rights(_) => 20,
        Entry::RightsPassed { .. } => 21,
        Entry::Work(_) => 22,
        Entry::SessionEnded { .. } => 23,
        Entry::View(_) => 24,
        Entry::Query(_) => 25,
        Entry::Backend(_) => 26,
        Entry::Scope(_) => 27,
        Entry::RightsSent { .. } => 28,
        Entry::Interest(_) => 29,
        Entry::Exchange(_) => 30,
    }
}

/// The entries with the names of their vectors.
pub fn all() -> Vec<(&'static str, Entry)> {
    let mut all = first();
    all.extend(scopes::all());
    all
}

fn first() -> Vec<(&'static str, Entry)> {
    let pattern = || ListenPattern::compile(name("price/.*")).expect("the pattern compiles");
    let steps = OwnedPatch {
        text: name(""),
        path: Arc::new(
            Path::from_steps([Ok(Token::Key("a.b".into())), Ok(Token::Index(3))])
                .expect("the steps are valid"),
        ),
        data: Some(json("1")),
    };
    let keys = |dropped| {
        let key = StoredKey {
            user: name("anna"),
            key: "k".into(),
            version: Version(3),
        };
        Some(WriteKeys::stored(vec![key.clone(), key], dropped))
    };
    let fetched = |state: Option<StoredRecord>| {
        answer(Answer::Fetched {
            correlation: "f".into(),
            state: state.map(Box::new),
        })
    };
    let page = |gap, events: Vec<Option<EventPayload>>| {
        Entry::History(HistoryEntry::Page(Box::new(HistoryPage {
            session: session(2),
            name: name("log"),
            serial: 8,
            is_resumed: true,
            reply: Some(reply()),
            before: Position {
                epoch: 5,
                offset: 0,
            },
            gap,
            events,
            is_granted: true,
        })))
    };
    let read = |after, reply| {
        Entry::History(HistoryEntry::Read(Box::new(HistoryRead {
            session: session(2),
            name: name("log"),
            serial: 8,
            after,
            bytes_max: 65_536,
            reply,
        })))
    };
    let position = Position {
        epoch: 5,
        offset: 9_000_000_000,
    };
    vec![
        ("publication", Entry::Publication(publication(None))),
        (
            "publication without data",
            Entry::Publication(OwnedPublication {
                name: name("n"),
                data: None,
                rare: None,
            }),
        ),
        (
            "publication with everything",
            Entry::Publication(OwnedPublication {
                data: None,
                ..publication(Some(rare()))
            }),
        ),
        (
            "publication with attachments",
            Entry::Publication(OwnedPublication {
                data: Some(attached().data),
                ..publication(Some(RareAttributes {
                    attachments: Some(attached().attachments),
                    ..RareAttributes::default()
                }))
            }),
        ),
        (
            "presence changed",
            Entry::PresenceChanged(PresenceChange {
                everyone: false,
                user: name("anna"),
                online: true,
                except: None,
            }),
        ),
        (
            "presence changed for everyone",
            Entry::PresenceChanged(PresenceChange {
                everyone: true,
                user: name("anna"),
                online: false,
                except: Some(session(1)),
            }),
        ),
        (
            "history publish",
            Entry::History(HistoryEntry::Publish {
                publication: publication(None),
                publisher: session(1),
            }),
        ),
        ("history read", read(Some(position), Some(reply()))),
        ("history read from now", read(None, None)),
        (
            "history refused",
            Entry::History(HistoryEntry::Refused {
                publisher: session(1),
                name: name("log"),
            }),
        ),
        (
            "history release",
            Entry::History(HistoryEntry::Release {
                name: name("log"),
                shard: shard(0, 7),
            }),
        ),
        (
            "history sweep",
            Entry::History(HistoryEntry::Sweep(name("log"))),
        ),
        (
            "history published",
            Entry::History(HistoryEntry::Published {
                publication: publication(Some(rare())),
                except: session(1),
            }),
        ),
        (
            "history page",
            page(
                Some(HistoryGap { missed: Some(3) }),
                vec![
                    Some(EventPayload::Json(json("1"))),
                    None,
                    Some(EventPayload::Binary(Binary::new(None, []))),
                    Some(EventPayload::Attached(Arc::new(attached()))),
                ],
            ),
        ),
        (
            "history page with an unknown gap",
            page(Some(HistoryGap { missed: None }), Vec::new()),
        ),
        (
            "bulk subscribe",
            bulk(RecordBulk::Subscribe, Some(0), Some(reply())),
        ),
        (
            "bulk unsubscribe",
            bulk(RecordBulk::Unsubscribe, None, None),
        ),
        (
            "bulk create and read",
            bulk(RecordBulk::SubscribeCreateAndRead, Some(2), None),
        ),
        (
            "bulk read",
            bulk(RecordBulk::SubscribeAndRead, Some(2), None),
        ),
        (
            "bulk head",
            bulk(RecordBulk::SubscribeAndHead, Some(2), None),
        ),
        ("bulk notify", bulk(RecordBulk::Notify, None, Some(reply()))),
        (
            "read value of a record",
            one(RecordOperation::Read(RecordRead::Value)),
        ),
        (
            "read version",
            one(RecordOperation::Read(RecordRead::Version)),
        ),
        (
            "read state",
            one(RecordOperation::Read(RecordRead::State("s".into()))),
        ),
        (
            "read right",
            one(RecordOperation::Read(RecordRead::Right(Reauthorization {
                ticket: 3,
                serial: 4,
                epoch: Some(0),
            }))),
        ),
        ("delete", one(RecordOperation::Delete)),
        (
            "write",
            one(RecordOperation::Write(Box::new(write(
                OwnedChange::Update(json("{}")),
            )))),
        ),
        (
            "write a patch",
            one(RecordOperation::Write(Box::new(full_write(
                OwnedChange::Patch(patch("a.b[2]", None)),
            )))),
        ),
        (
            "write a list",
            one(RecordOperation::Write(Box::new(full_write(list(
                r#"[{"path":"a","data":1},{"path":"b.c"}]"#,
            ))))),
        ),
        (
            "write a list with steps",
            one(RecordOperation::Write(Box::new(full_write(list(
                r#"[{"path":["a.b",0],"data":1},{"path":["b"]}]"#,
            ))))),
        ),
        ("put always", put(Only::Always, Some(json("{}")))),
        ("put if missing", put(Only::Missing, Some(json("{}")))),
        ("put if present", put(Only::Present, None)),
        ("put if in a state", put(Only::Is(tag()), None)),
        (
            "transaction",
            one(RecordOperation::Transaction(Box::new(OwnedTransaction {
                correlation: "t".into(),
                operations: vec![
                    operation("r/1", Only::Is(tag()), OperationChange::Put(json("{}"))),
                    operation("r/2", Only::Missing, OperationChange::Check),
                    operation("r/3", Only::Always, OperationChange::Delete),
                ],
            }))),
        ),
        (
            "record release",
            Entry::RecordRelease {
                name: name("r/1"),
                epoch: 8,
                session: session(1),
                serial: 2,
            },
        ),
        (
            "granted with a value",
            answer(granted(Snapshot::Read(Some((tag(), json("{}")))))),
        ),
        (
            "granted without a value",
            answer(granted(Snapshot::Read(None))),
        ),
        (
            "granted with a known state",
            answer(granted(Snapshot::Known(tag()))),
        ),
        (
            "granted with a version",
            answer(granted(Snapshot::Head(Some(Version(0))))),
        ),
        (
            "granted without a version",
            answer(granted(Snapshot::Head(None))),
        ),
        ("granted", answer(granted(Snapshot::Nothing))),
        (
            "reauthorized",
            answer(Answer::Reauthorized {
                ticket: 3,
                lost: None,
            }),
        ),
        (
            "reauthorized and lost",
            answer(Answer::Reauthorized {
                ticket: 3,
                lost: Some(RecordRefusal::Denied),
            }),
        ),
        (
            "lost",
            answer(Answer::Lost {
                serial: 4,
                why: RecordRefusal::RuleFailed,
            }),
        ),
        (
            "snapshot",
            answer(Answer::Snapshot(Snapshot::Read(Some((tag(), json("[]")))))),
        ),
        ("not found", answer(Answer::NotFound)),
        ("deleted", answer(Answer::Deleted)),
        (
            "written",
            answer(Answer::Written {
                correlation: Some("c1".into()),
            }),
        ),
        ("fetched nothing", fetched(None)),
        ("fetched", fetched(Some(record(None)))),
        (
            "fetched with keys",
            fetched(Some(record(keys(Dropped::Nothing)))),
        ),
        (
            "fetched with dropped keys",
            fetched(Some(record(keys(Dropped::UpTo(Version(2)))))),
        ),
        (
            "fetched with unordered keys",
            fetched(Some(record(keys(Dropped::Unordered)))),
        ),
        (
            "stored",
            answer(Answer::Stored {
                correlation: "p".into(),
                stored: Stored {
                    existed: true,
                    tag: Some(tag()),
                },
            }),
        ),
        (
            "stored nothing",
            answer(Answer::Stored {
                correlation: "p".into(),
                stored: Stored {
                    existed: false,
                    tag: None,
                },
            }),
        ),
        (
            "precondition failed",
            answer(Answer::PreconditionFailed {
                correlation: "p".into(),
                tag: Some(Tag {
                    incarnation: 1,
                    version: -1,
                }),
            }),
        ),
        (
            "transaction committed",
            answer(Answer::Decided {
                correlation: "t".into(),
                result: TransactionResult::Committed {
                    stored: vec![
                        Stored {
                            existed: true,
                            tag: Some(tag()),
                        },
                        Stored {
                            existed: false,
                            tag: None,
                        },
                    ],
                },
            }),
        ),
        (
            "transaction with an unmet condition",
            answer(Answer::Decided {
                correlation: "t".into(),
                result: TransactionResult::PreconditionFailed {
                    name: name("r/2"),
                    tag: Some(tag()),
                },
            }),
        ),
        (
            "transaction refused",
            answer(Answer::Decided {
                correlation: "t".into(),
                result: TransactionResult::Refused {
                    name: name("r/2"),
                    why: RecordRefusal::RuleFailed,
                },
            }),
        ),
        (
            "version exists",
            answer(Answer::VersionExists {
                version: Version(3),
                data: Some(json("{}")),
                action: RecordAction::Update,
                correlation: Some("c".into()),
                write_ack: true,
            }),
        ),
        (
            "invalid version",
            answer(Answer::InvalidVersion {
                version: Version(3),
                action: RecordAction::Patch,
                correlation: Some("c".into()),
                write_ack: true,
            }),
        ),
        (
            "refused bulk",
            answer(Answer::Refused {
                why: RecordRefusal::LoadTimeout,
                action: RecordAction::Bulk(RecordBulk::Subscribe),
                serial: Some(4),
                correlation: Some("c".into()),
                write_ack: true,
            }),
        ),
        (
            "refused unsubscribe",
            refused(
                RecordRefusal::LoadFailed,
                RecordAction::Bulk(RecordBulk::Unsubscribe),
            ),
        ),
        (
            "refused create and read",
            refused(
                RecordRefusal::CreateFailed,
                RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead),
            ),
        ),
        (
            "refused subscribe and read",
            refused(
                RecordRefusal::UpdateFailed,
                RecordAction::Bulk(RecordBulk::SubscribeAndRead),
            ),
        ),
        (
            "refused subscribe and head",
            refused(
                RecordRefusal::DeleteFailed,
                RecordAction::Bulk(RecordBulk::SubscribeAndHead),
            ),
        ),
        (
            "refused notify",
            refused(
                RecordRefusal::InvalidData,
                RecordAction::Bulk(RecordBulk::Notify),
            ),
        ),
        (
            "refused read",
            refused(RecordRefusal::PatchOnHotPath, RecordAction::Read),
        ),
        (
            "refused head",
            refused(RecordRefusal::WriteUnknown, RecordAction::Head),
        ),
        (
            "refused delete",
            refused(RecordRefusal::DeleteFailed, RecordAction::Delete),
        ),
        (
            "refused erase",
            refused(RecordRefusal::InvalidData, RecordAction::Erase),
        ),
        (
            "refused list",
            refused(RecordRefusal::InvalidData, RecordAction::PatchMulti),
        ),
        (
            "refused create and update",
            refused(RecordRefusal::InvalidData, RecordAction::CreateAndUpdate),
        ),
        (
            "refused listen",
            refused(RecordRefusal::Denied, RecordAction::Listen),
        ),
        (
            "record changed",
            published(
                Published::Changed {
                    version: Version(5),
                    change: OwnedChange::Patch(steps),
                    full: json(r#"{"a.b":[null,null,null,1]}"#),
                },
                Some(session(3)),
            ),
        ),
        (
            "record created",
            published(Published::Created(Incarnation(9)), None),
        ),
        ("record deleted", published(Published::Deleted, None)),
        (
            "record provided",
            published(Published::Provided(true), None),
        ),
        (
            "record no longer provided",
            published(Published::Provided(false), None),
        ),
        ("asked by a session", asks(Asker::Session(session(1)))),
        (
            "asked by a lagging session",
            asks(Asker::Lagging(
                session(1),
                Arc::new(LaggingReader {
                    principal: full_principal(Credential::Key(name("k"))),
                    serial: 3,
                }),
            )),
        ),
        (
            "asked by a search",
            asks(Asker::Listening {
                owner: shard(1, 0),
                topic: Topic::Event,
                name: name("price/EUR"),
                number: 4,
            }),
        ),
        (
            "asked by an event",
            asks(Asker::EventRight {
                address: shard(0, 0),
                ticket: 5,
            }),
        ),
        (
            "asked by a reauthorization",
            asks(Asker::Reauthorize {
                address: shard(0, 0),
                ticket: 5,
            }),
        ),
        (
            "asked by a record",
            asks(Asker::Record {
                owner: shard(3, 2),
                name: name("r/2"),
            }),
        ),
        (
            "value",
            value(
                Asker::Session(session(1)),
                Ok(Some((Version(3), json("{}")))),
            ),
        ),
        (
            "no value",
            value(
                Asker::EventRight {
                    address: shard(0, 0),
                    ticket: 5,
                },
                Ok(None),
            ),
        ),
        (
            "value not read",
            value(Asker::Session(session(1)), Err(ReadFailed)),
        ),
        (
            "listen",
            Entry::Listening(Listening::Add {
                topic: Topic::Record,
                pattern: pattern(),
                provider: session(9),
                principal: full_principal(Credential::Certificate(name("0a"))),
                reply: Some(reply()),
            }),
        ),
        (
            "known listen",
            Entry::Listening(Listening::Add {
                topic: Topic::Event,
                pattern: pattern(),
                provider: session(9),
                principal: principal(),
                reply: None,
            }),
        ),
        (
            "unlisten",
            Entry::Listening(Listening::Remove {
                topic: Topic::Event,
                pattern: name("price/.*"),
                provider: session(9),
                reply: Some(reply()),
            }),
        ),
        (
            "listener renewed",
            Entry::Listening(Listening::Renewed {
                provider: session(9),
                principal: full_principal(Credential::Password(name("pw"))),
            }),
        ),
        (
            "listener answered",
            Entry::Listening(Listening::Answered {
                topic: Topic::Event,
                pattern: name("price/.*"),
                name: name("price/EUR"),
                provider: session(9),
                accepted: true,
            }),
        ),
        (
            "census",
            Entry::Listening(Listening::Census {
                owner: shard(1, 1),
                round: 2,
            }),
        ),
        (
            "census ended",
            Entry::Listening(Listening::CensusEnded { owner: shard(1, 1) }),
        ),
        (
            "present",
            Entry::Listening(Listening::Present {
                round: 2,
                shard: shard(0, 1),
                names: vec![name("a"), name("b")],
            }),
        ),
        (
            "interest",
            Entry::Listening(Listening::Interest {
                round: 2,
                shard: shard(0, 1),
                name: name("a"),
                wanted: true,
            }),
        ),
        (
            "listener found",
            listen_notice(Topic::Event, ListenNotice::Found),
        ),
        (
            "listener removed",
            listen_notice(Topic::Record, ListenNotice::Removed),
        ),
        (
            "listener timed out",
            listen_notice(Topic::Record, ListenNotice::TimedOut),
        ),
        (
            "provide",
            Entry::Rpc(RpcEntry::Provide {
                names: vec![name("add"), name("sub")],
                provider: session(8),
                reply: reply(),
            }),
        ),
        (
            "unprovide",
            Entry::Rpc(RpcEntry::Unprovide {
                names: vec![name("add")],
                provider: session(8),
                reply: reply(),
            }),
        ),
        (
            "provider revoked",
            Entry::Rpc(RpcEntry::Revoke {
                name: name("add"),
                provider: session(8),
            }),
        ),
        (
            "call",
            Entry::Rpc(RpcEntry::Request(Box::new(OwnedCall {
                name: name("add"),
                correlation: "7".into(),
                requestor: session(6),
                data: Some(json("[1,2]")),
                requestor_name: Some(name("anna")),
                requestor_data: Some(json("{}")),
            }))),
        ),
        (
            "call accepted by its provider",
            rpc_answer(CallAnswer::Accept, None),
        ),
        (
            "call rejected by its provider",
            rpc_answer(CallAnswer::Reject, None),
        ),
        (
            "call answered by its provider",
            rpc_answer(CallAnswer::Response, Some(json("3"))),
        ),
        (
            "call failed at its provider",
            rpc_answer(CallAnswer::Error, Some(json("\"no\""))),
        ),
        ("call withdrawn", rpc_answer(CallAnswer::Withdrawn, None)),
        (
            "call delivered",
            delivery(CallNotice::Request {
                data: Some(json("1")),
                requestor_name: Some(name("anna")),
                requestor_data: Some(json("{}")),
            }),
        ),
        ("call accepted", delivery(CallNotice::Accepted)),
        (
            "call answered",
            delivery(CallNotice::Response(Some(json("3")))),
        ),
        (
            "call answered with nothing",
            delivery(CallNotice::Response(None)),
        ),
        (
            "call refused",
            delivery(CallNotice::Error(Some(json("\"no\"")))),
        ),
        (
            "call failed",
            delivery(CallNotice::Failed(Reason::NoProvider)),
        ),
        ("call denied", delivery(CallNotice::Failed(Reason::Denied))),
        ("call accepted twice", delivery(CallNotice::MultipleAccept)),
        (
            "call unknown",
            delivery(CallNotice::Unknown(CallAnswer::Accept)),
        ),
        (
            "online",
            Entry::Online {
                user: name("anna"),
                session: session(1),
                reply: None,
            },
        ),
        (
            "online, answered",
            Entry::Online {
                user: name("anna"),
                session: session(1),
                reply: Some(reply()),
            },
        ),
        (
            "offline",
            Entry::Offline {
                user: name("anna"),
                shard: shard(2, 1),
            },
        ),
        (
            "presence query",
            Entry::PresenceQuery {
                reply: reply(),
                users: Some(vec![name("anna"), name("bert")]),
            },
        ),
        (
            "presence query of no user",
            Entry::PresenceQuery {
                reply: reply(),
                users: Some(Vec::new()),
            },
        ),
        (
            "presence query of all users",
            Entry::PresenceQuery {
                reply: reply(),
                users: None,
            },
        ),
        (
            "part done",
            Entry::ReplyPart {
                reply: reply(),
                part: ReplyPart::Done,
            },
        ),
        (
            "part with users",
            Entry::ReplyPart {
                reply: reply(),
                part: ReplyPart::Users(vec![name("anna")]),
            },
        ),
        (
            "rate asked",
            Entry::RateAsked {
                user: name("anna"),
                operation: Operation::Call,
                shard: shard(0, 1),
            },
        ),
        (
            "rate granted",
            Entry::RateGranted {
                user: name("anna"),
                operation: Operation::Read,
                count: 4,
            },
        ),
        ("rules", rights(RightsChange::Rules(Arc::new(AllowAll)))),
        ("user revoked", revoke(Revoked::User(name("anna")))),
        (
            "operator revoked",
            revoke(Revoked::Credential(Credential::Operator(name("1")))),
        ),
        (
            "backend revoked",
            revoke(Revoked::Credential(Credential::Backend(name("1")))),
        ),
        (
            "restored",
            rights(RightsChange::Restore(Revoked::User(name("anna")))),
        ),
        (
            "rights passed",
            Entry::RightsPassed {
                from: shard(0, 1),
                number: 6,
            },
        ),
        (
            "rights sent",
            Entry::RightsSent {
                from: shard(0, 1),
                number: 6,
            },
        ),
        (
            "interest changed",
            Entry::Interest(InterestEntry::Changed {
                topic: InterestTopic::EventPattern,
                name: name("news/*"),
                wanted: true,
                number: 7,
            }),
        ),
        (
            "interest complete",
            Entry::Interest(InterestEntry::Complete),
        ),
        (
            "interest visible",
            Entry::Interest(InterestEntry::Visible { number: 7 }),
        ),
        ("exchange poll", exchange_request(ExchangeRequest::Poll)),
        ("exchange post", exchange_request(ExchangeRequest::Post)),
        (
            "exchange body",
            exchange_request(ExchangeRequest::Body(b"40".as_slice().into())),
        ),
        (
            "exchange large body",
            exchange_request(ExchangeRequest::LargeBody),
        ),
        (
            "exchange broken body",
            exchange_request(ExchangeRequest::BrokenBody),
        ),
        (
            "exchange may switch",
            exchange_request(ExchangeRequest::MaySwitch),
        ),
        ("exchange gone", exchange_request(ExchangeRequest::Gone)),
        ("exchange left", exchange_request(ExchangeRequest::Left)),
        (
            "exchange release",
            exchange_request(ExchangeRequest::Release),
        ),
        (
            "exchange admitted",
            exchange_reply(ExchangeReply::Admitted(1 << 20)),
        ),
        (
            "exchange messages",
            exchange_reply(ExchangeReply::Messages(b"2".as_slice().into())),
        ),
        ("exchange taken", exchange_reply(ExchangeReply::Taken)),
        ("exchange unknown", exchange_reply(ExchangeReply::Unknown)),
        (
            "exchange out of turn",
            exchange_reply(ExchangeReply::OutOfTurn),
        ),
        (
            "work deferred",
            Entry::Work(WorkEntry::Deferred {
                session: session(1),
                owner: shard(0, 0),
                work: 70_000,
            }),
        ),
        (
            "work may proceed",
            Entry::Work(WorkEntry::Proceed {
                session: session(1),
            }),
        ),
        (
            "work proceeded",
            Entry::Work(WorkEntry::Proceeded {
                session: session(1),
                owner: shard(0, 0),
                work: 5,
                is_done: true,
            }),
        ),
        (
            "work of an ended session",
            Entry::Work(WorkEntry::SessionEnded {
                session: session(1),
            }),
        ),
        (
            "session ended",
            Entry::SessionEnded {
                session: session(1),
            },
        ),
        (
            "view marker",
            Entry::View(ViewEntry::Marker {
                from: shard(2, 1),
                view: View(300),
                returned: Vec::new(),
            }),
        ),
        (
            "view marker with returned slots",
            Entry::View(ViewEntry::Marker {
                from: shard(2, 1),
                view: View(300),
                returned: vec![0, 4_095],
            }),
        ),
        (
            "slots closed",
            Entry::View(ViewEntry::Closed {
                from: shard(2, 1),
                view: View(300),
                slots: vec![0, 4_095],
            }),
        ),
        (
            "no slot closed",
            Entry::View(ViewEntry::Closed {
                from: shard(2, 1),
                view: View(300),
                slots: Vec::new(),
            }),
        ),
        (
            "view passed",
            Entry::View(ViewEntry::Passed {
                from: shard(2, 1),
                view: View(300),
            }),
        ),
        (
            "subscriptions announced",
            Entry::View(ViewEntry::Records {
                session: session(1),
                principal: principal(),
                names: vec![
                    AnnouncedRecord {
                        name: name("a"),
                        serial: 3,
                        epoch: 77,
                        shown: Some(tag()),
                    },
                    AnnouncedRecord {
                        name: name("b"),
                        serial: 0,
                        epoch: 0,
                        shown: None,
                    },
                ],
            }),
        ),
        (
            "providers announced",
            Entry::View(ViewEntry::Providers {
                provider: session(1),
                names: vec![name("sum"), name("product")],
            }),
        ),
        (
            "users announced",
            Entry::View(ViewEntry::Users {
                shard: shard(2, 1),
                users: vec![
                    AnnouncedUser {
                        user: name("anna"),
                        before: 1,
                        count: 2,
                    },
                    AnnouncedUser {
                        user: name("ben"),
                        before: 0,
                        count: 0,
                    },
                ],
            }),
        ),
        (
            "subscription resumed",
            answer(Answer::Resumed(Box::new(Resumed {
                serial: 3,
                epoch: 78,
                provided: true,
                shown: Some(tag()),
                snapshot: Snapshot::Read(Some((tag(), json("{}")))),
            }))),
        ),
        (
            "subscription resumed as shown",
            answer(Answer::Resumed(Box::new(Resumed {
                serial: 0,
                epoch: 0,
                provided: false,
                shown: None,
                snapshot: Snapshot::Nothing,
            }))),
        ),
        (
            "asked by a query",
            asks(Asker::Query {
                address: shard(1, 2),
                run: 5,
            }),
        ),
        (
            "query collects",
            Entry::Query(QueryEntry::Collect {
                run: 5,
                reader: shard(1, 2),
                prefix: name("cards/"),
                query: json("{}"),
            }),
        ),
        (
            "records collected",
            Entry::Query(QueryEntry::Collected {
                run: 5,
                shard: shard(2, 1),
                rows: vec![
                    UnsavedRow {
                        name: name("cards/1"),
                        value: Some(UnsavedValue {
                            version: Version(3),
                            data: json("{}"),
                        }),
                    },
                    UnsavedRow {
                        name: name("cards/2"),
                        value: None,
                    },
                ],
                is_last: true,
            }),
        ),
        (
            "query subscribed",
            Entry::Query(QueryEntry::Subscribe {
                session: session(1),
                serial: 3,
                principal: principal(),
                prefix: name("cards/"),
                query: json("{}"),
            }),
        ),
        (
            "query released",
            Entry::Query(QueryEntry::Release {
                session: session(1),
                serial: 3,
            }),
        ),
        (
            "query refreshed",
            Entry::Query(QueryEntry::Refresh {
                session: session(1),
                serial: 3,
            }),
        ),
        (
            "query result",
            Entry::Query(QueryEntry::Snapshot {
                session: session(1),
                serial: 3,
                owner: shard(1, 2),
                query: 9,
                data: json("{\"rows\":[]}"),
            }),
        ),
        (
            "query ended",
            Entry::Query(QueryEntry::Ended {
                session: session(1),
                serial: 3,
                reason: QueryReason::Rule,
                data: json("{}"),
            }),
        ),
        (
            "query changed",
            Entry::Query(QueryEntry::Changed {
                owner: shard(1, 2),
                query: 9,
                data: json("[]"),
            }),
        ),
        (
            "query watches",
            Entry::Query(QueryEntry::Watch {
                query: 9,
                owner: shard(1, 2),
                prefix: name("cards/"),
                text: json("{}"),
                principal: principal(),
            }),
        ),
        (
            "query no longer watches",
            Entry::Query(QueryEntry::Unwatch {
                query: 9,
                owner: shard(1, 2),
                prefix: name("cards/"),
            }),
        ),
        (
            "record written for a query",
            Entry::Query(QueryEntry::Written {
                query: 9,
                row: UnsavedRow {
                    name: name("cards/2"),
                    value: None,
                },
            }),
        ),
        (
            "backend serves",
            Entry::Backend(BackendEntry::Serve {
                backend: session(9),
                namespaces: vec![name("/"), name("/room/*")],
                sessions: 300,
                earlier: Some(session(4)),
                received: 300,
            }),
        ),
        (
            "backend lost",
            Entry::Backend(BackendEntry::Lost {
                backend: session(9),
                sent: 300,
            }),
        ),
        (
            "event for a backend",
            Entry::Backend(BackendEntry::Notice {
                backend: session(9),
                from: shard(2, 3),
                message: Arc::new(OwnedBackend {
                    data: Some(json("[\"said\",{\"_placeholder\":true,\"num\":0}]")),
                    correlation: Some("7".into()),
                    attachments: Attachments::new([[0xff]]),
                    ..OwnedBackend::about(BackendKind::Event, session(4))
                }),
            }),
        ),
        (
            "messages confirmed by a backend",
            Entry::Backend(BackendEntry::Confirmed {
                backend: session(9),
                count: 3,
            }),
        ),
        (
            "command of a backend",
            Entry::Backend(BackendEntry::Command {
                backend: session(9),
                message: Box::new(OwnedBackend {
                    name: Some(name("")),
                    names: vec![name("a"), name("b")],
                    ..OwnedBackend::about(BackendKind::Join, session(4))
                }),
            }),
        ),
        (
            "broadcast of a backend",
            Entry::Backend(BackendEntry::Broadcast(Arc::new(OwnedBackend {
                names: vec![name("chat#a")],
                except: vec![name("chat#b")],
                data: Some(json("1")),
                only: Some(session(9)),
                ..OwnedBackend::of(&Backend::new(BackendKind::Broadcast))
            }))),
        ),
        (
            "ask of a backend",
            Entry::Backend(BackendEntry::Ask {
                backend: session(9),
                ask: 300,
                timeout_ms: 5_000,
                message: Arc::new(OwnedBackend {
                    names: vec![name("chat#a")],
                    data: Some(json("[\"who\"]")),
                    correlation: Some("ask-1".into()),
                    ..OwnedBackend::about(BackendKind::Ask, session(4))
                }),
            }),
        ),
        (
            "message to other backends",
            Entry::Backend(BackendEntry::Ask {
                backend: session(9),
                ask: 300,
                timeout_ms: 0,
                message: Arc::new(OwnedBackend {
                    name: Some(name("/chat")),
                    data: Some(json("[\"said\"]")),
                    ..OwnedBackend::of(&Backend::new(BackendKind::Tell))
                }),
            }),
        ),
        (
            "sessions asked",
            Entry::Backend(BackendEntry::Asked {
                backend: session(9),
                ask: 300,
                count: 7,
                is_refused: false,
            }),
        ),
        (
            "ask refused",
            Entry::Backend(BackendEntry::Asked {
                backend: session(9),
                ask: 0,
                count: 0,
                is_refused: true,
            }),
        ),
        (
            "answer to an ask",
            Entry::Backend(BackendEntry::Response {
                backend: session(9),
                ask: 300,
                message: Box::new(OwnedBackend {
                    data: Some(json("[{\"_placeholder\":true,\"num\":0}]")),
                    attachments: Attachments::new([[0xff]]),
                    ..OwnedBackend::of(&Backend::new(BackendKind::Response))
                }),
            }),
        ),
        (
            "ask over",
            Entry::Backend(BackendEntry::AskOver {
                backend: session(9),
                ask: Some(0),
            }),
        ),
        (
            "all asks over",
            Entry::Backend(BackendEntry::AskOver {
                backend: session(9),
                ask: None,
            }),
        ),
        (
            "backend hands over",
            Entry::Backend(BackendEntry::HandOver {
                backend: session(9),
            }),
        ),
        (
            "events come again",
            Entry::Backend(BackendEntry::DeliverAgain {
                backend: session(9),
                namespaces: vec![name("/orders")],
            }),
        ),
        (
            "event that comes again",
            Entry::Backend(BackendEntry::Notice {
                backend: session(9),
                from: session(4).address,
                message: Arc::new(OwnedBackend {
                    data: Some(json("[\"paid\"]")),
                    count: 2,
                    ..OwnedBackend::about(BackendKind::Event, session(4))
                }),
            }),
        ),
        (
            "no further events for a backend",
            Entry::Backend(BackendEntry::HandedOver {
                backend: session(9),
            }),
        ),
    ]
}

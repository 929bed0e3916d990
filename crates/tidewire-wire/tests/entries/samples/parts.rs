//! The parts of which the samples consist.

use std::num::NonZeroU64;
use std::sync::Arc;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::attachments::{AttachedPayload, Attachments};
use tidewire_core::binary::Binary;
use tidewire_core::entry::*;
use tidewire_core::json::{Path, parse_patches};
use tidewire_core::message::{Only, RareAttributes, RecordAction, RecordBulk, Tag, Topic};
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::publication::OwnedPublication;
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::store::{Incarnation, StoredRecord, Version, WriteKeys};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::{Instant, WallTime};
use tidewire_core::trace::Trace;

pub fn name(text: &str) -> Name {
    Name::from(text)
}

pub fn json(text: &str) -> Payload {
    Payload::from_checked(text)
}

pub fn shard(node: u16, shard: u16) -> Address {
    Address { node, shard }
}

pub fn session(index: u32) -> SessionId {
    SessionId {
        address: shard(2, 1),
        index,
        generation: 300,
    }
}

pub fn exchange_request(what: ExchangeRequest) -> Entry {
    Entry::Exchange(ExchangeEntry::Request {
        session: session(1),
        secret: [7; 16],
        request: 1 << 40,
        what,
    })
}

pub fn exchange_reply(what: ExchangeReply) -> Entry {
    Entry::Exchange(ExchangeEntry::Reply { request: 3, what })
}

pub fn reply() -> PendingReplyId {
    PendingReplyId {
        address: shard(2, 1),
        index: 3,
        number: NonZeroU64::new(1 << 40).unwrap(),
    }
}

pub fn tag() -> Tag {
    Tag {
        incarnation: 7 << 42,
        version: 12,
    }
}

pub fn principal() -> Arc<Principal> {
    Arc::new(Principal::new(name("anna")))
}

pub fn full_principal(credential: Credential) -> Arc<Principal> {
    let principal = Principal::new(name("bert"))
        .with_expiry(WallTime(1_700_000_000_000))
        .with_data(Some(json(r#"{"role":"admin"}"#)), Some(json("null")));
    Arc::new(principal.with_credential(credential))
}

pub fn publication(rare: Option<RareAttributes>) -> OwnedPublication {
    OwnedPublication {
        name: name("news"),
        data: Some(json(r#"{"a":1}"#)),
        rare: rare.map(Box::new),
    }
}

pub fn rare() -> RareAttributes {
    RareAttributes {
        offset: Some(0),
        trace: Some(Trace {
            id: [1; 16],
            span: [2; 8],
            is_sampled: true,
            since: Instant::default(),
        }),
        binary: Some(Binary::new(Some("image/png"), [0, 255, 7])),
        attachments: None,
    }
}

pub fn attached() -> AttachedPayload {
    AttachedPayload {
        data: json(r#"["said",{"_placeholder":true,"num":1}]"#),
        attachments: Attachments::new([&b""[..], &[0, 255, 7]]).expect("some"),
    }
}

pub fn record(write_keys: Option<WriteKeys>) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(9 << 32),
        version: Version(4),
        data: json(r#"["é"]"#),
        write_keys: write_keys.map(Arc::new),
    }
}

pub fn patch(path: &str, data: Option<&str>) -> OwnedPatch {
    let parsed = Path::parse(path).expect("the path is valid");
    OwnedPatch {
        text: name(path),
        path: Arc::new(parsed.into_owned()),
        data: data.map(json),
    }
}

pub fn list(text: &str) -> OwnedChange {
    let patches = parse_patches(text).expect("the list is valid");
    let is_listed = patches.iter().any(|(path, _)| path.is_listed());
    let patches = patches.into_iter().map(|(path, data)| OwnedPatch {
        text: name(""),
        path: Arc::new(path.into_owned()),
        data: data.map(json),
    });
    OwnedChange::PatchMulti {
        text: (!is_listed).then(|| json(text)),
        patches: patches.collect(),
    }
}

pub fn write(change: OwnedChange) -> OwnedWrite {
    OwnedWrite {
        version: None,
        correlation: None,
        write_ack: false,
        action: RecordAction::Update,
        change,
        put: None,
        key: None,
    }
}

pub fn full_write(change: OwnedChange) -> OwnedWrite {
    OwnedWrite {
        version: Some(Version(0)),
        correlation: Some("c1".into()),
        write_ack: true,
        action: RecordAction::CreateAndPatch,
        change,
        put: Some(false),
        key: Some(OwnedKey {
            text: "k".into(),
            seen: Some(tag()),
        }),
    }
}

pub fn one(operation: RecordOperation) -> Entry {
    Entry::RecordRequest(RecordRequest {
        session: session(1),
        principal: principal(),
        what: RecordRequestKind::One(name("r/1"), operation),
    })
}

pub fn bulk(action: RecordBulk, serial: Option<u32>, reply: Option<PendingReplyId>) -> Entry {
    let correlation = serial.map(|_| "c".into());
    Entry::RecordRequest(RecordRequest {
        session: session(0),
        principal: full_principal(Credential::Token(name("jti"))),
        what: RecordRequestKind::Bulk {
            action,
            names: vec![
                BulkName {
                    name: name("r/1"),
                    index: 0,
                    serial,
                },
                BulkName {
                    name: name("r/2"),
                    index: 1,
                    serial: None,
                },
            ],
            reply,
            correlation,
        },
    })
}

pub fn put(only: Only, data: Option<Payload>) -> Entry {
    one(RecordOperation::Put(Box::new(OwnedPut {
        correlation: "p".into(),
        only,
        data,
    })))
}

pub fn operation(record: &str, only: Only, change: OperationChange) -> OwnedOperation {
    OwnedOperation {
        name: name(record),
        only,
        change,
    }
}

pub fn answer(what: Answer) -> Entry {
    Entry::RecordAnswer(RecordAnswer {
        session: session(4),
        name: name("r/1"),
        reply: Some(reply()),
        what,
    })
}

pub fn refused(why: RecordRefusal, action: RecordAction) -> Entry {
    answer(Answer::Refused {
        why,
        action,
        serial: None,
        correlation: None,
        write_ack: false,
    })
}

pub fn granted(snapshot: Snapshot) -> Answer {
    Answer::Granted {
        serial: 5,
        epoch: 77,
        provided: true,
        value_bytes: 4_000,
        snapshot,
        action: RecordBulk::SubscribeAndRead,
        correlation: Some("".into()),
    }
}

pub fn published(what: Published, except: Option<SessionId>) -> Entry {
    let name = name("r/1");
    Entry::RecordPublished { name, what, except }
}

pub fn value(asker: Asker, value: Result<Option<(Version, Payload)>, ReadFailed>) -> Entry {
    let name = name("r/1");
    Entry::Value { name, asker, value }
}

pub fn asks(asker: Asker) -> Entry {
    let name = name("r/1");
    Entry::ReadValue { name, asker }
}

pub fn delivery(what: CallNotice) -> Entry {
    Entry::RpcDelivery(RpcDelivery {
        session: session(6),
        name: name("add"),
        correlation: "7".into(),
        kept_bytes: 120,
        what,
    })
}

pub fn rpc_answer(what: CallAnswer, data: Option<Payload>) -> Entry {
    Entry::Rpc(RpcEntry::Answer {
        name: name("add"),
        correlation: "7".into(),
        provider: session(8),
        what,
        data,
    })
}

pub fn listen_notice(topic: Topic, notice: ListenNotice) -> Entry {
    Entry::ListenNotice {
        provider: session(9),
        topic,
        pattern: name("price/.*"),
        name: name("price/EUR"),
        notice,
    }
}

pub fn rights(change: RightsChange) -> Entry {
    Entry::Rights(RightsMarker {
        from: shard(0, 0),
        number: 6,
        change,
    })
}

pub fn revoke(what: Revoked) -> Entry {
    let until = WallTime(u64::MAX);
    rights(RightsChange::Revoke(Revocation { what, until }))
}

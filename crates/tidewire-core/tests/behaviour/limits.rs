//! The effect of each limit of `core::limits`.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::limits::Limits;
use tidewire_core::message::{
    Call, Change, Event, Listen, Message, Record, RecordBulk, Rpc, Write,
};
use tidewire_core::principal::Principal;
use tidewire_core::quota::QuotaChange;
use tidewire_core::settings::Settings;
use tidewire_core::text::RESERVED;

use crate::driver::{Node, Seen, set};

fn node(change: impl FnOnce(&mut Limits)) -> Node {
    let mut settings = Settings::default();
    change(&mut settings.limits);
    Node::new(settings)
}

fn emit<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Event(Event::publication(name, Some(data)))
}

fn subscribe<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("0"),
        positions: Vec::new(),
    })
}

fn bulk<'a>(action: RecordBulk, names: &[&'a str]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action,
        names: names.to_vec(),
        correlation: Some("0"),
    })
}

#[track_caller]
fn check(seen: &Seen, expected: &[&str]) {
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.contains(expected), "{seen} does not say {expected}");
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_and_not_repeated() {
    let mut node = node(|limits| limits.name_bytes_max = 8);
    let session = node.login();
    check(&node.ask(session, &emit("12345678", "1")), &[]);
    check(
        &node.ask(session, &emit("123456789", "1")),
        &["Refusal { reason: InvalidData, action: Emit, name: None"],
    );
    check(
        &node.ask(session, &set("123456789", "{}")),
        &["Refusal { reason: InvalidData, action: CreateAndUpdate, name: None"],
    );
    check(&node.ask(session, &emit("", "1")), &["InvalidData"]);
    assert_eq!(node.counts(0).refused.names, 3);
}

#[test]
fn no_session_can_name_the_servers_own_records() {
    let mut node = node(|_| {});
    let session = node.login();
    let name = format!("{RESERVED}user/anna");
    let name = name.as_str();
    let record = Message::Record;
    let messages = [
        set(name, "{}"),
        record(Record::Read { name }),
        record(Record::Head { name }),
        record(Record::Delete { name }),
        record(Record::Fetch {
            name,
            correlation: "1",
        }),
        bulk(RecordBulk::SubscribeCreateAndRead, &[name]),
        bulk(RecordBulk::SubscribeAndRead, &[name]),
        bulk(RecordBulk::Notify, &[name]),
    ];
    for (index, message) in messages.iter().enumerate() {
        let seen = node.ask(session, message);
        let is_refused = seen.iter().any(|seen| seen.contains("InvalidData"));
        let is_read = seen.iter().any(|seen| seen.contains("ReadResponse"));
        assert!(is_refused && !is_read, "{message:?}: {seen:#?}");
        assert_eq!(node.counts(0).refused.names, index as u64 + 1);
    }
    check(&node.ask(session, &emit(name, "1")), &[]);
}

#[test]
fn data_that_is_too_deep_is_refused() {
    let mut node = node(|limits| limits.nesting_max = 3);
    let session = node.login();
    check(&node.ask(session, &emit("e", "[[[1]]]")), &[]);
    check(
        &node.ask(session, &emit("e", "[[[[1]]]]")),
        &["InvalidData"],
    );
    check(&node.ask(session, &set("r", "[[[1]]]")), &["WriteAck"]);
    check(&node.ask(session, &set("r", "[[[[1]]]]")), &["InvalidData"]);
    assert_eq!(node.counts(0).refused.too_deep, 2);
}

#[test]
fn a_record_that_would_become_too_large_is_refused_and_stays() {
    let mut node = node(|limits| limits.record_bytes_max = 20);
    let session = node.login();
    check(
        &node.ask(session, &set("r", r#"{"a":"0123456789"}"#)),
        &["WriteAck"],
    );
    let write = Write {
        name: "r",
        version: -1,
        correlation: Some("2"),
        write_ack: true,
        key: None,
    };
    let patch = Change::Patch {
        path: "b",
        data: Some("12345"),
    };
    check(
        &node.ask(session, &Message::Record(Record::Write(write, patch))),
        &["InvalidData"],
    );
    check(
        &node.ask(session, &Message::Record(Record::Read { name: "r" })),
        &["version: 1"],
    );
    assert_eq!(node.counts(0).refused.too_large, 1);
}

#[test]
fn a_write_far_behind_the_end_of_an_array_is_refused() {
    let mut node = node(|limits| limits.array_gap_max = 3);
    let session = node.login();
    let write = Write {
        name: "r",
        version: -1,
        correlation: Some("2"),
        write_ack: true,
        key: None,
    };
    let ask = |node: &mut Node, change, expected| {
        let message = Message::Record(Record::Write(write, change));
        check(&node.ask(session, &message), &[expected]);
    };
    let patch = |path| Change::CreateAndPatch {
        path: Some(path),
        data: Some("1"),
    };
    let list = |data| Change::PatchMulti {
        data: Some(data),
        full: None,
    };
    ask(&mut node, patch("a[4]"), "InvalidData");
    ask(&mut node, patch("a[2].b[2]"), "InvalidData");
    ask(&mut node, patch("a[200000]"), "InvalidData");
    assert_eq!(node.stored("r"), None);
    ask(&mut node, patch("a[3]"), "WriteAck");
    ask(&mut node, patch("a[4]"), "WriteAck");
    ask(&mut node, patch("a[8]"), "WriteAck");
    ask(&mut node, patch("a[13]"), "InvalidData");
    // The patches of one message share the limit of filled places of one write.
    let too_wide = r#"[{"path":"b[2]","data":1},{"path":"c[2]","data":1}]"#;
    ask(&mut node, list(too_wide), "InvalidData");
    ask(&mut node, list(r#"[{"path":"b[3]","data":1}]"#), "WriteAck");
    let stored = node.stored("r").expect("it is there");
    let filled = r#"{"a":[null,null,null,1,1,null,null,null,1],"b":[null,null,null,1]}"#;
    assert_eq!(stored.data.as_str(), filled);
    assert_eq!(node.counts(0).refused.array_gaps, 5);
}

#[test]
fn a_bulk_message_with_too_many_names_is_refused_whole() {
    let mut node = node(|limits| limits.bulk_names_max = 2);
    let session = node.login();
    check(&node.ask(session, &subscribe(&["a", "b"])), &["Ack"]);
    check(
        &node.ask(session, &subscribe(&["c", "d", "e"])),
        &["InvalidData"],
    );
    check(
        &node.ask(
            session,
            &bulk(RecordBulk::SubscribeAndRead, &["c", "d", "e"]),
        ),
        &["InvalidData"],
    );
    let provide = Message::Rpc(Rpc::Provide {
        names: vec!["a", "b", "c"],
        correlation: Some("0"),
    });
    check(&node.ask(session, &provide), &["InvalidData"]);
    assert_eq!(node.counts(0).refused.bulk_names, 3);
}

#[test]
fn a_session_at_its_limit_of_subscriptions_is_denied_more() {
    let mut node = node(|limits| limits.subscriptions_max = 2);
    let session = node.login();
    check(
        &node.ask(session, &subscribe(&["a", "b", "c"])),
        &[
            r#"Refusal { reason: Denied, action: Subscribe, name: Some("c")"#,
            "Ack",
        ],
    );
    check(
        &node.ask(session, &bulk(RecordBulk::Subscribe, &["r"])),
        &[r#"Refusal { reason: Denied, action: Bulk(Subscribe), name: Some("r")"#],
    );
    let leave = Message::Event(Event::Unsubscribe {
        names: vec!["a"],
        correlation: Some("1"),
    });
    check(&node.ask(session, &leave), &["Ack"]);
    check(
        &node.ask(session, &bulk(RecordBulk::Subscribe, &["r"])),
        &["Ack"],
    );
    assert_eq!(node.counts(0).refused.subscriptions, 2);
}

#[test]
fn a_session_with_too_many_running_calls_finds_no_provider() {
    let mut node = node(|limits| limits.calls_max = 1);
    let (provider, requestor) = (node.login(), node.login());
    node.ask(
        provider,
        &Message::Rpc(Rpc::Provide {
            names: vec!["p"],
            correlation: Some("0"),
        }),
    );
    let call = |correlation| {
        let call = Call {
            name: "p",
            correlation,
        };
        Message::Rpc(Rpc::Request {
            call,
            data: None,
            requestor_name: None,
            requestor_data: None,
        })
    };
    check(&node.ask(requestor, &call("1")), &[]);
    check(&node.ask(requestor, &call("2")), &["NoProvider"]);
    let response = Rpc::Response {
        call: Call {
            name: "p",
            correlation: "1",
        },
        data: Some("1"),
    };
    node.send(provider, &Message::Rpc(response));
    check(&node.take(requestor), &["Response"]);
    check(&node.ask(requestor, &call("3")), &[]);
    assert_eq!(node.counts(0).refused.calls, 1);
}

#[test]
fn writes_beyond_the_limit_of_dirty_records_are_refused_and_not_shown() {
    let mut node = node(|limits| limits.dirty_records_max = 1);
    let (writer, reader) = (node.login(), node.login());
    node.ask(reader, &bulk(RecordBulk::SubscribeAndRead, &["b"]));
    node.commits_fail = true;
    check(&node.ask(writer, &set("a", "{}")), &[]);
    check(
        &node.ask(writer, &set("b", "{}")),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(&node.take(reader), &[]);
    node.commits_fail = false;
    node.pass(std::time::Duration::from_secs(10));
    check(&node.take(writer), &["WriteAck"]);
    check(&node.ask(writer, &set("b", "{}")), &["WriteAck"]);
    check(&node.take(reader), &["Update"]);
    assert_eq!(node.counts(0).refused.dirty, 1);
}

#[test]
fn dirty_bytes_are_bounded_too() {
    let mut node = node(|limits| limits.dirty_bytes_max = 40);
    let session = node.login();
    node.commits_fail = true;
    check(
        &node.ask(session, &set("a", r#"{"a":"01234567890123456789"}"#)),
        &[],
    );
    check(
        &node.ask(session, &set("b", r#"{"a":"01234567890123456789"}"#)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    // A new write of the same record replaces the waiting one.
    check(&node.ask(session, &set("a", r#"{"a":"9"}"#)), &[]);
    check(&node.ask(session, &set("b", r#"{"a":"9"}"#)), &[]);
}

#[test]
fn too_many_requests_that_wait_for_one_record_are_refused() {
    let mut node = node(|limits| limits.record_waiting_max = 1);
    let session = node.login();
    node.store_hangs = true;
    let read = Message::Record(Record::Read { name: "r" });
    check(&node.ask(session, &read), &[]);
    check(
        &node.ask(session, &read),
        &["Error(Refusal { reason: LoadFailed"],
    );
    check(
        &node.ask(session, &set("r", "{}")),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    assert_eq!(node.counts(0).refused.waiting, 2);
}

#[test]
fn the_cache_forgets_only_unused_records() {
    let mut node = node(|limits| limits.cache_bytes_max = 2_000);
    let (session, subscriber) = (node.login(), node.login());
    check(&node.ask(session, &set("kept", "{}")), &["WriteAck"]);
    node.ask(subscriber, &bulk(RecordBulk::SubscribeAndRead, &["kept"]));
    for number in 0..10 {
        check(
            &node.ask(session, &set(&format!("r{number}"), "{}")),
            &["WriteAck"],
        );
    }
    assert!(node.counts(0).record_bytes <= 2_000, "{:?}", node.counts(0));
    assert!(node.counts(0).records >= 2, "{:?}", node.counts(0));
    for number in 0..10 {
        let name = format!("r{number}");
        check(
            &node.ask(session, &Message::Record(Record::Read { name: &name })),
            &["version: 1"],
        );
    }
    check(
        &node.ask(session, &set("kept", r#"{"a":1}"#)),
        &["WriteAck"],
    );
    check(&node.take(subscriber), &["version: 2"]);
}

/// Writes records of ten kilobytes with these numbers.
fn write_large(node: &mut Node, session: SessionId, numbers: std::ops::Range<usize>) {
    let value = format!(r#"{{"text":"{}"}}"#, "x".repeat(10_000));
    for number in numbers {
        let answer = node.ask(session, &set(&format!("large/{number}"), &value));
        check(&answer, &["WriteAck"]);
    }
}

#[test]
fn records_that_are_used_once_neither_fill_the_cache_nor_evict_others() {
    let mut node = node(|limits| limits.cache_bytes_max = 64 << 20);
    let session = node.login();
    for _ in 0..2 {
        check(&node.ask(session, &set("hot", "{}")), &["WriteAck"]);
    }
    write_large(&mut node, session, 0..2_000);
    let bytes = node.counts(0).record_bytes;
    assert!((3 << 20..5 << 20).contains(&bytes), "{bytes}");
    node.commits_fail = true;
    node.loads_fail = true;
    let read = |name| Message::Record(Record::Read { name });
    check(&node.ask(session, &read("hot")), &["version: 2"]);
    check(&node.ask(session, &read("large/1999")), &["version: 1"]);
    check(&node.ask(session, &read("large/0")), &["LoadFailed"]);
}

#[test]
fn records_that_are_used_again_soon_after_their_eviction_stay() {
    let mut node = node(|limits| limits.cache_bytes_max = 64 << 20);
    let session = node.login();
    write_large(&mut node, session, 0..1_000);
    assert!(node.counts(0).record_bytes < 5 << 20);
    for number in 0..1_000 {
        let name = format!("large/{number}");
        let read = Message::Record(Record::Read { name: &name });
        check(&node.ask(session, &read), &["version: 1"]);
    }
    let bytes = node.counts(0).record_bytes;
    assert!(bytes > 1_000 * 10_000, "{bytes}");
}

#[test]
fn records_that_are_used_repeatedly_stay_though_records_in_use_fill_the_cache() {
    let mut node = node(|limits| limits.cache_bytes_max = 100_000);
    let (session, subscriber) = (node.login(), node.login());
    for _ in 0..2 {
        check(&node.ask(session, &set("hot", "{}")), &["WriteAck"]);
    }
    check(&node.ask(session, &set("once", "{}")), &["WriteAck"]);
    write_large(&mut node, session, 0..20);
    let names: Vec<String> = (0..20).map(|number| format!("large/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.ask(subscriber, &bulk(RecordBulk::SubscribeAndRead, &names));
    assert!(node.counts(0).record_bytes > 200_000, "more than the cache");
    node.loads_fail = true;
    let read = |name| Message::Record(Record::Read { name });
    check(&node.ask(session, &read("hot")), &["version: 2"]);
    node.shrink_cache(0, 200_000);
    check(&node.ask(session, &read("hot")), &["version: 2"]);
    node.shrink_cache(0, usize::MAX);
    check(&node.ask(session, &read("hot")), &["LoadFailed"]);
}

#[test]
fn large_records_that_are_used_in_turn_do_not_evict_small_ones() {
    // In the second case even a single large record leaves at once, and small ones must not leave in its place.
    for (cache_bytes_max, newest) in [(1 << 20, "version: 3"), (9_000, "LoadFailed")] {
        let mut node = node(|limits| limits.cache_bytes_max = cache_bytes_max);
        let session = node.login();
        for _ in 0..3 {
            for part in 0..20 {
                check(&node.ask(session, &set("small", "{}")), &["WriteAck"]);
                write_large(&mut node, session, part * 10..part * 10 + 10);
            }
        }
        node.commits_fail = true;
        node.loads_fail = true;
        let read = |name| Message::Record(Record::Read { name });
        check(&node.ask(session, &read("small")), &["version: 60"]);
        check(&node.ask(session, &read("large/199")), &[newest]);
        check(&node.ask(session, &read("large/0")), &["LoadFailed"]);
    }
}

#[test]
fn large_records_that_are_no_longer_used_leave_the_cache() {
    let mut node = node(|limits| limits.cache_bytes_max = 1 << 20);
    let session = node.login();
    for _ in 0..2 {
        write_large(&mut node, session, 0..50);
    }
    for _ in 0..2 {
        for number in 0..10_000 {
            let name = format!("small/{number}");
            check(&node.ask(session, &set(&name, "{}")), &["WriteAck"]);
        }
    }
    node.commits_fail = true;
    node.loads_fail = true;
    let read = |name| Message::Record(Record::Read { name });
    check(&node.ask(session, &read("large/49")), &["LoadFailed"]);
    check(&node.ask(session, &read("small/9999")), &["version: 2"]);
}

#[test]
fn a_shrinking_cache_drops_only_the_oldest_unused_records() {
    let mut node = node(|_| {});
    let (session, subscriber) = (node.login(), node.login());
    for name in ["used", "old", "new"] {
        check(&node.ask(session, &set(name, "{}")), &["WriteAck"]);
    }
    node.ask(subscriber, &bulk(RecordBulk::SubscribeAndRead, &["used"]));
    node.commits_fail = true;
    check(&node.ask(session, &set("dirty", "{}")), &[]);
    let all = node.counts(0).record_bytes;
    let one = node.shrink_cache(0, 1);
    assert!(one > 0 && one < all / 3, "{one} of {all}");
    assert_eq!(node.counts(0).records, 3);
    assert_eq!(node.shrink_cache(0, usize::MAX), one, "as long a name");
    assert_eq!(node.shrink_cache(0, 1), 0, "the others are in use");
    assert_eq!(
        (node.counts(0).records, node.counts(0).record_bytes),
        (2, all - 2 * one)
    );
    node.commits_fail = false;
    node.pass(std::time::Duration::from_secs(10));
    check(&node.take(session), &["WriteAck"]);
    assert!(node.shrink_cache(0, usize::MAX) > 0, "it is stored now");
    for (name, version) in [("used", 1), ("old", 1), ("new", 1), ("dirty", 1)] {
        let read = Message::Record(Record::Read { name });
        check(&node.ask(session, &read), &[&format!("version: {version}")]);
    }
}

#[test]
fn an_acknowledged_write_that_takes_too_long_is_answered_as_failed_and_still_kept() {
    let mut node = node(|_| {});
    let session = node.login();
    node.commits_fail = true;
    check(&node.ask(session, &set("r", "{}")), &[]);
    node.pass(std::time::Duration::from_secs(31));
    check(
        &node.take(session),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    node.commits_fail = false;
    node.pass(std::time::Duration::from_secs(10));
    check(&node.take(session), &[]);
    assert!(node.stored("r").is_some());
    assert_eq!(node.counts(0).dirty_records, 0);
}

#[test]
fn a_load_that_takes_too_long_is_answered() {
    let mut node = node(|_| {});
    let session = node.login();
    node.store_hangs = true;
    check(
        &node.ask(session, &Message::Record(Record::Read { name: "r" })),
        &[],
    );
    node.pass(std::time::Duration::from_secs(31));
    check(&node.take(session), &["LoadTimeout"]);
}

#[test]
fn patterns_of_a_session_are_limited_and_few_are_compiled_in_a_turn() {
    let mut node = node(|limits| limits.patterns_max = 3);
    let session = node.login();
    let listen = |pattern| Message::Event(Event::Listen(Listen::Listen { pattern }));
    check(&node.ask(session, &listen("^a")), &["ListenAck"]);
    check(&node.ask(session, &listen("^b")), &["ListenAck"]);
    // The third pattern waits for the next turn, and so do all messages behind it.
    assert!(!node.offer(session, &listen("^c")));
    assert!(!node.is_resumed(session));
    node.pass(Duration::from_nanos(1));
    assert!(node.is_resumed(session));
    check(&node.ask(session, &listen("^c")), &["ListenAck"]);
    check(
        &node.ask(session, &listen("^d")),
        &[r#"Refusal { reason: Denied, action: Listen, name: Some("^d")"#],
    );
    assert_eq!(node.counts(0).refused.patterns, 1);
    let unlisten = Message::Event(Event::Listen(Listen::Unlisten { pattern: "^a" }));
    node.pass(Duration::from_nanos(1));
    check(&node.ask(session, &unlisten), &["UnlistenAck"]);
    check(&node.ask(session, &listen("^d")), &["ListenAck"]);
}

#[test]
fn a_full_store_accepts_deletes_and_writes_that_make_no_record_larger() {
    let mut node = node(|_| ());
    let session = node.login();
    let (large, small) = (r#"{"a":"0123456789"}"#, r#"{"a":"0"}"#);
    check(&node.ask(session, &set("r", large)), &["WriteAck"]);
    check(&node.ask(session, &set("s", small)), &["WriteAck"]);
    node.quota(&QuotaChange::Room(0));
    check(
        &node.ask(session, &set("new", "{}")),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(
        &node.ask(session, &set("s", large)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    let create = bulk(RecordBulk::SubscribeCreateAndRead, &["new"]);
    check(
        &node.ask(session, &create),
        &["Ack", "Error(Refusal { reason: CreateFailed"],
    );
    assert_eq!(node.counts(0).refused.store_full, 3);
    // No session saw the refused writes, and the store does not have them.
    assert_eq!(node.stored("new"), None);
    let read = Message::Record(Record::Read { name: "s" });
    check(&node.ask(session, &read), &["version: 1"]);
    check(&node.ask(session, &set("r", small)), &["WriteAck"]);
    let delete = Message::Record(Record::Delete { name: "r" });
    check(&node.ask(session, &delete), &["DeleteSuccess"]);
    node.quota(&QuotaChange::Room(100));
    check(&node.ask(session, &set("new", "{}")), &["WriteAck"]);
    let beyond = format!("[\"{}\"]", "x".repeat(200));
    check(
        &node.ask(session, &set("s", &beyond)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
}

#[test]
fn uncommitted_writes_count_against_the_room_of_a_store() {
    let mut node = node(|_| ());
    let session = node.login();
    node.quota(&QuotaChange::Room(60));
    for name in ["a", "b", "c"] {
        node.ask(session, &bulk(RecordBulk::SubscribeAndRead, &[name]));
    }
    node.store_hangs = true;
    let data = format!("[\"{}\"]", "x".repeat(16));
    assert_eq!(node.ask(session, &set("a", &data)).len(), 0);
    assert_eq!(node.ask(session, &set("b", &data)).len(), 0);
    check(
        &node.ask(session, &set("c", &data)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    node.answer_store();
    check(&node.take(session), &["WriteAck", "WriteAck"]);
}

#[test]
fn a_user_at_its_quota_does_not_stop_other_users_from_writing() {
    let mut node = node(|_| ());
    let login = |node: &mut Node, user: &str| {
        let principal = Arc::new(Principal::new(user.into()));
        node.login_outcome = Some(AuthOutcome::Accepted(principal));
        node.login()
    };
    let (ann, bob) = (login(&mut node, "ann"), login(&mut node, "bob"));
    check(&node.ask(ann, &set("r", "{}")), &["WriteAck"]);
    let full = |is_full| QuotaChange::User {
        user: "ann".into(),
        is_full,
    };
    node.quota(&full(true));
    check(
        &node.ask(ann, &set("new", "{}")),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    assert_eq!(node.counts(0).refused.user_store_full, 1);
    check(&node.ask(bob, &set("new", "{}")), &["WriteAck"]);
    let delete = Message::Record(Record::Delete { name: "r" });
    check(&node.ask(ann, &delete), &["DeleteSuccess"]);
    node.quota(&full(false));
    check(&node.ask(ann, &set("r", "{}")), &["WriteAck"]);
}

/// Reads of a session that may be without an answer.
const READS_MAX: usize = 1_024;

#[test]
fn a_session_waits_for_the_answers_to_many_reads() {
    let mut node = node(|limits| limits.connection_work_max = 0);
    let (session, other) = (node.login(), node.login());
    node.store_hangs = true;
    let names: Vec<String> = (0..4 * READS_MAX)
        .map(|number| format!("missing/{number}"))
        .collect();
    let read = |number: usize| match number % 2 {
        0 => Message::Record(Record::Read {
            name: &names[number],
        }),
        _ => Message::Record(Record::Head {
            name: &names[number],
        }),
    };
    let taken = (0..names.len()).take_while(|number| node.offer(session, &read(*number)));
    assert_eq!(taken.count(), READS_MAX);
    assert!(!node.offer(session, &read(READS_MAX)), "it still waits");
    assert!(!node.is_resumed(session));
    assert!(
        node.offer(other, &read(0)),
        "each session has its own limit"
    );
    assert!(node.offer(session, &emit("event", "1")), "only reads wait");
    node.answer_store();
    assert_eq!(node.take(session).len(), READS_MAX);
    assert!(node.is_resumed(session));
    for number in READS_MAX..names.len() {
        node.send(session, &read(number));
    }
    assert_eq!(node.take(session).len(), names.len() - READS_MAX);
}

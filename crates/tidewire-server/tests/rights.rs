//! Rights that end while sockets are open: the last messages that the client receives, and that nothing follows them.

mod client;
mod shard_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{Client, emit, subscribe, wait_until};
use shard_support::{Node, Options};
use tidewire_core::effect::CloseReason;
use tidewire_core::message::{
    Auth, Connection, Event, EventBulk, Message, Publication, Reason, Record, RecordBulk, Write,
};
use tidewire_core::permission::{Access, Decision, Permission, Question};
use tidewire_core::principal::Credential;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::time::WallTime;
use tidewire_http::rights::{ChangeError, Rights};
use tidewire_net::event_loop::OutboxMarks;
use tidewire_shard::ShardLimits;
use tidewire_wire::frame::websocket::CloseCode;
use tokio::runtime::Builder;

/// Long enough for a shard to apply the decision of a login to its session, which takes one turn.
const SHORT: Duration = Duration::from_secs(2);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

/// The login data of this client, with a login that expires after `time`.
fn login_data(client: &Client, time: Duration) -> String {
    let user = client.stream.local_addr().unwrap().port();
    let milliseconds = time.as_millis();
    format!(r#"{{"user":"user-{user}","expires_in":{milliseconds}}}"#)
}

/// Logs in for [`LONG`].
fn log_in(mut client: Client) -> Client {
    let data = login_data(&client, LONG);
    client.log_in_with(&data);
    client
}

/// Renews the login of an open session once for each of `times`. Each time starts when the server decides on the login.
fn renew(client: &mut Client, times: &[Duration]) {
    let data: Vec<String> = times.iter().map(|time| login_data(client, *time)).collect();
    let request = |data| Message::Auth(Auth::Request { data: Some(data) });
    client.send_all(data.iter().map(|data| request(data.as_str())));
}

fn listen(mut client: Client, name: &str) -> Client {
    client.send(&subscribe(name));
    client.expect_ack(EventBulk::Subscribe);
    client
}

/// Outboxes that hold all that a test sends.
fn large_outboxes() -> Options {
    Options {
        limits: ShardLimits {
            outbox: OutboxMarks {
                bytes_max: 64 << 20,
                lagging_bytes: 64 << 20,
                drained_bytes: 1 << 20,
            },
            ..ShardLimits::default()
        },
        ..Options::default()
    }
}

/// Emits events until a client of shard 0 that does not read has more than the kernel buffers. Returns how many.
fn fill(node: &Node, writer: &mut Client, name: &str) -> usize {
    let data = format!("\"{}\"", "x".repeat(100_000));
    let mut emit = || {
        writer.send(&emit(name, &data));
        writer.ping();
    };
    let outbox_bytes = || node.stats(0).outbox_bytes.load(Ordering::Relaxed);
    let before = outbox_bytes();
    let mut count = 10;
    while outbox_bytes() == before {
        emit();
        count += 1;
    }
    (0..10).for_each(|_| emit());
    count
}

#[test]
fn an_expired_session_is_closed() {
    let node = Node::start(Options::default());
    let mut short = listen(log_in(node.connect(0)), "news");
    let mut long = listen(log_in(node.connect(0)), "news");
    let mut writer = node.log_in(1);
    writer.send(&emit("news", "1"));
    for client in [&mut short, &mut long] {
        client.expect(&emit("news", "1"));
    }
    renew(&mut short, &[SHORT]);
    short.expect(&Message::Auth(Auth::Successful { data: None }));
    assert_eq!(short.expect_close(), Some(CloseCode::POLICY));
    writer.send(&emit("news", "2"));
    long.expect(&emit("news", "2"));
    assert_eq!(node.stats(0).engine.expired.load(Ordering::Relaxed), 1);
}

#[test]
fn pending_messages_of_an_expired_session_are_not_sent() {
    let node = Node::start(large_outboxes());
    let mut short = listen(log_in(node.connect(0)), "news");
    let mut writer = node.log_in(0);
    let count = fill(&node, &mut writer, "news");
    renew(&mut short, &[SHORT]);
    wait_until(|| node.stats(0).engine.expired.load(Ordering::Relaxed) == 1);
    // The shard has dropped the connection, so the client now receives only data that the kernel already had.
    wait_until(|| node.stats(0).connections.load(Ordering::Relaxed) == 1);
    let mut received = 0;
    short.receive_all(|message| {
        let is_event = matches!(message, Message::Event(Event::Publication(_)));
        assert!(is_event, "{message:?}");
        received += 1;
    });
    assert!(received < count, "{received} of {count}");
}

/// Denies subscriptions and reads of names that begin with one of these letters.
#[derive(Debug)]
struct Closed(String);

impl Permission for Closed {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let is_guarded = matches!(question.access, Access::EventSubscribe | Access::RecordRead);
        let first = question.name.and_then(|name| name.chars().next());
        match first {
            Some(first) if is_guarded && self.0.contains(first) => Decision::Deny,
            _ => Decision::Allow,
        }
    }
}

fn set_rules(rights: &Rights, closed: &str) {
    let runtime = Builder::new_current_thread().build().unwrap();
    let rules = Arc::new(Closed(closed.to_owned()));
    runtime.block_on(rights.set_rules(rules)).unwrap();
}

fn rights(node: &Node) -> Arc<Rights> {
    Arc::new(Rights::new(node.handles().into(), 2))
}

/// The name of the event or record in a message, if the message delivers one.
fn name_of<'m>(message: &'m Message<'_>) -> Option<&'m str> {
    match message {
        Message::Event(Event::Publication(Publication { name, .. }))
        | Message::Record(Record::Write(Write { name, .. }, _)) => Some(name),
        _ => None,
    }
}

#[test]
fn nothing_is_written_for_a_lost_right_once_the_change_is_acknowledged() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let node = Node::start(Options::default());
    let rights = rights(&node);
    // The reader is the only client of its shard, so the bytes that the shard sends are its bytes.
    let mut reader = node.log_in(0);
    let mut writer = node.log_in(1);
    let mut random_state = 7_u64;
    let mut below = |bound: u64| {
        random_state = random_state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random_state >> 33) % bound
    };
    for round in 0..60 {
        for name in NAMES {
            reader.send(&subscribe(name));
            reader.send(&Message::Record(Record::Bulk {
                action: RecordBulk::SubscribeCreateAndRead,
                names: vec![name],
                correlation: Some("8"),
            }));
        }
        let mut reads = 0;
        reader.receive_until(|message| {
            let is_read = matches!(message, Message::Record(Record::ReadResponse { .. }));
            reads += usize::from(is_read);
            reads == NAMES.len()
        });
        let closed: String = NAMES.iter().filter(|_| below(2) == 0).copied().collect();
        let emits = below(200);
        let writer = &mut writer;
        std::thread::scope(|scope| {
            // Writes while the rules change and afterwards.
            let load = scope.spawn(move || {
                for number in 0..emits + 50 {
                    let name = NAMES[number as usize % NAMES.len()];
                    writer.send(&emit(name, &number.to_string()));
                    let data = format!("{{\"n\":{number}}}");
                    writer.send(&client::write(name, -1, &data));
                }
                writer
            });
            set_rules(&rights, &closed);
            // The bytes written up to the acknowledgement, and perhaps a few more.
            let written = node.stats(0).bytes_out.load(Ordering::Relaxed);
            load.join().unwrap().ping_through();
            reader.send(&Message::Connection(Connection::Ping));
            let (mut events, mut records) = (BTreeSet::new(), BTreeSet::new());
            reader.receive_with_bytes(|message, bytes| {
                let name = name_of(message);
                let after = bytes as u64 > written;
                assert!(
                    !name.is_some_and(|name| after && closed.contains(name)),
                    "round {round}: {message:?} at {bytes}, acknowledged at {written}"
                );
                if let Message::Event(Event::Error(refusal)) = message {
                    assert_eq!(refusal.reason, Reason::Denied);
                    events.extend(refusal.name.map(str::to_owned));
                }
                if let Message::Record(Record::Error(refusal)) = message {
                    assert_eq!(refusal.reason, Reason::Denied);
                    records.extend(refusal.name.map(str::to_owned));
                }
                *message == Message::Connection(Connection::Pong)
            });
            for ended in [events, records] {
                let ended: String = ended.into_iter().collect();
                assert_eq!(ended, closed, "round {round}");
            }
        });
        // The rules allow all names again. The client must subscribe again.
        set_rules(&rights, "");
        for name in NAMES {
            reader.send(&Message::Event(Event::Unsubscribe {
                names: vec![name],
                correlation: Some("7"),
            }));
            reader.send(&Message::Record(Record::Bulk {
                action: RecordBulk::Unsubscribe,
                names: vec![name],
                correlation: Some("8"),
            }));
        }
        reader.ping_through();
    }
}

#[test]
fn a_session_that_lost_a_right_and_does_not_read_is_cut_before_the_acknowledgement() {
    let node = Node::start(large_outboxes());
    let rights = rights(&node);
    let mut loser = listen(node.log_in(0), "a");
    let mut keeper = listen(node.log_in(0), "b");
    let mut writer = node.log_in(0);
    for name in ["a", "b"] {
        fill(&node, &mut writer, name);
    }
    set_rules(&rights, "a");
    assert_eq!(node.stats(0).rights_cuts.load(Ordering::Relaxed), 1);
    loser.receive_all(|message| {
        let is_event = matches!(message, Message::Event(Event::Publication(_)));
        assert!(is_event, "{message:?} after the lost messages");
    });
    // A client that keeps its rights receives everything, however slowly it reads.
    keeper.ping_through();
}

#[test]
fn rules_that_come_together_are_answered_together_by_the_newest() {
    let node = Node::start(Options::default());
    let rights = rights(&node);
    let mut reader = listen(listen(node.log_in(0), "a"), "b");
    let runtime = Builder::new_current_thread().build().unwrap();
    let changes = ["a", "b", "a", "b", "ab", "b"];
    runtime.block_on(async {
        let changes = changes.map(|closed| rights.set_rules(Arc::new(Closed(closed.to_owned()))));
        let [first, second, third, fourth, fifth, sixth] = changes;
        let done = tokio::join!(first, second, third, fourth, fifth, sixth);
        assert_eq!(done, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())));
    });
    reader.send(&subscribe("a"));
    reader.send(&subscribe("b"));
    let mut answers = Vec::new();
    reader.send(&Message::Connection(Connection::Ping));
    reader.receive_until(|message| {
        answers.push(format!("{message:?}"));
        *message == Message::Connection(Connection::Pong)
    });
    let denied = answers.iter().filter(|answer| answer.contains("Denied"));
    let of_a = denied.clone().filter(|denied| denied.contains("\"a\""));
    // The server applied the first change alone, which ended `a`, and then only the last of the others.
    assert_eq!((denied.count(), of_a.count()), (3, 1), "{answers:?}");
}

fn token(id: &str) -> Revoked {
    Revoked::Credential(Credential::Token(id.into()))
}

/// Revokes for an hour and returns how long the server took.
fn revoke(rights: &Arc<Rights>, what: Revoked) -> Result<Duration, ChangeError> {
    let millis = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let now = SystemTime::now();
    let until = WallTime(millis(now + Duration::from_secs(3_600)));
    let runtime = Builder::new_current_thread().build().unwrap();
    let revocation = Revocation { what, until };
    let began = Instant::now();
    runtime.block_on(rights.revoke(revocation, WallTime(millis(now))))?;
    Ok(began.elapsed())
}

#[test]
fn a_revoked_session_is_informed_and_gets_nothing_afterwards() {
    let node = Node::start(Options::default());
    let rights = rights(&node);
    let mut revoked = node.connect(0);
    revoked.log_in_with(r#"{"user":"anna","token":"1"}"#);
    let mut revoked = listen(revoked, "news");
    let mut kept = node.connect(1);
    kept.log_in_with(r#"{"user":"anna","token":"2"}"#);
    let mut kept = listen(kept, "news");
    revoke(&rights, token("1")).unwrap();
    let mut writer = node.log_in(2);
    writer.send(&emit("news", "1"));
    kept.expect(&emit("news", "1"));
    for message in CloseReason::Revoked.close_messages() {
        revoked.expect(message);
    }
    assert_eq!(revoked.expect_close(), Some(CloseCode::POLICY));
    // The same token again, and then more tokens than the limit.
    assert!(revoke(&rights, token("1")).is_ok());
    assert!(revoke(&rights, token("3")).is_ok());
    assert_eq!(revoke(&rights, token("4")), Err(ChangeError::Full));
}

#[test]
fn a_renewed_login_goes_on_beyond_its_first_expiry() {
    let node = Node::start(Options::default());
    let mut client = listen(log_in(node.connect(0)), "news");
    client.send(&Message::Auth(Auth::Request {
        data: Some(r#"{"user":"somebody else"}"#),
    }));
    client.expect(&Message::Auth(Auth::Unsuccessful {
        data: Some(r#"{"code":"OTHER_USER","error":"a renewal can't change the user"}"#),
    }));
    // Both renewals in one write, so that the test can't delay the second past the expiry of the first.
    renew(&mut client, &[SHORT, LONG]);
    for _ in 0..2 {
        client.expect(&Message::Auth(Auth::Successful { data: None }));
    }
    let mut other = log_in(node.connect(0));
    renew(&mut other, &[SHORT]);
    other.expect(&Message::Auth(Auth::Successful { data: None }));
    assert_eq!(other.expect_close(), Some(CloseCode::POLICY));
    client.ping();
}

/// Sessions of one user, with 10,000 subscriptions in all.
fn log_in_many(node: &Node) -> Vec<Client> {
    let names: Vec<String> = (0..50).map(|number| format!("news/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let member = |number: usize| {
        let mut client = node.connect(number % 3);
        client.log_in_with(r#"{"user":"many"}"#);
        client.send(&Message::Event(Event::Subscribe {
            names: names.clone(),
            correlation: Some("7"),
            positions: Vec::new(),
        }));
        client.expect_ack(EventBulk::Subscribe);
        client
    };
    (0..200).map(member).collect()
}

#[test]
fn ten_thousand_live_subscriptions_end_within_a_tenth_of_a_second() {
    let node = Node::start(Options::default());
    let rights = rights(&node);
    let runtime = Builder::new_current_thread().build().unwrap();
    let user = Revoked::User("many".into());
    // Other tests may keep the machine busy in one round, but hardly in all rounds.
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let mut sessions = log_in_many(&node);
        let began = Instant::now();
        let acknowledged = revoke(&rights, user.clone()).unwrap();
        for client in &mut sessions {
            for message in CloseReason::Revoked.close_messages() {
                client.expect(message);
            }
            assert_eq!(client.expect_close(), Some(CloseCode::POLICY));
        }
        println!(
            "acknowledged after {acknowledged:?}, all read after {:?}",
            began.elapsed()
        );
        fastest = fastest.min(began.elapsed());
        runtime.block_on(rights.restore(user.clone())).unwrap();
        if fastest < Duration::from_millis(100) {
            return;
        }
    }
    panic!("the fastest of all rounds took {fastest:?}");
}

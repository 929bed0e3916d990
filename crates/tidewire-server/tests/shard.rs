//! Shards with real sockets: splitting, order, slow readers, waiting messages, several shards, closing, draining.

mod client;
mod shard_support;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{DEADLINE, emit, subscribe, wait_until};
use shard_support::{GatedPublish, Node, Options, StoppingPublish};
use tidewire_core::message::{Connection, EventBulk, Message, Presence, Record, RecordBulk};
use tidewire_http::metrics::exposition::Exposition;
use tidewire_http::metrics::{Metrics, ShardNumbers};
use tidewire_net::event_loop::OutboxMarks;
use tidewire_shard::ShardLimits;
use tidewire_wire::frame::websocket::{CloseCode, Opcode, encode_masked};
use tidewire_wire::protocol::deepstream::Deepstream;

#[test]
fn bytes_split_anywhere_give_the_same_answers() {
    let node = Node::start(Options::default());
    let mut listener = node.log_in(1);
    listener.send(&subscribe("news"));
    listener.expect_ack(EventBulk::Subscribe);
    let mut bytes = Vec::new();
    client::encode_login(&mut bytes);
    for number in 0..3 {
        Deepstream::encode_masked_frame(
            &emit("news", &number.to_string()),
            [1, 2, 3, 4],
            &mut bytes,
        );
    }
    for split in 1..bytes.len() {
        let bytes_before = node.stats(0).bytes_in.load(Ordering::Relaxed);
        let mut client = node.connect(0);
        client.stream.write_all(&bytes[..split]).unwrap();
        wait_until(|| {
            node.stats(0).bytes_in.load(Ordering::Relaxed) >= bytes_before + split as u64
        });
        client.stream.write_all(&bytes[split..]).unwrap();
        client.expect_login();
        for number in 0..3 {
            listener.expect(&emit("news", &number.to_string()));
        }
    }
}

#[test]
fn a_client_that_sends_byte_by_byte_is_understood() {
    let node = Node::start(Options::default());
    let mut client = node.connect(2);
    let mut bytes = Vec::new();
    client::encode_login(&mut bytes);
    Deepstream::encode_masked_frame(&subscribe("drop"), [9; 4], &mut bytes);
    for byte in bytes {
        client.stream.write_all(&[byte]).unwrap();
    }
    client.expect_login();
    client.expect_ack(EventBulk::Subscribe);
}

#[test]
fn bytes_that_came_with_the_upgrade_are_handled_first() {
    let node = Node::start(Options::default());
    let mut unread = Vec::new();
    client::encode_login(&mut unread);
    let (unread, rest) = unread.split_at(unread.len() - 3);
    let mut client = node.connect_with(0, unread.to_vec());
    client.stream.write_all(rest).unwrap();
    client.expect_login();
}

#[test]
fn publications_reach_subscribers_of_every_shard_in_order() {
    let node = Node::start(Options::default());
    let mut clients: Vec<_> = (0..3).map(|shard| node.log_in(shard)).collect();
    for client in &mut clients {
        client.send(&subscribe("all"));
        client.expect_ack(EventBulk::Subscribe);
    }
    for sender in 0..3 {
        let texts: Vec<String> = (0..500)
            .map(|number| (1000 * sender + number).to_string())
            .collect();
        clients[sender].send_all(texts.iter().map(|text| emit("all", text)));
        for (receiver, client) in clients.iter_mut().enumerate() {
            if receiver != sender {
                texts
                    .iter()
                    .for_each(|text| client.expect(&emit("all", text)));
            }
        }
    }
    clients.iter_mut().for_each(client::Client::ping);
}

#[test]
fn a_flood_leaves_in_few_sends() {
    let node = Node::start(Options::default());
    let mut sender = node.log_in(0);
    let mut receivers: Vec<_> = (0..10).map(|_| node.log_in(0)).collect();
    for receiver in &mut receivers {
        receiver.send(&subscribe("flood"));
        receiver.expect_ack(EventBulk::Subscribe);
    }
    let before = node.stats(0).sends.load(Ordering::Relaxed);
    sender.send_all((0..5000).map(|_| emit("flood", "\"0123456789\"")));
    for receiver in &mut receivers {
        (0..5000).for_each(|_| receiver.expect(&emit("flood", "\"0123456789\"")));
    }
    wait_until(|| node.stats(0).sends.load(Ordering::Relaxed) > before);
    let sends = node.stats(0).sends.load(Ordering::Relaxed) - before;
    assert!(sends <= 1000, "{sends} sends for 50,000 deliveries");
}

#[test]
fn a_stuck_reader_is_ended_and_others_get_everything() {
    let node = Node::start(Options::default());
    let mut sender = node.log_in(0);
    let mut stuck = node.log_in(0);
    let mut reading = node.log_in(0);
    for client in [&mut stuck, &mut reading] {
        client.send(&subscribe("big"));
        client.expect_ack(EventBulk::Subscribe);
    }
    let text = format!("\"{}\"", "x".repeat(100_000));
    let mut count = 0;
    let start = Instant::now();
    while node.stats(0).slow_disconnects.load(Ordering::Relaxed) == 0 {
        sender.send(&emit("big", &text));
        reading.expect(&emit("big", &text));
        count += 1;
        assert!(
            start.elapsed() < DEADLINE,
            "not ended after {count} messages"
        );
    }
    assert!(count >= 10, "ended after {count} messages, below the limit");
    for _ in 0..20 {
        sender.send(&emit("big", &text));
        reading.expect(&emit("big", &text));
    }
    assert_eq!(node.stats(0).slow_disconnects.load(Ordering::Relaxed), 1);
    wait_until(|| node.stats(0).outbox_bytes.load(Ordering::Relaxed) == 0);
    wait_until(|| node.stats(0).connections.load(Ordering::Relaxed) == 2);
}

#[test]
fn half_received_messages_are_bounded_for_the_whole_node() {
    let limits = ShardLimits {
        memory_bytes_max: 1 << 20,
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let mut innocent = node.log_in(0);
    let whole = vec![0; 900_000];
    let mut frame = Vec::new();
    encode_masked(Opcode::Binary, &whole, [1; 4], &mut frame);
    frame[0] &= 0x7F;
    let mut hoarders: Vec<_> = (0..2).map(|_| node.log_in(0)).collect();
    hoarders[0].stream.write_all(&frame).unwrap();
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) == 900_000);
    // The server cuts one client in the middle of its frame, so its write may fail.
    let _ = hoarders[1].stream.write_all(&frame[..frame.len() - 1]);
    wait_until(|| node.stats(0).slow_disconnects.load(Ordering::Relaxed) == 1);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) < 1 << 20);
    innocent.ping();
    drop(hoarders);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_reader_that_pauses_briefly_misses_nothing() {
    let node = Node::start(Options::default());
    let mut sender = node.log_in(0);
    let mut pausing = node.log_in(0);
    pausing.send(&subscribe("big"));
    pausing.expect_ack(EventBulk::Subscribe);
    let texts: Vec<String> = (0..200)
        .map(|number| format!("\"{number}{}\"", "x".repeat(50_000)))
        .collect();
    let mut sent = 0;
    while node.stats(0).short_sends.load(Ordering::Relaxed) == 0 {
        sender.send(&emit("big", &texts[sent]));
        sent += 1;
        sender.ping();
    }
    for text in &texts[..sent] {
        pausing.expect(&emit("big", text));
    }
    wait_until(|| node.stats(0).outbox_bytes.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_message_that_has_to_wait_keeps_its_order() {
    let node = Node::start(Options {
        permission: std::sync::Arc::new(GatedPublish),
        ..Options::default()
    });
    let mut sender = node.log_in(0);
    let mut receiver = node.log_in(1);
    receiver.send(&subscribe("plain"));
    receiver.expect_ack(EventBulk::Subscribe);
    receiver.send(&subscribe("gated"));
    receiver.expect_ack(EventBulk::Subscribe);
    for round in 0..50 {
        let texts: Vec<String> = (0..10)
            .map(|number| (round * 10 + number).to_string())
            .collect();
        let name = |number: usize| if number % 3 == 1 { "gated" } else { "plain" };
        sender.send_all(
            texts
                .iter()
                .enumerate()
                .map(|(number, text)| emit(name(number), text)),
        );
        for (number, text) in texts.iter().enumerate() {
            receiver.expect(&emit(name(number), text));
        }
    }
}

#[test]
fn records_are_written_across_shards_and_acknowledged() {
    let node = Node::start(Options::default());
    let mut clients: Vec<_> = (0..3).map(|shard| node.log_in(shard)).collect();
    let names: Vec<String> = (0..20).map(|number| format!("record/{number}")).collect();
    for client in &mut clients {
        client.send(&Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            names: names.iter().map(String::as_str).collect(),
            correlation: Some("1"),
        }));
        let mut reads = 0;
        client.receive_until(|message| {
            reads += usize::from(matches!(
                message,
                Message::Record(Record::ReadResponse { .. })
            ));
            reads == names.len()
        });
    }
}

#[test]
fn bytes_in_flight_are_bounded_and_nothing_is_lost() {
    let limits = ShardLimits {
        inflight_bytes_max: 10_000,
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let mut sender = node.log_in(0);
    let mut receiver = node.log_in(1);
    receiver.send(&subscribe("many"));
    receiver.expect_ack(EventBulk::Subscribe);
    let texts: Vec<String> = (0..3000)
        .map(|number| format!("\"{number}{}\"", "x".repeat(100)))
        .collect();
    sender.send_all(texts.iter().map(|text| emit("many", text)));
    texts
        .iter()
        .for_each(|text| receiver.expect(&emit("many", text)));
    assert!(node.stats(0).inflight_pauses.load(Ordering::Relaxed) > 0);
    wait_until(|| {
        sender.ping();
        node.stats(0).inflight_bytes.load(Ordering::Relaxed) == 0
    });
}

#[test]
fn a_shard_over_its_own_limit_goes_on_when_others_have_caught_up() {
    let limits = ShardLimits {
        shard_inflight_bytes_max: 5_000,
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let mut receiver = node.log_in(2);
    receiver.send(&subscribe("many"));
    receiver.expect_ack(EventBulk::Subscribe);
    let mut senders: Vec<_> = (0..5).map(|_| node.log_in(0)).collect();
    let text = format!("\"{}\"", "x".repeat(1000));
    for sender in &mut senders {
        sender.send_all((0..100).map(|_| emit("many", &text)));
    }
    (0..500).for_each(|_| receiver.expect(&emit("many", &text)));
}

#[test]
fn a_congested_shard_delays_only_messages_that_go_to_it() {
    const LIMIT: u64 = 100_000;
    const MESSAGES: usize = 300;
    let (permission, has_stopped, resume) = StoppingPublish::new();
    let node = Node::start(Options {
        limits: ShardLimits {
            shard_inflight_bytes_max: LIMIT as usize,
            ..ShardLimits::default()
        },
        permission: Arc::new(permission),
        ..Options::default()
    });
    let mut receiver = node.log_in(2);
    receiver.send(&subscribe("many"));
    receiver.expect_ack(EventBulk::Subscribe);
    let mut calm: Vec<_> = (0..2).map(|shard| node.log_in(shard)).collect();
    for client in &mut calm {
        client.send(&subscribe("calm"));
        client.expect_ack(EventBulk::Subscribe);
    }
    let mut senders: Vec<_> = (0..2).map(|shard| node.log_in(shard)).collect();
    node.log_in(2).send(&emit("stop", "1"));
    has_stopped.recv_timeout(DEADLINE).unwrap();
    // Shard 0 sends more to shard 2 than it may have in flight.
    let in_flight = |shard| node.stats(shard).inflight_bytes.load(Ordering::Relaxed);
    let waits = |shard| node.stats(shard).congestion_waits.load(Ordering::Relaxed);
    let text = format!("\"{}\"", "x".repeat(1_000));
    let first = &mut senders[0];
    first.send_all((0..MESSAGES).map(|_| emit("many", &text)));
    wait_until(|| in_flight(0) > LIMIT);
    first.send_all((0..MESSAGES).map(|_| emit("many", &text)));
    // Messages of shards 0 and 1 to each other arrive.
    for number in 0..100 {
        let number = number.to_string();
        for sender in 0..2 {
            calm[sender].send(&emit("calm", &number));
            calm[1 - sender].expect(&emit("calm", &number));
        }
    }
    // A connection of shard 1 waits as well, before its first message to shard 2.
    senders[1].send_all((0..MESSAGES).map(|_| emit("many", &text)));
    wait_until(|| waits(0) == 1 && waits(1) == 1);
    wait_until(|| in_flight(1) == 0);
    calm[1].ping();
    drop(resume);
    (0..3 * MESSAGES).for_each(|_| receiver.expect(&emit("many", &text)));
    senders.iter_mut().for_each(|sender| sender.ping());
}

#[test]
fn messages_before_the_introduction_are_answered_before_it() {
    let node = Node::start(Options::default());
    let mut bytes = Vec::new();
    let ping = Message::Connection(Connection::Ping);
    Deepstream::encode_masked_frame(&ping, [1; 4], &mut bytes);
    Deepstream::encode_masked_frame(&subscribe("early"), [2; 4], &mut bytes);
    client::encode_batching_login(&mut bytes);
    for _ in 0..2 {
        let mut client = node.connect_with(0, bytes.clone());
        client.expect(&Message::Connection(Connection::Pong));
        client.expect(&Message::Connection(Connection::InvalidMessage));
        client.expect_login();
    }
}

#[test]
fn pings_are_answered_behind_the_messages_before_them() {
    let node = Node::start(Options::default());
    let mut client = node.log_in(0);
    let mut bytes = Vec::new();
    Deepstream::encode_masked_frame(&subscribe("a"), [1; 4], &mut bytes);
    encode_masked(Opcode::Ping, b"hello", [2; 4], &mut bytes);
    client.stream.write_all(&bytes).unwrap();
    client.expect_ack(EventBulk::Subscribe);
    assert_eq!(client.expect_pong(), b"hello");
}

#[test]
fn a_goodbye_is_answered_and_the_connection_ends() {
    let node = Node::start(Options::default());
    for payload in [&[][..], &1000u16.to_be_bytes(), &4321u16.to_be_bytes()] {
        let mut client = node.log_in(0);
        client.send_frame(Opcode::Close, payload);
        let code = client.expect_close();
        assert_eq!(
            code.map(CloseCode::number),
            payload
                .first_chunk()
                .map(|bytes| u16::from_be_bytes(*bytes))
        );
        client.expect_end();
    }
    wait_until(|| node.stats(0).connections.load(Ordering::Relaxed) == 0);
    wait_until(|| node.connection_limiter.open() == 0);
    wait_until(|| node.stats(0).engine.sessions.load(Ordering::Relaxed) == 0);
}

#[test]
fn broken_frames_close_with_their_code_and_affect_no_other_connection() {
    let node = Node::start(Options::default());
    let mut other = node.log_in(0);
    let too_big = [0x82, 0xFF, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4];
    let cases: [(&[u8], CloseCode); 4] = [
        (&[0x82, 0x01, 0x00], CloseCode::PROTOCOL),
        (&[0xF2, 0x80, 0, 0, 0, 0], CloseCode::PROTOCOL),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xFF], CloseCode::INVALID_PAYLOAD),
        (&too_big, CloseCode::TOO_BIG),
    ];
    for (bytes, code) in cases {
        let mut client = node.log_in(0);
        client.stream.write_all(bytes).unwrap();
        assert_eq!(client.expect_close(), Some(code));
        client.expect_end();
    }
    other.ping();
    assert_eq!(node.stats(0).protocol_errors.load(Ordering::Relaxed), 4);
}

#[test]
fn text_frames_and_garbage_are_answered_as_unknown() {
    let node = Node::start(Options::default());
    let mut client = node.log_in(0);
    client.send_frame(Opcode::Text, b"hello");
    client.expect(&Message::UnknownTopic);
    client.send_frame(Opcode::Binary, &[0xFF; 20]);
    client.expect(&Message::UnknownTopic);
    assert_eq!(node.stats(0).undecodable.load(Ordering::Relaxed), 2);
    client.ping();
}

#[test]
fn a_lost_connection_takes_its_subscriptions_along() {
    let node = Node::start(Options::default());
    let mut client = node.log_in(1);
    client.send(&subscribe("gone"));
    client.expect_ack(EventBulk::Subscribe);
    wait_until(|| {
        node.stats(1)
            .engine
            .subscribed_names
            .load(Ordering::Relaxed)
            == 1
    });
    drop(client);
    wait_until(|| {
        node.stats(1)
            .engine
            .subscribed_names
            .load(Ordering::Relaxed)
            == 0
    });
    wait_until(|| node.stats(1).connections.load(Ordering::Relaxed) == 0);
}

#[test]
fn the_longest_turn_is_a_metric_that_every_reader_sees() {
    let node = Node::start(Options::default());
    node.log_in(0).ping();
    wait_until(|| node.stats(0).turn_nanos_max.load(Ordering::Relaxed) > 0);
    let metrics = Metrics::default();
    let stores = vec![("default".to_owned(), node.store_health())];
    metrics.register(Box::new(ShardNumbers::new(node.handles().into(), stores)));
    let longest = |text: String| -> f64 {
        let line = text
            .lines()
            .find(|line| line.starts_with("tidewire_turn_longest_seconds "))
            .unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let first = longest(metrics.text(Exposition::OpenMetrics));
    assert!(first > 0.0 && first < DEADLINE.as_secs_f64(), "{first}");
    let second = longest(metrics.text(Exposition::Text));
    assert!(second >= first, "{second} after {first}");
}

#[test]
fn deliveries_count_messages_once_per_recipient() {
    const MESSAGES: u64 = 500;
    const RECIPIENTS: u64 = 3;
    let node = Node::start(Options::default());
    let mut subscribers = [node.log_in(0), node.log_in(0), node.log_in(1)];
    for subscriber in &mut subscribers {
        subscriber.send(&subscribe("news"));
        subscriber.expect_ack(EventBulk::Subscribe);
    }
    let mut publisher = node.log_in(0);
    publisher.ping();
    let deliveries = || -> u64 {
        let shards = (0..3).map(|shard| node.stats(shard).deliveries.load(Ordering::Relaxed));
        shards.sum()
    };
    let before = deliveries();
    publisher.send_all((0..MESSAGES).map(|_| emit("news", "1")));
    for subscriber in &mut subscribers {
        for _ in 0..MESSAGES {
            subscriber.expect(&emit("news", "1"));
        }
    }
    wait_until(|| deliveries() - before >= MESSAGES * RECIPIENTS);
    assert_eq!(deliveries() - before, MESSAGES * RECIPIENTS);
}

#[test]
fn an_idle_shard_still_finishes_turns() {
    let node = Node::start(Options::default());
    let turns = node.stats(0).turns.load(Ordering::Relaxed);
    wait_until(|| node.stats(0).turns.load(Ordering::Relaxed) > turns + 2);
    assert!(node.handle(0).since_last_turn() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_drained_node_closes_all_sessions_with_1001_after_their_messages() {
    let node = Node::start(Options::default());
    let mut clients: Vec<_> = (0..9).map(|number| node.log_in(number % 3)).collect();
    for client in &mut clients {
        client.send(&subscribe("last"));
        client.expect_ack(EventBulk::Subscribe);
    }
    (0..100).for_each(|_| clients[0].send(&emit("last", "1")));
    clients[0].ping();
    node.handles()
        .iter()
        .for_each(|handle| handle.stop_reading());
    tokio::time::timeout(DEADLINE, node.quiet()).await.unwrap();
    let start = Instant::now();
    let spread = Duration::from_millis(300);
    let readers: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, mut client)| {
            std::thread::spawn(move || {
                if number > 0 {
                    (0..100).for_each(|_| client.expect(&emit("last", "1")));
                }
                assert_eq!(client.expect_close(), Some(CloseCode::GOING_AWAY));
                client.expect_end();
            })
        })
        .collect();
    let mut clean_count = 0;
    for handle in node.handles().iter() {
        let closed = handle.close_all(spread, Duration::from_secs(5)).await;
        assert_eq!(closed.cut_count, 0);
        clean_count += closed.clean_count;
    }
    assert_eq!(clean_count, 9);
    assert!(
        start.elapsed() >= spread / 2,
        "closed at once: {:?}",
        start.elapsed()
    );
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
}

/// A node, and a client of its first shard that does not read the messages that are queued for it.
fn stuck_reader() -> (Node, impl Sized) {
    let limits = ShardLimits {
        outbox: OutboxMarks::limit(64 << 20),
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let mut sender = node.log_in(0);
    let mut stuck = node.log_in(0);
    stuck.send(&subscribe("big"));
    stuck.expect_ack(EventBulk::Subscribe);
    let text = format!("\"{}\"", "x".repeat(500_000));
    wait_until(|| {
        sender.send(&emit("big", &text));
        sender.ping();
        node.stats(0).outbox_bytes.load(Ordering::Relaxed) > 0
    });
    drop(sender);
    wait_until(|| node.stats(0).connections.load(Ordering::Relaxed) == 1);
    (node, stuck)
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_and_counted_at_the_end_of_a_drain() {
    let (node, _stuck) = stuck_reader();
    let closed = node
        .handle(0)
        .close_all(Duration::ZERO, Duration::from_millis(100))
        .await;
    assert_eq!((closed.clean_count, closed.cut_count), (0, 1));
}

#[tokio::test]
async fn a_client_that_leaves_during_a_drain_is_not_counted_as_cut_off() {
    let (node, stuck) = stuck_reader();
    let closing = node.handle(0).close_all(Duration::ZERO, DEADLINE);
    let (closed, ()) = tokio::join!(closing, async { drop(stuck) });
    assert_eq!((closed.clean_count, closed.cut_count), (1, 0));
}

#[test]
fn an_event_emitted_by_its_subscriber_is_not_returned() {
    let node = Node::start(Options::default());
    let mut clients = [node.log_in(0), node.log_in(0)];
    for client in &mut clients {
        client.send(&subscribe("echo"));
        client.expect_ack(EventBulk::Subscribe);
    }
    for round in 0..100 {
        let (own, others) = (format!("{round}"), format!("-{round}"));
        clients[0].send(&emit("echo", &own));
        clients[1].expect(&emit("echo", &own));
        clients[1].send(&emit("echo", &others));
        clients[0].expect(&emit("echo", &others));
    }
    clients.iter_mut().for_each(client::Client::ping);
}

#[test]
fn the_effects_of_a_goodbye_are_complete_in_a_shared_turn() {
    const LEAVERS: usize = 30;
    let node = Node::start(Options::default());
    let mut watchers = [false, true, false, true].map(|batches| (node.connect(0), batches));
    watchers[2].0 = node.connect_deflated(0);
    watchers[3].0 = node.connect_deflated(0);
    for (watcher, batches) in &mut watchers {
        match batches {
            false => watcher.log_in(),
            true => watcher.log_in_batching(),
        }
        watcher.send(&subscribe("flood"));
        watcher.expect_ack(EventBulk::Subscribe);
        watcher.send(&Message::Presence(Presence::SubscribeAll));
        watcher.receive_until(|message| matches!(message, Message::Presence(Presence::Ack { .. })));
    }
    let mut leavers = Vec::from_iter((0..LEAVERS).map(|_| node.connect(0)));
    for (number, leaver) in leavers.iter_mut().enumerate() {
        leaver.log_in_with(&format!(r#"{{"user":"leaver {number}"}}"#));
    }
    let mut sender = node.log_in(0);
    let text = |number: usize| format!("\"{number}{}\"", "x".repeat(1000));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                // This many messages take the shard several turns.
                let texts = Vec::from_iter((count..count + 500).map(text));
                sender.send_all(texts.iter().map(|text| emit("flood", text)));
                count += texts.len();
                sender.ping();
            }
            sender.send(&emit("flood", "null"));
        });
        for (watcher, _) in &mut watchers {
            scope.spawn(|| {
                let (mut gone, mut count, mut is_over) = (0, 0, false);
                watcher.receive_until(|message| {
                    match message {
                        Message::Presence(Presence::Changed { name, online, .. }) => {
                            gone += usize::from(!online && name.starts_with("leaver "));
                        }
                        _ if *message == emit("flood", "null") => is_over = true,
                        _ => {
                            assert_eq!(*message, emit("flood", &text(count)));
                            count += 1;
                        }
                    }
                    is_over && gone == LEAVERS
                });
            });
        }
        for leaver in &mut leavers {
            leaver.send_frame(Opcode::Close, &[]);
            leaver.expect_close();
        }
        is_over.store(true, Ordering::Relaxed);
        drop(flood);
    });
}

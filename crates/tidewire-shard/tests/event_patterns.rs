//! The cost of patterns of events on a node: for publications that match none of 100,000 patterns, and of the fan-out through a pattern.
//! Two engines share the interest map of the server; sockets are left out, so the ratios are stricter than those of a server.
//!
//! `make proof-patterns` runs the measurements. `cargo test` runs the same code with few patterns and checks only what arrives.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant as Clock;

use tidewire_core::address::{Address, Epoch, SessionId};
use tidewire_core::effect::{
    AuthCompletion, AuthOutcome, AuthRequest, CloseReason, Effects, Flow, Format, Input,
    InterestChange, Span, StoreRequest,
};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::Entry;
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::permission::{AllowAll, Decision, EventRight, Permission, Question};
use tidewire_core::principal::Principal;
use tidewire_core::publication::InterestTopic;
use tidewire_core::settings::Settings;
use tidewire_core::slot::{ClusterKey, SlotTable};
use tidewire_core::store::Opened;
use tidewire_core::text::Name;
use tidewire_core::time::{Instant, Now, WallTime};
use tidewire_shard::interest::InterestMap;

const SHARDS: u16 = 2;
/// The most that a publication may cost more because of patterns that it does not match.
const MORE_NANOS_MAX: f64 = 1_000.0;
/// The least speed of a fan-out through a pattern, relative to that of a name.
const FAN_OUT_MIN: f64 = 0.8;

/// The effects of one engine.
struct Outside {
    own: u16,
    interest: Arc<InterestMap>,
    log_end: u64,
    visible: Option<u64>,
    logins: Vec<AuthRequest>,
    posts: VecDeque<(u16, Entry)>,
}

impl Effects for Outside {
    fn append(&mut self, _format: Format, message: &Message<'_>) -> Span {
        let start = self.log_end;
        self.log_end += match message {
            Message::Event(Event::Publication(publication)) => publication.name.len() as u64 + 100,
            _ => 10,
        };
        let end = self.log_end;
        Span { start, end }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        self.posts.push_back((to.shard, entry));
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        let posts = &mut self.posts;
        self.interest.visit(topic, name, self.own, |shard| {
            posts.push_back((shard, entry()));
        });
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        self.interest
            .visit_pattern_shards(event, self.own, |shard| visit(Address { node: 0, shard }));
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        self.interest.change(self.own, change);
        self.visible = Some(number);
    }

    fn store(&mut self, _request: StoreRequest) {}

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        panic!("{session:?} is closed: {reason:?}");
    }

    fn resume(&mut self, _session: SessionId) {}

    fn await_drained(&mut self, _session: SessionId) {}
}

/// Allows each user the events of the room, by a rule that looks at the principal.
#[derive(Debug)]
struct Members;

impl Permission for Members {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.principal.user_id.is_empty() {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }

    fn event_right(&self, _name: &str) -> EventRight {
        EventRight::ByPrincipal
    }
}

struct Node {
    shards: Vec<Shard>,
    outside: Vec<Outside>,
    next_index: u32,
}

const NOW: Now = Now {
    monotonic: Instant(1_000_000_000),
    wall: WallTime(1_700_000_000_000),
};

impl Node {
    fn new(permission: &Arc<dyn Permission>) -> Self {
        let interest = Arc::new(InterestMap::new(SHARDS));
        let mut settings = Settings::default();
        settings.limits.connection_work_max = 0;
        settings.limits.event_patterns_max = 100_000;
        let shard = |shard| {
            Shard::new(ShardConfig {
                address: Address { node: 0, shard },
                slots: Arc::new(SlotTable::of_one_node(&ClusterKey([11; 16]), SHARDS)),
                settings: settings.clone(),
                permission: Arc::clone(permission),
                seed: 7,
                opened: vec![Opened {
                    epoch: Epoch(1),
                    opening: 1,
                }],
            })
        };
        let outside = |own| Outside {
            own,
            interest: Arc::clone(&interest),
            log_end: 0,
            visible: None,
            logins: Vec::new(),
            posts: VecDeque::new(),
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            outside: (0..SHARDS).map(outside).collect(),
            next_index: 0,
        }
    }

    fn login(&mut self, shard: u16) -> SessionId {
        let session = SessionId {
            address: Address { node: 0, shard },
            index: self.next_index,
            generation: 0,
        };
        self.next_index += 1;
        let format = Format(0);
        self.input(
            shard,
            Input::Opened {
                session,
                format,
                coalesces: None,
            },
        );
        self.send(session, &Message::Connection(Connection::challenge(false)));
        self.send(session, &Message::Auth(Auth::Request { data: Some("{}") }));
        let user = Name::from(&*format!("user {}", session.index));
        let outcome = AuthOutcome::Accepted(Arc::new(Principal::new(user)));
        assert_eq!(self.outside[usize::from(shard)].logins.len(), 1);
        self.outside[usize::from(shard)].logins.clear();
        self.input(shard, Input::Auth(AuthCompletion { session, outcome }));
        session
    }

    fn input(&mut self, shard: u16, input: Input) {
        let index = usize::from(shard);
        self.shards[index].handle(NOW, input, &mut self.outside[index]);
    }

    fn send(&mut self, session: SessionId, message: &Message<'_>) {
        let index = usize::from(session.address.shard);
        let flow = self.shards[index].message(NOW, session, message, &mut self.outside[index]);
        assert_eq!(flow, Flow::Taken);
        if let Some(up_to) = self.outside[index].visible.take() {
            self.input(session.address.shard, Input::InterestVisible { up_to });
        }
    }

    fn subscribe(&mut self, session: SessionId, patterns: &[String]) {
        for some in patterns.chunks(1_000) {
            let patterns = some.iter().map(String::as_str).collect();
            let message = Event::SubscribePatterns {
                patterns,
                correlation: Some("1"),
            };
            self.send(session, &Message::Event(message));
        }
    }

    /// Drops the notices of the logins to other shards.
    fn drop_posts(&mut self) {
        for outside in &mut self.outside {
            outside.posts.clear();
        }
    }

    /// Sends what waits, and returns the number of recipients and of their bytes.
    fn flush(&mut self, shard: u16) -> (usize, u64) {
        let (mut recipients, mut bytes) = (0, 0);
        self.shards[usize::from(shard)].flush(|session, _, spans| {
            black_box(session);
            recipients += 1;
            bytes += spans.iter().map(Span::len).sum::<u64>();
        });
        (recipients, bytes)
    }
}

/// A tenth each has `*` first, in the middle and last; the others are under ten shared prefixes.
fn patterns(count: usize) -> Vec<String> {
    let pattern = |number: usize| match number * 10 / count {
        0 => format!("*/first{number}/end"),
        1 => format!("middle{number}/*/end"),
        2 => format!("last{number}/part/*"),
        _ => format!("shared{}/key{number}/*", number % 10),
    };
    (0..count).map(pattern).collect()
}

/// Names under the shared prefixes that no pattern matches.
fn names() -> Vec<String> {
    let name = |number: usize| format!("shared{}/none{number}/price", number % 10);
    (0..10_000).map(name).collect()
}

/// Nanoseconds of one publication, in the best of some rounds.
fn publication_nanos(
    node: &mut Node,
    publisher: SessionId,
    names: &[String],
    rounds: usize,
) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let begun = Clock::now();
        for name in names {
            let message = Message::Event(Event::publication(name, Some("1")));
            node.send(publisher, black_box(&message));
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / names.len() as f64);
        assert!(node.outside[0].posts.is_empty(), "no pattern matches");
        assert_eq!(node.flush(0), (0, 0));
    }
    best
}

/// Registers patterns on both shards. Returns what a publication costs without and with them.
fn unmatched(count: usize, rounds: usize) -> (f64, f64) {
    let allow: Arc<dyn Permission> = Arc::new(AllowAll);
    let mut node = Node::new(&allow);
    let publisher = node.login(0);
    node.flush(0);
    node.drop_posts();
    let names = names();
    let before = publication_nanos(&mut node, publisher, &names, rounds);
    for (number, some) in (0_u16..).zip(patterns(count).chunks(count / 10)) {
        let session = node.login(number % SHARDS);
        node.subscribe(session, some);
    }
    let counts = node
        .shards
        .iter()
        .map(|shard| shard.counts().event_patterns);
    assert_eq!(counts.sum::<usize>(), count);
    for shard in 0..SHARDS {
        node.flush(shard);
    }
    node.drop_posts();
    let after = publication_nanos(&mut node, publisher, &names, rounds);
    // Each kind of pattern still matches: half of them on the publisher's shard.
    for (name, is_near) in [
        ("x/first0/end", true),
        (&*format!("middle{}/x/end", count / 10), false),
        (&*format!("last{}/part/x", 2 * count / 10), true),
        (&*format!("shared0/key{}/x", 4 * count / 10), true),
    ] {
        node.send(publisher, &Message::Event(Event::publication(name, None)));
        let (recipients, _) = node.flush(0);
        let posted = node.outside[0].posts.drain(..).count();
        let expected = if is_near { (1, 0) } else { (0, 1) };
        assert_eq!((recipients, posted), expected, "{name}");
    }
    (before, after)
}

/// Nanoseconds of each publication to `members` sessions, by name and through a pattern.
fn fan_out(permission: &Arc<dyn Permission>, members: usize, rounds: usize) -> (f64, f64) {
    let (mut by_name, mut by_pattern) = (Node::new(permission), Node::new(permission));
    let mut publishers = Vec::new();
    for (node, is_pattern) in [(&mut by_name, false), (&mut by_pattern, true)] {
        publishers.push(node.login(0));
        for _ in 0..members {
            let session = node.login(0);
            let message = match is_pattern {
                true => Event::SubscribePatterns {
                    patterns: vec!["room/*"],
                    correlation: Some("1"),
                },
                false => Event::Subscribe {
                    names: vec!["room/1"],
                    correlation: Some("1"),
                    positions: Vec::new(),
                },
            };
            node.send(session, &Message::Event(message));
        }
        node.flush(0);
    }
    let (mut name_nanos, mut pattern_nanos) = (f64::MAX, f64::MAX);
    let message = Message::Event(Event::publication("room/1", Some("{}")));
    for _ in 0..rounds {
        for (node, publisher, best) in [
            (&mut by_name, publishers[0], &mut name_nanos),
            (&mut by_pattern, publishers[1], &mut pattern_nanos),
        ] {
            let begun = Clock::now();
            for _ in 0..10 {
                node.send(publisher, black_box(&message));
                let (recipients, bytes) = node.flush(0);
                assert_eq!((recipients, bytes), (members, 106 * members as u64));
            }
            *best = best.min(begun.elapsed().as_nanos() as f64 / 10.0);
        }
    }
    (name_nanos, pattern_nanos)
}

#[test]
fn publications_find_their_patterns_among_others() {
    unmatched(1_000, 1);
}

#[test]
fn a_fan_out_through_a_pattern_reaches_what_one_by_name_reaches() {
    for permission in [Arc::new(AllowAll) as Arc<dyn Permission>, Arc::new(Members)] {
        fan_out(&permission, 100, 1);
    }
}

#[test]
#[ignore = "a measurement, which needs a release build and a quiet machine: make proof-patterns"]
fn patterns_cost_others_less_than_a_microsecond() {
    let (before, after) = unmatched(100_000, 50);
    let more = after - before;
    println!(
        "patterns: a publication that matches none of 100000 costs {more:.0} ns more ({before:.0} ns without patterns)"
    );
    assert!(more < MORE_NANOS_MAX, "{more}");
}

#[test]
#[ignore = "a measurement, which needs a release build and a quiet machine: make proof-patterns"]
fn a_fan_out_through_a_pattern_is_nearly_as_fast_as_one_by_name() {
    let permissions: [(&str, Arc<dyn Permission>); 2] = [
        ("without rules", Arc::new(AllowAll)),
        ("with a rule for each user", Arc::new(Members)),
    ];
    for (rules, permission) in permissions {
        for members in [10, 10_000] {
            let (name, pattern) = fan_out(&permission, members, 100);
            let speed = name / pattern;
            println!(
                "patterns: fan-out to {members} {rules}: {speed:.2} of the speed of a name ({pattern:.0} ns instead of {name:.0} ns)"
            );
            assert!(speed >= FAN_OUT_MIN || members < 100, "{speed}");
        }
    }
}

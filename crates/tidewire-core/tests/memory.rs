//! The memory that an idle session costs the engine. The test counts the bytes that the allocator hands out, so the result is the
//! same on every machine. `tidewire-bench idle` measures the allocator's overhead and the rest of the server.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Address, Epoch, SessionId};
use tidewire_core::effect::{
    AuthCompletion, AuthOutcome, AuthRequest, CloseReason, Effects, Format, Input, InterestChange,
    Span, StoreRequest,
};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::Entry;
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::permission::AllowAll;
use tidewire_core::principal::Principal;
use tidewire_core::publication::InterestTopic;
use tidewire_core::settings::Settings;
use tidewire_core::slot::{ClusterKey, SlotTable};
use tidewire_core::store::Opened;
use tidewire_core::time::{Instant, Now, WallTime};

/// With this many sessions, doubled tables and one-time allocations do not decide the result.
const SESSIONS: u32 = 10_000;

/// The maximum for a session. The last measurements were 471 and 479 bytes, including the spare room of doubled tables.
const BYTES_MAX: i64 = 480;

/// The maximum for an expiry in addition: 34 bytes when this limit was set.
const EXPIRY_BYTES_MAX: i64 = 40;

/// A world that keeps only the data that the test must answer.
#[derive(Default)]
struct World {
    end: u64,
    interest: u64,
}

impl Effects for World {
    fn append(&mut self, _format: Format, _message: &Message<'_>) -> Span {
        let start = self.end;
        self.end += 40;
        Span {
            start,
            end: self.end,
        }
    }

    fn post(&mut self, _to: Address, _entry: Entry) {
        unreachable!("there is one shard");
    }

    fn publish(&mut self, _topic: InterestTopic, _name: &str, _entry: impl Fn() -> Entry) {}

    fn visit_pattern_shards(&self, _event: &str, _visit: impl FnMut(Address)) {}

    fn interest(&mut self, number: u64, _change: InterestChange) {
        self.interest = number;
    }

    fn store(&mut self, _request: StoreRequest) {}

    fn authenticate(&mut self, _request: AuthRequest) {}

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        panic!("{session:?} was closed: {reason:?}");
    }

    fn resume(&mut self, _session: SessionId) {}

    fn await_drained(&mut self, _session: SessionId) {}
}

struct Node {
    shard: Shard,
    world: World,
    now: Now,
    /// When the logins expire.
    expires_at: Option<WallTime>,
}

impl Node {
    fn new() -> Self {
        let shard = Shard::new(ShardConfig {
            address: Address { node: 0, shard: 0 },
            slots: Arc::new(SlotTable::of_one_node(&ClusterKey([11; 16]), 1)),
            settings: Settings::default(),
            permission: Arc::new(AllowAll),
            seed: 7,
            opened: vec![Opened {
                epoch: Epoch(1),
                opening: 1,
            }],
        });
        let now = Now {
            monotonic: Instant(1),
            wall: WallTime(1),
        };
        Self {
            shard,
            world: World::default(),
            now,
            expires_at: None,
        }
    }

    fn session(index: u32, generation: u32) -> SessionId {
        SessionId {
            address: Address { node: 0, shard: 0 },
            index,
            generation,
        }
    }

    fn say(&mut self, session: SessionId, message: &Message<'_>) {
        let _ = self
            .shard
            .message(self.now, session, message, &mut self.world);
    }

    fn input(&mut self, input: Input) {
        self.shard.handle(self.now, input, &mut self.world);
    }

    /// Logs in as a separate user, and subscribes to one name that all sessions share and to one that no other session has.
    fn open(&mut self, session: SessionId) {
        let format = Format(0);
        self.input(Input::Opened {
            session,
            format,
            coalesces: None,
        });
        self.say(session, &Message::Connection(challenge()));
        self.say(session, &Message::Auth(Auth::Request { data: Some("{}") }));
        let mut principal = Principal::new(format!("user-{}", session.index).as_str().into());
        if let Some(expires_at) = self.expires_at {
            principal = principal.with_expiry(expires_at);
        }
        self.input(Input::Auth(AuthCompletion {
            session,
            outcome: AuthOutcome::Accepted(Arc::new(principal)),
        }));
        let own = format!("news/{}", session.index);
        let subscribe = Event::Subscribe {
            names: vec!["news", &own],
            correlation: Some("1"),
            positions: Vec::new(),
        };
        self.say(session, &Message::Event(subscribe));
        let up_to = self.world.interest;
        self.input(Input::InterestVisible { up_to });
        self.end_turn();
    }

    fn end_turn(&mut self) {
        self.shard.end_turn(self.now, &mut self.world);
        self.shard.flush(|_, _, _| {});
    }

    /// Sends the heartbeat of every session, and lets the engine do its periodic work.
    fn pass(&mut self, generation: u32, duration: Duration) {
        self.now.monotonic = self.now.monotonic + duration;
        for index in 0..SESSIONS {
            self.say(
                Self::session(index, generation),
                &Message::Connection(Connection::Ping),
            );
        }
        self.input(Input::DeadlineReached);
        self.end_turn();
    }
}

fn challenge() -> Connection<'static> {
    Connection::challenge(false)
}

fn bytes_per_session(run: impl FnOnce() -> Node) -> i64 {
    let bytes_of = |run: &mut dyn FnMut() -> Node| {
        let mut node = None;
        let counted = allocation_counter::measure(|| node = Some(run()));
        counted.bytes_current
    };
    // The memory of a shard without sessions.
    let own = bytes_of(&mut Node::new);
    let mut run = Some(run);
    let bytes = bytes_of(&mut || run.take().expect("it runs once")());
    (bytes - own) / i64::from(SESSIONS)
}

#[test]
fn an_idle_session_is_small() {
    let bytes = bytes_per_session(|| {
        let mut node = Node::new();
        for index in 0..SESSIONS {
            node.open(Node::session(index, 0));
        }
        node.pass(0, Duration::from_secs(61));
        node
    });
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

#[test]
fn a_login_that_expires_costs_little_more() {
    let bytes = bytes_per_session(|| {
        let mut node = Node::new();
        node.expires_at = Some(WallTime(u64::MAX - 1));
        for index in 0..SESSIONS {
            node.open(Node::session(index, 0));
        }
        node.pass(0, Duration::from_secs(61));
        node
    });
    assert!(bytes <= BYTES_MAX + EXPIRY_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn sessions_that_came_and_went_leave_nothing() {
    let rounds = 10;
    let bytes = bytes_per_session(|| {
        let mut node = Node::new();
        for generation in 0..=rounds {
            for index in 0..SESSIONS {
                node.open(Node::session(index, generation));
            }
            if generation < rounds {
                for index in 0..SESSIONS {
                    let session = Node::session(index, generation);
                    node.input(Input::Closed { session });
                }
                node.end_turn();
            }
        }
        for _ in 0..3 {
            node.pass(rounds, Duration::from_secs(61));
        }
        node
    });
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

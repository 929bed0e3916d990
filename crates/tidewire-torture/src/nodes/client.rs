//! A client that writes and reads the records of a round through any node, as an application does: one request at a time. When its node
//! is silent or ends, it connects to another one and repeats its write with the same key.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidewire_core::message::{
    Change, Message, Only, Reason, Record, Refusal, Tag, Write, WriteKey,
};

use super::super::operation_history::text;
use super::super::pulse::Pulse;
use super::super::random::Random;
use super::super::test_client::TestClient;
use super::history::{History, Start, value_of};
use super::linearizability::{Action, Operation, State};

/// A node that does not accept a login within this time is silent.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A node that does not answer a request within this time is silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause before a client reconnects, or repeats a refused request.
const RETURN_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two requests.
const THINK_MAX: Duration = Duration::from_millis(8);
/// After this many refusals in a row a client tries another node.
const REFUSALS_MAX: u32 = 5;
/// At the end of a round a client waits this long for its last answer.
const LAST_ANSWER: Duration = Duration::from_secs(15);
/// The values of each client begin with its number times this, so that no two clients write the same value.
const VALUES: u64 = 1_000_000_000;

/// The surroundings that all clients of a round share.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// The nodes.
    pub(super) addresses: &'a [SocketAddr],
    pub(super) records: &'a [Start],
    pub(super) pulse: &'a Pulse,
    /// How many requests of each client were answered.
    pub(super) answered: &'a [AtomicU64],
    /// The beginning of all times in histories.
    pub(super) clock: Instant,
}

impl Scene<'_> {
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The figures of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) written: u64,
    pub(super) replaced: u64,
    pub(super) read: u64,
    pub(super) repeated: u64,
    pub(super) unknown: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.replaced += other.replaced;
        self.read += other.read;
        self.repeated += other.repeated;
        self.unknown += other.unknown;
    }
}

/// The request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// A read, after which the client may replace what it has read.
    Reading {
        will_replace: bool,
    },
    /// A write with a key.
    Writing {
        value: u64,
    },
    /// A write in this state only, which can't be repeated.
    Replacing {
        from: State,
        value: u64,
    },
}

/// One client, over all rounds.
#[derive(Debug)]
pub(super) struct Client {
    /// From 1 on.
    number: usize,
    random: Random,
    /// The last value that it has written.
    value: u64,
    pub(super) figures: Figures,
}

/// The work of a client in one round.
pub(super) struct Work<'a> {
    client: &'a mut Client,
    scene: Scene<'a>,
    step: Step,
    /// The index of the record of the step.
    record: usize,
    /// When the request of the step was first sent.
    requested: u64,
    /// How often it was sent.
    send_count: u64,
    /// When it was sent last.
    sent: Instant,
    /// When a refused request is sent again.
    again: Option<Instant>,
    refusals: u32,
    /// The state of each record that the client has seen last.
    seen: Vec<Option<Tag>>,
    /// Reads on this connection that no acknowledged write has followed.
    unconfirmed: Vec<(usize, Operation)>,
    histories: Vec<History>,
}

impl Client {
    pub(super) fn new(number: usize, random: Random) -> Self {
        Self {
            number,
            random,
            value: number as u64 * VALUES,
            figures: Figures::default(),
        }
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(client: &'a mut Client, scene: Scene<'a>) -> Self {
        Self {
            client,
            step: Step::Idle,
            record: 0,
            requested: 0,
            send_count: 0,
            sent: Instant::now(),
            again: None,
            refusals: 0,
            seen: vec![None; scene.records.len()],
            unconfirmed: Vec::new(),
            histories: scene.records.iter().cloned().map(History::new).collect(),
            scene,
        }
    }

    /// Works until the pulse ends and the last request is answered. Returns the histories of all records.
    pub(super) fn run(mut self) -> Vec<History> {
        let mut ended = None;
        loop {
            if self.scene.pulse.is_over() {
                let ended = *ended.get_or_insert_with(Instant::now);
                if self.step == Step::Idle || ended.elapsed() > LAST_ANSWER {
                    break;
                }
            }
            let count = self.scene.addresses.len() as u64;
            let node = usize::try_from(self.client.random.below(count)).unwrap_or(0);
            match TestClient::open_within(self.scene.addresses[node], LOGIN_TIMEOUT) {
                Ok(mut peer) => {
                    // An error ends the connection, as its end does.
                    let _ = self.serve(&mut peer);
                    self.lose_connection();
                }
                Err(_) => std::thread::sleep(RETURN_PAUSE),
            }
        }
        self.forget_outcome();
        self.histories
    }

    fn start(&self) -> &'a Start {
        &self.scene.records[self.record]
    }

    /// Sends requests and handles answers until the connection ends or is silent, or the round ends.
    fn serve(&mut self, peer: &mut TestClient) -> std::io::Result<()> {
        self.refusals = 0;
        if self.step != Step::Idle {
            self.send(peer);
        }
        loop {
            if self.step == Step::Idle {
                if self.scene.pulse.is_over() {
                    return Ok(());
                }
                std::thread::sleep(self.client.random.pause(THINK_MAX));
                self.begin();
                self.send(peer);
            } else if self.again.is_some_and(|again| again <= Instant::now()) {
                self.send(peer);
            }
            peer.flush()?;
            let mut failed = None;
            let is_open = peer.receive(&mut |message, _| {
                if let Message::Record(record) = message {
                    failed = failed.take().or(self.handle(record).err());
                }
            })?;
            if let Some(failed) = failed {
                self.scene.pulse.fail(failed);
            }
            let is_silent = self.step != Step::Idle && self.sent.elapsed() > ANSWER_TIMEOUT;
            if !is_open || is_silent || self.refusals > REFUSALS_MAX {
                return Ok(());
            }
        }
    }

    /// Chooses the next request.
    fn begin(&mut self) {
        let random = &mut self.client.random;
        let count = self.scene.records.len() as u64;
        self.record = usize::try_from(random.below(count)).unwrap_or(0);
        // A repetition must name a state that the client has seen before the write.
        self.step = if self.seen[self.record].is_none() || random.one_in(3) {
            Step::Reading {
                will_replace: false,
            }
        } else if random.one_in(4) {
            Step::Reading { will_replace: true }
        } else {
            self.client.value += 1;
            Step::Writing {
                value: self.client.value,
            }
        };
        self.request();
    }

    /// Begins the request of the step.
    fn request(&mut self) {
        self.requested = self.scene.now();
        self.send_count = 0;
    }

    /// Sends the request of the step, or sends it again.
    fn send(&mut self, peer: &mut TestClient) {
        self.again = None;
        self.sent = Instant::now();
        self.send_count += 1;
        let is_repeated = self.send_count > 1;
        let name = self.start().name.as_str();
        let correlation = self.requested.to_string();
        match self.step {
            Step::Idle => {}
            Step::Reading { .. } => peer.push(&Message::Record(Record::Fetch {
                name,
                correlation: &correlation,
            })),
            Step::Writing { value } => {
                let key = value.to_string();
                let data = text(name, value, value);
                self.client.figures.repeated += u64::from(is_repeated);
                let write = Write {
                    name,
                    version: -1,
                    correlation: Some(&correlation),
                    write_ack: true,
                    key: Some(WriteKey {
                        text: &key,
                        seen: self.seen[self.record].filter(|_| is_repeated),
                    }),
                };
                let change = Change::CreateAndUpdate { data: Some(&data) };
                peer.push(&Message::Record(Record::Write(write, change)));
            }
            Step::Replacing { from, value } => {
                let data = text(name, value, value);
                peer.push(&Message::Record(Record::Put {
                    name,
                    correlation: &correlation,
                    only: Only::Is(Tag {
                        incarnation: self.start().incarnation,
                        version: from.version,
                    }),
                    data: Some(&data),
                }));
            }
        }
    }

    /// Handles a message about records.
    ///
    /// # Errors
    /// The message shows that the server broke a promise.
    fn handle(&mut self, message: &Record<'_>) -> Result<(), String> {
        let expected = self.requested.to_string();
        match (message, self.step) {
            (
                Record::Fetched {
                    correlation, state, ..
                },
                Step::Reading { will_replace },
            ) if *correlation == expected => self.take_read(*state, will_replace),
            (
                Record::WriteAck {
                    correlation: Some(correlation),
                    ..
                },
                Step::Writing { value },
            ) if *correlation == expected => {
                self.client.figures.written += 1;
                self.note(Action::Write(value));
                Ok(())
            }
            (
                Record::Stored {
                    correlation, tag, ..
                },
                Step::Replacing { from, value },
            ) if *correlation == expected => self.take_stored(from, value, *tag),
            (Record::PreconditionFailed { correlation, .. }, Step::Replacing { .. })
                if *correlation == expected =>
            {
                self.finish();
                Ok(())
            }
            (Record::Error(refusal), step)
                if step != Step::Idle
                    && refusal.correlation.is_none_or(|given| given == expected) =>
            {
                self.take_refusal(refusal)
            }
            // An answer to a request that the client has given up.
            _ => Ok(()),
        }
    }

    fn take_read(&mut self, state: Option<(Tag, &str)>, will_replace: bool) -> Result<(), String> {
        let Start {
            name, incarnation, ..
        } = self.start();
        let Some((tag, data)) = state else {
            return Err(format!(
                "{name}: is missing, although it was created and never removed"
            ));
        };
        if tag.incarnation != *incarnation {
            return Err(format!(
                "{name}: was created again: {tag:?} instead of {incarnation}"
            ));
        }
        let seen = State {
            version: tag.version,
            value: value_of(name, data)?,
        };
        self.client.figures.read += 1;
        self.seen[self.record] = Some(tag);
        let operation = self.operation(Action::Read(seen), Some(self.scene.now()));
        self.unconfirmed.push((self.record, operation));
        self.finish();
        if will_replace {
            self.client.value += 1;
            self.step = Step::Replacing {
                from: seen,
                value: self.client.value,
            };
            self.request();
            self.again = Some(Instant::now());
        }
        Ok(())
    }

    fn take_stored(&mut self, from: State, value: u64, tag: Option<Tag>) -> Result<(), String> {
        if tag.map(|tag| tag.version) != Some(from.version + 1) {
            return Err(format!(
                "{}: the server replaced {from} and made {tag:?}",
                self.start().name
            ));
        }
        self.client.figures.replaced += 1;
        self.seen[self.record] = tag;
        self.note(Action::Replace(from, value));
        Ok(())
    }

    fn take_refusal(&mut self, refusal: &Refusal<'_, impl std::fmt::Debug>) -> Result<(), String> {
        if refusal.version.is_some() {
            return Err(format!(
                "the server answered a request that accepts any version with {refusal:?}"
            ));
        }
        match self.step {
            // The outcome is known only to the server.
            Step::Replacing { .. } => self.forget_outcome(),
            Step::Writing { .. } if refusal.reason == Reason::WriteUnknown => self.forget_outcome(),
            Step::Writing { .. } | Step::Reading { .. } | Step::Idle => {
                self.refusals += 1;
                self.again = Some(Instant::now() + RETURN_PAUSE);
            }
        }
        Ok(())
    }

    fn operation(&self, action: Action, answered: Option<u64>) -> Operation {
        Operation {
            client: self.client.number,
            action,
            requested: self.requested,
            answered,
        }
    }

    /// Adds the acknowledged write to the history, with the reads before it on this connection.
    ///
    /// The acknowledgement shows that the node was a member when the write was committed, and so at all times since the connection was
    /// opened: a node that the others evict closes its clients, and no commit through it succeeds. An evicted node may serve
    /// stale reads until it notices. The acknowledgement of a repeated write shows less, because its commit may be long past.
    fn note(&mut self, action: Action) {
        let operation = self.operation(action, Some(self.scene.now()));
        self.histories[self.record].operations.push(operation);
        if self.send_count == 1 {
            for (record, read) in self.unconfirmed.drain(..) {
                self.histories[record].operations.push(read);
            }
        }
        self.finish();
    }

    fn finish(&mut self) {
        self.step = Step::Idle;
        self.again = None;
        self.refusals = 0;
        self.scene.answered[self.client.number - 1].fetch_add(1, Ordering::Relaxed);
        self.scene.pulse.note(1, 0);
    }

    /// The write may have been made, or may be made later.
    fn forget_outcome(&mut self) {
        let action = match self.step {
            Step::Writing { value } => Action::Write(value),
            Step::Replacing { from, value } => Action::Replace(from, value),
            Step::Idle | Step::Reading { .. } => return self.step = Step::Idle,
        };
        self.client.figures.unknown += 1;
        let operation = self.operation(action, None);
        self.histories[self.record].operations.push(operation);
        self.step = Step::Idle;
        self.again = None;
    }

    /// The connection has ended. Only a write with a key is repeated on the next one.
    fn lose_connection(&mut self) {
        if !matches!(self.step, Step::Writing { .. }) {
            self.forget_outcome();
        }
        for (record, operation) in self.unconfirmed.drain(..) {
            self.histories[record].doubtful.push(operation);
        }
    }
}

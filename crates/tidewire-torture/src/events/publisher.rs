//! A publisher with a direct connection, which ends only with the server.

use std::net::SocketAddr;
use std::time::Duration;

use tidewire_core::message::{Connection, Event, Message, Reason};

use super::super::pulse::Pulse;
use super::super::random::Random;
use super::super::test_client::TestClient;
use super::KEPT;
use super::event_log::{EventId, EventLog, Handled};

/// The most events of one burst.
const BURST_MAX: u64 = 8;
/// The pause between two bursts.
const BURST_PAUSE: Duration = Duration::from_millis(4);
/// How many events a name may be ahead of its subscribers. It is far below the length of the longer history.
const AHEAD_MAX: u64 = 250;

/// A source of events.
#[derive(Debug)]
pub(super) struct Publisher {
    source: usize,
    random: Random,
    run: u64,
    /// The number of events of each name that the server has certainly handled in this run.
    handled: [u64; KEPT.len()],
}

/// The message that publishes an event.
pub(super) fn emit(index: usize, text: &str) -> Message<'_> {
    Message::Event(Event::publication(KEPT[index].name, Some(text)))
}

impl Publisher {
    pub(super) fn new(source: usize, random: Random) -> Self {
        Self {
            source,
            random,
            run: 0,
            handled: [0; KEPT.len()],
        }
    }

    /// The last event of each name that the server has certainly handled.
    pub(super) fn handled(&self) -> impl Iterator<Item = Handled> {
        let (source, run) = (self.source, self.run);
        let numbers = self.handled.into_iter().enumerate();
        numbers
            .filter(|(_, number)| *number > 0)
            .map(move |(index, number)| Handled {
                index,
                id: EventId {
                    source,
                    run,
                    number,
                },
            })
    }

    /// Publishes until the server ends.
    pub(super) fn work(
        &mut self,
        address: SocketAddr,
        run: u64,
        event_log: &EventLog,
        pulse: &Pulse,
    ) {
        self.run = run;
        self.handled = [0; KEPT.len()];
        // If the server has already ended, there is nothing to do.
        let Ok(mut peer) = TestClient::open(address) else {
            return;
        };
        let mut numbers = self.handled;
        let (mut is_answered, mut is_refused) = (true, false);
        loop {
            if is_answered && !is_refused {
                self.burst(&mut numbers, event_log, &mut peer);
                // When the server answers the ping, it has handled the events before it.
                peer.push(&Message::Connection(Connection::Ping));
                if peer.flush().is_err() {
                    return;
                }
                is_answered = false;
            }
            let received = peer.receive(&mut |message, _| match message {
                Message::Connection(Connection::Pong) => is_answered = true,
                // A server that is about to stop accepts no more events.
                Message::Event(Event::Error(refusal)) if refusal.reason == Reason::Denied => {
                    is_refused = true;
                }
                Message::Event(Event::Error(refusal)) => {
                    pulse.fail(format!("the server answered an event with {refusal:?}"));
                }
                _ => {}
            });
            if !matches!(received, Ok(true)) {
                return;
            }
            if is_answered && !is_refused {
                self.handled = numbers;
                pulse.pause(BURST_PAUSE);
            }
        }
    }

    fn burst(
        &mut self,
        numbers: &mut [u64; KEPT.len()],
        event_log: &EventLog,
        peer: &mut TestClient,
    ) {
        for _ in 0..=self.random.below(BURST_MAX) {
            let index = usize::from(self.random.one_in(2));
            if event_log.ahead(index) < AHEAD_MAX {
                numbers[index] += 1;
                event_log.ask(index);
                let id = EventId {
                    source: self.source,
                    run: self.run,
                    number: numbers[index],
                };
                peer.push(&emit(index, &id.text()));
            }
        }
    }
}

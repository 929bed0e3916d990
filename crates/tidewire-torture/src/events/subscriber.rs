//! A subscriber that resumes from its positions after cuts and restarts.

use std::net::SocketAddr;
use std::time::Duration;

use tidewire_core::message::Message;

use super::super::pulse::Pulse;
use super::super::random::Random;
use super::super::test_client::TestClient;
use super::event_log::EventLog;
use super::reader::Reader;

/// The usual pause before a subscriber reconnects.
const RETURN_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause before a subscriber reconnects. In that time publishers send more events than the shorter history keeps.
const AWAY_MAX: Duration = Duration::from_millis(120);
/// One reconnect in this many has the longer pause.
const AWAY_ONE_IN: u64 = 3;

/// One subscriber, over all runs.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// The number of this subscriber.
    number: usize,
    random: Random,
    pub(super) reader: Reader,
}

impl Subscriber {
    pub(super) fn new(number: usize, random: Random) -> Self {
        Self {
            number,
            random,
            reader: Reader::default(),
        }
    }

    /// Reads until the server has ended, and reconnects when a connection ends.
    pub(super) fn work(&mut self, address: SocketAddr, event_log: &EventLog, pulse: &Pulse) {
        while !pulse.is_over() {
            if let Ok(mut peer) = TestClient::open(address) {
                event_log.resume();
                self.read(&mut peer, event_log, pulse);
            }
            pulse.pause(match self.random.one_in(AWAY_ONE_IN) {
                true => self.random.pause(AWAY_MAX),
                false => RETURN_PAUSE,
            });
        }
    }

    /// Reads until the connection ends.
    fn read(&mut self, peer: &mut TestClient, event_log: &EventLog, pulse: &Pulse) {
        let (reader, number) = (&mut self.reader, self.number);
        let mut reading = reader.resume(&mut peer.outbox(), &mut self.random);
        if peer.flush().is_err() {
            return;
        }
        let mut is_open = true;
        while is_open {
            let received = peer.receive(&mut |message, _| {
                let Message::Event(event) = message else {
                    return;
                };
                match reader.take(event, &mut reading, event_log) {
                    Ok(Some((index, offset))) => event_log.reach(index, number, offset),
                    Ok(None) => {}
                    Err(fault) => pulse.fail(fault),
                }
            });
            is_open = matches!(received, Ok(true));
        }
    }
}

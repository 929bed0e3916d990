//! Measures how long names can't be written after a fault: a client of another node writes many names, of which some belong to the lost
//! node, and repeats each write until it is acknowledged.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidewire_core::message::{Change, Message, Record, Write};

use super::super::test_client::TestClient;
use super::client::LOGIN_TIMEOUT;

/// The number of names. Each node owns about the same share of all names, so a lost node owns some of these for certain.
const NAMES: usize = 48;
/// The pause before a refused write is repeated.
const AGAIN: Duration = Duration::from_millis(5);
/// All names are writable again within this time, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(45);

/// The writes to all names.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Counts the writes of all names.
    turn: u64,
}

impl Probe {
    /// Connects to one of the nodes that the fault does not concern.
    ///
    /// # Errors
    /// None of them accepts the client.
    pub(super) fn connect(&self, addresses: &[SocketAddr]) -> Result<TestClient, String> {
        let mut error = None;
        for address in addresses {
            match TestClient::open_within(*address, LOGIN_TIMEOUT) {
                Ok(peer) => return Ok(peer),
                Err(refused) => error = Some(refused),
            }
        }
        Err(format!(
            "no node that the fault does not concern accepts a client: {error:?}"
        ))
    }

    /// Writes all names until each write is acknowledged. Returns the time since `start` of the last acknowledgement.
    ///
    /// On a busy machine another node may lose its part in the cluster as well, because a slow store is like a lost one. Then the client
    /// continues on the next node, and the time includes that.
    ///
    /// # Errors
    /// A name is not writable in time.
    pub(super) fn write_all(
        &mut self,
        mut peer: TestClient,
        addresses: &[SocketAddr],
        start: Instant,
    ) -> Result<Duration, String> {
        self.turn += 1;
        let mut again: Vec<usize> = (0..NAMES).collect();
        let mut missing = vec![true; NAMES];
        while missing.contains(&true) {
            for index in again.drain(..) {
                self.write(&mut peer, index);
            }
            let mut refused = Vec::new();
            let is_open = self.receive(&mut peer, &mut missing, &mut refused);
            if start.elapsed() > TIMEOUT {
                let count = missing.iter().filter(|is_missing| **is_missing).count();
                return Err(format!(
                    "{count} of {NAMES} names were not writable within {TIMEOUT:?}"
                ));
            }
            if !is_open {
                std::thread::sleep(AGAIN);
                // A node that accepts no client now may do so a moment later.
                if let Ok(next) = self.connect(addresses) {
                    peer = next;
                    again = (0..NAMES).filter(|index| missing[*index]).collect();
                }
            } else if !refused.is_empty() {
                std::thread::sleep(AGAIN);
                again = refused;
            }
        }
        Ok(start.elapsed())
    }

    /// Sends the writes and reads their answers. Returns whether the connection is still open.
    fn receive(
        &self,
        peer: &mut TestClient,
        missing: &mut [bool],
        refused: &mut Vec<usize>,
    ) -> bool {
        let turn = self.turn;
        let is_open = peer.flush().and_then(|()| {
            peer.receive(&mut |message, _| match message {
                Message::Record(Record::WriteAck {
                    correlation: Some(correlation),
                    ..
                }) => {
                    if let Some(index) = index_of(correlation, turn) {
                        missing[index] = false;
                    }
                }
                Message::Record(Record::Error(refusal)) => {
                    let index = refusal.correlation;
                    refused.extend(index.and_then(|text| index_of(text, turn)));
                }
                _ => {}
            })
        });
        matches!(is_open, Ok(true))
    }

    fn write(&self, peer: &mut TestClient, index: usize) {
        let name = format!("torture/probe/{index}");
        let correlation = format!("{}.{index}", self.turn);
        let data = format!("{{\"n\":{}}}", self.turn);
        let write = Write {
            name: &name,
            version: -1,
            correlation: Some(&correlation),
            write_ack: true,
            key: None,
        };
        let change = Change::CreateAndUpdate { data: Some(&data) };
        peer.push(&Message::Record(Record::Write(write, change)));
    }
}

/// The index of a name in the correlation of a write of this turn.
fn index_of(correlation: &str, turn: u64) -> Option<usize> {
    let (of, index) = correlation.split_once('.')?;
    (of.parse() == Ok(turn)).then(|| index.parse().ok())?
}

//! Writers with direct connections, which end only with the server. Each writer keeps several changes of its record in flight:
//! whole values and patches with their versions, and deletes.

use tidewire_core::message::{Change, Message, Record, Write};

use super::operation_history::{self, OperationHistory};
use super::random::Random;
use super::test_client::Outbox;

/// The most changes of one record in flight.
const WINDOW_MAX: u64 = 4;
/// The most writes between two deletes.
const CHANGES_MAX: u64 = 60;

/// The outcome of a message for a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageResult {
    /// A write or delete is acknowledged.
    Acknowledged,
    /// The server has refused a change; the next start shows whether it was made.
    Refused,
    /// The message is neither of these.
    Nothing,
}

/// The writer of one record.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) history: OperationHistory,
    random: Random,
    window: usize,
    /// Changes until the next delete.
    until_delete: u64,
    /// The number of the delete in flight.
    deleting: Option<u64>,
    /// Whether the server has refused a change in this run. The writer then waits for the next run.
    is_halted: bool,
}

impl Direct {
    pub(super) fn new(record: String, mut random: Random) -> Self {
        Self {
            history: OperationHistory::new(record),
            window: 1 + usize::try_from(random.below(WINDOW_MAX)).unwrap_or(0),
            until_delete: random.below(CHANGES_MAX),
            random,
            deleting: None,
            is_halted: false,
        }
    }

    /// Starts again on a new connection, after its book was settled.
    pub(super) fn begin(&mut self, out: &mut Outbox<'_>) {
        self.deleting = None;
        self.is_halted = false;
        self.fill(out);
    }

    /// Requests changes until the window is full.
    fn fill(&mut self, out: &mut Outbox<'_>) {
        while !self.is_halted
            && self.deleting.is_none()
            && self.history.under_way_count() < self.window
        {
            if self.until_delete > 0 {
                self.until_delete -= 1;
                self.write(out);
                continue;
            }
            // A delete has no version, so it waits until all earlier changes are acknowledged.
            if self.history.under_way_count() > 0 {
                return;
            }
            self.until_delete = 1 + self.random.below(CHANGES_MAX);
            if self.history.newest().value.is_some() {
                self.deleting = Some(self.history.delete());
                let name = self.history.record();
                out.push(&Message::Record(Record::Delete { name }));
            }
        }
    }

    fn write(&mut self, out: &mut Outbox<'_>) {
        let exists = self.history.newest().value.is_some();
        let is_whole = !exists || self.random.one_in(2);
        let (number, value) = self.history.write(is_whole);
        let correlation = number.to_string();
        let name = self.history.record();
        let text = operation_history::text(name, number, value.filled_by);
        let change = match (exists, is_whole) {
            (false, _) => Change::CreateAndUpdate { data: Some(&text) },
            (true, true) => Change::Update { data: Some(&text) },
            (true, false) => Change::Patch {
                path: "n",
                data: Some(&correlation),
            },
        };
        let write = Write {
            name,
            version: value.version,
            correlation: Some(&correlation),
            write_ack: true,
            key: None,
        };
        out.push(&Message::Record(Record::Write(write, change)));
    }

    /// Handles a message about its record.
    ///
    /// # Errors
    /// The message shows that the server broke a promise.
    pub(super) fn take(
        &mut self,
        message: &Record<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<MessageResult, String> {
        let number = match message {
            Record::WriteAck { correlation, .. } => correlation
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| format!("{message:?} acknowledges a request that was not sent"))?,
            Record::DeleteSuccess { .. } => self
                .deleting
                .take()
                .ok_or_else(|| format!("{message:?} without a pending delete"))?,
            Record::Error(refusal) if refusal.version.is_some() && !self.is_halted => {
                let newest = self.history.newest();
                return Err(format!(
                    "the only writer of the record received {message:?}; its newest change is {newest:?}"
                ));
            }
            Record::Error(_) => {
                self.is_halted = true;
                return Ok(MessageResult::Refused);
            }
            _ => return Ok(MessageResult::Nothing),
        };
        self.history.acknowledge(number)?;
        self.fill(out);
        Ok(MessageResult::Acknowledged)
    }
}

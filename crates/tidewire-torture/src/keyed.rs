//! Writers behind the proxy, which cuts their connections at random. Each write takes the next version and carries a key, with which
//! the writer repeats it on the next connection. The version of the record shows whether the server made it exactly once. A removal
//! is conditional on the state that the writer read just before.

use tidewire_core::message::{Change, Message, Only, Record, Write, WriteKey};

use super::direct::MessageResult;
use super::operation_history::{self, OperationHistory, Value};
use super::random::Random;
use super::test_client::Outbox;

/// The most writes between two removals.
const WRITES_MAX: u64 = 40;

/// The request that is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// A write, whose key contains its number.
    Writing(u64, Value),
    /// The writer reads the state that the removal will require. If the read is repeated, an earlier removal may have succeeded.
    Reading {
        number: u64,
        is_repeated: bool,
    },
    /// The removal, if the record still has that state.
    Removing(u64),
}

/// The writer of one record.
#[derive(Debug)]
pub(super) struct Keyed {
    pub(super) history: OperationHistory,
    random: Random,
    until_removal: u64,
    step: Step,
    /// Writes that were repeated.
    pub(super) repeated_count: u64,
}

impl Keyed {
    pub(super) fn new(record: String, mut random: Random) -> Self {
        Self {
            history: OperationHistory::new(record),
            until_removal: random.below(WRITES_MAX),
            random,
            step: Step::Idle,
            repeated_count: 0,
        }
    }

    /// Begins in a new run of the server, after the outcome of the last request was read.
    pub(super) fn begin(&mut self) {
        self.step = Step::Idle;
    }

    /// Continues on a new connection to the same run of the server: repeats the unanswered request.
    pub(super) fn connect(&mut self, out: &mut Outbox<'_>) {
        match self.step {
            Step::Idle => self.next(out),
            Step::Writing(number, value) => {
                self.repeated_count += 1;
                self.write(number, value, out);
            }
            Step::Reading {
                number,
                is_repeated,
            } => self.read(number, is_repeated, out),
            Step::Removing(number) => {
                self.repeated_count += 1;
                self.read(number, true, out);
            }
        }
    }

    fn next(&mut self, out: &mut Outbox<'_>) {
        if self.until_removal == 0 && self.history.newest().value.is_some() {
            self.until_removal = 1 + self.random.below(WRITES_MAX);
            let number = self.history.delete();
            self.read(number, false, out);
            return;
        }
        self.until_removal = self.until_removal.saturating_sub(1);
        let (number, value) = self.history.write(true);
        self.write(number, value, out);
    }

    fn write(&mut self, number: u64, value: Value, out: &mut Outbox<'_>) {
        self.step = Step::Writing(number, value);
        let name = self.history.record();
        let text = operation_history::text(name, number, value.filled_by);
        let correlation = number.to_string();
        let key = format!("{name}#{number}");
        let write = Write {
            name,
            version: -1,
            correlation: Some(&correlation),
            write_ack: true,
            key: Some(WriteKey::new(&key)),
        };
        let change = Change::CreateAndUpdate { data: Some(&text) };
        out.push(&Message::Record(Record::Write(write, change)));
    }

    fn read(&mut self, number: u64, is_repeated: bool, out: &mut Outbox<'_>) {
        self.step = Step::Reading {
            number,
            is_repeated,
        };
        out.push(&Message::Record(Record::Fetch {
            name: self.history.record(),
            correlation: &number.to_string(),
        }));
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
        let is_answer = |number: u64, correlation: &str| correlation == number.to_string();
        match (message, self.step) {
            (
                Record::WriteAck {
                    correlation: Some(of),
                    ..
                },
                Step::Writing(number, _),
            ) if is_answer(number, of) => self.acknowledge(number, out),
            (
                Record::Fetched {
                    correlation, state, ..
                },
                Step::Reading {
                    number,
                    is_repeated,
                },
            ) if is_answer(number, correlation) => {
                let name = self.history.record();
                let Some((tag, text)) = state else {
                    if !is_repeated {
                        return Err(format!("{name}: is missing, although no client removed it"));
                    }
                    // The acknowledgement of the next write covers the removal too.
                    self.next(out);
                    return Ok(MessageResult::Nothing);
                };
                if operation_history::number_in(text).is_none_or(|found| found >= number) {
                    return Err(format!(
                        "{name}: change {number} removes it, but it contains {text:.80}"
                    ));
                }
                out.push(&Message::Record(Record::Put {
                    name,
                    correlation,
                    only: Only::Is(*tag),
                    data: None,
                }));
                self.step = Step::Removing(number);
                Ok(MessageResult::Nothing)
            }
            (Record::Stored { correlation, .. }, Step::Removing(number))
                if is_answer(number, correlation) =>
            {
                self.acknowledge(number, out)
            }
            (
                Record::PreconditionFailed {
                    correlation, tag, ..
                },
                Step::Removing(number),
            ) if is_answer(number, correlation) => {
                if let Some(tag) = tag {
                    return Err(format!(
                        "{}: changed to {tag:?}, although no client wrote it",
                        self.history.record()
                    ));
                }
                self.next(out);
                Ok(MessageResult::Nothing)
            }
            (Record::Error(refusal), _) if refusal.version.is_some() => Err(format!(
                "the server answered a write that accepts any version with {message:?}"
            )),
            // The writer repeats the request on the next connection.
            (Record::Error(_), _) => Ok(MessageResult::Refused),
            _ => Ok(MessageResult::Nothing),
        }
    }

    fn acknowledge(&mut self, number: u64, out: &mut Outbox<'_>) -> Result<MessageResult, String> {
        self.history.acknowledge(number)?;
        self.next(out);
        Ok(MessageResult::Acknowledged)
    }
}

//! Writers behind the proxy, whose connections are cut at random. Each write takes whatever version is next and carries a key,
//! with which it is repeated on the next connection; its record's version shows whether it was made once. A record is
//! removed only in the state that was read just before.

use tidewire_core::message::{Change, Message, Only, Record, RecordError, Write};

use super::book::{self, Book, Value};
use super::dice::Dice;
use super::direct::Taken;
use super::peer::Outbox;

/// Writes between two removals, about.
const WRITES_MAX: u64 = 40;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// A write with the key that its number makes.
    Writing(u64, Value),
    /// The state is read in which the record is to be removed; another removal may be on its way.
    Reading {
        number: u64,
        is_repeated: bool,
    },
    /// The record is removed if it is still in that state.
    Removing(u64),
}

/// The writer of one record.
#[derive(Debug)]
pub(super) struct Keyed {
    pub(super) book: Book,
    dice: Dice,
    until_removal: u64,
    step: Step,
    /// Writes that were repeated.
    pub(super) repeated_count: u64,
}

impl Keyed {
    pub(super) fn new(record: String, mut dice: Dice) -> Self {
        Self {
            book: Book::new(record),
            until_removal: dice.below(WRITES_MAX),
            dice,
            step: Step::Idle,
            repeated_count: 0,
        }
    }

    /// Begins in another run of the server, after the book was settled. Keys of before are forgotten there.
    pub(super) fn begin(&mut self) {
        self.step = Step::Idle;
    }

    /// Goes on on another connection to the same run of the server: repeats what was not answered.
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
        if self.until_removal == 0 && self.book.newest().value.is_some() {
            self.until_removal = 1 + self.dice.below(WRITES_MAX);
            let number = self.book.delete();
            self.read(number, false, out);
            return;
        }
        self.until_removal = self.until_removal.saturating_sub(1);
        let (number, value) = self.book.write(true);
        self.write(number, value, out);
    }

    fn write(&mut self, number: u64, value: Value, out: &mut Outbox<'_>) {
        self.step = Step::Writing(number, value);
        let name = self.book.record();
        let text = book::text(name, number, value.filled_by);
        let correlation = number.to_string();
        let write = Write {
            name,
            version: -1,
            correlation: Some(&correlation),
            write_ack: true,
        };
        let change = Change::CreateAndUpdate { data: Some(&text) };
        let key = format!("{name}#{number}");
        out.push(&Message::Record(Record::RepeatableWrite {
            write,
            change,
            key: &key,
        }));
    }

    fn read(&mut self, number: u64, is_repeated: bool, out: &mut Outbox<'_>) {
        self.step = Step::Reading {
            number,
            is_repeated,
        };
        out.push(&Message::Record(Record::Fetch {
            name: self.book.record(),
            correlation: &number.to_string(),
        }));
    }

    /// Takes a message about its record.
    ///
    /// # Errors
    /// The server can't have kept its promises.
    pub(super) fn take(
        &mut self,
        message: &Record<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<Taken, String> {
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
                let name = self.book.record();
                let Some((tag, text)) = state else {
                    if !is_repeated {
                        return Err(format!("{name}: is gone, and nobody has removed it yet"));
                    }
                    // The next write's acknowledgement covers the removal.
                    self.next(out);
                    return Ok(Taken::Nothing);
                };
                if book::number_in(text).is_none_or(|found| found >= number) {
                    return Err(format!(
                        "{name}: change {number} removes it, and it holds {text:.80}"
                    ));
                }
                out.push(&Message::Record(Record::Put {
                    name,
                    correlation,
                    only: Only::Is(*tag),
                    data: None,
                }));
                self.step = Step::Removing(number);
                Ok(Taken::Nothing)
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
                        "{}: changed to {tag:?} though nobody has written",
                        self.book.record()
                    ));
                }
                self.next(out);
                Ok(Taken::Nothing)
            }
            (
                Record::Error(
                    RecordError::VersionExists { .. } | RecordError::InvalidVersion { .. },
                ),
                _,
            ) => Err(format!("{message:?} to a write that takes any version")),
            // It waits for the next connection.
            (Record::Error(_), _) => Ok(Taken::Refused),
            _ => Ok(Taken::Nothing),
        }
    }

    fn acknowledge(&mut self, number: u64, out: &mut Outbox<'_>) -> Result<Taken, String> {
        self.book.acknowledge(number)?;
        self.next(out);
        Ok(Taken::Acknowledged)
    }
}

//! The history of one record, and the states that it may have after a restart: the last acknowledged state, or one that its
//! writer has requested since. One writer requests all changes of a record in order, so no other state is possible.

use std::fmt::Write as _;

/// The state after a change: a value, or no record after a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The unique number of the change among all changes of its record.
    pub(super) number: u64,
    /// `None` after a delete.
    pub(super) value: Option<Value>,
}

/// The value of a record, from which its text follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// A new record has version 1, and each change adds 1.
    pub(super) version: i32,
    /// The number of the write that set the filler text; later patches keep it.
    pub(super) filled_by: u64,
}

/// A record as a client read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadRecord {
    /// Its version.
    pub(super) version: i32,
    /// Its value as JSON.
    pub(super) text: String,
}

/// The text of a value. It depends on the arguments alone, so the test can compare a value byte by byte.
pub(super) fn text(record: &str, number: u64, filled_by: u64) -> String {
    let mut text = format!("{{\"n\":{number},\"of\":\"{record}\",\"fill\":\"");
    let mixed = (filled_by ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Mostly a few bytes, sometimes a few pages.
    let count = match mixed >> 60 {
        0 => 6_000 + (mixed >> 40) % 6_000,
        1..=4 => 300 + (mixed >> 40) % 900,
        _ => (mixed >> 40) % 100,
    };
    let _ = write!(text, "{filled_by}:");
    let letter = char::from(b'a' + u8::try_from(mixed % 26).unwrap_or(0));
    text.extend(std::iter::repeat_n(
        letter,
        usize::try_from(count).unwrap_or(0),
    ));
    text.push_str("\"}");
    text
}

/// The number in the text of a value, or in the patch that made it.
pub(super) fn number_in(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("{\"n\":").unwrap_or(text);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// How a run of the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The server stopped on request with code 0: it must keep every change that a subscriber received.
    Clean,
    /// Any other end: the server must keep every acknowledged change.
    Crash,
}

/// The operation history of one record.
#[derive(Clone, Debug)]
pub(super) struct OperationHistory {
    record: String,
    /// The number of the last requested change. The numbers of lost changes are not reused.
    last_number: u64,
    acknowledged: State,
    /// The states of the requested changes after that, in order.
    under_way: Vec<State>,
    /// The observer has received a change with at least this number in this run.
    shown: u64,
}

impl OperationHistory {
    /// The history of a record before its first write.
    pub(super) fn new(record: String) -> Self {
        let acknowledged = State {
            number: 0,
            value: None,
        };
        Self {
            record,
            last_number: 0,
            acknowledged,
            under_way: Vec::new(),
            shown: 0,
        }
    }

    /// The name of the record.
    pub(super) fn record(&self) -> &str {
        &self.record
    }

    /// The state after all requested changes.
    pub(super) fn newest(&self) -> State {
        self.under_way.last().copied().unwrap_or(self.acknowledged)
    }

    /// How many requested changes are not acknowledged.
    pub(super) fn under_way_count(&self) -> usize {
        self.under_way.len()
    }

    /// Adds a write before its request is sent: a whole value, or a patch that keeps the filler. Returns its number and value.
    pub(super) fn write(&mut self, is_whole: bool) -> (u64, Value) {
        self.last_number += 1;
        let number = self.last_number;
        let value = match self.newest().value {
            None => Value {
                version: 1,
                filled_by: number,
            },
            Some(value) => Value {
                version: value.version + 1,
                filled_by: if is_whole { number } else { value.filled_by },
            },
        };
        self.under_way.push(State {
            number,
            value: Some(value),
        });
        (number, value)
    }

    /// Adds a delete before its request is sent. Returns its number.
    pub(super) fn delete(&mut self) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.under_way.push(State {
            number,
            value: None,
        });
        number
    }

    /// Marks a change as acknowledged. An acknowledgement covers all earlier changes.
    ///
    /// # Errors
    /// No pending change has this number.
    pub(super) fn acknowledge(&mut self, number: u64) -> Result<(), String> {
        let position = self
            .under_way
            .iter()
            .position(|state| state.number == number);
        let Some(position) = position else {
            return Err(format!(
                "{}: the server acknowledged change {number}, which was not pending",
                self.record
            ));
        };
        self.acknowledged = self.under_way[position];
        self.under_way.drain(..=position);
        Ok(())
    }

    /// Notes that the observer has received the change with this number or a later one.
    pub(super) fn show(&mut self, number: u64) {
        self.shown = self.shown.max(number);
    }

    /// Checks the state of the record after a restart, and continues with that state.
    ///
    /// # Errors
    /// The record may not have this state.
    pub(super) fn settle(
        &mut self,
        seen: Option<&ReadRecord>,
        ending: Ending,
    ) -> Result<(), String> {
        let state = self.find(seen)?;
        if ending == Ending::Clean && state.number < self.shown {
            return Err(format!(
                "{}: a subscriber received change {} before a clean stop, but the record is at change {}",
                self.record, self.shown, state.number
            ));
        }
        self.acknowledged = state;
        self.under_way.clear();
        self.shown = 0;
        Ok(())
    }

    fn find(&self, seen: Option<&ReadRecord>) -> Result<State, String> {
        let record = &self.record;
        let possible = || std::iter::once(&self.acknowledged).chain(&self.under_way);
        let Some(seen) = seen else {
            let gone = possible().rev().find(|state| state.value.is_none());
            return gone.copied().ok_or_else(|| {
                format!(
                    "{record}: is missing, although change {} was acknowledged",
                    self.acknowledged.number
                )
            });
        };
        let Some(number) = number_in(&seen.text) else {
            return Err(format!(
                "{record}: contains text that no client wrote: {:?}",
                start_of(&seen.text)
            ));
        };
        let state = possible().find(|state| state.number == number);
        let Some((state, value)) = state.and_then(|state| Some((*state, state.value?))) else {
            return Err(format!(
                "{record}: contains change {number} at version {}, but the last acknowledged change is {}; pending changes: {:?}",
                seen.version,
                describe(&self.acknowledged),
                self.under_way
                    .iter()
                    .map(|state| state.number)
                    .collect::<Vec<u64>>()
            ));
        };
        if seen.version != value.version {
            return Err(format!(
                "{record}: change {number} has version {}, but its history has {} steps",
                seen.version, value.version
            ));
        }
        if seen.text != text(record, number, value.filled_by) {
            return Err(format!(
                "{record}: change {number} differs from the written text: {:?}",
                start_of(&seen.text)
            ));
        }
        Ok(state)
    }
}

fn describe(state: &State) -> String {
    match state.value {
        Some(value) => format!("{} (version {})", state.number, value.version),
        None => format!("{} (deletion)", state.number),
    }
}

/// The start of a text, short enough for one line.
fn start_of(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The history of a record with three acknowledged versions and two pending changes.
    fn history() -> OperationHistory {
        let mut history = OperationHistory::new("r".to_owned());
        for is_whole in [true, false, true] {
            let (number, _) = history.write(is_whole);
            history.acknowledge(number).unwrap();
        }
        history.write(true);
        history.write(false);
        history
    }

    fn seen(version: i32, number: u64, filled_by: u64) -> ReadRecord {
        ReadRecord {
            version,
            text: text("r", number, filled_by),
        }
    }

    #[test]
    fn possible_states_are_accepted_and_all_others_are_named() {
        let check = |seen: Option<ReadRecord>, ending, part: &str| {
            let mut history = history();
            history.show(4);
            let found = history.settle(seen.as_ref(), ending);
            match found {
                Ok(()) => assert_eq!(part, "", "{seen:?}"),
                Err(fault) => assert!(!part.is_empty() && fault.contains(part), "{fault}"),
            }
        };
        check(Some(seen(3, 3, 3)), Ending::Crash, "");
        check(Some(seen(4, 4, 4)), Ending::Crash, "");
        check(Some(seen(5, 5, 4)), Ending::Crash, "");
        check(Some(seen(4, 4, 4)), Ending::Clean, "");
        check(Some(seen(3, 3, 3)), Ending::Clean, "before a clean stop");
        check(Some(seen(2, 2, 1)), Ending::Crash, "contains change 2");
        check(Some(seen(6, 6, 6)), Ending::Crash, "contains change 6");
        check(
            Some(seen(4, 3, 3)),
            Ending::Crash,
            "has version 4, but its history has 3 steps",
        );
        check(
            Some(seen(3, 3, 1)),
            Ending::Crash,
            "differs from the written text",
        );
        check(None, Ending::Crash, "is missing");
        let torn = ReadRecord {
            version: 3,
            text: "{}".to_owned(),
        };
        check(Some(torn), Ending::Crash, "no client wrote");
    }

    #[test]
    fn a_delete_stays_and_its_record_restarts() {
        let mut history = history();
        history.acknowledge(5).unwrap();
        let number = history.delete();
        assert!(history.clone().settle(None, Ending::Crash).is_ok());
        assert!(
            history
                .clone()
                .settle(Some(&seen(5, 5, 4)), Ending::Crash)
                .is_ok()
        );
        history.acknowledge(number).unwrap();
        let back = history.clone().settle(Some(&seen(5, 5, 4)), Ending::Crash);
        assert!(back.unwrap_err().contains("(deletion)"));
        history.settle(None, Ending::Clean).unwrap();
        assert_eq!(history.write(true).1.version, 1);
    }

    #[test]
    fn a_lost_change_does_not_come_back() {
        let mut history = history();
        history.settle(Some(&seen(3, 3, 3)), Ending::Crash).unwrap();
        let (number, value) = history.write(true);
        assert_eq!((number, value.version), (6, 4));
        let back = history.settle(Some(&seen(4, 4, 4)), Ending::Crash);
        assert!(back.unwrap_err().contains("contains change 4"));
    }

    #[test]
    fn an_acknowledgement_covers_what_came_before_and_comes_once() {
        let mut history = history();
        history.acknowledge(5).unwrap();
        assert_eq!(history.under_way_count(), 0);
        assert!(history.acknowledge(4).is_err());
    }

    #[test]
    fn numbers_are_read_from_values_and_patches() {
        let whole = text("r", 17, 3);
        assert_eq!(number_in(&whole), Some(17));
        assert_eq!(number_in("18"), Some(18));
        assert_eq!(number_in("{\"m\":1}"), None);
    }
}

//! The histories of the records that the clients of a round write, and their check at its end.

use std::collections::HashMap;

use super::super::operation_history::{number_in, text};
use super::linearizability::{self, Action, Operation, State};

/// A record before its first client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) name: String,
    pub(super) incarnation: u64,
    /// Its version then; its value is [`FIRST_VALUE`].
    pub(super) version: i32,
}

/// The value with which a record is created.
pub(super) const FIRST_VALUE: u64 = 0;

/// The operations on one record.
#[derive(Debug)]
pub(super) struct History {
    pub(super) start: Start,
    pub(super) operations: Vec<Operation>,
    /// Reads from nodes that the others may have evicted. They may be stale, but must have a value that a client wrote.
    pub(super) doubtful: Vec<Operation>,
}

impl History {
    pub(super) fn new(start: Start) -> Self {
        Self {
            start,
            operations: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    /// Checks all answers.
    ///
    /// # Errors
    /// The text describes the answer that has no explanation.
    pub(super) fn check(&self) -> Result<(), String> {
        let name = &self.start.name;
        let requested = self.requested();
        let was_requested = |value, time| {
            value == FIRST_VALUE || requested.get(&value).is_some_and(|first| *first <= time)
        };
        for operation in self.operations.iter().chain(&self.doubtful) {
            if let (Action::Read(state), Some(answered)) = (operation.action, operation.answered)
                && !was_requested(state.value, answered)
            {
                return Err(format!("{name}: {operation}, which no client had written"));
            }
        }
        let first = State {
            version: self.start.version,
            value: FIRST_VALUE,
        };
        linearizability::check(first, &self.operations)
            .map_err(|failure| format!("{name}: {failure}"))
    }

    /// When each value was first requested.
    fn requested(&self) -> HashMap<u64, u64> {
        let written = self.operations.iter().filter_map(|operation| {
            let (Action::Write(value) | Action::Replace(_, value)) = operation.action else {
                return None;
            };
            Some((value, operation.requested))
        });
        written.collect()
    }

    /// All operations, one a line.
    pub(super) fn lines(&self) -> String {
        let mut all: Vec<&Operation> = self.operations.iter().chain(&self.doubtful).collect();
        all.sort_by_key(|operation| operation.requested);
        let lines = all.iter().map(|operation| format!("{operation}\n"));
        format!("{:?}\n{}", self.start, lines.collect::<String>())
    }
}

/// The value in the text of a record. The text is compared byte by byte.
///
/// # Errors
/// No client wrote this text.
pub(super) fn value_of(name: &str, read: &str) -> Result<u64, String> {
    match number_in(read) {
        Some(value) if text(name, value, value) == read => Ok(value),
        _ => Err(format!(
            "{name}: contains text that no client wrote: {:?}",
            read.chars().take(80).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(action: Action, requested: u64) -> Operation {
        Operation {
            client: 1,
            action,
            requested,
            answered: Some(requested + 1),
        }
    }

    #[test]
    fn a_doubtful_read_may_be_stale_and_has_a_written_value() {
        let state = |version, value| State { version, value };
        let mut history = History::new(Start {
            name: "r".to_owned(),
            incarnation: 5,
            version: 1,
        });
        history.operations = vec![
            operation(Action::Write(7), 1),
            operation(Action::Write(8), 3),
        ];
        history.doubtful = vec![operation(Action::Read(state(2, 7)), 5)];
        assert_eq!(history.check(), Ok(()));
        history.doubtful = vec![operation(Action::Read(state(2, 9)), 5)];
        assert!(
            history
                .check()
                .unwrap_err()
                .contains("no client had written")
        );
        history.doubtful.clear();
        history
            .operations
            .push(operation(Action::Read(state(2, 7)), 5));
        assert!(history.check().unwrap_err().contains("no order explains"));
    }

    #[test]
    fn texts_are_compared_byte_by_byte() {
        let written = text("r", 7, 7);
        assert_eq!(value_of("r", &written), Ok(7));
        assert!(value_of("s", &written).is_err());
        assert!(value_of("r", "{}").is_err());
    }
}

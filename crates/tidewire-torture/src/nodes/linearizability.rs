//! Decides whether the history of one record is linearizable: whether one order of its operations explains all answers, in which each
//! operation takes effect once between its request and its answer. It knows only the model of a record: a version,
//! which each write raises by one, and a value.
//!
//! The search is the one of Wing and Gong with Lowe's memory of positions that were searched before. One answer needs an addition to the
//! model: a read may have seen a write that its owner lost before the commit, because it was not acknowledged. Such a read is allowed if
//! its write was requested before its answer and is not made before it in the order, if enough writes were requested to reach its version
//! from the current one, and if its state is never made.

use std::collections::HashSet;
use std::fmt;

/// The state of a record. Each write has another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct State {
    pub(super) version: i32,
    pub(super) value: u64,
}

/// The effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A write that accepts any version.
    Write(u64),
    /// A write that is made in this state only.
    Replace(State, u64),
    /// The answer to a read.
    Read(State),
}

/// One operation of a client. Times are from the same clock for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) client: usize,
    pub(super) action: Action,
    /// A moment before the request was sent.
    pub(super) requested: u64,
    /// A moment after the answer has arrived; `None` if it never did, so that a write may be made at any time or never.
    pub(super) answered: Option<u64>,
}

/// Why a history has no explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No order explains it.
    Impossible(String),
    /// The search was ended after this many positions.
    TooLong(usize),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(text) => f.write_str(text),
            Self::TooLong(count) => {
                write!(
                    f,
                    "its history could not be decided within {count} positions"
                )
            }
        }
    }
}

/// A search visits a few positions for each operation, unless the history has no explanation.
const POSITIONS_MAX: usize = 2_000_000;

/// A position of the search: the operations that took effect, and the state after them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Position {
    /// All answered operations before this index took effect.
    first: usize,
    /// Answered operations after that which took effect, in order of their indexes.
    ahead: Vec<usize>,
    /// Operations without an answer that took effect, in order of their indexes.
    unanswered: Vec<usize>,
    /// States that reads have seen and that were lost, so that no later write may make them.
    lost: Vec<State>,
    state: State,
}

/// The operations of one record, prepared for the search.
struct Search {
    /// In order of their requests.
    answered: Vec<Operation>,
    /// Writes whose outcome is unknown.
    unanswered: Vec<Operation>,
}

/// Searches for an order that explains all answers of the history, which begins with `state`.
///
/// # Errors
/// No order does, or the search took too long.
pub(super) fn check(state: State, operations: &[Operation]) -> Result<(), Failure> {
    let (mut answered, unanswered): (Vec<Operation>, Vec<Operation>) = operations
        .iter()
        .partition(|operation| operation.answered.is_some());
    answered.sort_by_key(|operation| operation.requested);
    let search = Search {
        answered,
        unanswered,
    };
    search.run(state)
}

impl Search {
    fn run(&self, state: State) -> Result<(), Failure> {
        let mut furthest = Position {
            first: 0,
            ahead: Vec::new(),
            unanswered: Vec::new(),
            lost: Vec::new(),
            state,
        };
        let mut visited = HashSet::new();
        let mut stack = vec![furthest.clone()];
        while let Some(mut position) = stack.pop() {
            self.take_reads(&mut position);
            if position.first == self.answered.len() {
                return Ok(());
            }
            if position.first > furthest.first {
                furthest = position.clone();
            }
            if visited.contains(&position) {
                continue;
            }
            if visited.len() == POSITIONS_MAX {
                return Err(Failure::TooLong(POSITIONS_MAX));
            }
            self.push_next(&position, &mut stack);
            visited.insert(position);
        }
        Err(Failure::Impossible(self.describe(&furthest)))
    }

    /// The answered operations that may take effect next: none was requested after the answer to another one of them.
    fn candidates(&self, position: &Position) -> (Vec<usize>, u64) {
        let mut until = u64::MAX;
        let mut candidates = Vec::new();
        for (index, operation) in self.answered.iter().enumerate().skip(position.first) {
            if operation.requested > until {
                break;
            }
            if position.ahead.binary_search(&index).is_err() {
                until = until.min(operation.answered.unwrap_or(u64::MAX));
                candidates.push(index);
            }
        }
        candidates.retain(|index| self.answered[*index].requested <= until);
        (candidates, until)
    }

    /// Lets all reads of the current state take effect that may. A read changes nothing, so no order is lost by that.
    fn take_reads(&self, position: &mut Position) {
        loop {
            let (candidates, _) = self.candidates(position);
            let current = Action::Read(position.state);
            let mut reads = candidates
                .into_iter()
                .filter(|index| self.answered[*index].action == current)
                .peekable();
            if reads.peek().is_none() {
                return;
            }
            reads.for_each(|index| self.take(position, index));
        }
    }

    fn take(&self, position: &mut Position, index: usize) {
        if let Err(place) = position.ahead.binary_search(&index) {
            position.ahead.insert(place, index);
        }
        let mut count = 0;
        while position.ahead.get(count) == Some(&position.first) {
            position.first += 1;
            count += 1;
        }
        position.ahead.drain(..count);
    }

    /// Pushes the positions that may follow, the most likely one last.
    fn push_next(&self, position: &Position, stack: &mut Vec<Position>) {
        let (mut candidates, until) = self.candidates(position);
        // Versions only rise, so an answer with an earlier one is impossible from here on.
        let is_past = |index: &usize| match self.answered[*index].action {
            Action::Read(state) | Action::Replace(state, _) => {
                state.version < position.state.version
            }
            Action::Write(_) => false,
        };
        if candidates.iter().any(is_past) {
            return;
        }
        for index in &candidates {
            let read = self.answered[*index];
            if let Action::Read(state) = read.action
                && self.may_be_lost(position, state, read.answered)
            {
                let mut next = position.clone();
                if let Err(place) = next.lost.binary_search(&state) {
                    next.lost.insert(place, state);
                }
                self.take(&mut next, *index);
                stack.push(next);
            }
        }
        for (index, operation) in self.unanswered.iter().enumerate() {
            if let Err(place) = position.unanswered.binary_search(&index)
                && operation.requested <= until
                && let Some(mut next) = position.after(operation.action)
            {
                next.unanswered.insert(place, index);
                stack.push(next);
            }
        }
        candidates.sort_by_key(|index| std::cmp::Reverse(self.answered[*index].answered));
        for index in candidates {
            if let Some(mut next) = position.after(self.answered[index].action) {
                self.take(&mut next, index);
                stack.push(next);
            }
        }
    }

    /// Whether a read with an answer at this time may have seen a write that was lost: the write is not made so far, and as many writes
    /// as the version needs were requested. A write that is made already, and is seen again later, was made twice.
    fn may_be_lost(&self, position: &Position, state: State, answered: Option<u64>) -> bool {
        let is_requested = |operation: &&Operation| Some(operation.requested) <= answered;
        let ahead = self.answered.iter().enumerate().skip(position.first);
        let of_answered = ahead
            .filter(|(index, _)| position.ahead.binary_search(index).is_err())
            .map(|(_, operation)| operation)
            .take_while(is_requested);
        let of_unanswered = self
            .unanswered
            .iter()
            .enumerate()
            .filter(|(index, _)| position.unanswered.binary_search(index).is_err())
            .map(|(_, operation)| operation)
            .filter(is_requested);
        let mut count = 0;
        let mut is_among = false;
        for operation in of_answered.chain(of_unanswered) {
            is_among |= match operation.action {
                Action::Write(value) => value == state.value,
                Action::Replace(from, value) => {
                    value == state.value && from.version + 1 == state.version
                }
                Action::Read(_) => continue,
            };
            count += 1;
        }
        let above = state.version - position.state.version;
        is_among && (1..=count).contains(&above)
    }

    fn describe(&self, position: &Position) -> String {
        let (candidates, _) = self.candidates(position);
        let next: Vec<String> = candidates
            .into_iter()
            .map(|index| self.answered[index].to_string())
            .collect();
        format!(
            "no order explains its history: after {}, none of these can follow: {}",
            position.state,
            next.join(", ")
        )
    }
}

impl Position {
    /// The position after a write, if it can be made here.
    fn after(&self, action: Action) -> Option<Self> {
        let value = match action {
            Action::Write(value) => value,
            Action::Replace(state, value) if state == self.state => value,
            Action::Replace(..) | Action::Read(_) => return None,
        };
        let state = State {
            version: self.state.version.checked_add(1)?,
            value,
        };
        if self.lost.contains(&state) {
            return None;
        }
        let mut next = self.clone();
        next.lost.retain(|lost| lost.version > state.version);
        next.state = state;
        Some(next)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} with value {}", self.version, self.value)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client;
        match self.action {
            Action::Write(value) => write!(f, "client {client} writes value {value}")?,
            Action::Replace(state, value) => {
                write!(f, "client {client} replaces {state} by value {value}")?;
            }
            Action::Read(state) => write!(f, "client {client} reads {state}")?,
        }
        let requested = self.requested;
        match self.answered {
            Some(answered) => write!(f, " ({requested} to {answered} µs)"),
            None => write!(f, " (from {requested} µs, no answer)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(version: i32, value: u64) -> State {
        State { version, value }
    }

    fn at(action: Action, requested: u64, answered: u64) -> Operation {
        Operation {
            client: 1,
            action,
            requested,
            answered: (answered > 0).then_some(answered),
        }
    }

    fn write(value: u64, requested: u64, answered: u64) -> Operation {
        at(Action::Write(value), requested, answered)
    }

    fn read(version: i32, value: u64, requested: u64, answered: u64) -> Operation {
        at(Action::Read(state(version, value)), requested, answered)
    }

    fn replace(version: i32, value: u64, by: u64, requested: u64, answered: u64) -> Operation {
        at(
            Action::Replace(state(version, value), by),
            requested,
            answered,
        )
    }

    /// Each record begins with version 1 and value 0. An answer of 0 means that none arrived.
    fn is_possible(operations: &[Operation]) -> bool {
        match check(state(1, 0), operations) {
            Ok(()) => true,
            Err(Failure::Impossible(_)) => false,
            Err(failure) => panic!("{failure}"),
        }
    }

    #[test]
    fn answered_operations_have_one_order_within_their_times() {
        assert!(is_possible(&[]));
        assert!(is_possible(&[write(7, 1, 2), read(2, 7, 3, 4)]));
        assert!(is_possible(&[
            write(7, 1, 9),
            read(1, 0, 2, 3),
            read(2, 7, 4, 5)
        ]));
        assert!(is_possible(&[
            write(7, 1, 9),
            write(8, 1, 9),
            read(3, 7, 10, 11)
        ]));
        assert!(!is_possible(&[
            write(7, 1, 2),
            write(8, 3, 4),
            read(3, 7, 10, 11)
        ]));
        assert!(
            !is_possible(&[write(7, 1, 2), read(1, 0, 3, 4)]),
            "a stale read"
        );
        assert!(
            !is_possible(&[write(7, 1, 2), read(3, 7, 3, 4)]),
            "made twice"
        );
    }

    #[test]
    fn an_acknowledged_write_is_never_lost() {
        assert!(!is_possible(&[
            write(7, 1, 2),
            read(2, 7, 3, 4),
            read(1, 0, 5, 6)
        ]));
        assert!(!is_possible(&[
            write(7, 1, 2),
            write(8, 3, 4),
            read(2, 8, 5, 6)
        ]));
        assert!(!is_possible(&[
            replace(1, 0, 7, 1, 2),
            replace(1, 0, 8, 3, 4)
        ]));
        assert!(is_possible(&[
            replace(1, 0, 7, 1, 2),
            replace(2, 7, 8, 3, 4)
        ]));
    }

    #[test]
    fn a_write_without_an_answer_is_made_once_or_never() {
        assert!(is_possible(&[
            write(7, 1, 0),
            read(1, 0, 2, 3),
            read(2, 7, 8, 9)
        ]));
        assert!(is_possible(&[
            write(7, 1, 0),
            write(8, 2, 3),
            read(2, 8, 4, 5)
        ]));
        assert!(is_possible(&[
            write(7, 1, 0),
            write(8, 2, 3),
            read(3, 8, 4, 5)
        ]));
        assert!(
            !is_possible(&[write(7, 6, 0), read(2, 7, 2, 3)]),
            "before its request"
        );
        assert!(!is_possible(&[
            write(7, 1, 0),
            read(2, 7, 2, 3),
            write(8, 4, 5),
            read(4, 7, 6, 7)
        ]));
        assert!(is_possible(&[
            replace(1, 0, 7, 1, 0),
            write(8, 2, 3),
            read(3, 8, 4, 5)
        ]));
        assert!(!is_possible(&[
            write(8, 2, 3),
            replace(1, 0, 7, 4, 0),
            read(3, 7, 6, 7)
        ]));
    }

    #[test]
    fn a_read_may_see_a_write_that_is_lost_before_its_commit() {
        // The owner is killed; the repeated write is made after another one.
        let lost = [
            write(7, 1, 20),
            read(2, 7, 2, 3),
            write(8, 10, 11),
            read(2, 8, 12, 13),
        ];
        assert!(is_possible(&lost));
        assert!(is_possible(&[&lost[..], &[read(3, 7, 21, 22)]].concat()));
        assert!(!is_possible(&[&lost[..], &[read(2, 7, 21, 22)]].concat()));
        // The write is acknowledged at the version that a later read denies.
        assert!(!is_possible(&[
            write(7, 1, 4),
            read(2, 7, 2, 3),
            read(1, 0, 5, 6)
        ]));
        // Two reads of the same state, and one between them of the state before: the state was not lost.
        assert!(!is_possible(&[
            write(7, 1, 30),
            read(2, 7, 2, 3),
            read(1, 0, 5, 6),
            read(2, 7, 7, 8),
            write(9, 31, 32),
            read(3, 9, 33, 34),
        ]));
    }

    /// All orders of a few operations, without any of the shortcuts of the search.
    fn is_possible_by_force(now: State, left: &[Operation], lost: &[State]) -> bool {
        let until = left.iter().filter_map(|operation| operation.answered).min();
        let Some(until) = until else {
            return true;
        };
        left.iter().enumerate().any(|(index, operation)| {
            if operation.requested > until {
                return false;
            }
            let others = [&left[..index], &left[index + 1..]].concat();
            let made = |value| {
                let next = state(now.version + 1, value);
                !lost.contains(&next) && is_possible_by_force(next, &others, lost)
            };
            match operation.action {
                Action::Write(value) => made(value),
                Action::Replace(from, value) => from == now && made(value),
                Action::Read(seen) if seen == now => is_possible_by_force(now, &others, lost),
                Action::Read(seen) => {
                    let lost = [lost, &[seen]].concat();
                    let written: Vec<u64> = others
                        .iter()
                        .filter(|other| Some(other.requested) <= operation.answered)
                        .filter_map(|other| match other.action {
                            Action::Write(value) => Some(value),
                            Action::Replace(from, value) if from.version + 1 == seen.version => {
                                Some(value)
                            }
                            Action::Replace(..) => Some(u64::MAX),
                            Action::Read(_) => None,
                        })
                        .collect();
                    let above = seen.version - now.version;
                    above > 0
                        && above <= i32::try_from(written.len()).unwrap()
                        && written.contains(&seen.value)
                        && is_possible_by_force(now, &others, &lost)
                }
            }
        })
    }

    #[test]
    fn the_search_agrees_with_all_orders() {
        let mut random = crate::random::Random::new(11, 1);
        let (mut possible, mut impossible) = (0, 0);
        for _ in 0..6_000 {
            let count = 1 + random.below(6);
            let operations: Vec<Operation> = (1..=count)
                .map(|number| {
                    let requested = random.below(12);
                    let answered = match random.one_in(4) {
                        true => 0,
                        false => requested + 1 + random.below(6),
                    };
                    let version = 1 + i32::try_from(random.below(3)).unwrap();
                    let value = random.below(count + 1);
                    match random.below(3) {
                        0 => write(number, requested, answered),
                        1 => replace(version, value, number, requested, answered),
                        _ => read(version, value, requested, answered.max(requested + 1)),
                    }
                })
                .collect();
            let expected = is_possible_by_force(state(1, 0), &operations, &[]);
            assert_eq!(is_possible(&operations), expected, "{operations:?}");
            possible += u32::from(expected);
            impossible += u32::from(!expected);
        }
        assert!(
            possible > 500 && impossible > 500,
            "{possible} {impossible}"
        );
    }
}

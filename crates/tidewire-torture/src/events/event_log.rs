//! The events that subscribers received. Each offset has one event, which is the same for all subscribers in all runs. The log
//! also knows the highest offset that can exist.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidewire_core::message::Position;

use super::{KEPT, SOURCES, SUBSCRIBERS};

/// How many offsets of a name the log keeps, which is more than a subscriber goes back.
const KNOWN_MAX: usize = 4_000;

/// The identity of an event. The numbers of one source under one name count up from 1 in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) source: usize,
    pub(super) run: u64,
    pub(super) number: u64,
}

impl EventId {
    /// Formats the id as the data of an event.
    pub(super) fn text(self) -> String {
        format!("[{},{},{}]", self.source, self.run, self.number)
    }

    /// Parses the id in the data of an event.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix('[')?.strip_suffix(']')?.split(',');
        let id = Self {
            source: numbers.next()?.parse().ok()?,
            run: numbers.next()?.parse().ok()?,
            number: numbers.next()?.parse().ok()?,
        };
        (id.source < SOURCES && numbers.next().is_none()).then_some(id)
    }

    /// Whether it comes after another id of the same source.
    pub(super) fn is_behind(self, other: Self) -> bool {
        (self.run, self.number) > (other.run, other.number)
    }
}

/// The figures that a run prints at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Events that subscribers received, without repetitions.
    pub(crate) delivered: u64,
    /// Times that a subscriber resumed from its positions.
    pub(crate) resumed: u64,
    /// Gaps that the server reported.
    pub(crate) gaps: u64,
}

impl std::ops::Add for Figures {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            resumed: self.resumed + other.resumed,
            gaps: self.gaps + other.gaps,
        }
    }
}

/// The last event of a source that the server has certainly handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handled {
    pub(super) index: usize,
    pub(super) id: EventId,
}

/// The log that all publishers and subscribers share.
#[derive(Debug, Default)]
pub(super) struct EventLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    names: [Account; KEPT.len()],
    figures: Figures,
}

#[derive(Debug, Default)]
struct Account {
    epoch: Option<u64>,
    /// The received events by offset.
    given: BTreeMap<u64, EventId>,
    /// The last received event of each source.
    last: [Option<EventId>; SOURCES],
    /// The highest offset that can exist: that of the last event, if the server has stored all requested events.
    possible: u64,
    /// The last offset that each subscriber has received.
    reached: [u64; SUBSCRIBERS],
    /// Whether the server has reported a gap since the last start, so that events may be missing here.
    has_gap: bool,
}

impl Account {
    fn newest(&self) -> Option<Position> {
        let (offset, epoch) = (*self.given.last_key_value()?.0, self.epoch?);
        Some(Position { epoch, offset })
    }
}

impl EventLog {
    pub(super) fn figures(&self) -> Figures {
        self.lock().figures
    }

    /// Begins an audit after the last event that any subscriber received.
    pub(super) fn begin_audit(&self) -> [Option<Position>; KEPT.len()] {
        let mut state = self.lock();
        state
            .names
            .iter_mut()
            .for_each(|account| account.has_gap = false);
        [0, 1].map(|index| state.names[index].newest())
    }

    /// Counts an event before its publish request is sent.
    pub(super) fn ask(&self, index: usize) {
        self.lock().names[index].possible += 1;
    }

    /// How many events a name may be ahead of its slowest subscriber, or, for a name whose subscribers may have gaps, of its fastest.
    pub(super) fn ahead(&self, index: usize) -> u64 {
        let Account {
            possible, reached, ..
        } = &self.lock().names[index];
        let reached = match index {
            0 => reached.iter().min(),
            _ => reached.iter().max(),
        };
        possible - reached.copied().unwrap_or(0).min(*possible)
    }

    /// Counts a subscriber that resumes.
    pub(super) fn resume(&self) {
        self.lock().figures.resumed += 1;
    }

    /// Notes the offset that a subscriber has received.
    pub(super) fn reach(&self, index: usize, subscriber: usize, offset: u64) {
        let mut state = self.lock();
        state.figures.delivered += 1;
        state.names[index].reached[subscriber] = offset;
    }

    /// Whether all subscribers have received an event of a source with this number or a later one, under each name.
    pub(super) fn has_reached_all(&self, source: usize, number: u64) -> bool {
        self.lock().names.iter().all(|account| {
            let mut given = account.given.iter().rev();
            let found = given.find(|(_, id)| id.source == source && id.number >= number);
            found.is_some_and(|(offset, _)| account.reached.iter().all(|reached| reached >= offset))
        })
    }

    /// Adds an event that a reader received.
    ///
    /// # Errors
    /// A reader received another event at this position before, or the offset is higher than the number of published events.
    pub(super) fn give(&self, index: usize, at: Position, id: EventId) -> Result<(), String> {
        let name = KEPT[index].name;
        let account = &mut self.lock().names[index];
        let epoch = *account.epoch.get_or_insert(at.epoch);
        if epoch != at.epoch {
            return Err(format!(
                "{name}: the epoch changed from {epoch} to {}, so the server lost the history",
                at.epoch
            ));
        }
        if at.offset > account.possible {
            return Err(format!(
                "{name}: the server sent offset {}, but the highest possible offset is {}",
                at.offset, account.possible
            ));
        }
        let given = account.given.entry(at.offset).or_insert(id);
        if *given != id {
            return Err(format!(
                "{name}: offset {} was {given:?} before and is {id:?} now",
                at.offset
            ));
        }
        if account.given.len() > KNOWN_MAX {
            account.given.pop_first();
        }
        let last = &mut account.last[id.source];
        if last.is_none_or(|last| id.is_behind(last)) {
            *last = Some(id);
        }
        Ok(())
    }

    /// Counts a gap: the server skips the events after `after`, because it no longer keeps them. Returns the position of the next
    /// event.
    ///
    /// # Errors
    /// The server must still keep the skipped events, or it reported wrong numbers.
    pub(super) fn tell_gap(
        &self,
        index: usize,
        after: Position,
        missed: Option<u32>,
        first: Option<Position>,
    ) -> Result<Position, String> {
        let super::Kept { name, count } = KEPT[index];
        let mut state = self.lock();
        let account = &mut state.names[index];
        let gap = format!(
            "{name}: the server reported a gap of {missed:?} after {after:?}, up to {first:?}"
        );
        let Some(first) = first.filter(|first| first.epoch == after.epoch) else {
            return Err(format!("{gap}, in events that the store must keep"));
        };
        let missing = first.offset.saturating_sub(after.offset + 1);
        if missing == 0 || missed.map(u64::from) != Some(missing) {
            return Err(format!("{gap}, but {missing} are missing"));
        }
        if first.offset + count - 1 > account.possible {
            return Err(format!(
                "{gap}, but the store must keep the last {count}, up to at most {}",
                account.possible
            ));
        }
        account.has_gap = true;
        state.figures.gaps += 1;
        Ok(first)
    }

    /// Ends an audit. Requested events that the audit did not read were lost before any subscriber received them.
    pub(super) fn settle(&self) {
        for account in &mut self.lock().names {
            account.possible = account.newest().map_or(0, |newest| newest.offset);
        }
    }

    /// Checks that the server still has an event that it had handled before a clean stop.
    ///
    /// # Errors
    /// The event is lost.
    pub(super) fn find_handled(&self, handled: Handled) -> Result<(), String> {
        let Handled { index, id } = handled;
        let Account { last, has_gap, .. } = &self.lock().names[index];
        let last = last[id.source];
        if *has_gap || last.is_some_and(|last| !id.is_behind(last)) {
            return Ok(());
        }
        Err(format!(
            "{}: {id:?} was handled before a clean stop, but the last kept event is {last:?}",
            KEPT[index].name
        ))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 9;

    fn at(offset: u64) -> Position {
        Position {
            epoch: EPOCH,
            offset,
        }
    }

    fn id(number: u64) -> EventId {
        EventId {
            source: 1,
            run: 3,
            number,
        }
    }

    /// A log with 100 requested events under each name, of which a subscriber received the first five.
    fn event_log() -> EventLog {
        let event_log = EventLog::default();
        for index in 0..KEPT.len() {
            (0..100).for_each(|_| event_log.ask(index));
            for offset in 1..=5 {
                event_log.give(index, at(offset), id(offset)).unwrap();
            }
        }
        event_log
    }

    fn check(result: Result<impl std::fmt::Debug, String>, part: Option<&str>) {
        match (&result, part) {
            (Ok(_), None) => {}
            (Err(fault), Some(part)) => assert!(fault.contains(part), "{fault}"),
            _ => panic!("{result:?} instead of {part:?}"),
        }
    }

    #[test]
    fn one_offset_has_one_event_for_all() {
        let give = |position, number, part| check(event_log().give(0, position, id(number)), part);
        give(at(5), 5, None);
        give(at(6), 6, None);
        give(at(5), 6, Some("offset 5 was EventId"));
        give(at(101), 6, Some("the highest possible offset is 100"));
        let other = Position {
            epoch: 8,
            offset: 6,
        };
        give(other, 6, Some("the epoch changed from 9 to 8"));
        let settled = event_log();
        settled.settle();
        check(
            settled.give(0, at(6), id(6)),
            Some("the highest possible offset is 5"),
        );
        assert_eq!(settled.begin_audit(), [Some(at(5)); 2]);
    }

    #[test]
    fn a_gap_is_reported_where_events_are_no_longer_kept() {
        let tell = |index, missed, first, part| {
            check(event_log().tell_gap(index, at(5), missed, first), part);
        };
        // The last 24 of 100 events begin at offset 77.
        tell(1, Some(71), Some(at(77)), None);
        tell(
            1,
            Some(72),
            Some(at(78)),
            Some("the last 24, up to at most 100"),
        );
        tell(1, Some(70), Some(at(77)), Some("71 are missing"));
        tell(1, Some(0), Some(at(6)), Some("0 are missing"));
        tell(
            0,
            Some(1),
            Some(at(7)),
            Some("the last 1000, up to at most 100"),
        );
        tell(1, None, None, Some("in events that the store must keep"));
    }

    #[test]
    fn events_that_were_handled_before_a_clean_stop_must_be_there() {
        let find = |number, part| {
            let id = id(number);
            check(event_log().find_handled(Handled { index: 1, id }), part);
        };
        find(5, None);
        find(6, Some("handled before a clean stop"));
        let event_log = event_log();
        event_log
            .tell_gap(1, at(5), Some(71), Some(at(77)))
            .unwrap();
        let id = id(6);
        check(event_log.find_handled(Handled { index: 1, id }), None);
    }

    #[test]
    fn publishers_wait_for_their_subscribers() {
        let event_log = event_log();
        assert_eq!([event_log.ahead(0), event_log.ahead(1)], [100, 100]);
        event_log.reach(0, 0, 5);
        event_log.reach(1, 0, 5);
        assert_eq!([event_log.ahead(0), event_log.ahead(1)], [100, 95]);
        event_log.reach(0, 1, 4);
        assert_eq!(event_log.ahead(0), 96);
    }

    #[test]
    fn event_ids_are_read_as_they_are_written() {
        assert_eq!(EventId::parse(&id(7).text()), Some(id(7)));
        for text in ["[1,2]", "[1,2,3,4]", "[9,1,1]", "{}"] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }
}

//! The events that a reader has received, and the check of the next one: each event arrives once and in order, or the server
//! reports a gap.

use std::time::{Duration, Instant};

use tidewire_core::message::{Event, Message, Position, Publication};

use super::super::random::Random;
use super::super::test_client::Outbox;
use super::event_log::{EventId, EventLog};
use super::{KEPT, SOURCES, index_of};

/// A reader resumes up to one part in this many of the history before its position, so that it receives some events again.
const AGAIN: u64 = 4;
/// A node that was evicted notices it within this time.
const STALE_MAX: Duration = Duration::from_secs(10);

/// The progress of a reader with all names, over all connections.
#[derive(Debug, Default)]
pub(super) struct Reader([ReaderProgress; KEPT.len()]);

/// The progress of a reader with one name.
#[derive(Clone, Copy, Debug, Default)]
struct ReaderProgress {
    /// The position of the last received event.
    position: Option<Position>,
    /// The last received event of each source.
    last: [Option<EventId>; SOURCES],
    /// Whether events of each source may be missing after that.
    has_hole: [bool; SOURCES],
    /// Whether events of each source may be missing at any time, because a node was lost before it stored them.
    may_miss: bool,
    /// Since when nodes have answered with an end of the history before the position. It ends with the next event.
    stale_since: Option<Instant>,
}

/// The progress of one connection with all names.
#[derive(Debug)]
pub(super) struct Reading {
    at: [Option<Position>; KEPT.len()],
    has_begun: [bool; KEPT.len()],
    /// Whether the node knows less than the reader, because it was evicted and has not noticed it. The reader ignores its messages.
    is_stale: bool,
}

impl Reading {
    /// A connection that has requested the events after these positions.
    fn new(at: [Option<Position>; KEPT.len()]) -> Self {
        Self {
            at,
            has_begun: [false; KEPT.len()],
            is_stale: false,
        }
    }

    /// Whether the reader must leave the node.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether the server has sent the starting position of every name.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun == [true; KEPT.len()]
    }
}

impl ReaderProgress {
    /// Notes that events may be missing before the next one.
    fn skip(&mut self) {
        self.has_hole = [true; SOURCES];
    }

    /// Whether this event may come next.
    fn is_next(&self, id: EventId) -> bool {
        let has_hole = self.has_hole[id.source] || self.may_miss;
        match self.last[id.source] {
            Some(last) if has_hole => id.is_behind(last),
            Some(last) if last.run == id.run => id.number == last.number + 1,
            Some(last) => id.run > last.run && id.number == 1,
            None => has_hole || id.number == 1,
        }
    }

    /// Adds the event at a position. Returns false if the reader already has it.
    ///
    /// # Errors
    /// The event may not come next. Gives the last event of its source.
    fn take(&mut self, at: Position, id: EventId) -> Result<bool, Option<EventId>> {
        if self
            .position
            .is_some_and(|position| at.offset <= position.offset)
        {
            return Ok(false);
        }
        if !self.is_next(id) {
            return Err(self.last[id.source]);
        }
        self.position = Some(at);
        self.last[id.source] = Some(id);
        self.has_hole[id.source] = false;
        self.stale_since = None;
        Ok(true)
    }
}

impl Reader {
    /// A reader of a cluster. It accepts that events of a publisher are missing, because a node may be lost that has not stored them.
    pub(super) fn of_cluster() -> Self {
        Self(std::array::from_fn(|_| ReaderProgress {
            may_miss: true,
            ..ReaderProgress::default()
        }))
    }

    /// A reader that starts after these positions, without the ids of earlier events.
    pub(super) fn behind(positions: [Option<Position>; KEPT.len()]) -> Self {
        Self(positions.map(|position| {
            let mut progress = ReaderProgress {
                position,
                ..ReaderProgress::default()
            };
            if position.is_some() {
                progress.skip();
            }
            progress
        }))
    }

    /// Starts from the progress of another reader with every name that this reader has not begun.
    pub(super) fn begin_behind(&mut self, other: &Self) {
        for (progress, other) in self.0.iter_mut().zip(&other.0) {
            if progress.position.is_none() {
                *progress = *other;
            }
        }
    }

    /// Requests the events after its positions, or after positions a little earlier.
    pub(super) fn resume(&self, out: &mut Outbox<'_>, random: &mut Random) -> Reading {
        let mut at = self.0.map(|progress| progress.position);
        for (position, kept) in at.iter_mut().zip(&KEPT) {
            if let Some(position) = position {
                let back = random.below(kept.count / AGAIN);
                position.offset = position.offset.saturating_sub(back);
            }
        }
        let names = KEPT.iter().map(|kept| kept.name);
        out.push(&Message::Event(Event::Subscribe {
            names: names.clone().collect(),
            correlation: Some("1"),
            positions: names.zip(at).collect(),
        }));
        Reading::new(at)
    }

    /// Whether this event is the last of its source under each name.
    pub(super) fn is_at(&self, id: EventId) -> bool {
        let has = |progress: &ReaderProgress| progress.last[id.source] == Some(id);
        self.0.iter().all(has)
    }

    /// Handles an event message. If the event is new, returns the index of its name and its offset.
    ///
    /// # Errors
    /// The server must not send this message now.
    pub(super) fn take(
        &mut self,
        event: &Event<'_>,
        reading: &mut Reading,
        event_log: &EventLog,
    ) -> Result<Option<(usize, u64)>, String> {
        if reading.is_stale {
            return Ok(None);
        }
        let name = match event {
            Event::Position { name, .. }
            | Event::HistoryGap { name, .. }
            | Event::Publication(Publication { name, .. }) => *name,
            Event::Ack { .. } => return Ok(None),
            other => return Err(format!("a subscriber received {other:?}")),
        };
        let Some(index) = index_of(name) else {
            return Err(format!("a subscriber received {event:?}"));
        };
        let at = &mut reading.at[index];
        match event {
            &Event::Position { position, .. } => {
                if at.is_some_and(|at| at != position) {
                    return Err(format!(
                        "{name}: a subscriber requested {at:?} and received {position:?}"
                    ));
                }
                *at = Some(position);
                reading.has_begun[index] = true;
                Ok(None)
            }
            &Event::HistoryGap { missed, first, .. } => {
                let Some(after) = *at else {
                    return Err(format!(
                        "{name}: a subscriber without a position received a gap"
                    ));
                };
                let known = &mut self.0[index];
                let is_before =
                    |first: Position| first.epoch == after.epoch && first.offset <= after.offset;
                if known.may_miss && missed.is_none() && first.is_some_and(is_before) {
                    let since = *known.stale_since.get_or_insert_with(Instant::now);
                    reading.is_stale = true;
                    return match since.elapsed() > STALE_MAX {
                        false => Ok(None),
                        true => Err(format!(
                            "{name}: for {STALE_MAX:?} the history has ended before offset {}",
                            after.offset
                        )),
                    };
                }
                let first = event_log.tell_gap(index, after, missed, first)?;
                let before = Position {
                    offset: first.offset - 1,
                    ..first
                };
                *at = Some(before);
                reading.has_begun[index] = true;
                let known = &mut self.0[index];
                if known
                    .position
                    .is_none_or(|position| position.offset < before.offset)
                {
                    known.position = Some(before);
                    known.skip();
                }
                Ok(None)
            }
            Event::Publication(publication) => {
                let Some(offset) = publication.offset() else {
                    return Err(format!("{name}: an event arrived without an offset"));
                };
                let data = publication.data;
                let Some(at) = at.as_mut().filter(|_| reading.has_begun[index]) else {
                    return Err(format!("{name}: an event arrived before its position"));
                };
                if offset != at.offset + 1 {
                    let before = at.offset;
                    return Err(format!(
                        "{name}: offset {offset} arrived after offset {before}"
                    ));
                }
                at.offset = offset;
                let Some(id) = data.and_then(EventId::parse) else {
                    return Err(format!(
                        "{name}: {data:?} at offset {offset} was never published"
                    ));
                };
                event_log.give(index, *at, id)?;
                match self.0[index].take(*at, id) {
                    Ok(is_new) => Ok(is_new.then_some((index, offset))),
                    Err(last) => Err(format!(
                        "{name}: {id:?} at offset {offset} arrived after {last:?}"
                    )),
                }
            }
            _ => Ok(None),
        }
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

    /// An event whose text is leaked, so that it outlives the test.
    fn event(index: usize, offset: u64, run: u64, number: u64) -> Event<'static> {
        let source = 1;
        let id = EventId {
            source,
            run,
            number,
        };
        let data: &str = Box::leak(id.text().into_boxed_str());
        let publication = Publication::new(KEPT[index].name, Some(data), Some(offset), None);
        Event::Publication(publication)
    }

    fn position(index: usize, position: Position) -> Event<'static> {
        let name = KEPT[index].name;
        Event::Position { name, position }
    }

    fn gap(index: usize, missed: u32, first: u64) -> Event<'static> {
        Event::HistoryGap {
            name: KEPT[index].name,
            missed: Some(missed),
            first: Some(at(first)),
        }
    }

    /// Each name has 100 requested events. The reader has received the first five, of the first run, and has resumed after offset 3.
    fn check(events: &[Event<'_>], part: Option<&str>) {
        let (event_log, mut reader) = (EventLog::default(), Reader::default());
        let mut reading = Reading::new([None; KEPT.len()]);
        for index in 0..KEPT.len() {
            (0..100).for_each(|_| event_log.ask(index));
            let begun = position(index, at(0));
            reader.take(&begun, &mut reading, &event_log).unwrap();
            for number in 1..=5 {
                let event = event(index, number, 1, number);
                let taken = reader.take(&event, &mut reading, &event_log);
                assert_eq!(taken, Ok(Some((index, number))));
            }
        }
        assert!(reading.has_begun());
        let mut reading = Reading::new([Some(at(3)); KEPT.len()]);
        let fault = events
            .iter()
            .find_map(|event| reader.take(event, &mut reading, &event_log).err());
        match (&fault, part) {
            (None, None) => {}
            (Some(fault), Some(part)) => assert!(fault.contains(part), "{fault}"),
            _ => panic!("{fault:?} instead of {part:?}"),
        }
    }

    #[test]
    fn each_event_comes_once_and_in_order() {
        let then = |more: &[Event<'static>]| {
            let again = [position(0, at(3)), event(0, 4, 1, 4), event(0, 5, 1, 5)];
            [&again[..], more].concat()
        };
        check(&then(&[event(0, 6, 1, 6), event(0, 7, 1, 7)]), None);
        check(&then(&[event(0, 6, 3, 1), event(0, 7, 3, 2)]), None);
        check(
            &then(&[event(0, 6, 1, 7)]),
            Some("arrived after Some(EventId"),
        );
        check(
            &then(&[event(0, 6, 1, 5)]),
            Some("arrived after Some(EventId"),
        );
        check(
            &then(&[event(0, 6, 2, 2)]),
            Some("arrived after Some(EventId"),
        );
        check(
            &then(&[event(0, 7, 1, 6)]),
            Some("offset 7 arrived after offset 5"),
        );
        check(
            &then(&[event(0, 5, 1, 5)]),
            Some("offset 5 arrived after offset 5"),
        );
        check(&[event(0, 4, 1, 4)], Some("before its position"));
        check(&[position(0, at(4))], Some("and received Position"));
        check(
            &[position(0, at(3)), event(0, 4, 1, 5)],
            Some("offset 4 was EventId"),
        );
    }

    #[test]
    fn behind_a_gap_events_are_in_order() {
        check(
            &[gap(1, 49, 53), event(1, 53, 1, 40), event(1, 54, 1, 41)],
            None,
        );
        check(&[gap(1, 49, 53), event(1, 53, 2, 9)], None);
        check(
            &[gap(1, 49, 53), event(1, 53, 1, 5)],
            Some("arrived after Some(EventId"),
        );
        check(
            &[gap(1, 49, 53), event(1, 53, 1, 40), event(1, 54, 1, 42)],
            Some("arrived after Some(EventId"),
        );
        check(
            &[gap(1, 49, 53), event(1, 54, 1, 40)],
            Some("after offset 52"),
        );
        check(&[gap(0, 1, 5)], Some("the last 1000"));
    }

    #[test]
    fn a_reader_of_a_cluster_leaves_a_node_that_knows_less_for_a_limited_time() {
        let event_log = EventLog::default();
        let stale_gap = Event::HistoryGap {
            name: KEPT[0].name,
            missed: None,
            first: Some(at(2)),
        };
        let ask = |reader: &mut Reader| {
            let mut reading = Reading::new([Some(at(3)); KEPT.len()]);
            let taken = reader.take(&stale_gap, &mut reading, &event_log);
            // The events behind the gap are old ones.
            let ignored = reader.take(&event(0, 2, 1, 2), &mut reading, &event_log);
            (taken.map(|_| reading.is_stale()), ignored)
        };
        let mut reader = Reader::of_cluster();
        reader.0[0].position = Some(at(3));
        assert_eq!(ask(&mut reader), (Ok(true), Ok(None)));
        assert_eq!(reader.0[0].position, Some(at(3)), "it keeps its position");
        let long_ago = Instant::now().checked_sub(STALE_MAX + Duration::from_secs(1));
        reader.0[0].stale_since = long_ago;
        let (taken, _) = ask(&mut reader);
        assert!(taken.is_err_and(|fault| fault.contains("has ended before offset 3")));
        // One node has no such answers.
        let (taken, _) = ask(&mut Reader::behind([Some(at(3)); KEPT.len()]));
        assert!(taken.is_err_and(|fault| fault.contains("but 0 are missing")));
    }

    #[test]
    fn a_new_reader_takes_what_follows_its_position() {
        let (event_log, mut reader) = (EventLog::default(), Reader::behind([Some(at(3)); 2]));
        (0..9).for_each(|_| event_log.ask(0));
        let mut bytes = Vec::new();
        let mut reading = reader.resume(&mut Outbox::new(&mut bytes), &mut Random::new(1, 1));
        let begun = reading.at[0].unwrap();
        reader
            .take(&position(0, begun), &mut reading, &event_log)
            .unwrap();
        for offset in begun.offset + 1..=5 {
            let event = event(0, offset, 4, 70 + offset);
            let is_new = reader.take(&event, &mut reading, &event_log).unwrap();
            assert_eq!(is_new.is_some(), offset > 3, "{offset}");
        }
    }
}

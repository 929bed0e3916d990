//! Heartbeats of the sessions that the server pings. The server pings a session an interval after its beginning and after each answer,
//! and closes one that has not answered within the timeout.
//!
//! All sessions have the same interval and timeout, so two lists in the order of their deadlines suffice: sessions without a ping, and
//! sessions that owe an answer. The links are fields of the sessions. So a heartbeat needs no further memory, an answer takes a session
//! out of the middle of a list, and no step searches for a session.

use std::time::Duration;

use super::{Session, SessionFlag, Sessions};
use crate::address::SessionId;
use crate::time::Instant;

/// A tick has 2^16 ns, so the ticks of 32 bits pass in 78 hours. No interval is longer than a day (`network.heartbeat_interval`).
const TICK_BITS: u32 = 16;
/// In a link: no session.
const NONE: u32 = u32::MAX >> 1;
/// In the link to the next session: this one is in no list.
const UNLINKED: u32 = u32::MAX;
/// Set in the link to the session before, if this one owes an answer.
const OWES: u32 = 1 << 31;
/// A shard that checks a deadline later than this part of the timeout was not running, so that it has not read the answers of its peers
/// either. One that was late for a shorter time has read all answers but those that came at the very end.
const LATE_PART: u32 = 4;

/// A time in half the memory of an [`Instant`], rounded down to 66 µs. It is at most 78 hours old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u32);

impl Tick {
    /// The tick of a time.
    pub(crate) fn at(time: Instant) -> Self {
        // The rest follows from a later time, see `age`.
        Self((time.0 >> TICK_BITS) as u32)
    }

    fn age(self, now: Instant) -> u64 {
        u64::from(Self::at(now).0.wrapping_sub(self.0))
    }

    /// The time that has passed since this tick at least, so that no session is closed early.
    pub(crate) fn elapsed(self, now: Instant) -> Duration {
        Duration::from_nanos(self.age(now).saturating_sub(1) << TICK_BITS)
    }

    /// The end of this tick, which is not before the time that it was made of.
    fn end(self, now: Instant) -> Instant {
        let start = (now.0 >> TICK_BITS).saturating_sub(self.age(now));
        Instant((start + 1) << TICK_BITS)
    }
}

/// The place of a session in a list of [`Heartbeats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// In no list.
    pub(super) const OUT: Self = Self {
        before: NONE,
        after: UNLINKED,
    };

    /// Whether the session is in a list.
    #[inline]
    pub(super) fn is_in(self) -> bool {
        self.after != UNLINKED
    }

    fn owes(self) -> bool {
        self.is_in() && self.before & OWES != 0
    }
}

/// Sessions in the order of their deadlines.
#[derive(Debug)]
struct List {
    first: u32,
    last: u32,
    /// The deadline of the first session.
    due: Option<Instant>,
    /// Time from the tick of a session to its deadline.
    delay: Duration,
}

impl List {
    fn new(delay: Duration) -> Self {
        Self {
            first: NONE,
            last: NONE,
            due: None,
            delay,
        }
    }

    /// The first session, if its deadline has passed.
    fn due_by(&self, now: Instant) -> Option<u32> {
        self.due.filter(|due| *due <= now).map(|_| self.first)
    }
}

/// The heartbeats of a shard.
#[derive(Debug)]
pub(super) struct Heartbeats {
    interval: Duration,
    timeout: Duration,
    /// Sessions that are due for a ping.
    quiet: List,
    /// Sessions that have not answered the last ping.
    owing: List,
    /// No session is closed until then.
    grace: Instant,
    /// The time of the last change. No tick in a list is later.
    now: Instant,
}

/// A step that is due for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatStep {
    /// It gets a ping.
    Ping(SessionId),
    /// It has not answered in time.
    Silent(SessionId),
}

impl Heartbeats {
    pub(super) fn new(interval: Duration, timeout: Duration) -> Self {
        Self {
            interval,
            timeout,
            quiet: List::new(interval),
            owing: List::new(interval + timeout),
            grace: Instant::default(),
            now: Instant::default(),
        }
    }

    fn list(&mut self, owes: bool) -> &mut List {
        match owes {
            true => &mut self.owing,
            false => &mut self.quiet,
        }
    }
}

fn session_at(table: &mut [Option<Session>], index: u32) -> Option<&mut Session> {
    table.get_mut(index as usize)?.as_mut()
}

impl Sessions {
    /// Begins the heartbeats of a session, or begins its interval again.
    pub(crate) fn begin_heartbeat(&mut self, id: SessionId, now: Instant) {
        self.end_heartbeat(id);
        self.link(id.index, false, now, now);
    }

    /// Ends the heartbeats of a session.
    pub(crate) fn end_heartbeat(&mut self, id: SessionId) {
        if let Some(session) = self.find(id)
            && session.links.is_in()
        {
            self.unlink(id.index);
        }
    }

    /// Handles the answer to a ping. Returns false if the session owes none.
    pub(crate) fn answer_ping(&mut self, id: SessionId, now: Instant) -> bool {
        let owes = self.find(id).is_some_and(|session| session.links.owes());
        if owes {
            self.unlink(id.index);
            self.link(id.index, false, now, now);
        }
        owes
    }

    /// When the next step is due.
    pub(crate) fn next_heartbeat(&self) -> Option<Instant> {
        let Heartbeats {
            quiet,
            owing,
            grace,
            ..
        } = &self.heartbeats;
        let closes = owing.due.map(|due| due.max(*grace));
        match (quiet.due, closes) {
            (Some(ping), Some(close)) => Some(ping.min(close)),
            (ping, close) => ping.or(close),
        }
    }

    /// The next step that is due. A session that is not closed although it is silent gets another timeout.
    pub(crate) fn step_heartbeat(&mut self, now: Instant) -> Option<HeartbeatStep> {
        let (interval, timeout) = (self.heartbeats.interval, self.heartbeats.timeout);
        // As if its interval had ended now.
        let since = Instant(now.0.saturating_sub(nanos(interval)));
        if let Some(index) = self.heartbeats.owing.due_by(now)
            && self.heartbeats.grace <= now
        {
            let due = self.heartbeats.owing.due.unwrap_or(now);
            let late = now.since(due);
            if late <= timeout / LATE_PART || self.heartbeats.grace > due {
                self.unlink(index);
                let id = self.link(index, true, since, now)?;
                return Some(HeartbeatStep::Silent(id));
            }
            // The answers are read before the next check. A session gets this time once.
            self.heartbeats.grace = now + late.min(timeout);
        }
        let index = self.heartbeats.quiet.due_by(now)?;
        self.unlink(index);
        let id = self.link(index, true, since, now)?;
        Some(HeartbeatStep::Ping(id))
    }

    /// Appends a session to a list.
    fn link(&mut self, index: u32, owes: bool, since: Instant, now: Instant) -> Option<SessionId> {
        self.heartbeats.now = now;
        let list = self.heartbeats.list(owes);
        let (last, delay) = (list.last, list.delay);
        list.last = index;
        let session = session_at(&mut self.table, index)?;
        session.heard = Tick::at(since);
        session.links = Links {
            before: if owes { last | OWES } else { last },
            after: NONE,
        };
        let id = session.id;
        if last == NONE {
            let due = session.heard.end(now) + delay;
            let list = self.heartbeats.list(owes);
            (list.first, list.due) = (index, Some(due));
        } else if let Some(session) = session_at(&mut self.table, last) {
            session.links.after = index;
        }
        Some(id)
    }

    /// Takes a session out of its list.
    fn unlink(&mut self, index: u32) {
        let Some(session) = session_at(&mut self.table, index) else {
            return;
        };
        let links = std::mem::replace(&mut session.links, Links::OUT);
        let (owes, before, after) = (links.owes(), links.before & !OWES, links.after);
        // The bit belongs to the list, which is the same.
        if let Some(next) = session_at(&mut self.table, after) {
            next.links.before = links.before;
        }
        if let Some(last) = session_at(&mut self.table, before) {
            last.links.after = after;
        }
        let first = session_at(&mut self.table, after).map(|session| session.heard);
        let now = self.heartbeats.now;
        let list = self.heartbeats.list(owes);
        if list.last == index {
            list.last = before;
        }
        if list.first == index {
            list.first = after;
            list.due = first.map(|since| since.end(now) + list.delay);
        }
    }
}

impl Session {
    /// Notes that data has arrived from it. For a session that the server pings, only an answer counts.
    #[inline]
    pub(crate) fn note_heard(&mut self, now: Instant) {
        if !self.links.is_in() {
            self.heard = Tick::at(now);
        }
    }

    /// Whether the server visits it to find out that its peer is silent.
    pub(crate) fn is_swept(&self) -> bool {
        !self.links.is_in() && !self.has(SessionFlag::Detached)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::address::Address;
    use crate::effect::Format;

    const INTERVAL: Duration = Duration::from_millis(300);
    const TIMEOUT: Duration = Duration::from_millis(200);
    /// A tick of rounding for each of the two steps.
    const ROUNDING: Duration = Duration::from_nanos(2 << TICK_BITS);

    fn id(index: u32) -> SessionId {
        SessionId {
            address: Address { node: 0, shard: 0 },
            index,
            generation: 1,
        }
    }

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    /// Sessions that begin at these times.
    fn sessions(start: Instant, begins: &[u64]) -> Sessions {
        let mut sessions = Sessions::new(INTERVAL, TIMEOUT);
        for (index, millis) in begins.iter().enumerate() {
            let (id, now) = (id(index as u32), at(start, *millis));
            sessions.open(id, Format(0), None, now);
            sessions.begin_heartbeat(id, now);
        }
        sessions
    }

    /// All steps up to a time, each at its deadline.
    fn steps(sessions: &mut Sessions, until: Instant) -> Vec<(Instant, HeartbeatStep)> {
        let mut steps = Vec::new();
        while let Some(due) = sessions.next_heartbeat().filter(|due| *due <= until) {
            while let Some(step) = sessions.step_heartbeat(due) {
                steps.push((due, step));
            }
        }
        steps
    }

    #[test]
    fn a_session_is_pinged_after_the_interval_and_silent_after_the_timeout() {
        // Also where the ticks wrap.
        for start in [Instant(0), Instant(((1 << 32) - 100) << TICK_BITS)] {
            let mut sessions = sessions(start, &[0, 50]);
            let mut steps = steps(&mut sessions, at(start, 600)).into_iter();
            for (millis, step) in [
                (300, HeartbeatStep::Ping(id(0))),
                (350, HeartbeatStep::Ping(id(1))),
                (500, HeartbeatStep::Silent(id(0))),
                (550, HeartbeatStep::Silent(id(1))),
            ] {
                let (due, found) = steps.next().expect("a step");
                assert_eq!(found, step);
                let exact = at(start, millis);
                assert!(due >= exact && due.since(exact) <= ROUNDING, "{due:?}");
            }
            assert_eq!(steps.next(), None);
        }
    }

    #[test]
    fn an_answer_begins_the_next_interval_and_another_message_does_not() {
        let start = Instant(7);
        let mut sessions = sessions(start, &[0, 0]);
        assert!(!sessions.answer_ping(id(0), at(start, 10)), "no ping yet");
        assert_eq!(steps(&mut sessions, at(start, 310)).len(), 2);
        let session = sessions.find_mut(id(1)).expect("open");
        session.note_heard(at(start, 320));
        assert!(sessions.answer_ping(id(0), at(start, 320)));
        let left: Vec<_> = steps(&mut sessions, at(start, 650))
            .into_iter()
            .map(|(_, step)| step)
            .collect();
        let expected = [HeartbeatStep::Silent(id(1)), HeartbeatStep::Ping(id(0))];
        assert_eq!(left, expected);
        let session = sessions.find(id(1)).expect("open");
        assert!(!session.is_swept());
    }

    #[test]
    fn a_shard_that_was_stopped_reads_the_answers_first() {
        let start = Instant(7);
        let mut sessions = sessions(start, &[0]);
        assert_eq!(steps(&mut sessions, at(start, 310)).len(), 1);
        let late = at(start, 600);
        assert_eq!(sessions.step_heartbeat(late), None);
        let due = sessions.next_heartbeat().expect("a deadline");
        assert!(due > at(start, 690) && due < at(start, 710), "{due:?}");
        assert_eq!(
            sessions.step_heartbeat(due),
            Some(HeartbeatStep::Silent(id(0)))
        );
        // It gets another timeout if it is not closed.
        let again = sessions.next_heartbeat().expect("a deadline");
        assert!(again >= due + TIMEOUT && again.since(due + TIMEOUT) <= ROUNDING);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin(u32),
        End(u32),
        Answer(u32),
        Pass(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u32..8).prop_map(Step::Begin),
            (0u32..8).prop_map(Step::End),
            (0u32..8).prop_map(Step::Answer),
            (1u64..400).prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// The lists behave as a table of deadlines that is searched.
        #[test]
        fn the_lists_equal_a_table(steps in proptest::collection::vec(any_step(), 1..80)) {
            let mut now = Instant(12_345_678);
            let mut sessions = Sessions::new(INTERVAL, TIMEOUT);
            // The time of the next step of each session, and whether it owes an answer.
            let mut model: [Option<(Instant, bool)>; 8] = [None; 8];
            for index in 0..8 {
                sessions.open(id(index), Format(0), None, now);
            }
            for step in steps {
                match step {
                    Step::Begin(index) => {
                        sessions.begin_heartbeat(id(index), now);
                        model[index as usize] = Some((now + INTERVAL, false));
                    }
                    Step::End(index) => {
                        sessions.end_heartbeat(id(index));
                        model[index as usize] = None;
                    }
                    Step::Answer(index) => {
                        let owes = matches!(model[index as usize], Some((_, true)));
                        prop_assert_eq!(sessions.answer_ping(id(index), now), owes);
                        if owes {
                            model[index as usize] = Some((now + INTERVAL, false));
                        }
                    }
                    Step::Pass(millis) => {
                        let until = at(now, millis);
                        while let Some(due) = sessions.next_heartbeat().filter(|due| *due <= until) {
                            let (found, owed) = match sessions.step_heartbeat(due) {
                                Some(HeartbeatStep::Ping(found)) => (found, false),
                                Some(HeartbeatStep::Silent(found)) => (found, true),
                                None => return Err(TestCaseError::fail("no step is due")),
                            };
                            let (exact, owes) = model[found.index as usize].expect("it has heartbeats");
                            prop_assert_eq!(owes, owed);
                            prop_assert!(due >= exact && due.since(exact) <= ROUNDING, "{:?} {:?}", due, exact);
                            model[found.index as usize] = Some((due + TIMEOUT, true));
                        }
                        now = until;
                        let missed = model.iter().flatten().find(|(exact, _)| *exact + ROUNDING <= now);
                        prop_assert_eq!(missed, None);
                    }
                }
            }
        }
    }
}

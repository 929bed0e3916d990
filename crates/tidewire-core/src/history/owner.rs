//! Histories at their owner: offsets, kept events, and the shards with subscribers.
//!
//! A subscriber reads page by page. The page that reaches the end is also the grant. From there on the owner posts published events
//! to the shard, behind the page in the same mailbox. So no event is missing between them, and no event comes twice. The owner
//! counts grants by shard, and shards return them one by one, like grants of records (decision 0003).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::stored::{Stored, Traffic};
use super::{HistoryCounts, NUMBER_MAX};
use smallvec::SmallVec;
use tidewire_collections::ring::Ring;

use crate::address::{Address, SessionId};
use crate::binary::EventPayload;
use crate::context::{ShardContext, TurnContext};
use crate::effect::Effects;
use crate::entry::{Entry, HistoryEntry, HistoryGap, HistoryPage, HistoryRead};
use crate::history_rules::{HistoryRule, Keep};
use crate::message::Position;
use crate::publication::OwnedPublication;
use crate::shard_counts::ShardCounts;
use crate::store::Opened;
use crate::table::{self, Map};
use crate::text::Name;
use crate::time::{Instant, Now, WallTime};

/// For this long, a name without a row in the store starts with the same epoch. A history whose events have all expired is removed from
/// the store only after the period in which it started.
const STORED_EPOCH_PERIOD_MS: u64 = 24 * 60 * 60 * 1_000;

/// State of one name at its owner.
#[derive(Debug)]
struct History {
    /// Distinguishes these offsets from earlier ones, if the owner forgot the name or the server stopped in between.
    epoch: u64,
    ring: Ring,
    /// Granted subscriptions by shard.
    interest: ShardCounts,
    /// Its position among the idle names, if it is one.
    idle_since: Option<u64>,
    /// Time at which the owner checks whether its first event has expired.
    due: Option<Instant>,
    /// Where the store keeps it.
    stored: Option<Box<Stored>>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct HistoryOwner {
    names: Map<Name, History>,
    /// The names without subscribers, the least recently used first.
    idle: BTreeMap<u64, Name>,
    due: BTreeSet<(Instant, Name)>,
    /// Numbers the uses of idle names.
    uses: u64,
    /// Makes epochs, with the number of names that were begun.
    epochs: FixedState,
    begun: u64,
    /// The same for names that the store keeps, see [`HistoryOwner::new_stored_epoch`].
    stored_epochs: FixedState,
    traffic: Traffic,
    counts: HistoryCounts,
}

impl HistoryOwner {
    /// Creates it without names. Epochs depend on the seed, which differs with each start, and on the epoch of the store.
    pub(crate) fn new(seed: u64, opened: Opened) -> Self {
        Self {
            names: table::map(seed),
            idle: BTreeMap::new(),
            due: BTreeSet::new(),
            uses: 0,
            epochs: FixedState::with_seed(seed),
            begun: 0,
            stored_epochs: FixedState::with_seed(opened.epoch.0),
            traffic: Traffic::default(),
            counts: HistoryCounts::default(),
        }
    }

    /// The current numbers.
    pub(crate) fn counts(&self) -> HistoryCounts {
        HistoryCounts {
            names: self.names.len(),
            pending: self.traffic.pending(),
            pending_bytes: self.traffic.pending_bytes(),
            ..self.counts
        }
    }

    /// Whether a change waits for a commit or is in a commit.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.traffic.is_open()
    }

    /// When [`HistoryOwner::deadline_reached`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let due = self.due.first().map(|(due, _)| *due);
        [due, self.traffic.retry()].into_iter().flatten().min()
    }

    /// Forgets expired events, and requests the rows again that the store could not read.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &TurnContext<'_, E>) {
        self.retry(turn.now.monotonic);
        while let Some((due, name)) = self.due.first()
            && *due <= turn.now.monotonic
        {
            let name = name.clone();
            if let Some(rule) = turn.shard.settings.history.find(&name) {
                self.change(&name, |ring| ring.trim(rule, turn.now.wall));
                self.plan(&name, rule, turn.now);
            }
        }
    }

    /// Handles a client's event: the owner assigns its offset, keeps it, and sends it to the shards with subscribers.
    pub(crate) fn publish<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        publication: OwnedPublication,
        publisher: SessionId,
    ) {
        let Some(rule) = turn.shard.settings.history.find(&publication.name) else {
            return;
        };
        self.begin(&publication.name, rule, turn.now.wall);
        match rule.keep {
            Keep::Memory => {
                let (now, name) = (turn.now, publication.name.clone());
                self.show(turn, publication, now.wall, publisher);
                self.used(turn, &name);
            }
            Keep::Store => self.publish_stored(turn, publication, publisher),
        }
    }

    /// Assigns an event its offset, keeps it, and sends it to the shards with subscribers.
    pub(super) fn show<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        mut publication: OwnedPublication,
        at: WallTime,
        publisher: SessionId,
    ) {
        let name = &publication.name.clone();
        let now = turn.now;
        let Some(rule) = turn.shard.settings.history.find(name) else {
            return;
        };
        let offset = self.change(name, |ring| {
            let offset = ring.push(publication.payload(), at);
            ring.trim(rule, now.wall);
            offset
        });
        let (Some(history), Some(offset)) = (self.names.get(name), offset) else {
            return;
        };
        let shards = interested(turn, &history.interest, name);
        if !shards.is_empty() {
            publication.rare.get_or_insert_default().offset = Some(offset);
        }
        for shard in shards {
            let published = HistoryEntry::Published {
                publication: publication.clone(),
                except: publisher,
            };
            turn.post(shard, Entry::History(published));
        }
        if history.due.is_none() {
            self.plan(name, rule, now);
        }
    }

    /// Notes that a name was used.
    pub(super) fn used<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        self.touch(name);
        self.make_room(turn.shard, turn.now);
    }

    /// Handles a request of a session for the events after a position, or only for events published after this request.
    pub(crate) fn read<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, read: HistoryRead) {
        let now = turn.now;
        let Some(rule) = turn.shard.settings.history.find(&read.name) else {
            return;
        };
        self.begin(&read.name, rule, now.wall);
        let Some(read) = self.defer_read(read) else {
            return;
        };
        // Reading the last page and granting the subscription are one step, and the page is posted to the same mailbox as all later
        // events. So there is no gap between the page and the first event of the fan-out. Expired events are removed first, so a page
        // contains none, and the gap that the subscriber gets includes them. The first event always fits, or a large one could never be
        // read.
        self.change(&read.name, |ring| ring.trim(rule, now.wall));
        let Some(history) = self.names.get_mut(&read.name) else {
            return;
        };
        let (from, gap) = history.begin_of(read.after);
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (_, payload) in history.ring.from(from) {
            if bytes >= read.bytes_max && !events.is_empty() {
                break;
            }
            bytes += HistoryPage::event_bytes(&read.name, payload.as_ref());
            events.push(payload.clone());
        }
        let is_last = from + events.len() as u64 == history.ring.next();
        self.counts.replayed += events.len() as u64;
        self.counts.gaps += u64::from(gap.is_some());
        let before = Position {
            epoch: history.epoch,
            offset: from - 1,
        };
        if is_last {
            history.interest.add(read.session.address);
        }
        self.used(turn, &read.name);
        let page = HistoryPage {
            session: read.session,
            name: read.name,
            serial: read.serial,
            is_resumed: read.after.is_some(),
            reply: read.reply,
            before,
            gap,
            events,
            is_granted: is_last,
        };
        turn.post(
            page.session.address,
            Entry::History(HistoryEntry::Page(Box::new(page))),
        );
    }

    /// Handles that a shard has one subscription less.
    pub(crate) fn release<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        shard: Address,
    ) {
        let Some(history) = self.names.get_mut(name) else {
            return;
        };
        if !history.interest.remove(shard) {
            return turn.shard.count_underflow();
        }
        self.used(turn, name);
    }

    /// Ends the subscriptions and requests of a lost node's sessions.
    pub(crate) fn node_lost<E: Effects>(&mut self, turn: &TurnContext<'_, E>, node: u16) {
        let mut names = Vec::new();
        for (name, history) in &mut self.names {
            if let Some(stored) = &mut history.stored {
                stored.forget_reads(node);
            }
            if history.interest.remove_node(node) {
                names.push(name.clone());
            }
        }
        // The order decides which names are forgotten first.
        names.sort_unstable();
        for name in names {
            self.used(turn, &name);
        }
    }

    /// Whether the store has everything of the histories that the shard lets go of, and nothing waits for them.
    pub(crate) fn has_left(&self, is_leaving: impl Fn(&str) -> bool) -> bool {
        let mut busy = self.names.iter().filter(|(name, history)| {
            let stored = history.stored.as_ref();
            stored.is_some_and(|stored| stored.is_open()) || self.traffic.is_sent(name)
        });
        !busy.any(|(name, _)| is_leaving(name))
    }

    /// Forgets histories. The next owner removes the rows that are no longer kept.
    pub(crate) fn leave(&mut self, is_leaving: impl Fn(&str) -> bool) {
        let names = self.names.keys();
        let leaving: Vec<Name> = names.filter(|name| is_leaving(name)).cloned().collect();
        for name in leaving {
            self.traffic.forget(&name);
            self.forget(&name);
        }
    }

    /// Adds a name, with a new epoch if the store has no row of it.
    pub(super) fn begin(&mut self, name: &Name, rule: &HistoryRule, wall: WallTime) {
        if self.names.contains_key(name) {
            return;
        }
        self.begun += 1;
        let epoch = match rule.keep {
            Keep::Memory => self.epochs.hash_one((&**name, self.begun)),
            Keep::Store => self.new_stored_epoch(name, wall),
        };
        let history = History {
            // Never 0, because a peer that knows no epoch might send 0.
            epoch: epoch & NUMBER_MAX | 1,
            ring: Ring::new(1),
            interest: ShardCounts::default(),
            idle_since: None,
            due: None,
            stored: (rule.keep == Keep::Store).then(Box::default),
        };
        self.names.insert(name.clone(), history);
        if rule.keep == Keep::Store {
            self.begin_reading(name);
        }
        self.touch(name);
    }

    /// The epoch of a name without a row in the store. As long as no row of it was removed, no offset of it was ever shown. So it may
    /// start with the same epoch again, and a restart causes no gap. Rows are removed only of an epoch that started in an earlier period,
    /// so an epoch that was shown is never used again.
    pub(super) fn new_stored_epoch(&self, name: &Name, wall: WallTime) -> u64 {
        let period = wall.0 / STORED_EPOCH_PERIOD_MS;
        self.stored_epochs.hash_one((&**name, period)) & NUMBER_MAX | 1
    }

    /// Restores a name from the store.
    pub(super) fn restore(
        &mut self,
        name: &Name,
        epoch: u64,
        first: u64,
        events: impl Iterator<Item = (WallTime, Option<EventPayload>)>,
    ) {
        if let Some(history) = self.names.get_mut(name) {
            history.epoch = epoch;
            history.ring = Ring::new(first);
        }
        self.change(name, |ring| {
            for (at, payload) in events {
                ring.push(payload, at);
            }
        });
    }

    /// The epoch of a name, its first kept offset, and its next offset.
    pub(super) fn state_of(&self, name: &Name) -> Option<(u64, u64, u64)> {
        let History { epoch, ring, .. } = self.names.get(name)?;
        Some((*epoch, ring.first(), ring.next()))
    }

    pub(super) fn stored_mut(&mut self, name: &Name) -> Option<&mut Stored> {
        self.names.get_mut(name)?.stored.as_deref_mut()
    }

    pub(super) fn traffic_mut(&mut self) -> &mut Traffic {
        &mut self.traffic
    }

    /// Whether a name has neither events nor granted subscriptions.
    pub(super) fn is_unused(&self, name: &Name) -> bool {
        let history = self.names.get(name);
        history.is_some_and(|history| history.ring.len() == 0 && history.interest.is_empty())
    }

    /// Whether a name has granted subscriptions.
    pub(super) fn is_wanted(&self, name: &Name) -> bool {
        let history = self.names.get(name);
        history.is_some_and(|history| !history.interest.is_empty())
    }

    /// Changes the kept events of a name, and counts them.
    pub(super) fn change<R>(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut Ring) -> R,
    ) -> Option<R> {
        let ring = &mut self.names.get_mut(name)?.ring;
        let (first, events, bytes) = (ring.first(), ring.len(), ring.bytes());
        let result = change(ring);
        self.counts.events = self.counts.events + ring.len() - events;
        self.counts.bytes = self.counts.bytes + ring.bytes() - bytes;
        let has_lost = ring.first() > first;
        if has_lost && self.stored_mut(name).is_some() {
            self.set_dirty(name);
        }
        Some(result)
    }

    /// Notes that a client used a name. If the name has no subscribers and no work at the store, it becomes the last idle name to be
    /// forgotten.
    fn touch(&mut self, name: &Name) {
        let Some(history) = self.names.get_mut(name) else {
            return;
        };
        if let Some(used) = history.idle_since.take() {
            self.idle.remove(&used);
        }
        let is_busy = history
            .stored
            .as_ref()
            .is_some_and(|stored| stored.is_busy());
        if history.interest.is_empty() && !is_busy {
            self.uses += 1;
            history.idle_since = Some(self.uses);
            self.idle.insert(self.uses, name.clone());
        }
    }

    /// Notes the time at which the owner checks the first event of a name.
    fn plan(&mut self, name: &Name, rule: &HistoryRule, now: Now) {
        let Some(history) = self.names.get_mut(name) else {
            return;
        };
        let lifetime = history.ring.lifetime(rule, now.wall);
        let due = lifetime.map(|lifetime| now.monotonic + lifetime);
        if let Some(before) = std::mem::replace(&mut history.due, due) {
            self.due.remove(&(before, name.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, name.clone()));
        }
    }

    /// Enforces the limits. The owner first drops names without subscribers, with all their kept events, and then the events that would
    /// expire soonest.
    fn make_room(&mut self, context: &ShardContext, now: Now) {
        let limits = &context.settings.limits;
        while self.idle.len() > limits.history_names_max
            || self.counts.bytes > limits.history_bytes_max && self.idle.len() > 1
        {
            self.forget_idle();
        }
        while self.counts.bytes > limits.history_bytes_max {
            let Some((_, name)) = self.due.first().cloned() else {
                return;
            };
            self.change(&name, Ring::pop);
            if let Some(rule) = context.settings.history.find(&name) {
                self.plan(&name, rule, now);
            }
        }
    }

    fn forget_idle(&mut self) {
        if let Some((_, name)) = self.idle.pop_first() {
            self.counts.forgotten += u64::from(self.forget(&name));
        }
    }

    /// Counts a history that was removed from the store.
    pub(super) fn count_removed(&mut self) {
        self.counts.removed += 1;
    }

    /// Drops the state of a name; returns whether the name had any.
    pub(super) fn forget(&mut self, name: &Name) -> bool {
        let Some(history) = self.names.remove(name) else {
            return false;
        };
        if let Some(used) = history.idle_since {
            self.idle.remove(&used);
        }
        self.counts.events -= history.ring.len();
        self.counts.bytes -= history.ring.bytes();
        if let Some(due) = history.due {
            self.due.remove(&(due, name.clone()));
        }
        true
    }
}

impl History {
    /// The offset of the first event for a subscriber that has all events up to a position, and the gap before it.
    fn begin_of(&self, after: Option<Position>) -> (u64, Option<HistoryGap>) {
        let (first, next) = (self.ring.first(), self.ring.next());
        match after {
            None => (next, None),
            Some(after) if after.epoch == self.epoch && after.offset < next => {
                let wanted = after.offset + 1;
                let missed = first.saturating_sub(wanted);
                let gap = HistoryGap {
                    missed: Some(missed),
                };
                (wanted.max(first), (missed > 0).then_some(gap))
            }
            Some(_) => (first, Some(HistoryGap { missed: None })),
        }
    }
}

/// The shards with subscribers of a name, or of a pattern that it matches, in ascending order.
fn interested<E: Effects>(
    turn: &TurnContext<'_, E>,
    granted: &ShardCounts,
    name: &str,
) -> SmallVec<[Address; 8]> {
    let mut shards: SmallVec<[Address; 8]> = granted.shards().collect();
    turn.out
        .visit_pattern_shards(name, |shard| shards.push(shard));
    if turn.hub.has_patterns() {
        let own = turn.shard.address;
        turn.hub.visit_matching(name, |_| shards.push(own));
    }
    shards.sort_unstable();
    shards.dedup();
    shards
}

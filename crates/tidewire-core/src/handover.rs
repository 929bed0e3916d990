//! The change of a view at one shard: which slots the shard holds, and the three rounds in which slots pass to their next owners.
//!
//! A shard that adopts a view posts to the owners of this view, and posts a marker to all shards of the view. When a shard has
//! the markers of all, no request by an earlier view is on its way to it. It finishes what it has of the slots that another shard owns now,
//! commits it, lets go of the slots, and posts `Closed` behind its last effects. When a shard has `Closed` from all, it has received all
//! effects of the earlier owners. It announces to the next owners what its sessions have, and posts `Passed`. When a shard has `Passed` from
//! all, it holds the slots that the view gives it and serves them. Until then requests for their names wait in a queue.
//!
//! The rounds need all shards of all members. A member that is lost stops them until the view without it is adopted: only that view proves
//! that the store takes no more commits of it. A shard adopts each view at once, and the rounds of earlier views end there without an
//! effect. Nothing else depends on which views a shard has adopted: a shard serves only slots that it holds, and gets them only by a complete
//! round of `Passed` of one view, before which every shard that held them has let go of them or holds them for this view again.
//!
//! If views overlap, a slot may pass to another shard in one view and return in the next one, before its owner has let go of it. The other
//! shards may have posted to the owner in between, or announced to it, and the owner does not know what it has missed. So the owner lets go
//! of such a slot as well, and gets everything announced again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::entry::{Entry, PendingReplyId, ViewEntry};
use crate::slot::{SLOT_COUNT, SlotSet, SlotTable};
use crate::view::View;

/// The progress of this shard in the rounds of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The hand-over is complete.
    Complete,
    /// The shard has posted its marker, and waits for the entries of the others.
    Marked,
    /// It has all markers, and finishes what it has of the slots that it lets go of.
    Closing,
    /// It has posted `Closed`, and waits for the entries of the others.
    Closed,
    /// It has posted `Passed`, and waits for the entries of the others.
    Passed,
}

/// The newest views of which a shard has posted an entry of each kind.
#[derive(Clone, Debug, Default)]
struct Heard {
    marker: View,
    /// The slots that the marker names.
    returned: Vec<u16>,
    closed: View,
    passed: View,
}

/// A request that waits until this shard holds its name.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) entry: Entry,
    /// The shard whose session has caused it.
    pub(crate) from: Option<Address>,
    /// The newest view that the sender had adopted when it posted the request.
    pub(crate) posted: View,
    /// The session that has caused it, if its requests to one owner have an order.
    pub(crate) session: Option<SessionId>,
    pub(crate) bytes: usize,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Handover {
    own: Address,
    view: View,
    /// All shards of the view, in ascending order.
    shards: Vec<Address>,
    stage: Stage,
    /// The newest view whose hand-over is complete here.
    complete: View,
    heard: BTreeMap<Address, Heard>,
    /// Slots whose names of this shard it serves.
    held: SlotSet,
    /// Slots that the view gives to it.
    given: SlotSet,
    /// The slots of which the shard lets go in this view.
    leaving: SlotSet,
    /// The slots whose names this shard has posted to another owner since its sessions last announced what they have, and whose owner is the
    /// one of that time again.
    returned: Vec<u16>,
    /// The slots that it has let go of in this view.
    closed: Vec<u16>,
    /// The tables by which the shard has posted since its sessions last announced what they have, the oldest first.
    tables: Vec<Arc<SlotTable>>,
    /// Slots that shards have let go of since then.
    released: BTreeMap<Address, SlotSet>,
    /// Nodes that were lost since then.
    lost: BTreeSet<u16>,
    /// Nodes that were not linked at some time since then. They have got no entry of this shard, and have granted nothing to it.
    unlinked: BTreeSet<u16>,
    /// Announcements of all shards about names that this shard is to hold.
    announced: Vec<ViewEntry>,
    /// The requests for such names, and later requests of the same sessions.
    queue: VecDeque<Waiting>,
    queue_bytes: usize,
    /// The replies to logins whose sessions an announcement has counted.
    counted: Vec<PendingReplyId>,
    /// The sessions with waiting requests: later ones wait behind them.
    queued_sessions: BTreeSet<SessionId>,
    /// Whether some shard has adopted a later view.
    is_ahead: bool,
}

impl Handover {
    /// The state of a shard without a view: it holds all names that the table gives it.
    pub(crate) fn new(own: Address, slots: &Arc<SlotTable>) -> Self {
        Self {
            own,
            view: View::default(),
            shards: Vec::new(),
            stage: Stage::Complete,
            complete: View::default(),
            heard: BTreeMap::new(),
            held: slots_of(own, slots),
            given: slots_of(own, slots),
            leaving: SlotSet::default(),
            returned: Vec::new(),
            closed: Vec::new(),
            tables: vec![Arc::clone(slots)],
            released: BTreeMap::new(),
            lost: BTreeSet::new(),
            unlinked: BTreeSet::new(),
            announced: Vec::new(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            counted: Vec::new(),
            queued_sessions: BTreeSet::new(),
            is_ahead: false,
        }
    }

    /// The adopted view.
    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// The newest view whose hand-over is complete here.
    pub(crate) fn complete(&self) -> View {
        self.complete
    }

    /// The newest view that another shard has announced to this one.
    pub(crate) fn heard_view(&self) -> View {
        let markers = self.heard.values().map(|heard| heard.marker);
        markers.max().unwrap_or_default()
    }

    /// Whether another shard has adopted a later view than this one.
    pub(crate) fn is_behind(&self, shard: Address) -> bool {
        self.view_of(shard) > self.view
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The slots of which the shard lets go.
    pub(crate) fn leaving(&self) -> &SlotSet {
        &self.leaving
    }

    /// Whether the shard has to examine requests, because it may not hold their names. False while no view changes.
    #[inline]
    pub(crate) fn examines(&self) -> bool {
        self.stage != Stage::Complete || self.is_ahead
    }

    /// Whether the owner of a name may have let go of it, or may do so before it has answered what this shard has requested.
    pub(crate) fn passes(&self, owner: Address) -> bool {
        // An owner that has adopted a view refuses requests of shards that have not. Its marker precedes the refusals, and it closes the
        // view only when it has the marker of this shard. So this shard gets the refusals before it completes the view.
        self.examines() || self.lost.contains(&owner.node)
    }

    /// Begins the rounds of a view. `slots` is its table.
    pub(crate) fn adopt(&mut self, view: View, shards: Vec<Address>, slots: &Arc<SlotTable>) {
        let mine = slots_of(self.own, slots);
        if self.view == View::default() {
            // A process that starts holds nothing: the shards of other members may hold its slots.
            self.held = SlotSet::default();
            self.given = SlotSet::default();
        }
        // A slot that an earlier view has given to this shard, and that it does not hold yet, is let go of as well: other shards may have
        // announced to this one what they have of it. The same applies to one that an earlier view has taken from it, even if it still
        // holds it and this view gives it back.
        let moving = self.given.iter().filter(|slot| !self.held.contains(*slot));
        let moving = moving.chain(self.leaving.iter());
        let lost = self.held.iter().filter(|slot| !mine.contains(*slot));
        self.leaving = moving.chain(lost).collect();
        // The shards announce everything of these slots again.
        self.announced.clear();
        self.given = mine;
        self.tables.push(Arc::clone(slots));
        self.returned = self.find_returned();
        self.view = view;
        self.shards = shards;
        self.stage = Stage::Marked;
        self.heard
            .retain(|shard, _| self.shards.binary_search(shard).is_ok());
        self.note_ahead();
    }

    /// See [`Handover::returned`].
    fn find_returned(&self) -> Vec<u16> {
        let [first, between @ .., last] = &self.tables[..] else {
            return Vec::new();
        };
        let has_returned = |slot: &u16| {
            let owner = last.node(*slot);
            let is_other = |table: &Arc<SlotTable>| table.node(*slot) != owner;
            first.node(*slot) == owner && between.iter().any(is_other)
        };
        match between.is_empty() {
            true => Vec::new(),
            false => (0..SLOT_COUNT).filter(has_returned).collect(),
        }
    }

    /// Forgets the entries of a lost node, whose shards post no more.
    pub(crate) fn node_lost(&mut self, node: u16) {
        self.heard.retain(|shard, _| shard.node != node);
        self.lost.insert(node);
        // Nothing waits for its sessions, whose requests had to be answered. Their announcements have ended.
        self.announced
            .retain(|announced| announced.announcer().is_none_or(|shard| shard.node != node));
        self.queue
            .retain(|waiting| waiting.from.is_none_or(|shard| shard.node != node));
        self.note_ahead();
    }

    /// Notes that a node of the view is not linked yet: the posts to it until then are lost, so the shard announces their content.
    pub(crate) fn expect(&mut self, node: u16) {
        self.unlinked.insert(node);
    }

    /// Notes an entry of a round.
    pub(crate) fn heard(&mut self, entry: ViewEntry) {
        match entry {
            ViewEntry::Marker {
                from,
                view,
                returned,
            } => {
                let heard = self.heard.entry(from).or_default();
                if view > heard.marker {
                    (heard.marker, heard.returned) = (view, returned);
                }
                self.note_ahead();
            }
            ViewEntry::Closed { from, view, slots } => {
                let heard = self.heard.entry(from).or_default();
                heard.closed = heard.closed.max(view);
                self.released.entry(from).or_default().extend(slots);
            }
            ViewEntry::Passed { from, view } => {
                let heard = self.heard.entry(from).or_default();
                heard.passed = heard.passed.max(view);
            }
            // It belongs to an earlier view. The sender announces again what this shard is to hold by the adopted one.
            announced
                if announced
                    .announcer()
                    .is_some_and(|shard| self.view_of(shard) != self.view) => {}
            announced => {
                if let ViewEntry::Users { shard, .. } = announced {
                    // It includes these changes.
                    let counted = &mut self.counted;
                    self.queue.retain(|waiting| {
                        let is_included = waiting.entry.changes_presence_of(shard);
                        if let Entry::Online { reply, .. } = waiting.entry
                            && is_included
                        {
                            counted.extend(reply);
                        }
                        !is_included
                    });
                }
                self.announced.push(announced);
            }
        }
    }

    /// Takes the replies to logins whose sessions announcements have counted.
    pub(crate) fn take_counted(&mut self) -> Vec<PendingReplyId> {
        std::mem::take(&mut self.counted)
    }

    fn note_ahead(&mut self) {
        let mut heard = self.heard.values();
        self.is_ahead = heard.any(|heard| heard.marker > self.view);
    }

    /// Whether the entries of the present stage have arrived from all shards, so that the next step is due. The shard's own ones count too.
    pub(crate) fn has_all(&self) -> bool {
        let has = |of: fn(&Heard) -> View| {
            self.shards.iter().all(|shard| {
                let heard = self.heard.get(shard);
                heard.is_some_and(|heard| of(heard) == self.view)
            })
        };
        match self.stage {
            Stage::Marked => has(|heard| heard.marker),
            Stage::Closed => has(|heard| heard.closed),
            Stage::Passed => has(|heard| heard.passed),
            Stage::Complete | Stage::Closing => false,
        }
    }

    /// The entries of the rounds that the shard has posted to all shards of the view.
    pub(crate) fn posted(&self) -> impl Iterator<Item = ViewEntry> + use<> {
        let (from, view) = (self.own, self.view);
        let returned = self.returned.clone();
        let marker = ViewEntry::Marker {
            from,
            view,
            returned,
        };
        let closed = ViewEntry::Closed {
            from,
            view,
            slots: self.closed.clone(),
        };
        let has_closed = matches!(self.stage, Stage::Closed | Stage::Passed);
        let has_marked = has_closed || matches!(self.stage, Stage::Marked | Stage::Closing);
        let marker = has_marked.then_some(marker);
        marker.into_iter().chain(has_closed.then_some(closed))
    }

    /// Continues after all markers: the shard finishes what it has of `leaving`.
    pub(crate) fn begin_closing(&mut self) {
        self.stage = Stage::Closing;
        let returned = self.heard.values().flat_map(|heard| &heard.returned);
        let returned = returned.copied().filter(|slot| self.held.contains(*slot));
        self.leaving.extend(returned);
    }

    /// Whether the shard serves the names of a slot. One that it is letting go of may be given to it again.
    fn serves(&self, slot: u16) -> bool {
        self.held.contains(slot) && !(self.stage == Stage::Closing && self.leaving.contains(slot))
    }

    /// Lets go of the slots in `leaving`. Returns them.
    pub(crate) fn close(&mut self) -> Vec<u16> {
        self.stage = Stage::Closed;
        let slots: Vec<u16> = self.leaving.iter().collect();
        for slot in &slots {
            self.held.remove(*slot);
        }
        self.leaving = SlotSet::default();
        self.closed.clone_from(&slots);
        slots
    }

    /// Whether the sessions of this shard have to announce what they have of a name, because an owner that they may have it from no longer
    /// has it.
    pub(crate) fn is_unplaced(&self, tag: &str) -> bool {
        self.owners(tag)
            .any(|(slot, owner)| self.has_let_go(owner, slot))
    }

    /// The same, or an owner may not have received what the shard has posted to it.
    pub(crate) fn is_unknown(&self, tag: &str) -> bool {
        self.owners(tag).any(|(slot, owner)| {
            self.unlinked.contains(&owner.node) || self.has_let_go(owner, slot)
        })
    }

    /// Whether an owner no longer has what it had of a slot.
    pub(crate) fn has_let_go(&self, owner: Address, slot: u16) -> bool {
        let released = self.released.get(&owner);
        self.lost.contains(&owner.node) || released.is_some_and(|slots| slots.contains(slot))
    }

    /// The slot of a name, and its owners since the last announcements.
    fn owners(&self, tag: &str) -> impl Iterator<Item = (u16, Address)> {
        self.tables.iter().map(|table| table.place(tag))
    }

    /// Whether the shard holds a slot.
    pub(crate) fn holds(&self, slot: u16) -> bool {
        self.held.contains(slot)
    }

    /// Continues after all shards have let go of their slots and the shard has announced what its sessions have.
    pub(crate) fn pass(&mut self, slots: &Arc<SlotTable>) {
        self.stage = Stage::Passed;
        self.tables = vec![Arc::clone(slots)];
        self.released.clear();
        self.lost.clear();
        self.unlinked.clear();
    }

    /// Completes the hand-over: the shard holds the slots that the view gives it.
    pub(crate) fn complete_view(&mut self) {
        self.stage = Stage::Complete;
        self.complete = self.view;
        self.held = self.given.clone();
    }

    /// Decides about a request for names of these slots, which its sender has posted under the view `posted`.
    pub(crate) fn examine(
        &self,
        slots: impl IntoIterator<Item = u16>,
        posted: View,
        session: Option<SessionId>,
    ) -> Examined {
        // A request that waits behind another one of its session would still be here when a later view gives the slot back. But then the
        // sender has posted what followed it to another owner.
        let is_queued = session.is_some_and(|session| self.queued_sessions.contains(&session));
        let mut result = match is_queued {
            true => Examined::Waits,
            false => Examined::Served,
        };
        for slot in slots {
            if !is_queued && self.serves(slot) {
                continue;
            }
            if !self.given.contains(slot) && posted <= self.view {
                return Examined::Refused;
            }
            result = Examined::Waits;
        }
        result
    }

    /// The slots that the view gives to this shard.
    pub(crate) fn given(&self) -> &SlotSet {
        &self.given
    }

    /// The newest view that a shard had adopted when it posted its last entry.
    pub(crate) fn view_of(&self, shard: Address) -> View {
        self.heard
            .get(&shard)
            .map_or(View::default(), |heard| heard.marker)
    }

    /// Keeps a request until the shard holds its names. Returns it if there is no room.
    pub(crate) fn wait(&mut self, waiting: Waiting, bytes_max: usize) -> Option<Entry> {
        if self.queue_bytes + waiting.bytes > bytes_max {
            return Some(waiting.entry);
        }
        self.wait_again(waiting);
        None
    }

    /// The same for a request that has waited already.
    pub(crate) fn wait_again(&mut self, waiting: Waiting) {
        self.queue_bytes += waiting.bytes;
        self.queued_sessions.extend(waiting.session);
        self.queue.push_back(waiting);
    }

    /// Keeps an entry behind the requests that wait, if there are any.
    pub(crate) fn follow(&mut self, entry: &Entry) {
        if self.has_waiting() {
            self.wait_again(Waiting {
                entry: entry.clone(),
                from: None,
                posted: View::default(),
                session: None,
                bytes: size_of::<Waiting>(),
            });
        }
    }

    /// Takes the announcements. They precede all requests.
    pub(crate) fn take_announced(&mut self) -> Vec<ViewEntry> {
        std::mem::take(&mut self.announced)
    }

    /// Takes the requests that wait.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Waiting> {
        self.queue_bytes = 0;
        self.queued_sessions.clear();
        std::mem::take(&mut self.queue)
    }

    /// Whether announcements or requests wait, so that the end of a session has to wait behind them.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.announced.is_empty()
    }

    /// Bytes of the requests that wait.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.queue_bytes
    }
}

/// The decision about a request while a view changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Examined {
    /// It serves it.
    Served,
    /// The names are on their way to this shard, or earlier requests of the session wait.
    Waits,
    /// The names belong to another shard. The sender did not know that yet.
    Refused,
}

/// The slots that a table gives to the node of a shard.
fn slots_of(own: Address, table: &SlotTable) -> SlotSet {
    (0..SLOT_COUNT)
        .filter(|slot| table.node(*slot) == own.node)
        .collect()
}

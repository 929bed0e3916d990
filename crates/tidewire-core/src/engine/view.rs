//! The change of a view: the engine's part of `handover`.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::Shard;
use crate::address::{Address, SessionId};
use crate::awaited::visit_refusals;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    AnnouncedUser, BulkName, Entry, HistoryEntry, Listening, RecordRequestKind, ReplyPart,
    RpcEntry, ViewEntry,
};
use crate::handover::{Examined, Stage, Waiting};
use crate::history;
use crate::presence;
use crate::record::subscriber;
use crate::rpc;
use crate::scope::session as scope;
use crate::text::{Name, Payload};
use crate::time::Now;
use crate::view::{ClusterView, View};

/// Approximate bytes of a request that waits, without its names and data.
const WAITING_BYTES: usize = size_of::<Waiting>();

impl Shard {
    /// Adopts a view: from this call on the shard posts to the owners of this view, and hands over the slots that it no longer owns.
    ///
    /// The caller passes each view at its place among the inputs of the shard. It may skip views, and a view may follow before the hand-over
    /// of the earlier one is complete: that one then ends without an effect. If the number is not higher than that of the adopted view, the
    /// call has no effect.
    ///
    /// - The first view precedes all sessions and entries. Before it, the shard holds the slots of the table in its configuration; with it,
    ///   none, until the hand-over is complete.
    /// - The view has this node. The driver of a node that was evicted ends the shards instead.
    /// - Each other node of the view is linked by [`Shard::node_joined`], with its birth in the view, before or after this call. Until then
    ///   the shard refuses requests to it, and the hand-over waits.
    /// - A node that is linked with another birth, or is not in the view, is lost: this call does what [`Input::NodeLost`] does. So the call
    ///   follows all entries of that node that the shard is to handle. If [`Input::NodeLost`] names a node that is still in the adopted view,
    ///   the requests to it are answered, but its slots wait for a view without it.
    /// - The store's current view is this one or a later one. So the store takes no more commits of nodes that are not in the view.
    ///
    /// The shards post the rounds to each other as entries ([`ViewEntry`]).
    ///
    /// [`Input::NodeLost`]: crate::effect::Input::NodeLost
    pub fn adopt(&mut self, now: Now, view: &ClusterView, out: &mut impl Effects) {
        // The order matters. Lost nodes end first, so the answers to requests to them precede everything of their successors. The table
        // changes before the marker is posted, so no entry behind the marker follows an earlier view.
        if view.number <= self.handover.view() {
            return;
        }
        for (node, birth) in self.state.awaited.linked() {
            if view.birth_of(node) != Some(birth) {
                self.node_lost(now, node, out);
            }
        }
        let from = self.state.context.address;
        if !self.state.context.is_clustered {
            self.records.separate_epochs(self.state.context.seed, from);
        }
        let others = view.members.iter().map(|member| member.id.node);
        let others: Vec<u16> = others.filter(|node| *node != from.node).collect();
        self.state.awaited.expect(&others);
        for node in &others {
            if self.state.awaited.is_lost(*node) {
                self.handover.expect(*node);
            }
        }
        let known = std::mem::take(&mut self.state.context.shards);
        let level = self.state.context.level;
        self.state.context.adopt(view);
        self.barrier.adopt(&self.state.context.shards);
        self.handover
            .adopt(view.number, self.state.context.shards.clone(), &view.slots);
        for node in others {
            if !known.iter().any(|shard| shard.node == node) {
                self.greet(now, node, out);
            }
        }
        let turn = &self.state.turn(now, out);
        self.records.adopt_generation(turn, &view.generation);
        let markers: Vec<ViewEntry> = self.handover.posted().collect();
        for marker in markers {
            self.post_view(now, &marker, out);
        }
        self.pass_on(out);
        let turn = &mut self.state.turn(now, out);
        self.queries.view_changed(turn);
        scope::view_changed(turn);
        self.backends.level_changed(turn, level);
        self.examine_waiting(now, out);
        self.tell_self(now, out);
        self.note_reauthorized();
    }

    /// The number of the adopted view; 0 before the first one.
    #[must_use]
    pub fn view(&self) -> View {
        self.handover.view()
    }

    /// The newest view whose hand-over is complete at this shard. It equals [`Shard::view`] if the shard has let go of all slots that the
    /// adopted view does not give to it, with everything committed, and serves all slots that the view gives to it.
    ///
    /// A node is ready when this number is the current view at all of its shards. If the node is leaving in that view, it then owns nothing,
    /// and it may close its sessions and remove itself from the view.
    #[must_use]
    pub fn handed_over(&self) -> View {
        self.handover.complete()
    }

    /// The newest view that another shard has announced to this one.
    #[must_use]
    pub fn heard_view(&self) -> View {
        self.handover.heard_view()
    }

    fn post_view<E: Effects>(&mut self, now: Now, entry: &ViewEntry, out: &mut E) {
        self.state
            .turn(now, out)
            .post_all(&Entry::View(entry.clone()));
    }

    /// Posts to a node that is both linked and in the view what its shards have to know of this one: the changes of rights, the rounds, and
    /// the patterns of the sessions here.
    pub(super) fn greet<E: Effects>(&mut self, now: Now, node: u16, out: &mut E) {
        let shards = self.state.context.shards();
        let shards: Vec<Address> = shards.filter(|shard| shard.node == node).collect();
        // The rights come first, so a node that joins has them before its first view is complete.
        let mut entries = self.introduced_rights();
        entries.extend(self.handover.posted().map(Entry::View));
        let own = self.state.context.address;
        let introduced = self.listens.introduced(own);
        entries.extend(introduced.into_iter().map(Entry::Listening));
        entries.extend(self.backends.introduced(self.state.context.level));
        let mut turn = self.state.turn(now, out);
        for shard in shards {
            for entry in &entries {
                turn.post(shard, entry.clone());
            }
        }
        scope::node_linked(&mut turn, node);
    }

    /// Takes the step of the hand-over that is due. Returns whether there was one.
    pub(super) fn advance_view<E: Effects>(&mut self, now: Now, out: &mut E) -> bool {
        let from = self.state.context.address;
        let view = self.handover.view();
        if self.handover.stage() == Stage::Closing {
            if !self.finish_leaving(now, out) {
                return false;
            }
            let slots = self.handover.close();
            self.post_view(now, &ViewEntry::Closed { from, view, slots }, out);
            return true;
        }
        if !self.handover.has_all() {
            return false;
        }
        match self.handover.stage() {
            Stage::Marked => {
                self.handover.begin_closing();
                self.begin_leaving(now, out);
            }
            Stage::Closed => {
                self.announce(now, out);
                self.handover.pass(&self.state.context.slots);
                self.state.context.placed = None;
                self.post_view(now, &ViewEntry::Passed { from, view }, out);
            }
            Stage::Passed => {
                self.handover.complete_view();
                let announced = self.handover.take_announced();
                self.announced(now, announced, out);
                self.examine_waiting(now, out);
                self.reauthorizer
                    .records_passed(&mut self.state.turn(now, out));
            }
            Stage::Complete | Stage::Closing => {}
        }
        true
    }

    /// Begins to let go of slots: everything that waits for their names ends, or is on its way to the store.
    fn begin_leaving<E: Effects>(&mut self, now: Now, out: &mut E) {
        let Self {
            state,
            records,
            listens,
            handover,
            ..
        } = self;
        if handover.leaving().is_empty() {
            return;
        }
        let turn = &mut state.turn(now, out);
        records.begin_leaving(turn, listens, handover.leaving());
    }

    /// Lets go of slots once the store has everything. Returns whether that is so.
    fn finish_leaving<E: Effects>(&mut self, now: Now, out: &mut E) -> bool {
        let Self {
            state,
            records,
            listens,
            histories,
            rpcs,
            presences,
            handover,
            ..
        } = self;
        let leaving = handover.leaving();
        if leaving.is_empty() {
            return true;
        }
        let tags = state.context.settings.tags.clone();
        let slots = Arc::clone(&state.context.slots);
        let is_leaving = |name: &str| leaving.contains(slots.slot(tags.tag(name)));
        let turn = &mut state.turn(now, out);
        if !records.has_left(turn, listens) || !histories.has_left(is_leaving) {
            return false;
        }
        records.leave(turn, listens, leaving);
        histories.leave(is_leaving);
        rpcs.leave(turn, is_leaving);
        listens.leave(turn, is_leaving);
        presences.leave(is_leaving);
        true
    }

    /// Announces to the next owners what the sessions of this shard have of names whose owners have let go of them.
    fn announce<E: Effects>(&mut self, now: Now, out: &mut E) {
        let (handover, state) = (&self.handover, &mut self.state);
        let tags = state.context.settings.tags.clone();
        let is_moved = |name: &str| handover.is_unplaced(tags.tag(name));
        let turn = &mut state.turn(now, out);
        let is_unknown = |name: &str| handover.is_unknown(tags.tag(name));
        subscriber::announce(turn, is_moved);
        rpc::announce(turn, is_unknown);
        presence::announce(turn, is_unknown);
        turn.announce_events(is_unknown);
        let context = turn.shard;
        let has_moved = |name: &str, owner| handover.has_let_go(owner, context.slot(name));
        history::subscriber::announce(turn, has_moved);
    }

    /// Handles an entry of the change of a view. Announcements wait until the shard holds their names.
    pub(super) fn view_entry<E: Effects>(&mut self, now: Now, entry: ViewEntry, out: &mut E) {
        let context = &self.state.context;
        let holds = |name: &Name| self.handover.holds(context.slot(name));
        match entry {
            ViewEntry::Providers { provider, names } => {
                let (held, names) = names.into_iter().partition(holds);
                let held = ViewEntry::Providers {
                    provider,
                    names: held,
                };
                self.announced(now, vec![held], out);
                self.handover
                    .heard(ViewEntry::Providers { provider, names });
            }
            ViewEntry::Users { shard, users } => {
                let (held, users) = users.into_iter().partition(|known| holds(&known.user));
                let turn = &mut self.state.turn(now, out);
                for user in held as Vec<AnnouncedUser> {
                    self.presences.announced_now(turn, shard, &user);
                }
                self.handover.heard(ViewEntry::Users { shard, users });
            }
            entry => self.handover.heard(entry),
        }
        let turn = &mut self.state.turn(now, out);
        for reply in self.handover.take_counted() {
            turn.part_done(reply, ReplyPart::Done);
        }
    }

    /// Handles what the sessions' shards have announced, for the names that this shard owns now.
    fn announced<E: Effects>(&mut self, now: Now, announced: Vec<ViewEntry>, out: &mut E) {
        let Self {
            state,
            records,
            listens,
            rpcs,
            presences,
            ..
        } = self;
        let turn = &mut state.turn(now, out);
        let own = turn.shard.address;
        let context = turn.shard;
        // An announcement may belong to an earlier view.
        let is_owned = |name: &str| context.owner(name) == own;
        let mut users = Vec::new();
        for announced in announced {
            match announced {
                ViewEntry::Records {
                    session,
                    principal,
                    names,
                } => {
                    for announced in names.into_iter().filter(|record| is_owned(&record.name)) {
                        records.resume_announced(turn, listens, (session, &principal), announced);
                    }
                }
                ViewEntry::Providers {
                    provider,
                    mut names,
                } => {
                    names.retain(|name| is_owned(name));
                    rpcs.announced(names, provider);
                }
                ViewEntry::Users {
                    shard,
                    users: mut of_shard,
                } => {
                    of_shard.retain(|announced| is_owned(&announced.user));
                    for user in &of_shard {
                        presences.announced(shard, user);
                    }
                    users.push((shard, of_shard));
                }
                ViewEntry::Marker { .. } | ViewEntry::Closed { .. } | ViewEntry::Passed { .. } => {}
            }
        }
        // Only when all sessions that the former owner knew of are counted, a change means that a user came or went.
        for (shard, users) in users {
            for user in users {
                presences.announced_now(turn, shard, &user);
            }
        }
    }

    /// Decides about an entry while a view changes: the shard may not hold the names of a request. Returns the entry if it is to be handled.
    pub(super) fn examine<E: Effects>(
        &mut self,
        now: Now,
        entry: Entry,
        out: &mut E,
    ) -> Option<Entry> {
        if let Entry::SessionEnded { .. } = entry {
            // The registrations of the session may still wait. It ends again behind them.
            self.handover.follow(&entry);
            return Some(entry);
        }
        let Some(subject) = Subject::of(&entry) else {
            return Some(entry);
        };
        let posted = self.handover.view_of(subject.from);
        let (from, session, bytes) = (Some(subject.from), subject.session, subject.bytes);
        let examined = self.examined(&subject, posted);
        drop(subject);
        let waiting = match examined {
            Examined::Served => return Some(entry),
            Examined::Refused => Some(entry),
            Examined::Waits => {
                let context = &self.state.context;
                // A session keeps its right if the check of it is refused. Each shard has a limited number of them.
                let bytes_max = match entry.is_reauthorization() {
                    true => usize::MAX,
                    false => context.settings.limits.handover_bytes_max,
                };
                let waiting = Waiting {
                    entry,
                    from,
                    posted,
                    session,
                    bytes,
                };
                let refused = self.handover.wait(waiting, bytes_max);
                context.count(|counts| counts.handover += u64::from(refused.is_some()));
                refused
            }
        };
        if let Some(entry) = waiting {
            refuse(&mut self.state.turn(now, out), &entry);
        }
        None
    }

    fn examined(&self, subject: &Subject<'_>, posted: View) -> Examined {
        let context = &self.state.context;
        match &subject.names {
            Some(names) => {
                let slots = names.iter().map(|name| context.slot(name));
                self.handover.examine(slots, posted, subject.session)
            }
            None => {
                let slots = self.handover.given().iter();
                self.handover.examine(slots, posted, subject.session)
            }
        }
    }

    /// Decides again about everything that waits, after the shard has adopted a view or completed its hand-over.
    fn examine_waiting<E: Effects>(&mut self, now: Now, out: &mut E) {
        // In the order in which they came. A request that waits again holds back the later ones of its session.
        for waiting in self.handover.take_waiting() {
            let examined = match Subject::of(&waiting.entry) {
                Some(subject) => self.examined(&subject, waiting.posted),
                // The end of a session follows what the session has requested, and the announcements about it.
                None if self.handover.has_waiting() => Examined::Waits,
                None => Examined::Served,
            };
            match examined {
                Examined::Served => self.examined_entry(now, waiting.entry, out),
                Examined::Waits => self.handover.wait_again(waiting),
                Examined::Refused => refuse(&mut self.state.turn(now, out), &waiting.entry),
            }
        }
    }
}

/// The names that a request is about, and its sender.
struct Subject<'e> {
    from: Address,
    /// The session that has caused it, if its requests to one owner have an order.
    session: Option<SessionId>,
    /// `None` for all names of the shard.
    names: Option<SmallVec<[&'e str; 2]>>,
    /// Bytes that it keeps while it waits.
    bytes: usize,
}

impl<'e> Subject<'e> {
    /// The subject of an entry for the owner of its names. `None` for other entries, and for those that an owner without the name ignores.
    fn of(entry: &'e Entry) -> Option<Self> {
        let of = |from, session, names: SmallVec<[&'e str; 2]>, bytes: usize| {
            let of_names: usize = names.iter().map(|name| name.len()).sum();
            Some(Self {
                from,
                session,
                names: Some(names),
                bytes: WAITING_BYTES + of_names + bytes,
            })
        };
        let of_session = |id: SessionId, names, bytes| of(id.address, Some(id), names, bytes);
        let all = |names: &'e [Name]| names.iter().map(|name| &**name).collect();
        match entry {
            Entry::RecordRequest(request) => match &request.what {
                RecordRequestKind::Bulk { names, .. } => {
                    let bytes = names.len() * size_of::<BulkName>();
                    let names = names.iter().map(|bulk| &*bulk.name).collect();
                    of_session(request.session, names, bytes)
                }
                RecordRequestKind::One(name, operation) => {
                    // A check of a right waits for no other request of its session: its refusal must precede the end of the hand-over.
                    let session = Some(request.session).filter(|_| !entry.is_reauthorization());
                    let (from, bytes) = (request.session.address, operation.kept_bytes());
                    of(from, session, smallvec![&**name], bytes)
                }
            },
            Entry::ReadValue { name, asker } => of(asker.address(), None, smallvec![&**name], 0),
            Entry::History(HistoryEntry::Publish {
                publication,
                publisher,
            }) => {
                let names = smallvec![&*publication.name];
                of_session(*publisher, names, publication.payload_size())
            }
            Entry::History(HistoryEntry::Read(read)) => {
                of_session(read.session, smallvec![&*read.name], 0)
            }
            Entry::Rpc(entry) => match entry {
                RpcEntry::Provide {
                    names, provider, ..
                }
                | RpcEntry::Unprovide {
                    names, provider, ..
                } => of_session(*provider, all(names), 0),
                RpcEntry::Revoke { name, provider } => of_session(*provider, smallvec![&**name], 0),
                RpcEntry::Request(call) => {
                    of_session(call.requestor, smallvec![&*call.name], call.kept_bytes())
                }
                RpcEntry::Answer {
                    name,
                    provider,
                    data,
                    ..
                } => {
                    let bytes = data.as_ref().map_or(0, Payload::len);
                    of_session(*provider, smallvec![&**name], bytes)
                }
            },
            Entry::Listening(Listening::Answered { name, provider, .. }) => {
                of_session(*provider, smallvec![&**name], 0)
            }
            Entry::Listening(Listening::Present { shard, names, .. }) => {
                of(*shard, None, all(names), 0)
            }
            Entry::Listening(Listening::Interest { shard, name, .. }) => {
                of(*shard, None, smallvec![&**name], 0)
            }
            Entry::Online { user, session, .. } => of(session.address, None, smallvec![&**user], 0),
            Entry::Offline { user, shard } => of(*shard, None, smallvec![&**user], 0),
            Entry::PresenceQuery { reply, users } => match users {
                Some(users) => of(reply.address, None, all(users), 0),
                None => Some(Self {
                    from: reply.address,
                    session: None,
                    names: None,
                    bytes: WAITING_BYTES,
                }),
            },
            _ => None,
        }
    }
}

/// Answers a request that this shard does not serve, as if the shard was lost: the session may repeat it.
fn refuse<E: Effects>(turn: &mut TurnContext<'_, E>, entry: &Entry) {
    if let Entry::History(HistoryEntry::Publish {
        publication,
        publisher,
    }) = entry
    {
        let refused = HistoryEntry::Refused {
            publisher: *publisher,
            name: publication.name.clone(),
        };
        return turn.post(publisher.address, Entry::History(refused));
    }
    let own = turn.shard.address;
    visit_refusals(own, entry, |refusal| {
        if let Some(to) = address_of(&refusal) {
            turn.post(to, refusal);
        }
    });
}

/// The shard that waits for an answer.
fn address_of(answer: &Entry) -> Option<Address> {
    Some(match answer {
        Entry::RecordAnswer(answer) => answer.session.address,
        Entry::Value { asker, .. } => asker.address(),
        Entry::ReplyPart { reply, .. } => reply.address,
        Entry::RpcDelivery(delivery) => delivery.session.address,
        Entry::History(HistoryEntry::Page(page)) => page.session.address,
        _ => return None,
    })
}

//! Changes of records whose read rule depends on data: the owner checks the read right of the subscribers again before they get a change.
//!
//! A session that has lost the right loses its subscription before the others get the change. If a rule needs another record, or one turn
//! can't authorize all subscribers, the record's later requests wait behind the change, so everything keeps its order.

use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Answer, Published};
use crate::listen::ListenOwner;
use crate::permission::{Access, Authorization, ReadRight};
use crate::principal::Principal;
use crate::record::authorize::loss;
use crate::record::job::{Announcement, Job, JobKind};
use crate::record::owner::RecordOwner;
use crate::record::request::{Step, answer, authorize, publish};
use crate::record::state::Blocked;
use crate::text::Name;
use crate::work::RULE_WORK;
use tidewire_collections::readers::READER_BYTES;

/// Groups that are authorized in one turn. Usually less than a millisecond.
const SLICE: usize = 500;

/// Number of records that are kept for the rules of later groups, at most.
const KNOWN_MAX: usize = 64;

impl RecordOwner {
    /// If the subscriber's right depends on data, notes that it must be checked again before each change.
    pub(super) fn add_reader<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        (session, serial): (SessionId, u32),
        principal: &Arc<Principal>,
    ) {
        if turn.shard.permission.read_right(principal, name) == ReadRight::Fixed {
            return self.remove_reader(name, session, serial);
        }
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        record.has_readers = true;
        let readers = self.readers.entry(name.clone()).or_default();
        self.cache.bytes -= readers.count() * READER_BYTES;
        readers.add(session, serial, principal);
        self.cache.bytes += readers.count() * READER_BYTES;
    }

    /// Removes the reader of a subscription that has ended.
    pub(super) fn remove_reader(&mut self, name: &Name, session: SessionId, serial: u32) {
        let Some(record) = self.table.get_mut(name).filter(|known| known.has_readers) else {
            return;
        };
        let Some(readers) = self.readers.get_mut(name) else {
            return;
        };
        self.cache.bytes -= readers.count() * READER_BYTES;
        readers.remove(session, serial);
        self.cache.bytes += readers.count() * READER_BYTES;
        if readers.count() == 0 {
            record.has_readers = false;
            self.readers.remove(name);
        }
    }

    /// Removes the readers of a lost node.
    pub(super) fn remove_lost_readers(&mut self, name: &Name, node: u16) {
        let Some(readers) = self.readers.get_mut(name) else {
            return;
        };
        self.cache.bytes -= readers.count() * READER_BYTES;
        readers.remove_node(node);
        let is_empty = readers.count() == 0;
        self.cache.bytes += readers.count() * READER_BYTES;
        if is_empty {
            self.drop_readers(name);
        }
    }

    /// Removes all readers of a record: all its subscriptions have ended, or no subscriber's right depends on data now.
    pub(super) fn drop_readers(&mut self, name: &Name) {
        let Some(record) = self.table.get_mut(name).filter(|known| known.has_readers) else {
            return;
        };
        record.has_readers = false;
        if let Some(readers) = self.readers.remove(name) {
            self.cache.bytes -= readers.count() * READER_BYTES;
        }
    }

    /// Sends a change to the subscribers. If the read right of some of them depends on data, the owner authorizes them first.
    pub(super) fn publish<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        what: Published,
        except: Option<SessionId>,
    ) {
        let Some(record) = self.table.get(name) else {
            return;
        };
        let readers = self.readers.get(name).filter(|_| record.has_readers);
        let first = readers.and_then(|readers| readers.first());
        let (Some((session, principal)), Published::Changed { full, .. }) = (first, &what) else {
            return publish(turn, name, &record.interest, &what, except);
        };
        let full = full.clone();
        let announcement = Announcement {
            what,
            except,
            full,
            index: 0,
            depends: false,
            known: Vec::new(),
        };
        let job = Job {
            session: except.unwrap_or(session),
            principal: Arc::clone(principal),
            kind: Box::new(announcement),
            values: Vec::new(),
            read_failed: false,
            after: None,
            since: turn.now.monotonic,
            was_deferred: false,
        };
        let blocked = record.waiting.as_ref().map(|waits| waits.blocked);
        match blocked {
            // While the first job waits, the store has returned another owner's change. If a rule waits for a value, `RecordOwner::value`
            // gives it to the job that is first when the value arrives.
            Some(blocked @ (Blocked::Rule | Blocked::Turn)) => {
                let record = self.table.get_mut(name);
                let Some(waits) = record.and_then(|record| record.waiting.as_mut()) else {
                    return;
                };
                let is_announcement = |job: &Job| matches!(job.kind, JobKind::Announce(_));
                let index = waits.jobs.iter().position(|job| !is_announcement(job));
                let index = index.unwrap_or(waits.jobs.len());
                let job = job.of_any_kind();
                self.waiting_bytes += job.bytes();
                waits.jobs.insert(index, job);
                waits.blocked = blocked;
            }
            _ => {
                if let Step::Blocked(job, blocked) = self.announce(turn, name, job) {
                    self.wait(turn, name, job, blocked);
                }
            }
        }
    }

    /// Authorizes the subscribers, ends the subscriptions of those that may not read the change, and sends the change to the others.
    pub(super) fn announce<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        mut job: Job<Box<Announcement>>,
    ) -> Step {
        let work_max = turn.shard.settings.limits.connection_work_max;
        let (mut authorized, mut work) = (0, 0);
        loop {
            let announcement = &mut job.kind;
            let Some(readers) = self.readers.get(name) else {
                break;
            };
            // The announcement may take several turns. In the meantime no reader is added: requests that add one wait behind it. So no
            // group before `index` is new.
            if announcement.index >= readers.table_len() {
                break;
            }
            let Some(principal) = readers.principal(announcement.index) else {
                announcement.index += 1;
                continue;
            };
            let right = turn.shard.permission.read_right(principal, name);
            if right != ReadRight::Fixed {
                if authorized >= SLICE || (work_max > 0 && work > work_max) {
                    return Step::blocked(job, Blocked::Turn);
                }
                announcement.depends = true;
                let full = announcement.full.clone();
                job.principal = Arc::clone(principal);
                let cost = match right {
                    ReadRight::ByRecord => RULE_WORK + full.len(),
                    _ => RULE_WORK,
                };
                turn.shard.count_work(cost);
                authorized += 1;
                work += cost;
                let read = Access::RecordRead;
                match authorize(turn, &mut job, read, name, None, Some(&full)) {
                    Authorization::Allow => {}
                    Authorization::Wait => return Step::blocked(job, Blocked::Rule),
                    authorization => self.end_group(turn, name, &mut job, authorization),
                }
            }
            job.next_group();
        }
        let announcement = job.kind;
        if !announcement.depends {
            // The rules have changed: no right depends on data now.
            self.drop_readers(name);
        }
        if let Some(record) = self.table.get(name) {
            let Announcement { what, except, .. } = *announcement;
            publish(turn, name, &record.interest, &what, except);
        }
        Step::Done
    }

    /// Ends the subscriptions of the group that was authorized last. `Interest` counts them until their shards release them.
    fn end_group<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        job: &mut Job<Box<Announcement>>,
        authorization: Authorization,
    ) {
        turn.shard.count_denial(authorization);
        let why = loss(turn, job, name, authorization);
        let Some(readers) = self.readers.get_mut(name) else {
            return;
        };
        self.cache.bytes -= readers.count() * READER_BYTES;
        let ended = readers.take_group(job.kind.index);
        self.cache.bytes += readers.count() * READER_BYTES;
        if readers.count() == 0 {
            self.drop_readers(name);
        }
        for (session, serial) in ended {
            let lost = Answer::Lost { serial, why };
            answer(turn, session, name, None, lost);
        }
    }

    /// Continues with a record that has more subscribers than one turn can authorize.
    pub(super) fn authorize_more<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
    ) {
        let Some(name) = self.to_authorize.pop_front() else {
            return;
        };
        let waits = self.table.get_mut(&name);
        let waits = waits.and_then(|record| record.waiting.as_mut());
        if let Some(waits) = waits.filter(|waits| waits.blocked == Blocked::Turn) {
            waits.blocked = Blocked::No;
            self.run_waiting(turn, listens, &name);
        }
    }
}

impl Job<Box<Announcement>> {
    /// Finishes the group that was authorized. The values that its rule has read are kept for the next groups.
    fn next_group(&mut self) {
        let announcement = &mut self.kind;
        announcement.index += 1;
        self.read_failed = false;
        for (read, value) in self.values.drain(..) {
            let is_known = announcement.known.iter().any(|(known, _)| *known == read);
            if !is_known && announcement.known.len() < KNOWN_MAX {
                announcement.known.push((read, value));
            }
        }
    }
}

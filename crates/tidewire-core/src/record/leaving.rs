//! Records of slots that this shard lets go of, because a view gives them to another shard.
//!
//! The owner finishes what it has of them, and forgets them when the store has everything. The subscriptions are not passed on: the shards
//! of the sessions announce them to the next owner.

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Answer, RecordOperation, RecordRead};
use crate::listen::ListenOwner;
use crate::record::job::{Job, JobKind};
use crate::record::owner::RecordOwner;
use crate::record::request::{answer, refuse};
use crate::record::state::Blocked;
use crate::slot::SlotSet;
use crate::text::Name;

impl RecordOwner {
    /// Begins to let go of records: no request for them comes any longer. Requests that wait for a rule end, because the rule may need a
    /// record that another shard can serve only after this one has let go. A transaction is decided as soon as the earlier requests of its
    /// records have ended and its records are loaded; it ends early only if a rule of one of its parts waits.
    pub(crate) fn begin_leaving<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        slots: &SlotSet,
    ) {
        // Deferred requests run now, however much they cost: the next owner does not know them. Requests that wait for a load wait for
        // the store only, so they run when it answers.
        for session in self.deferring(|name| slots.contains(turn.shard.slot(name))) {
            self.do_all_deferred(turn, listens, session);
        }
        let mut names: Vec<Name> = self.table.names().cloned().collect();
        names.retain(|name| slots.contains(turn.shard.slot(name)));
        names.sort_unstable();
        // A request that ends here may let a transaction continue, which must know that its records are leaving.
        self.leaving.clone_from(&names);
        for name in &names {
            self.refuse_held_back(turn, listens, name);
        }
        names.retain(|name| self.is_busy(name));
        self.leaving = names;
    }

    /// Whether the shard lets go of the record and still has requests or changes of it.
    pub(super) fn is_leaving(&self, name: &Name) -> bool {
        self.leaving.binary_search(name).is_ok()
    }

    fn refuse_held_back<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
    ) {
        while let Some(job) = self.take_held_back(name) {
            match &job.kind {
                JobKind::Part(part) => {
                    let why = job.overload_refusal();
                    self.refuse_transaction(turn, part.transaction, name, why);
                }
                _ => let_go(turn, name, job),
            }
            self.run_waiting(turn, listens, name);
        }
    }

    /// Takes the first request of a record if it waits for a rule or for the next turn, so that the record continues with the next one.
    fn take_held_back(&mut self, name: &Name) -> Option<Job> {
        let waits = self.table.get_mut(name)?.waiting.as_mut()?;
        if !matches!(waits.blocked, Blocked::Rule | Blocked::Turn) {
            return None;
        }
        waits.blocked = Blocked::No;
        let job = waits.jobs.pop_front()?;
        self.waiting_bytes -= job.bytes();
        Some(job)
    }

    fn is_busy(&self, name: &Name) -> bool {
        let record = self.table.get(name);
        record.is_some_and(|record| record.is_dirty || record.waiting.is_some())
    }

    /// Whether nothing waits for the records that the shard lets go of, and the store has all of them.
    pub(crate) fn has_left<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
    ) -> bool {
        while let Some(name) = self.leaving.last().cloned() {
            // A request that waited for a load may now wait for a rule.
            self.refuse_held_back(turn, listens, &name);
            if self.is_busy(&name) {
                return false;
            }
            self.leaving.pop();
        }
        true
    }

    /// Forgets the records of these slots, with their subscriptions.
    pub(crate) fn leave<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        slots: &SlotSet,
    ) {
        let mut names: Vec<Name> = self.table.names().cloned().collect();
        names.retain(|name| slots.contains(turn.shard.slot(name)));
        names.sort_unstable();
        for name in names {
            listens.record_unwanted(turn, &name);
            self.remove(&name);
        }
    }
}

/// Ends a request that waits for a rule. The next owner decides about subscriptions that the session has, so the session keeps them.
fn let_go<E: Effects>(turn: &mut TurnContext<'_, E>, name: &Name, job: Job) {
    match job.kind {
        // The shards of the sessions announce the subscriptions to the next owner, which sends them the value of a change that was not
        // published.
        JobKind::Announce(_) | JobKind::Resume(_) => {}
        // It decides nothing. The session's shard got the marker of the view before, so it asks the next owner (`reauthorize.rs`).
        JobKind::Requested(RecordOperation::Read(RecordRead::Right(right))) => {
            let undecided = Answer::Reauthorized {
                ticket: right.ticket,
                lost: None,
            };
            answer(turn, job.session, name, None, undecided);
        }
        _ => {
            let why = job.overload_refusal();
            refuse(turn, name, job, why);
        }
    }
}

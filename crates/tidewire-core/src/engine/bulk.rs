//! Messages of many names, which take effect in pieces.

use super::entry::add_reply_part;
use super::{Shard, route};
use crate::address::SessionId;
use crate::bulk::LongBulk;
use crate::effect::{Effects, Flow};
use crate::entry::ReplyPart;
use crate::record::subscriber;
use crate::session::RuleReads;
use crate::time::Now;

impl Shard {
    /// Continues a session after the event that it waited for: with its partly applied message, or else with its next one.
    pub(super) fn resume<E: Effects>(&mut self, now: Now, id: SessionId, out: &mut E) {
        let session = self.state.sessions.find(id);
        let has_bulk = session.is_some_and(|session| session.has_bulk());
        if has_bulk {
            self.continue_bulk(now, id, out);
        } else {
            out.resume(id);
        }
    }

    /// Starts a message with more names than can take effect in one turn.
    pub(super) fn begin_bulk<E: Effects>(
        &mut self,
        now: Now,
        id: SessionId,
        bulk: Box<LongBulk>,
        out: &mut E,
    ) {
        if let Some((action, correlation)) = bulk.of_records()
            && action.reads()
        {
            let names = bulk.names();
            subscriber::acknowledge(
                &mut self.state.turn(now, out),
                id,
                action,
                names,
                correlation,
            );
        }
        let seed = self.state.context.seed;
        if let Some(session) = self.state.sessions.find_mut(id) {
            let bytes = bulk.kept_bytes();
            session.state(seed).bulk = Some(bulk);
            self.state.sessions.add_state_bytes(id, bytes);
        }
        self.continue_bulk(now, id, out);
    }

    /// Applies the next names of a long message.
    fn continue_bulk<E: Effects>(&mut self, now: Now, id: SessionId, out: &mut E) {
        let seed = self.state.context.seed;
        let session = self.state.sessions.find_mut(id);
        let Some(mut bulk) = session.and_then(|session| session.state(seed).bulk.take()) else {
            return;
        };
        let work_before = self.state.context.work.get();
        let (message, progress) = bulk.piece();
        let mut turn = self.state.turn(now, out);
        turn.bulk = Some(progress);
        let flow = route(&mut turn, id, &message);
        let work = self.state.context.work.get().wrapping_sub(work_before);
        self.charge(id, work);
        let Some(session) = self.state.sessions.find_mut(id) else {
            return;
        };
        // The session sends nothing while it waits for its names. It is not silent because of that.
        session.note_heard(now.monotonic);
        let state = session.state(seed);
        if flow == Flow::Wait {
            // A rule waits for the value of a record.
            state.bulk = Some(bulk);
            return;
        }
        state.rule_reads = RuleReads::default();
        // The session owes at least 1 until the next turn, so the next piece runs in a later turn and other sessions get their turns in
        // between. The message counts as waiting, so `resume` continues with it and not with a later message.
        if !bulk.advance() {
            state.bulk = Some(bulk);
            if !self.debtors.has(id) {
                self.owe(id, 1);
            }
            self.debtors.holds_back(id);
            return;
        }
        self.state
            .sessions
            .remove_state_bytes(id, bulk.kept_bytes());
        if let Some(reply) = bulk.reply() {
            add_reply_part(
                &mut self.state.turn(now, out),
                reply,
                false,
                ReplyPart::Done,
            );
        }
        if bulk.has_waiting && !self.debtors.holds_back(id) {
            out.resume(id);
        }
    }
}

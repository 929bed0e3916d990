//! One turn of a shard, from what it reads to what it sends.

use std::rc::Rc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{CloseReason, Flow, Input, StoreRequest};
use tidewire_core::entry::{
    CallAnswer, Entry, RecordOperation, RecordRead, RecordRequestKind, RpcEntry,
};
use tidewire_core::route::StoreId;
use tidewire_core::store::StoreWrite;
use tidewire_core::text::Payload;

use super::Sim;
use crate::check::{Check, Checked, Violation, ensure};
use crate::fault::Fault;
use crate::nodes::index_of;
use crate::record_model::Stamp;
use crate::right::is_guarded;
use crate::rude::is_rude;
use crate::shared::is_shared;
use crate::store::{Asked, NumberedWrite};
use crate::wire::Heard;

impl Sim {
    /// Runs one turn of a shard: it reads some connections and some of its mailbox, handles its deadlines, then sends.
    pub(super) fn turn(&mut self, shard: usize) -> Checked {
        self.outside.at = shard;
        self.take_rights(shard)?;
        if self.random.chance(50) {
            self.read_connections(shard)?;
            self.read_mailbox(shard)?;
        } else {
            self.read_mailbox(shard)?;
            self.read_connections(shard)?;
        }
        let due = self.shards[shard]
            .next_deadline()
            .is_some_and(|deadline| deadline <= self.now.monotonic);
        self.has_no_timers[shard] |= due && self.outside.faults.hits(Fault::TimerLost);
        if due && !self.has_no_timers[shard] {
            self.records.deadline_reached(shard, self.now.monotonic.0);
            self.delays_end(shard);
            self.input(shard, Input::DeadlineReached)?;
        }
        self.end_turn(shard)?;
        self.settle_rights(shard)
    }

    /// The numbered changes of a batch. After a failure the shard must send the failed batch again.
    pub(super) fn number(
        &mut self,
        shard: usize,
        store: StoreId,
        writes: &[StoreWrite],
    ) -> Result<Vec<NumberedWrite>, Violation> {
        for write in writes {
            self.is_routed(&write.name, store)?;
        }
        if let Some(failed) = self.stores.at(store).failed.remove(&shard) {
            let same = failed.iter().map(|numbered| &numbered.write).eq(writes);
            ensure(same, Check::StoreContent, || {
                format!("{failed:?} has failed, and {writes:?} comes next")
            })?;
            return Ok(failed);
        }
        let number = |write: &StoreWrite| {
            let change_count = match is_shared(&write.name) {
                true => 0,
                false => self.records.commits(shard, &write.name, &write.change)?,
            };
            Ok(NumberedWrite {
                write: write.clone(),
                change_count,
            })
        };
        writes.iter().map(number).collect()
    }

    pub(super) fn end_turn(&mut self, shard: usize) -> Checked {
        self.shards[shard].end_turn(self.now, &mut self.outside);
        for (shard, request) in std::mem::take(&mut self.outside.store_requests) {
            let (store, asked) = match request {
                StoreRequest::Scan { .. }
                | StoreRequest::Find { .. }
                | StoreRequest::Index { .. } => {
                    panic!("this simulation makes no queries")
                }
                StoreRequest::Load { store, names } => {
                    for name in &names {
                        self.is_routed(name, store)?;
                    }
                    (store, Asked::Load(names))
                }
                StoreRequest::Commit {
                    store,
                    batch,
                    writes,
                } => {
                    let writes = self.number(shard, store, &writes)?;
                    let asked = Asked::Commit {
                        store,
                        batch,
                        writes,
                    };
                    (store, asked)
                }
            };
            let astray = self.outside.faults.hits(Fault::CommitAstray)
                && matches!(asked, Asked::Commit { .. });
            let store = match astray {
                true => StoreId(1 - store.0),
                false => store,
            };
            self.stores.at(store).ask(shard, asked);
        }
        self.flush(shard)
    }

    pub(super) fn flush(&mut self, shard: usize) -> Checked {
        let mut deliveries = Vec::new();
        // A large flush is sent in parts, with further decisions in between.
        let count = match self.calm || self.random.chance(70) {
            true => usize::MAX,
            false => self.random.below(4),
        };
        self.shards[shard].flush_some(count, |session, format, spans| {
            for span in spans {
                for log_index in span.start..span.end {
                    deliveries.push((session, format, log_index as usize));
                }
            }
        });
        for (session, format, log_index) in deliveries {
            let heard = self.outside.logs[shard][usize::from(format.0)][log_index].clone();
            self.log_index = log_index;
            if matches!(heard, Heard::Found { .. })
                && self.outside.faults.hits(Fault::ListenNoticeLate)
            {
                self.late.push((session, heard));
            } else {
                self.deliver(session, heard)?;
            }
        }
        Ok(())
    }

    pub(super) fn read_mailbox(&mut self, shard: usize) -> Checked {
        let outside = &mut self.outside;
        outside.faults.reorder(&mut outside.mailboxes[shard]);
        let seen = self.random.below(self.outside.mailboxes[shard].len() + 1);
        for _ in 0..seen {
            let Some(entry) = self.outside.mailboxes[shard].pop_front() else {
                break;
            };
            self.take(shard, entry)?;
        }
        Ok(())
    }

    pub(super) fn take(&mut self, shard: usize, entry: Entry) -> Checked {
        if let Entry::RecordRequest(request) = &entry
            && !is_about_others(&request.what)
        {
            let now = self.now.monotonic.0;
            for request in self.records.taken(shard, request)? {
                self.records.arrive(shard, now, request)?;
            }
        }
        match &entry {
            Entry::RecordRequest(request) => {
                if let RecordRequestKind::One(name, RecordOperation::Write(write)) = &request.what
                    && is_guarded(name)
                {
                    let id = write.correlation.as_deref().unwrap_or_default();
                    self.rights.authorized_write(name, id, shard);
                }
                if let RecordRequestKind::One(name, RecordOperation::Write(write)) = &request.what
                    && is_shared(name)
                {
                    let id = write.correlation.as_deref().unwrap_or_default();
                    self.shared.arrive(name, id);
                }
            }
            Entry::Rights(marker) if !self.outside.faults.is_on(Fault::MarkerLost) => {
                self.rights_taken_over(shard, marker.number);
            }
            Entry::Rpc(RpcEntry::Answer {
                correlation,
                what: CallAnswer::Withdrawn,
                ..
            }) => self.rpcs.turned_back(correlation),
            Entry::Online { user, session, .. } => self.presences.count(user, Some(*session)),
            Entry::Offline { user, .. } => self.presences.count(user, None),
            _ => {}
        }
        if let Entry::Publication(publication) = &entry {
            let data = publication.data.as_ref().map_or("", Payload::as_str);
            self.events.comes(shard, &publication.name, data);
        }
        for entry in self.outside.faults.spoil(entry) {
            self.input(shard, Input::Entry(entry))?;
        }
        Ok(())
    }

    pub(super) fn read_connections(&mut self, shard: usize) -> Checked {
        let sessions = self.sessions_of(shard);
        for session in sessions {
            if self.random.chance(60) {
                self.read_connection(session)?;
            }
        }
        Ok(())
    }

    pub(super) fn read_connection(&mut self, session: SessionId) -> Checked {
        if self.is_delayed(session) {
            return Ok(());
        }
        let count = self.random.below(5) + 1;
        for _ in 0..count {
            let Some(connection) = self.connections.get_mut(&session) else {
                return Ok(());
            };
            if connection.closing {
                break;
            }
            if connection.waiting && !self.outside.faults.hits(Fault::WaitIgnored) {
                break;
            }
            // The fault `WaitIgnored` takes the message behind the one that waits.
            let index = usize::from(connection.waiting);
            let Some(sent) = connection.inbox.get(index).cloned() else {
                break;
            };
            let number = connection.number + 1;
            let given = *connection.given.get_or_insert(self.summary.steps);
            self.outside.at = index_of(session.address);
            let shard = index_of(session.address);
            let flow = self.shards[shard].message(
                self.now,
                session,
                &sent.said.message(),
                &mut self.outside,
            );
            if let Some(connection) = self.connections.get_mut(&session) {
                match flow {
                    Flow::Wait => connection.waiting = true,
                    Flow::Taken => {
                        connection.number = number;
                        connection.given = None;
                        connection.inbox.remove(index);
                    }
                }
            }
            if flow == Flow::Taken {
                self.note_order(session, sent.sent);
                let stamp = Rc::new(Stamp {
                    session,
                    number,
                    seen: sent.seen.clone(),
                });
                self.taken(&stamp, &sent.said, given)?;
            }
            self.take_effects()?;
        }
        let ended = self.connections.get(&session).is_some_and(|connection| {
            connection.closing || (connection.dropped && connection.inbox.is_empty())
        });
        if ended {
            self.close(session)?;
        }
        Ok(())
    }

    pub(super) fn input(&mut self, shard: usize, input: Input) -> Checked {
        self.outside.at = shard;
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.take_effects()
    }

    /// Applies the rulings, resumptions and closes that the engine has produced.
    pub(super) fn take_effects(&mut self) -> Checked {
        for ruling in self.rulings.take() {
            self.records.ruled(self.now.monotonic.0, &ruling)?;
        }
        for session in std::mem::take(&mut self.outside.resumed) {
            if let Some(connection) = self.connections.get_mut(&session) {
                connection.waiting = false;
            }
        }
        for (session, reason) in std::mem::take(&mut self.outside.closes) {
            if matches!(reason, CloseReason::Expired | CloseReason::Revoked) {
                self.ended_by_engine(session, reason)?;
            } else if let Some(connection) = self.connections.get_mut(&session) {
                connection.dropped = true;
                connection.closing = true;
            }
        }
        Ok(())
    }
}

/// Whether a request concerns a record outside the model of records.
fn is_about_others(what: &RecordRequestKind) -> bool {
    let is_other = |name: &str| is_guarded(name) || is_rude(name) || is_shared(name);
    match what {
        RecordRequestKind::Bulk { names, .. } => names.iter().any(|one| is_other(&one.name)),
        RecordRequestKind::One(
            name,
            RecordOperation::Read(RecordRead::Right(_) | RecordRead::Version)
            | RecordOperation::Write(_),
        ) => is_other(name),
        RecordRequestKind::One(..) => false,
    }
}

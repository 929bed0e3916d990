//! Entries between shards: each is passed to its primitive.

use super::Shard;
use crate::address::SessionId;
use crate::context::{PendingReply, TurnContext};
use crate::effect::Effects;
use crate::entry::{
    Answer, Asker, Entry, HistoryEntry, PendingReplyId, QueryEntry, ReadFailed, RecordAnswer,
    ReplyAction, ReplyPart, WorkEntry,
};
use crate::handover::Handover;
use crate::history;
use crate::listen;
use crate::login;
use crate::message::{Listen, Message, Rpc};
use crate::presence;
use crate::query::owner::Subscriber;
use crate::query::reader::QueryReader;
use crate::record::owner::RecordOwner;
use crate::record::subscriber;
use crate::rpc;
use crate::scope::session as scope;
use crate::store::Version;
use crate::text::{Name, Payload};
use crate::time::Now;
use crate::{catch_up, event};

impl Shard {
    pub(super) fn entry<E: Effects>(&mut self, now: Now, entry: Entry, out: &mut E) {
        let entry = match self.handover.examines() {
            false => entry,
            true => match self.examine(now, entry, out) {
                Some(entry) => entry,
                None => return,
            },
        };
        self.examined_entry(now, entry, out);
    }

    /// Handles an entry whose names the shard holds.
    pub(super) fn examined_entry<E: Effects>(&mut self, now: Now, entry: Entry, out: &mut E) {
        if let Entry::View(entry) = entry {
            return self.view_entry(now, entry, out);
        }
        if let Entry::Rights(marker) = entry {
            self.change(now, marker.number, marker.change, out);
            self.barrier.mark(marker.from, marker.number);
            return self.pass_on(out);
        }
        if let Entry::RightsPassed { from, number } = entry {
            return self.barrier.pass(from, number);
        }
        if let Entry::RightsSent { from, number } = entry {
            return self.barrier.sent(from, number);
        }
        if let Entry::Work(entry) = entry {
            return self.work_entry(now, entry, out);
        }
        if let Entry::Value {
            name,
            asker: Asker::Session(session),
            value,
        } = entry
        {
            if value_read(
                &mut self.state.turn(now, out),
                session,
                name,
                data_of(value),
            ) {
                self.resume(now, session, out);
            }
            return;
        }
        // The session is charged with the cost of its answer.
        let answered = match &entry {
            Entry::RecordAnswer(answer) => Some(answer.session),
            Entry::ReplyPart { reply, .. } => self.state.pending_replies.session(*reply),
            _ => None,
        };
        let work_before = self.state.context.work.get();
        self.primitive_entry(now, entry, out);
        if let Some(session) = answered {
            let work = self.state.context.work.get().wrapping_sub(work_before);
            self.charge(session, work);
        }
    }

    /// Passes an entry to its primitive.
    fn primitive_entry<E: Effects>(&mut self, now: Now, entry: Entry, out: &mut E) {
        let Self {
            state,
            records,
            listens,
            rpcs,
            presences,
            scopes,
            histories,
            queries,
            backends,
            rates,
            user_rates,
            reauthorizer,
            handover,
            ..
        } = self;
        let turn = &mut state.turn(now, out);
        match entry {
            Entry::RateAsked {
                user,
                operation,
                shard,
            } => user_rates.asked(turn, user, operation, shard),
            Entry::RateGranted {
                user,
                operation,
                count,
            } => rates.granted(turn, &user, operation, count),
            Entry::Publication(publication) => event::deliver_posted(turn, publication, None),
            Entry::PresenceChanged(change) => presence::deliver(turn, &change),
            Entry::History(entry) => match entry {
                HistoryEntry::Publish {
                    publication,
                    publisher,
                } => histories.publish(turn, publication, publisher),
                HistoryEntry::Read(read) => histories.read(turn, *read),
                HistoryEntry::Refused { publisher, name } => {
                    event::refuse_publication(turn, publisher, &name);
                }
                HistoryEntry::Sweep(name) => histories.sweep(turn, &name),
                HistoryEntry::Release { name, shard } => histories.release(turn, &name, shard),
                HistoryEntry::Published {
                    publication,
                    except,
                } => {
                    let rare = publication.rare.as_ref();
                    if let Some(offset) = rare.and_then(|rare| rare.offset) {
                        history::subscriber::note_shown(turn, &publication.name, offset);
                    }
                    event::deliver_posted(turn, publication, Some(except));
                }
                HistoryEntry::Page(page) => history::subscriber::page(turn, *page),
            },
            Entry::RecordRequest(request) => records.request(turn, listens, request),
            Entry::RecordRelease {
                name,
                epoch,
                session,
                serial,
            } => records.release(turn, listens, &name, epoch, (session, serial)),
            Entry::RecordAnswer(RecordAnswer {
                session,
                name,
                what: Answer::Lost { serial, why },
                ..
            }) => reauthorizer.lost(turn, session, &name, serial, why),
            Entry::RecordAnswer(RecordAnswer {
                what: Answer::Reauthorized { ticket, lost },
                ..
            }) => {
                let context = turn.shard;
                let passes =
                    |name: &str| context.is_clustered && handover.passes(context.owner(name));
                reauthorizer.record_reauthorized(turn, ticket, lost, passes);
            }
            Entry::RecordAnswer(answer) => {
                let part = answer
                    .reply
                    .map(|reply| (reply, !matches!(answer.what, Answer::Refused { .. })));
                if subscriber::answered(turn, answer)
                    && let Some((reply, allowed)) = part
                {
                    add_reply_part(turn, reply, allowed, ReplyPart::Done);
                }
            }
            Entry::RecordPublished { name, what, except } => {
                subscriber::published(turn, &name, &what, except)
            }
            Entry::ReadValue { name, asker } => records.read_value(turn, listens, name, asker),
            Entry::Value {
                name,
                asker: Asker::Lagging(session, _),
                value,
            } => catch_up::value_came(turn, session, &name, value),
            Entry::Value {
                name,
                asker: Asker::Reauthorize { ticket, .. },
                value,
            } => reauthorizer.value(turn, ticket, name, data_of(value)),
            Entry::Value {
                name,
                asker: Asker::EventRight { ticket, .. },
                value,
            } => event::value(turn, ticket, name, data_of(value)),
            Entry::Value {
                name: record,
                asker:
                    Asker::Listening {
                        topic,
                        name,
                        number,
                        ..
                    },
                value,
            } => listens.value(turn, (topic, name, number), record, data_of(value)),
            Entry::Value {
                name,
                asker: Asker::Record { name: waiting, .. },
                value,
            } => {
                records.value(turn, listens, &waiting, name, data_of(value));
            }
            Entry::Value {
                name,
                asker: Asker::Query { run, .. },
                value,
            } => queries.value(turn, run, name, data_of(value)),
            Entry::Backend(entry) => backends.entry(turn, entry),
            Entry::Query(entry) => query_entry(turn, &self.handover, records, queries, entry),
            Entry::Scope(entry) if entry.is_for_owner() => scopes.handle(turn, entry),
            Entry::Scope(entry) => scope::handle(turn, entry),
            Entry::Listening(entry) => listens.handle(turn, entry),
            Entry::ListenNotice {
                provider,
                topic,
                pattern,
                name,
                notice,
            } => {
                listen::notify(turn, provider, topic, &pattern, &name, notice);
            }
            Entry::Rpc(entry) => rpcs.handle(turn, entry),
            Entry::RpcDelivery(delivery) => rpc::deliver(turn, &delivery),
            Entry::Online {
                user,
                session,
                reply,
            } => presences.opened(turn, &user, session, reply),
            Entry::Offline { user, shard } => presences.ended(turn, &user, shard),
            Entry::PresenceQuery { reply, users } => presences.query(turn, reply, users),
            Entry::ReplyPart { reply, part } => add_reply_part(turn, reply, true, part),
            Entry::SessionEnded { session } => {
                listens.session_ended(turn, session);
                rpcs.session_ended(turn, session);
            }
            // Handled above.
            Entry::Rights(_)
            | Entry::RightsPassed { .. }
            | Entry::RightsSent { .. }
            | Entry::Work(_)
            | Entry::View(_) => {}
            // Only nodes post it, and their links end at `Input::Linked`.
            Entry::Interest(_) | Entry::Exchange(_) => {}
            Entry::Value {
                asker: Asker::Session(_),
                ..
            } => {}
        }
    }

    /// Handles deferred requests: at the owner, and at the shard of their session.
    fn work_entry<E: Effects>(&mut self, now: Now, entry: WorkEntry, out: &mut E) {
        match entry {
            WorkEntry::Deferred {
                session,
                owner,
                work,
            } => {
                self.owe(session, work);
                if self.debtors.has(session) {
                    self.debtors.deferred_by(session, owner);
                } else {
                    // The session has ended before its shard knew of this owner.
                    let ended = WorkEntry::SessionEnded { session };
                    self.state.turn(now, out).post(owner, Entry::Work(ended));
                }
            }
            WorkEntry::Proceed { session } => {
                let mut turn = self.state.turn(now, out);
                self.records.proceed(&mut turn, &mut self.listens, session);
            }
            WorkEntry::Proceeded {
                session,
                owner,
                work,
                is_done,
            } => {
                if self.debtors.proceeded(session, owner, work, is_done) {
                    out.await_drained(session);
                }
            }
            WorkEntry::SessionEnded { session } => self.records.session_ended(session),
        }
    }
}

/// Passes an entry about a query to the owner of records, the owner of the query or the session's shard.
fn query_entry<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    handover: &Handover,
    records: &mut RecordOwner,
    queries: &mut QueryReader,
    entry: QueryEntry,
) {
    match entry {
        QueryEntry::Collect {
            run,
            reader,
            prefix,
            query,
        } => records.collect(turn, run, reader, prefix, &query),
        QueryEntry::Collected {
            run,
            shard,
            rows,
            is_last,
        } => queries.collected(turn, run, shard, rows, is_last),
        QueryEntry::Subscribe {
            session,
            serial,
            principal,
            prefix,
            query,
        } => {
            let subscriber = Subscriber {
                session,
                serial,
                principal,
                prefix,
                text: query,
            };
            match handover.is_behind(session.address) {
                true => queries.defer(subscriber),
                false => queries.subscribe(turn, subscriber),
            }
        }
        QueryEntry::Release { session, serial } => queries.release(turn, session, serial),
        QueryEntry::Refresh { session, serial } => queries.refresh(turn, session, serial),
        QueryEntry::Snapshot {
            session,
            serial,
            owner,
            query,
            data,
        } => {
            let subscriptions = &mut queries.subscriptions;
            subscriptions.snapshot(turn, (session, serial), (owner, query), &data);
        }
        QueryEntry::Ended {
            session,
            serial,
            reason,
            data,
        } => {
            let subscriptions = &mut queries.subscriptions;
            subscriptions.ended(turn, (session, serial), reason, &data);
        }
        QueryEntry::Changed { owner, query, data } => {
            queries.subscriptions.changed(turn, (owner, query), &data);
        }
        QueryEntry::Watch {
            query,
            owner,
            prefix,
            text,
            principal,
        } => records.watch((owner, query), prefix, &text, principal),
        QueryEntry::Unwatch {
            query,
            owner,
            prefix,
        } => records.unwatch((owner, query), &prefix),
        QueryEntry::Written { query, row } => queries.reported(turn, query, vec![row]),
    }
}

/// Rules do not use versions.
fn data_of(
    value: Result<Option<(Version, Payload)>, ReadFailed>,
) -> Result<Option<Payload>, ReadFailed> {
    value.map(|value| value.map(|(_, data)| data))
}

/// Handles the value that a session's rule requested. Returns whether its message continues, because no other value is on its way for it.
fn value_read<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: Name,
    value: Result<Option<Payload>, ReadFailed>,
) -> bool {
    let Some(session) = turn.sessions.find_mut(id) else {
        return false;
    };
    let reads = &mut session.state(turn.shard.seed).rule_reads;
    if let Some(bulk_authorization) = &mut reads.bulk_authorization {
        return bulk_authorization.take(&name, &value);
    }
    match value {
        Ok(value) => reads.values.push((name, value)),
        Err(ReadFailed) => reads.failed = true,
    }
    true
}

/// Counts one part of a pending reply, and sends the reply after the last part.
pub(super) fn add_reply_part<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    reply: PendingReplyId,
    was_allowed: bool,
    part: ReplyPart,
) {
    let Some(running) = turn.pending_replies.running.get_mut(&reply.number) else {
        return;
    };
    running.missing -= 1;
    match (&mut running.what, part) {
        // After sorting, no name is left, and the part continues only with the denials.
        (ReplyAction::Record(records), ReplyPart::Done) if !records.is_sorted => {
            records.allowed |= was_allowed;
        }
        (ReplyAction::Presence { online, .. }, ReplyPart::Users(mut users)) => {
            online.append(&mut users)
        }
        _ => {}
    }
    if running.missing > 0 {
        return;
    }
    let Some(done) = turn.pending_replies.running.remove(&reply.number) else {
        return;
    };
    let id = done.session;
    match done.what {
        ReplyAction::Login => login::counted(turn, id),
        ReplyAction::Record(records) => {
            let (whole, allowed) = (records.whole, records.allowed);
            if let Some(rest) = subscriber::finish(turn, id, records) {
                let more = PendingReply {
                    session: id,
                    missing: 1,
                    what: ReplyAction::Record(rest),
                };
                turn.pending_replies.running.insert(reply.number, more);
                turn.part_done(reply, ReplyPart::Done);
            } else if let Some(whole) = whole {
                add_reply_part(turn, whole, allowed, ReplyPart::Done);
            }
        }
        ReplyAction::Ack(ack) => turn.send_ack(id, &ack),
        ReplyAction::Listen { topic, pattern } => {
            turn.send(
                id,
                &listen::wrap(topic, Listen::ListenAck { pattern: &pattern }),
            );
        }
        ReplyAction::Unlisten { topic, pattern } => {
            turn.send(
                id,
                &listen::wrap(topic, Listen::UnlistenAck { pattern: &pattern }),
            );
        }
        ReplyAction::Provide {
            provide,
            correlation,
        } => {
            turn.send(
                id,
                &Message::Rpc(Rpc::Ack {
                    provide,
                    correlation: correlation.as_deref(),
                }),
            );
        }
        ReplyAction::Presence {
            action,
            correlation,
            asked,
            online,
        } => {
            presence::answer(turn, id, action, correlation.as_deref(), &asked, online);
        }
    }
}

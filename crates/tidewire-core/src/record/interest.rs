//! The subscriptions of a record at its owner: which shards have subscribers, and how many.
//!
//! The session's side of a subscription is in `subscriber`. Subscribers whose read right depends on data are in `readers` as well.

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Answer, Entry, Published, RecordRefusal, Resumed, Snapshot};
use crate::listen::ListenOwner;
use crate::message::{RecordBulk, Topic};
use crate::permission::{Access, Authorization};
use crate::query::collection::is_under;
use crate::record::apply::Writer;
use crate::record::authorize::refuse_by_rule;
use crate::record::change;
use crate::record::job::{Job, Resume, Subscribe};
use crate::record::owner::RecordOwner;
use crate::record::request::{Step, answer, authorize, publish, refuse};
use crate::record::state::{Interest, Value};
use crate::shard_counts::ShardCounts;
use crate::store::{StoredRecord, Version};
use crate::text::{Name, Payload};

impl RecordOwner {
    pub(super) fn subscribe<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job<Subscribe>,
        mut value: Value,
    ) -> Step {
        let action = job.kind.action;
        let creates =
            action == RecordBulk::SubscribeCreateAndRead && matches!(value, Value::Missing);
        // The read right is checked first, on the record as it would be created: a session that may not read gets one answer for all names.
        let empty = creates.then(|| Payload::from_checked(change::EMPTY));
        let seen = empty.as_ref().or(value.data());
        let read = Access::RecordRead;
        match authorize(turn, &mut job, read, name, None, seen) {
            Authorization::Allow => {}
            authorization => return refuse_by_rule(turn, name, job, read, authorization, &value),
        }
        if let Some(data) = empty {
            let create = Access::RecordCreate;
            match authorize(turn, &mut job, create, name, None, None) {
                Authorization::Allow => {}
                authorization => {
                    return refuse_by_rule(turn, name, job, create, authorization, &value);
                }
            }
            let created = StoredRecord {
                incarnation: self.new_incarnation(turn, name),
                version: Version::CREATED,
                data,
                write_keys: None,
            };
            if !self.has_room(turn, &[(name, &value, created.data.len())], &job.principal) {
                refuse(turn, name, job, RecordRefusal::CreateFailed);
                return Step::Done;
            }
            value = Value::Present(created);
            let by = Writer::new(job.session, &job.principal);
            self.put(turn, name, value.clone(), by, None, None);
        }
        let Subscribe {
            serial,
            reply,
            correlation,
            ..
        } = job.kind;
        let snapshot = match action {
            RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead => value.snapshot(),
            RecordBulk::SubscribeAndHead => Snapshot::Head(value.version()),
            _ => Snapshot::Nothing,
        };
        let reads_head = matches!(snapshot, Snapshot::Head(_));
        let what = match serial {
            None => Answer::Snapshot(snapshot),
            Some(serial) => {
                let epoch = self.add_interest(turn, listens, name, job.session.address);
                self.add_reader(turn, name, (job.session, serial), &job.principal);
                let provided = listens.is_provided(Topic::Record, name);
                let tag = value.tag().filter(|_| turn.shard.is_clustered);
                let snapshot = match (snapshot, tag) {
                    (Snapshot::Nothing, Some(tag)) => Snapshot::Known(tag),
                    (snapshot, _) => snapshot,
                };
                Answer::Granted {
                    serial,
                    epoch,
                    provided,
                    value_bytes: value.data().map_or(0, Payload::len),
                    snapshot,
                    action,
                    correlation,
                }
            }
        };
        answer(turn, job.session, name, reply, what);
        if reads_head
            && turn.shard.is_clustered
            && let Value::Present(record) = &value
        {
            // The shard knows the version already.
            let created = Entry::RecordPublished {
                name: name.clone(),
                what: Published::Created(record.incarnation),
                except: None,
            };
            turn.post(job.session.address, created);
        }
        Step::Done
    }

    /// Continues a subscription that the former owner of the record has granted.
    pub(super) fn resume<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job<Resume>,
        value: &Value,
    ) -> Step {
        let read = Access::RecordRead;
        match authorize(turn, &mut job, read, name, None, value.data()) {
            Authorization::Allow => {}
            authorization => return refuse_by_rule(turn, name, job, read, authorization, value),
        }
        let Resume { serial, shown } = job.kind;
        let Some(serial) = serial else {
            return Step::Done;
        };
        let epoch = self.add_interest(turn, listens, name, job.session.address);
        self.add_reader(turn, name, (job.session, serial), &job.principal);
        let tag = value.tag();
        // All whole values under these prefixes have one version.
        let is_hot = is_under(&turn.shard.settings.hot_path_prefixes, name);
        let is_shown = tag == shown && (tag.is_none() || !is_hot);
        let snapshot = match is_shown {
            true => Snapshot::Nothing,
            false => value.snapshot(),
        };
        let resumed = Resumed {
            serial,
            epoch,
            provided: listens.is_provided(Topic::Record, name),
            shown,
            snapshot,
        };
        let resumed = Answer::Resumed(Box::new(resumed));
        answer(turn, job.session, name, None, resumed);
        Step::Done
    }

    fn add_interest<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        shard: Address,
    ) -> u64 {
        let Some(record) = self.table.get_mut(name) else {
            return 0;
        };
        let first = record.interest.shards.is_empty();
        record.interest.shards.add(shard);
        if first {
            listens.record_wanted(turn, name, shard.node);
        }
        record.interest.epoch
    }

    /// Ends a subscription of a session.
    pub(crate) fn release<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        epoch: u64,
        (session, serial): (SessionId, u32),
    ) {
        let Some(mut record) = self.table.get_mut(name) else {
            return;
        };
        if record.interest.epoch != epoch {
            return;
        }
        // The session's shard may have requested to reauthorize the subscription.
        for job in record.waiting.iter_mut().flat_map(|waits| &mut waits.jobs) {
            job.forget_subscription(session, serial);
        }
        if record.has_readers {
            self.remove_reader(name, session, serial);
            let Some(kept) = self.table.get_mut(name) else {
                return;
            };
            record = kept;
        }
        if !record.interest.shards.remove(session.address) {
            return turn.shard.count_underflow();
        }
        if record.interest.shards.is_empty() {
            listens.record_unwanted(turn, name);
            self.settle(turn, name);
        }
    }

    /// Ends the subscriptions of a lost node's sessions.
    pub(crate) fn node_lost<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        node: u16,
    ) {
        self.defer_lost(node);
        let mut lost = Vec::new();
        for (name, record) in self.table.iter_mut() {
            let jobs = record.waiting.iter_mut().flat_map(|waits| &mut waits.jobs);
            for job in jobs.filter(|job| job.session.address.node == node) {
                job.session_lost();
            }
            if record.interest.shards.remove_node(node) {
                lost.push((name.clone(), record.interest.shards.is_empty()));
            }
        }
        lost.sort_unstable();
        for (name, is_unwanted) in lost {
            self.remove_lost_readers(&name, node);
            if is_unwanted {
                listens.record_unwanted(turn, &name);
                self.settle(turn, &name);
            }
        }
    }

    /// Publishes to all subscribers but one that the record is gone, and ends all subscriptions.
    pub(super) fn end_subscriptions<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        except: Option<SessionId>,
    ) {
        let epoch = self.new_epoch();
        self.drop_readers(name);
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        let ended = std::mem::replace(
            &mut record.interest,
            Interest {
                epoch,
                shards: ShardCounts::default(),
            },
        );
        if !ended.shards.is_empty() {
            publish(turn, name, &ended, &Published::Deleted, except);
            listens.record_unwanted(turn, name);
        }
    }
}

//! Writes of records at their owner: the decision on each change, and the new value that follows from it.
//!
//! The rules decide first, then the condition on the version or state, then the limits. A change is published before the new value
//! replaces the old one, and before any answer.

use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, OwnedChange, OwnedKey, OwnedPut, OwnedWrite, Published, RecordOperation, RecordRefusal,
    Stored,
};
use crate::json::PatchError;
use crate::listen::ListenOwner;
use crate::message::{Only, RecordAction, Tag};
use crate::permission::{Access, Authorization};
use crate::principal::Principal;
use crate::query::collection::is_under;
use crate::quota::QuotaLimit;
use crate::record::authorize::{authorize_read, refuse_by_rule, refuse_change};
use crate::record::change;
use crate::record::job::{Delete, Job, JobKind};
use crate::record::owner::RecordOwner;
use crate::record::repeat::RepeatKey;
use crate::record::request::{Asking, Given, Step, answer, ask, authorize, publish, refuse};
use crate::record::state::{Blocked, Value};
use crate::record::waiter::{Requested, Waiter};
use crate::store::{Expected, StoredKey, StoredRecord, Version, WriteKeys};
use crate::text::{Name, Payload};
use tidewire_collections::share::Share;

/// A value of this size or more is written only if the node's memory budget has room for it. A session may have this many bytes kept in any
/// case.
const LARGE_VALUE_BYTES: usize = 64 << 10;

/// The session that makes a change, and its user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'w> {
    pub(super) session: SessionId,
    pub(super) principal: &'w Principal,
    /// Whether the session gets the change if it is subscribed. Sessions apply their own writes themselves.
    pub(super) gets_change: bool,
}

impl<'w> Writer<'w> {
    pub(super) fn new(session: SessionId, principal: &'w Principal) -> Self {
        Self {
            session,
            principal,
            gets_change: false,
        }
    }

    /// The session that does not get the change.
    pub(super) fn except(self) -> Option<SessionId> {
        (!self.gets_change).then_some(self.session)
    }
}

impl RecordOwner {
    pub(super) fn delete<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job<Delete>,
        value: &Value,
    ) -> Step {
        let access = Access::RecordDelete;
        match authorize(turn, &mut job, access, name, None, value.data()) {
            Authorization::Allow => {}
            authorization => return refuse_by_rule(turn, name, job, access, authorization, value),
        }
        let deadline = turn.now.monotonic + turn.shard.settings.write_timeout;
        let waiter = Waiter {
            session: job.session,
            deadline,
            action: RecordAction::Delete,
            correlation: None,
            request: Requested::Change,
        };
        if matches!(value, Value::Missing) {
            self.end_subscriptions(turn, listens, name, Some(job.session));
            // An earlier delete may still be on its way to the store.
            if self
                .write_queue_mut(turn, name)
                .commits
                .wait(name, waiter)
                .is_some()
            {
                answer(turn, job.session, name, None, Answer::Deleted);
            }
            return Step::Done;
        }
        if !self.has_room(turn, &[(name, value, 0)], &job.principal) {
            refuse(turn, name, job, RecordRefusal::DeleteFailed);
            return Step::Done;
        }
        self.end_subscriptions(turn, listens, name, Some(job.session));
        let by = Writer::new(job.session, &job.principal);
        self.put(turn, name, Value::Missing, by, Some(waiter), None);
        Step::Done
    }

    pub(super) fn write<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        mut job: Job<Box<OwnedWrite>>,
        value: &Value,
    ) -> Step {
        let write = &job.kind;
        if let Some(key) = &write.key
            && self.is_made(name, value, &job.principal, key)
        {
            self.answer_repeated(turn, name, job);
            return Step::Done;
        }
        let seen = write.key.as_ref().and_then(|key| key.seen);
        let (action, version, upserts) = (write.action, write.version, write.write_ack);
        let creates = matches!(
            action,
            RecordAction::CreateAndUpdate | RecordAction::CreateAndPatch
        );
        let upserts = creates || upserts;
        let hot = creates && is_under(&turn.shard.settings.hot_path_prefixes, name);
        let access = match action {
            RecordAction::Erase => Access::RecordDelete,
            _ => Access::RecordWrite,
        };
        let old = value.data();
        // If a rule can decide without the new value, the owner does not compute it: a denial then costs no patch of the record.
        let new = job.new_value();
        let asking = Asking {
            access,
            by: action,
            data: job.given(new.as_ref()),
            old: Given::Known(old),
            may_wait: true,
        };
        let early = ask(turn, &mut job, name, asking);
        match early {
            None | Some(Authorization::Allow) => {}
            Some(authorization) => {
                return refuse_by_rule(turn, name, job, access, authorization, value);
            }
        }
        if early.is_none() {
            let Some(after) = change_of(turn, &job.kind, old) else {
                return refuse_change(turn, name, job, value);
            };
            job.after = Some(after.clone());
            match authorize(turn, &mut job, access, name, Some(&after), old) {
                Authorization::Allow => {}
                authorization => {
                    return refuse_by_rule(turn, name, job, access, authorization, value);
                }
            }
        }
        // Checked only now: a denied write must not ask a question that depends on whether the record exists.
        if creates || (old.is_none() && upserts) {
            let create = Access::RecordCreate;
            match authorize(turn, &mut job, create, name, new.as_ref(), old) {
                Authorization::Allow => {}
                authorization => {
                    return refuse_by_rule(turn, name, job, create, authorization, value);
                }
            }
        }
        if hot && action == RecordAction::CreateAndPatch {
            refuse(turn, name, job, RecordRefusal::PatchOnHotPath);
            return Step::Done;
        }
        if old.is_none() && !upserts {
            refuse(turn, name, job, RecordRefusal::UpdateFailed);
            return Step::Done;
        }
        // The rules come first: a session that may not write the record must not learn whether others have written it.
        if seen.is_some_and(|seen| value.may_have_made(seen)) {
            refuse(turn, name, job, RecordRefusal::WriteUnknown);
            return Step::Done;
        }
        if let Some(version) = version.filter(|_| !hot)
            && version != next_of(value)
        {
            return answer_conflict(turn, name, job, version, value);
        }
        let after = job.new_value().or_else(|| change_of(turn, &job.kind, old));
        let Some(after) = after else {
            refuse(turn, name, job, RecordRefusal::InvalidData);
            return Step::Done;
        };
        if !self.has_room(turn, &[(name, value, after.len())], &job.principal) {
            refuse(turn, name, job, RecordRefusal::UpdateFailed);
            return Step::Done;
        }
        let (session, principal) = (job.session, job.principal);
        let by = Writer::new(session, &principal);
        let key = job.kind.key.clone();
        self.apply(turn, name, by, *job.kind, value, after, hot);
        if let Some(key) = key {
            let settings = &turn.shard.settings;
            let (count_max, age_max) = (settings.limits.write_keys_max, settings.write_key_age);
            let share = Share::of(session, &principal);
            let key = repeat_key(name, &principal, &key);
            self.repeats
                .note(key, share, turn.now.monotonic, count_max, age_max);
        }
        Step::Done
    }

    /// Whether the user has made a write of the record with this key: the record has it, or the memory of recent keys.
    fn is_made(&self, name: &Name, value: &Value, principal: &Principal, key: &OwnedKey) -> bool {
        value.has_key(&principal.user_id, &key.text)
            || self.repeats.contains(&repeat_key(name, principal, key))
    }

    /// Whether a job is a write that was made already. While the record is not loaded, only the memory of recent keys can tell.
    pub(super) fn is_repeated(&self, name: &Name, job: &Job) -> bool {
        // Few writes have a key, and only these look up the record.
        let JobKind::Requested(RecordOperation::Write(write)) = &job.kind else {
            return false;
        };
        let Some(key) = &write.key else { return false };
        let record = self.table.get(name);
        record.is_some_and(|record| self.is_made(name, &record.value, &job.principal, key))
    }

    /// Answers a repeated write like the first time, as soon as the first one is durable.
    fn answer_repeated<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        job: Job<Box<OwnedWrite>>,
    ) {
        let (session, write) = (job.session, job.kind);
        let waiter = Waiter {
            session,
            deadline: turn.now.monotonic + turn.shard.settings.write_timeout,
            action: write.action,
            correlation: write.correlation,
            request: Requested::Change,
        };
        if let Some(waiter) = self.write_queue_mut(turn, name).commits.wait(name, waiter) {
            answer(turn, session, name, None, waiter.done());
        }
    }

    /// Replaces or removes the record, if it is in the required state. The rules come first: a session that may not change the record must
    /// not learn its state.
    pub(super) fn put_if<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job<Box<OwnedPut>>,
        value: &Value,
    ) -> Step {
        let data = job.kind.data.clone();
        let accesses: &[Access] = match (&data, value) {
            (None, _) => &[Access::RecordDelete],
            (Some(_), Value::Present(_)) => &[Access::RecordWrite],
            (Some(_), _) => &[Access::RecordWrite, Access::RecordCreate],
        };
        for access in accesses {
            match authorize(turn, &mut job, *access, name, data.as_ref(), value.data()) {
                Authorization::Allow => {}
                authorization => {
                    return refuse_by_rule(turn, name, job, *access, authorization, value);
                }
            }
        }
        let (session, tag) = (job.session, value.tag());
        let is_met = is_met(job.kind.only, tag);
        if let Some(data) = data.filter(|_| is_met) {
            if !self.has_room(turn, &[(name, value, data.len())], &job.principal) {
                refuse(turn, name, job, RecordRefusal::UpdateFailed);
                return Step::Done;
            }
            let hot = is_under(&turn.shard.settings.hot_path_prefixes, name);
            let write = OwnedWrite {
                version: None,
                correlation: Some(job.kind.correlation),
                write_ack: true,
                action: RecordAction::CreateAndUpdate,
                change: OwnedChange::Update(data.clone()),
                put: Some(tag.is_some()),
                key: None,
            };
            let by = Writer::new(session, &job.principal);
            self.apply(turn, name, by, write, value, data, hot);
            return Step::Done;
        }
        if is_met
            && !matches!(value, Value::Missing)
            && !self.has_room(turn, &[(name, value, 0)], &job.principal)
        {
            refuse(turn, name, job, RecordRefusal::DeleteFailed);
            return Step::Done;
        }
        let correlation = job.kind.correlation;
        if !is_met {
            let failed = Answer::PreconditionFailed { correlation, tag };
            answer(turn, session, name, None, failed);
            return Step::Done;
        }
        let waiter = Waiter {
            session,
            deadline: turn.now.monotonic + turn.shard.settings.write_timeout,
            action: RecordAction::Delete,
            correlation: Some(correlation),
            request: Requested::Put(Stored {
                existed: tag.is_some(),
                tag: None,
            }),
        };
        self.end_subscriptions(turn, listens, name, Some(session));
        if tag.is_some() {
            let by = Writer::new(session, &job.principal);
            self.put(turn, name, Value::Missing, by, Some(waiter), None);
        } else if let Some(waiter) = self.write_queue_mut(turn, name).commits.wait(name, waiter) {
            // No earlier delete is on its way to the store.
            answer(turn, session, name, None, waiter.done());
        }
        Step::Done
    }

    /// Makes a write for which there is room.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one decided write, used twice"
    )]
    fn apply<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        by: Writer<'_>,
        write: OwnedWrite,
        before: &Value,
        after: Payload,
        hot: bool,
    ) {
        let key = write.key.map(|key| (by.principal, key));
        let written = self.record_after(turn, name, before, after, key, hot);
        let request = write.put.map_or(Requested::Change, |existed| {
            let tag = Some(written.tag());
            Requested::Put(Stored { existed, tag })
        });
        let waiter = write.write_ack.then_some(Waiter {
            session: by.session,
            deadline: turn.now.monotonic + turn.shard.settings.write_timeout,
            action: write.action,
            correlation: write.correlation,
            request,
        });
        self.keep(turn, name, by, before, (written, write.change), waiter);
    }

    /// The record after a write. If the write has a key, it comes with the principal that has chosen it.
    pub(super) fn record_after<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        before: &Value,
        data: Payload,
        key: Option<(&Principal, OwnedKey)>,
        hot: bool,
    ) -> StoredRecord {
        let (incarnation, current, keys) = match before {
            Value::Present(record) => (
                record.incarnation,
                record.version,
                record.write_keys.clone(),
            ),
            _ => (self.new_incarnation(turn, name), Version::CREATED, None),
        };
        let version = if hot {
            Version::CREATED
        } else {
            current.next()
        };
        let stored_key = key.map(|(principal, key)| StoredKey {
            user: principal.user_id.clone(),
            key: key.text,
            version,
        });
        // In most records versions grow. Version 1 follows the last one, and under a hot-path prefix whole values have version 0.
        let is_ordered = version > current
            && !(stored_key.is_some() && is_under(&turn.shard.settings.hot_path_prefixes, name));
        StoredRecord {
            incarnation,
            version,
            data,
            write_keys: keys_after(keys, stored_key, is_ordered),
        }
    }

    /// Replaces `before` with the written record, and publishes the change to the subscribers.
    pub(super) fn keep<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        by: Writer<'_>,
        before: &Value,
        (written, change): (StoredRecord, OwnedChange),
        waiter: Option<Waiter>,
    ) {
        // Where the version numbers start again, a client can't apply a patch and needs the whole value.
        let change = match before.version() {
            Some(current) if current >= Version::LAST => OwnedChange::Update(written.data.clone()),
            _ => change,
        };
        if turn.shard.is_clustered
            && !matches!(before, Value::Present(_))
            && let Some(record) = self.table.get(name)
        {
            let created = Published::Created(written.incarnation);
            publish(turn, name, &record.interest, &created, None);
        }
        let what = Published::Changed {
            version: written.version,
            change,
            full: written.data.clone(),
        };
        let value = Value::Present(written);
        self.put(turn, name, value, by, waiter, Some(what));
    }

    /// Whether new values, each with its record and the value before it and with its bytes, have room together: among the changes that
    /// are not in the store yet, and in the store. The records are in one store, or all in memory only. Changes that do not enlarge the
    /// records always have room in the store.
    pub(super) fn has_room<E: Effects>(
        &self,
        turn: &TurnContext<'_, E>,
        changes: &[(&Name, &Value, usize)],
        principal: &Principal,
    ) -> bool {
        let settings = &turn.shard.settings;
        let limits = &settings.limits;
        let Some((first, ..)) = changes.first() else {
            return true;
        };
        let bytes: usize = changes.iter().map(|(.., bytes)| bytes).sum();
        // Small writes are bounded by the number of records that are not stored yet.
        if bytes >= LARGE_VALUE_BYTES && !turn.shard.has_memory(0, bytes) {
            return false;
        }
        if is_under(&settings.memory_only_prefixes, first) {
            let kept: usize = changes.iter().map(|(_, before, _)| before.bytes()).sum();
            let has_room = self.memory_only_bytes - kept + bytes <= limits.cache_bytes_max;
            if !has_room {
                turn.shard.count(|refused| refused.dirty += 1);
            }
            return has_room;
        }
        let commits = &self.write_queues.of(&settings.routes, first).commits;
        let written = changes
            .iter()
            .map(|(name, _, bytes)| (*name, name.len() + bytes));
        if !commits.has_room(written, limits.dirty_records_max, limits.dirty_bytes_max) {
            turn.shard.count(|refused| refused.dirty += 1);
            return false;
        }
        let old: usize = changes
            .iter()
            .map(|(_, before, _)| before.data().map_or(0, Payload::len))
            .sum();
        if bytes <= old {
            return true;
        }
        let names: usize = changes.iter().map(|(name, ..)| name.len()).sum();
        let uncommitted = commits.bytes() + names + bytes - old;
        let store = settings.routes.find(first);
        let limit = turn
            .shard
            .quotas
            .limit(store, uncommitted, &principal.user_id);
        match limit {
            None => return true,
            Some(QuotaLimit::Store) => turn.shard.count(|refused| refused.store_full += 1),
            Some(QuotaLimit::User) => turn.shard.count(|refused| refused.user_store_full += 1),
        }
        false
    }

    /// Keeps a new value that a session of a user has written, publishes `published` to the subscribers, and queues the value for the
    /// store. If the answer can be sent at once, it follows the change that it confirms.
    pub(super) fn put<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        value: Value,
        by: Writer<'_>,
        waiter: Option<Waiter>,
        published: Option<Published>,
    ) {
        let Some(mut record) = self.table.get_mut(name) else {
            return;
        };
        // The change is published before the value is replaced and before any answer. Both are posted in this order, so a session that gets
        // its answer finds the change already on its way to every subscriber. If rights depend on data, publishing authorizes the
        // subscribers and needs the whole owner, so the record is looked up again. `before` becomes the expectation at the store only
        // if the record was clean; otherwise the store has an even earlier state, which `Commits` knows.
        match published {
            Some(what) if record.has_readers => {
                self.publish(turn, name, what, by.except());
                let Some(kept) = self.table.get_mut(name) else {
                    return;
                };
                record = kept;
            }
            Some(what) => publish(turn, name, &record.interest, &what, by.except()),
            None => {}
        }
        if !self.watched.is_empty() {
            self.watched.written(turn, name, &record.value, &value);
        }
        let old = record.value.bytes();
        let new = value.bytes();
        let before = record.value.expected();
        record.value = value;
        self.cache.bytes = self.cache.bytes - old + new;
        if !is_under(&turn.shard.settings.memory_only_prefixes, name) {
            record.is_dirty = true;
            let share = Share::of(by.session, by.principal);
            return self.queue_value(turn, name, before, new, share, waiter);
        }
        let exists = matches!(record.value, Value::Present(_));
        self.memory_only_bytes = self.memory_only_bytes - old + new;
        self.note_memory_only(name, exists);
        // There is no commit to wait for: such a record is kept in memory only.
        if let Some(waiter) = waiter {
            answer(turn, waiter.session, name, None, waiter.done());
        }
    }

    /// Queues the value of a record, which has `bytes`, for its store. If the record was clean, the store has the state `before`.
    pub(super) fn queue_value<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        before: Expected,
        bytes: usize,
        share: Share,
        waiter: Option<Waiter>,
    ) {
        let key = self.repeats.next();
        let commits = &mut self.write_queue_mut(turn, name).commits;
        commits.add(name, before, name.len() + bytes, key, share, waiter);
    }
}

/// Whether a record in this state meets a condition.
pub(super) fn is_met(only: Only, tag: Option<Tag>) -> bool {
    match only {
        Only::Always => true,
        Only::Missing => tag.is_none(),
        Only::Present => tag.is_some(),
        Only::Is(wanted) => tag == Some(wanted),
    }
}

/// The version that the next write makes.
fn next_of(value: &Value) -> Version {
    value.version().unwrap_or(Version::CREATED).next()
}

/// The record after a write. If the record can't take the change, the refusal is counted and the result is `None`.
fn change_of<E: Effects>(
    turn: &TurnContext<'_, E>,
    write: &OwnedWrite,
    old: Option<&Payload>,
) -> Option<Payload> {
    let before = old.map_or(change::EMPTY, Payload::as_str);
    turn.shard.count_work(write.change.work(before));
    let after = change::apply(before, &write.change, turn.shard.json_limits());
    after
        .inspect_err(|error| {
            turn.shard.count(|refused| match error {
                PatchError::TooDeep => refused.too_deep += 1,
                PatchError::TooLarge => refused.too_large += 1,
                PatchError::ArrayGap => refused.array_gaps += 1,
                _ => refused.malformed += 1,
            });
        })
        .ok()
}

/// Refuses a write that expected to make another version. Only a session that may read the record gets the current value.
fn answer_conflict<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job<Box<OwnedWrite>>,
    version: Version,
    value: &Value,
) -> Step {
    let current = value.version().unwrap_or(Version::CREATED);
    let exists = version <= current;
    let sight = match exists {
        true => authorize_read(turn, &mut job, name, value),
        false => Authorization::Deny,
    };
    if sight == Authorization::Wait {
        return Step::blocked(job, Blocked::Rule);
    }
    let OwnedWrite {
        action,
        correlation,
        write_ack,
        ..
    } = *job.kind;
    let conflict = if exists {
        let data = value.data().cloned();
        let data = data.unwrap_or_else(|| Payload::from_checked(change::EMPTY));
        Answer::VersionExists {
            version: current,
            data: (sight == Authorization::Allow).then_some(data),
            action,
            correlation,
            write_ack,
        }
    } else {
        Answer::InvalidVersion {
            version: current,
            action,
            correlation,
            write_ack,
        }
    };
    answer(turn, job.session, name, None, conflict);
    Step::Done
}

/// The keys of the record after a write with this key. A record that has had no repeatable writes has none. `is_ordered` says whether the
/// version of the write is later than all earlier ones.
fn keys_after(
    keys: Option<Arc<WriteKeys>>,
    key: Option<StoredKey>,
    is_ordered: bool,
) -> Option<Arc<WriteKeys>> {
    if key.is_none() && (is_ordered || keys.is_none()) {
        return keys;
    }
    let mut keys = keys.unwrap_or_default();
    let list = Arc::make_mut(&mut keys);
    if !is_ordered {
        list.restart_versions();
    }
    if let Some(key) = key {
        list.add(key);
    }
    Some(keys)
}

/// The key under which a write is remembered in memory.
fn repeat_key(name: &Name, principal: &Principal, key: &OwnedKey) -> RepeatKey {
    RepeatKey {
        name: name.clone(),
        user: principal.user_id.clone(),
        key: key.text.clone(),
    }
}

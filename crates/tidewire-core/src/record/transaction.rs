//! Transactions at their owner: changes of several records that are made together or not at all.
//!
//! All records of a transaction have one slot, so one owner decides. A transaction has a part in the queue of each of its records. A part
//! that is first blocks its record, so the record does not change until the transaction is decided: when the parts are first everywhere,
//! and all records are loaded. All parts are queued in one step. So of two transactions, the one that is first at one common record is
//! first at all of them, and no two wait for each other.
//!
//! The rules see the records as they are before the transaction. All rules decide first, then the conditions, then the limits. After that
//! nothing can fail: the changes are applied in the order of the operations, and are committed as one group (`Commits::group`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, OperationChange, OwnedChange, OwnedOperation, OwnedTransaction, RecordOperation,
    RecordRefusal, Stored, TransactionResult,
};
use crate::listen::ListenOwner;
use crate::message::{Only, RecordAction};
use crate::permission::{Access, Authorization};
use crate::principal::Principal;
use crate::query::collection::is_under;
use crate::record::apply::{Writer, is_met};
use crate::record::authorize::{authorize_early, refusal_without_sight};
use crate::record::job::{Job, JobKind, Part};
use crate::record::owner::RecordOwner;
use crate::record::request::{answer, authorize};
use crate::record::state::{Blocked, OwnedRecord, Value};
use crate::record::waiter::{DecidedTransaction, Requested, Waiter};
use crate::text::Name;

/// The transactions that are not decided yet.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    waiting: BTreeMap<u64, Transaction>,
    next: u64,
    /// Records behind whose last transaction other requests wait. They continue in the next turn: here they would call this module again.
    released: VecDeque<Name>,
}

/// A transaction with parts in the queues of its records.
#[derive(Clone, Debug)]
struct Transaction {
    session: SessionId,
    principal: Arc<Principal>,
    correlation: Box<str>,
    /// The record to which its answer belongs.
    first: Name,
    /// Its records, in the order of the operations.
    names: Arc<[Name]>,
}

/// A part whose record is known, when its transaction is decided.
struct Ready {
    name: Name,
    only: Only,
    change: OperationChange,
    before: Value,
}

impl Transactions {
    /// Whether the next turn must come at once.
    pub(super) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    fn session(&self, number: u64) -> Option<SessionId> {
        let transaction = self.waiting.get(&number)?;
        Some(transaction.session)
    }
}

impl RecordOwner {
    /// Queues a part at each record, and decides the transaction if it does not have to wait.
    pub(super) fn begin_transaction<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        first: Name,
        job: Job,
    ) {
        let (job, JobKind::Requested(RecordOperation::Transaction(request))) = job.split() else {
            return;
        };
        let before = turn.shard.work.get();
        let OwnedTransaction {
            correlation,
            operations,
        } = *request;
        let transaction = Transaction {
            session: job.session,
            principal: job.principal,
            correlation,
            first,
            names: operations.iter().map(|it| it.name.clone()).collect(),
        };
        let number = self.transactions.next;
        self.transactions.next += 1;
        let mut parts: Vec<(Name, Job)> = operations
            .into_iter()
            .map(|operation| transaction.part(number, operation, turn))
            .collect();
        match self.early_refusal(turn, &mut parts) {
            Some((name, why)) => transaction.answer(turn, TransactionResult::Refused { name, why }),
            None => {
                self.transactions.waiting.insert(number, transaction);
                for (name, part) in parts {
                    self.queue_part(turn, name, part);
                }
                self.try_decide(turn, listens, number);
            }
        }
        self.charge(turn, (job.session, true), before);
    }

    /// Why a transaction is refused before it waits for its records. As for other requests, a denial that does not depend on a record is
    /// sent at once.
    fn early_refusal<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        parts: &mut [(Name, Job)],
    ) -> Option<(Name, RecordRefusal)> {
        for (name, part) in parts.iter_mut() {
            let authorization = authorize_early(turn, part, name, false);
            if let Some(refusing @ (Authorization::Deny | Authorization::Failed)) = authorization {
                turn.shard.count_denial(refusing);
                let why = match refusing {
                    Authorization::Failed => RecordRefusal::RuleFailed,
                    _ => RecordRefusal::Denied,
                };
                return Some((name.clone(), why));
            }
        }
        let waiting_max = turn.shard.settings.limits.record_waiting_max;
        let waiting = |name: &Name| {
            let waits = self.table.get(name).and_then(|it| it.waiting.as_ref());
            waits.map_or(0, |waits| waits.jobs.len())
        };
        let (full, _) = parts
            .iter()
            .find(|(name, _)| waiting(name) >= waiting_max)?;
        turn.shard.count(|refused| refused.waiting += 1);
        Some((full.clone(), RecordRefusal::LoadFailed))
    }

    fn queue_part<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, name: Name, part: Job) {
        let (name, record) = self.ensure(turn, name);
        record.note_use();
        let is_unknown = matches!(record.value, Value::Unknown);
        let is_first = record.waiting.is_none();
        let waits = record.waiting_mut();
        if is_first {
            waits.blocked = match is_unknown {
                true => Blocked::Loading,
                false => Blocked::Transaction,
            };
        }
        // The part can't be deferred, so the earlier requests of its session must not be deferred behind it.
        for earlier in waits.jobs.iter_mut() {
            earlier.was_deferred |= earlier.session == part.session;
        }
        let bytes = part.bytes();
        waits.jobs.push_back(part);
        self.waiting_bytes += bytes;
        if is_first && is_unknown {
            self.load(turn, &name);
        }
        self.plan_timeout(turn, &name);
    }

    /// Decides the transaction whose part is first at the record, if it can be decided now.
    pub(super) fn continue_transaction<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
    ) {
        let record = self.table.get(name);
        let Some(number) = record.and_then(OwnedRecord::blocking_transaction) else {
            return;
        };
        let before = turn.shard.work.get();
        let Some(session) = self.transactions.session(number) else {
            return;
        };
        self.try_decide(turn, listens, number);
        self.charge(turn, (session, true), before);
    }

    fn try_decide<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        number: u64,
    ) {
        let Some(transaction) = self.transactions.waiting.get(&number).cloned() else {
            return;
        };
        let is_ready = |name: &Name| {
            let record = self.table.get(name);
            record.and_then(OwnedRecord::blocking_transaction) == Some(number)
        };
        if !transaction.names.iter().all(is_ready) {
            return;
        }
        for name in transaction.names.iter() {
            match self.authorize_part(turn, name) {
                // The rule may need a record that its shard serves only after this one has let go.
                Ok(Authorization::Wait) if self.is_leaving(name) => {
                    let why = RecordRefusal::LoadFailed;
                    return self.refuse_transaction(turn, number, name, why);
                }
                Ok(Authorization::Wait) => return,
                Ok(_) => {}
                Err(why) => return self.refuse_transaction(turn, number, name, why),
            }
        }
        let parts = self.ready(&transaction);
        let unmet = parts
            .iter()
            .find(|part| !is_met(part.only, part.before.tag()));
        if let Some(part) = unmet {
            let (name, tag) = (part.name.clone(), part.before.tag());
            let result = TransactionResult::PreconditionFailed { name, tag };
            return self.end_transaction(turn, number, result);
        }
        let sizes: Vec<(&Name, &Value, usize)> = parts.iter().filter_map(Ready::size).collect();
        if !self.has_room(turn, &sizes, &transaction.principal) {
            let why = RecordRefusal::UpdateFailed;
            return self.refuse_transaction(turn, number, &transaction.first, why);
        }
        self.take_parts(number);
        self.apply_all(turn, listens, &transaction, parts);
        for name in transaction.names.iter() {
            self.release_record(turn, name, true);
        }
    }

    /// Authorizes the part that is first at a record. If its rule waits for another record, the part blocks its record for the rule, and the
    /// transaction is decided again when the owner has the value.
    fn authorize_part<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
    ) -> Result<Authorization, RecordRefusal> {
        let round = turn.shard.rules_round;
        let Some(record) = self.table.get_mut(name) else {
            return Ok(Authorization::Wait);
        };
        let waits = record.waiting.as_deref_mut();
        let Some((blocked, job)) =
            waits.and_then(|waits| Some((&mut waits.blocked, waits.jobs.front_mut()?)))
        else {
            return Ok(Authorization::Wait);
        };
        let JobKind::Part(part) = &job.kind else {
            return Ok(Authorization::Wait);
        };
        if part.authorized == Some(round) {
            return Ok(Authorization::Allow);
        }
        let accesses: &[Access] = match (&part.change, &record.value) {
            (OperationChange::Check, _) => &[Access::RecordRead],
            (OperationChange::Delete, _) => &[Access::RecordDelete],
            (OperationChange::Put(_), Value::Present(_)) => &[Access::RecordWrite],
            (OperationChange::Put(_), _) => &[Access::RecordWrite, Access::RecordCreate],
        };
        let (new, old) = (job.new_value(), record.value.data());
        for access in accesses {
            match authorize(turn, job, *access, name, new.as_ref(), old) {
                Authorization::Allow => {}
                Authorization::Wait => {
                    *blocked = Blocked::Rule;
                    return Ok(Authorization::Wait);
                }
                refusing => {
                    turn.shard.count_denial(refusing);
                    return Err(refusal_without_sight(turn, job, *access, name, refusing));
                }
            }
        }
        if let JobKind::Part(part) = &mut job.kind {
            part.authorized = Some(round);
        }
        Ok(Authorization::Allow)
    }

    /// The parts of a transaction that are first at their records.
    fn ready(&self, transaction: &Transaction) -> Vec<Ready> {
        let ready = |name: &Name| {
            let record = self.table.get(name)?;
            let JobKind::Part(part) = &record.waiting.as_ref()?.jobs.front()?.kind else {
                return None;
            };
            Some(Ready {
                name: name.clone(),
                only: part.only,
                change: part.change.clone(),
                before: record.value.clone(),
            })
        };
        transaction.names.iter().filter_map(ready).collect()
    }

    fn apply_all<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        transaction: &Transaction,
        parts: Vec<Ready>,
    ) {
        // A session does not apply its transactions itself, so it gets the changes like the other subscribers, before the answer.
        let by = Writer {
            session: transaction.session,
            principal: &transaction.principal,
            gets_change: true,
        };
        let mut stored = Vec::with_capacity(parts.len());
        let mut changed = Vec::with_capacity(parts.len());
        for part in parts {
            let Ready {
                name,
                change,
                before,
                ..
            } = part;
            let existed = before.tag().is_some();
            let tag = match change {
                OperationChange::Check => before.tag(),
                OperationChange::Put(data) => {
                    let hot = is_under(&turn.shard.settings.hot_path_prefixes, &name);
                    let written = self.record_after(turn, &name, &before, data.clone(), None, hot);
                    let tag = written.tag();
                    let change = OwnedChange::Update(data);
                    self.keep(turn, &name, by, &before, (written, change), None);
                    changed.push(name);
                    Some(tag)
                }
                OperationChange::Delete => {
                    self.end_subscriptions(turn, listens, &name, by.except());
                    if existed {
                        self.put(turn, &name, Value::Missing, by, None, None);
                    }
                    changed.push(name);
                    None
                }
            };
            stored.push(Stored { existed, tag });
        }
        let waiter = Waiter {
            session: transaction.session,
            deadline: turn.now.monotonic + turn.shard.settings.write_timeout,
            action: RecordAction::CreateAndUpdate,
            correlation: Some(transaction.correlation.clone()),
            request: Requested::Transaction(Box::new(DecidedTransaction {
                name: transaction.first.clone(),
                stored,
            })),
        };
        // A record that was deleted already may still be on its way to the store, so the waiter waits for it as well.
        let first = &transaction.first;
        let commits = &mut self.write_queue_mut(turn, first).commits;
        commits.group(&changed);
        if let Some(waiter) = commits.wait_for_all(&changed, waiter) {
            answer(turn, transaction.session, first, None, waiter.done());
        }
    }

    /// Refuses a transaction because of one of its records. The records continue with their next requests.
    pub(super) fn refuse_transaction<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        name: &Name,
        why: RecordRefusal,
    ) {
        let name = name.clone();
        self.end_transaction(turn, number, TransactionResult::Refused { name, why });
    }

    /// Ends a transaction without changes. Another part of it may have ended it before.
    fn end_transaction<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        result: TransactionResult,
    ) {
        let Some(transaction) = self.take_parts(number) else {
            return;
        };
        let is_denied = matches!(
            result,
            TransactionResult::Refused {
                why: RecordRefusal::Denied | RecordRefusal::RuleFailed,
                ..
            }
        );
        for name in transaction.names.iter() {
            self.release_record(turn, name, !is_denied);
        }
        transaction.answer(turn, result);
    }

    /// Removes the parts of a transaction from the queues. A record at which a part was first is no longer blocked, unless it is loading.
    fn take_parts(&mut self, number: u64) -> Option<Transaction> {
        let transaction = self.transactions.waiting.remove(&number)?;
        for name in transaction.names.iter() {
            let record = self.table.get_mut(name);
            let Some(waits) = record.and_then(|record| record.waiting.as_mut()) else {
                continue;
            };
            let is_part =
                |job: &Job| matches!(&job.kind, JobKind::Part(part) if part.transaction == number);
            let Some(index) = waits.jobs.iter().position(is_part) else {
                continue;
            };
            if index == 0 && waits.blocked != Blocked::Loading {
                waits.blocked = Blocked::No;
            }
            if let Some(part) = waits.jobs.remove(index) {
                self.waiting_bytes -= part.bytes();
            }
        }
        Some(transaction)
    }

    /// Lets a record continue behind a transaction.
    fn release_record<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        is_used: bool,
    ) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        if let Some(waits) = record.waiting.as_ref()
            && waits.blocked == Blocked::No
        {
            if waits.jobs.is_empty() && !waits.loading && waits.superseded.is_none() {
                record.waiting = None;
            } else {
                self.transactions.released.push_back(name.clone());
            }
        }
        self.settle_with(turn, name, |record| record.is_used |= is_used);
    }

    /// Continues with the requests that wait behind transactions.
    pub(super) fn run_released<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
    ) {
        for name in std::mem::take(&mut self.transactions.released) {
            self.run_waiting(turn, listens, &name);
        }
    }
}

impl Transaction {
    /// Its part for one record, as a request of that record.
    fn part<E: Effects>(
        &self,
        number: u64,
        operation: OwnedOperation,
        turn: &TurnContext<'_, E>,
    ) -> (Name, Job) {
        let part = Part {
            transaction: number,
            only: operation.only,
            change: operation.change,
            authorized: None,
        };
        let job = Job {
            session: self.session,
            principal: Arc::clone(&self.principal),
            kind: JobKind::Part(Box::new(part)),
            values: Vec::new(),
            read_failed: false,
            after: None,
            since: turn.now.monotonic,
            was_deferred: false,
        };
        (operation.name, job)
    }

    fn answer<E: Effects>(self, turn: &mut TurnContext<'_, E>, result: TransactionResult) {
        let decided = Answer::Decided {
            correlation: self.correlation,
            result,
        };
        answer(turn, self.session, &self.first, None, decided);
    }
}

impl Ready {
    /// The record with the bytes of its new value, if the part changes it.
    fn size(&self) -> Option<(&Name, &Value, usize)> {
        let bytes = match &self.change {
            OperationChange::Put(data) => data.len(),
            OperationChange::Delete if self.before.tag().is_some() => 0,
            OperationChange::Delete | OperationChange::Check => return None,
        };
        Some((&self.name, &self.before, bytes))
    }
}

impl OwnedRecord {
    /// The transaction whose part blocks the record until other parts can be decided.
    fn blocking_transaction(&self) -> Option<u64> {
        let waits = self.waiting.as_ref()?;
        match &waits.jobs.front()?.kind {
            JobKind::Part(part) if waits.blocked == Blocked::Transaction => Some(part.transaction),
            _ => None,
        }
    }
}

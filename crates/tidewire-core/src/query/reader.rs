//! The queries of the sessions of a shard. A session's queries are evaluated one after another, and the queries of all sessions take turns
//! at the stores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidewire_query::Tape;

use super::owner::LiveQueries;
use super::rows::refusal;
use super::run::{Failure, Purpose, Run, Step, StoreRead};
use super::subscriber::{Subscriptions, checked_prefix, checked_query, refuse};
use crate::address::{Address, SessionId};
use crate::context::{ShardContext, TurnContext};
use crate::effect::{Effects, StoreRequest};
use crate::entry::{Asker, Entry, ReadFailed, UnsavedRow};
use crate::message::{self, Message, QueryReason};
use crate::store::{IndexPart, ScanPage, StoreError};
use crate::text::{Name, Payload, RESERVED};
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Pages that a shard requests at the same time. With several, a slow store does not delay the queries of other stores.
const PAGES_MAX: usize = 4;

/// The queries of a shard's sessions.
#[derive(Debug)]
pub(crate) struct QueryReader {
    runs: BTreeMap<u64, Run>,
    /// Bytes of `runs`.
    bytes: usize,
    next: u64,
    /// The queries of each session in order. The first one is evaluated.
    sessions: BTreeMap<SessionId, VecDeque<u64>>,
    /// Queries that wait until they may request a page.
    waiting: VecDeque<u64>,
    /// Pages that were requested and have not arrived.
    pages: usize,
    deadlines: DeadlineQueue<u64>,
    pub(super) tape: Tape,
    pub(super) live: LiveQueries,
    pub(crate) subscriptions: Subscriptions,
}

impl QueryReader {
    /// Creates it without queries.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            runs: BTreeMap::new(),
            bytes: 0,
            next: 0,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
            pages: 0,
            deadlines: DeadlineQueue::new(),
            tape: Tape::new(),
            live: LiveQueries::new(seed),
            subscriptions: Subscriptions::default(),
        }
    }

    /// The number of queries that are evaluated or wait.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of the queries and of the rows that they keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.subscriptions.bytes() + self.live_bytes()
    }

    /// When a query may have waited too long.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let runs = self.deadlines.next().into_iter();
        runs.chain(self.subscriptions.next_deadline()).min()
    }

    /// Handles a message of a session.
    pub(crate) fn message<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        message: &message::Query<'_>,
    ) {
        match *message {
            message::Query::Read {
                collection,
                query,
                correlation,
                counts,
                explains,
            } => {
                let purpose = Purpose::Session {
                    session,
                    correlation: correlation.map(Box::from),
                    counts,
                    explains,
                };
                if let Err((reason, data)) = self.begin(turn, session, collection, query, purpose) {
                    refuse(turn, session, correlation, reason, &data);
                }
            }
            message::Query::Subscribe {
                collection,
                query,
                correlation,
            } => {
                let subscribed =
                    self.subscriptions
                        .subscribe(turn, session, collection, query, correlation);
                if let Err((reason, data)) = subscribed {
                    refuse(turn, session, correlation, reason, &data);
                }
            }
            message::Query::Unsubscribe { correlation } => {
                let correlation = correlation.unwrap_or_default();
                self.subscriptions.unsubscribe(turn, session, correlation);
            }
            // Messages of the server.
            message::Query::Result { .. }
            | message::Query::Snapshot { .. }
            | message::Query::Changed { .. }
            | message::Query::Error { .. } => {
                turn.send(session, &Message::UnknownTopic);
            }
        }
    }

    fn begin<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        collection: &str,
        text: &str,
        purpose: Purpose,
    ) -> Result<(), (QueryReason, String)> {
        let prefix = checked_prefix(turn, collection)?;
        let query = checked_query(turn, text)?;
        let shard = turn.shard;
        let Some(principal) = turn.principal(session) else {
            return Ok(());
        };
        let waiting = self.sessions.get(&session).map_or(0, VecDeque::len);
        let queries_max = shard.settings.limits.queries_max;
        if waiting >= queries_max {
            shard.count(|refused| refused.queries += 1);
            let message = format!(
                "session has {queries_max} queries without an answer (limits.queries_max); wait for one"
            );
            return Err((QueryReason::TooMany, refusal(&message, None)));
        }
        shard.permission.begin_query(&principal, &prefix);
        let run = Run::new(purpose, principal, prefix, text, query, None, shard);
        let number = self.add(run);
        self.sessions.entry(session).or_default().push_back(number);
        if waiting == 0 {
            self.start(turn, number);
        }
        Ok(())
    }

    /// Adds reads, which the caller starts. Returns their number.
    pub(super) fn add(&mut self, run: Run) -> u64 {
        let number = self.next;
        self.next += 1;
        self.runs.insert(number, run);
        self.recount(number);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Run> {
        let run = self.runs.remove(&number)?;
        self.bytes -= run.counted_bytes;
        Some(run)
    }

    /// Counts the bytes that a run keeps now.
    fn recount(&mut self, number: u64) {
        if let Some(run) = self.runs.get_mut(&number) {
            let bytes = run.bytes();
            self.bytes = self.bytes - run.counted_bytes + bytes;
            run.counted_bytes = bytes;
        }
    }

    /// Forgets the reads for a live query that has ended.
    pub(super) fn forget_live_run(&mut self, live: u64) {
        let of_live = |run: &Run| matches!(run.purpose, Purpose::Live(number) if number == live);
        let runs = self.runs.iter().filter(|(_, run)| of_live(run));
        for number in runs.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
        }
    }

    /// Asks all shards for the records that the stores do not have.
    pub(super) fn start<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        run.progress = turn.now.monotonic;
        run.unanswered = turn.shard.shards().collect();
        let deadline = turn.now.monotonic + turn.shard.settings.load_timeout;
        self.deadlines.push(deadline, number);
        let collect = run.collect(number, turn.shard.address);
        turn.post_all(&Entry::Query(collect));
    }

    /// Handles records that a shard has sent.
    pub(crate) fn collected<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        shard: Address,
        rows: Vec<UnsavedRow>,
        is_last: bool,
    ) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        run.progress = turn.now.monotonic;
        if is_last {
            run.unanswered.remove(&shard);
        }
        let mut reads = Vec::new();
        let mut outcome = Ok(());
        if let Purpose::Live(live) = run.purpose {
            // To the window these are writes, which are newer than the rows that are read.
            self.reported(turn, live, rows);
        } else {
            let mut step = Step::new(turn.shard, turn.now, &mut self.tape);
            outcome = rows.into_iter().try_for_each(|row| {
                let value = row.value.map(|value| (value.version, value.data));
                run.unsaved(&mut step, row.name, value)
            });
            reads = step.reads;
        }
        self.stepped(turn, number, outcome, reads);
    }

    /// Handles a page of a store. Returns the session whose query it is for.
    pub(crate) fn scanned<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        page: Result<ScanPage, StoreError>,
    ) -> Option<SessionId> {
        self.pages = self.pages.saturating_sub(1);
        let session = self.runs.get(&number).and_then(Run::session);
        if let Some(run) = self.runs.get_mut(&number) {
            run.progress = turn.now.monotonic;
            let mut step = Step::new(turn.shard, turn.now, &mut self.tape);
            let outcome = match page {
                Ok(page) => run.page(&mut step, page),
                Err(_) => Err(Failure::Unavailable),
            };
            let reads = step.reads;
            self.stepped(turn, number, outcome, reads);
        }
        session
    }

    /// Handles a part of the entries of an index. Returns the session whose query it is for.
    pub(crate) fn indexed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        part: Result<IndexPart, StoreError>,
    ) -> Option<SessionId> {
        if part.as_ref().map_or(true, |part| part.end.is_some()) {
            self.pages = self.pages.saturating_sub(1);
        }
        let run = self.runs.get_mut(&number)?;
        let session = run.session();
        run.progress = turn.now.monotonic;
        let mut step = Step::new(turn.shard, turn.now, &mut self.tape);
        let outcome = match part {
            Ok(part) => run.entries(&mut step, part),
            Err(_) => Err(Failure::Unavailable),
        };
        self.stepped(turn, number, outcome, Vec::new());
        session
    }

    /// Handles a value that a rule has requested.
    pub(crate) fn value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        name: Name,
        value: Result<Option<Payload>, ReadFailed>,
    ) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        run.progress = turn.now.monotonic;
        let name_bytes_max = turn.shard.settings.limits.name_bytes_max;
        let is_name =
            !name.is_empty() && name.len() <= name_bytes_max && !name.starts_with(RESERVED);
        let mut step = Step::new(turn.shard, turn.now, &mut self.tape);
        let outcome = match value {
            // Without the value the result would lack records that the session may read.
            Err(ReadFailed) if is_name => Err(Failure::Unavailable),
            value => run.value(&mut step, name, value.map_err(|ReadFailed| ())),
        };
        let reads = step.reads;
        self.stepped(turn, number, outcome, reads);
    }

    /// Forgets the queries of an ended session.
    pub(crate) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        for number in self.sessions.remove(&session).into_iter().flatten() {
            self.remove(number);
        }
        self.subscriptions.session_ended(turn, session);
    }

    /// Evaluates the queries of a session again whose principal has changed, and after a change of rules the queries of all sessions: a part of
    /// their records was authorized by the earlier ones.
    pub(crate) fn rights_changed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: Option<SessionId>,
    ) {
        let of_session = |(id, _): &(&SessionId, _)| session.is_none_or(|session| session == **id);
        let queues = self.sessions.iter().filter(of_session);
        let numbers: Vec<u64> = queues
            .flat_map(|(_, queue)| queue.iter().copied())
            .collect();
        for number in numbers {
            self.begin_again(turn, number);
        }
        if session.is_none() {
            self.drop_all_live(turn);
        }
        self.subscriptions.request_again(turn, session);
    }

    /// Requests the live queries of all sessions again, because their owners or the shards that report to these have changed. Other queries
    /// no longer wait for the shards that are not in the view: the store has all their records, or these are lost.
    pub(crate) fn view_changed<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        self.drop_all_live(turn);
        self.subscribe_deferred(turn);
        self.subscriptions.request_again(turn, None);
        let shards: BTreeSet<Address> = turn.shard.shards().collect();
        let mut answered = Vec::new();
        for (number, run) in &mut self.runs {
            let had_unanswered = !run.unanswered.is_empty();
            run.unanswered.retain(|shard| shards.contains(shard));
            if had_unanswered && run.unanswered.is_empty() {
                answered.push(*number);
            }
        }
        for number in answered {
            self.stepped(turn, number, Ok(()), Vec::new());
        }
    }

    /// Handles the link to a node: its shards report to the live queries here, and then send their unsaved records to the queries that wait
    /// for them.
    pub(crate) fn node_joined<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        self.watch_node(turn, node);
        for (number, run) in &self.runs {
            for shard in run.unanswered.iter().filter(|shard| shard.node == node) {
                let collect = run.collect(*number, turn.shard.address);
                turn.post(*shard, Entry::Query(collect));
            }
        }
        self.subscriptions.node_joined(turn, node);
    }

    /// Handles the loss of a node. Queries wait for its shards until the node is linked again, or a view without it is adopted.
    pub(crate) fn node_lost<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        self.lose_subscribers(turn, node);
        self.subscriptions
            .node_lost(turn.shard, turn.now.monotonic, node);
    }

    /// Replaces a session's query by a new one of the same text, with the session's principal of now.
    fn begin_again<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64) {
        let Some(run) = self.remove(number) else {
            return;
        };
        let Some(session) = run.session() else {
            return;
        };
        let Some(principal) = turn.principal(session) else {
            return;
        };
        let (prefix, query) = (run.prefix, run.query);
        let text = run.text.as_str();
        let run = Run::new(
            run.purpose,
            principal,
            prefix,
            text,
            query,
            None,
            turn.shard,
        );
        let again = self.add(run);
        let mut is_first = false;
        if let Some(queue) = self.sessions.get_mut(&session) {
            is_first = queue.front() == Some(&number);
            for place in queue.iter_mut().filter(|place| **place == number) {
                *place = again;
            }
        }
        if is_first {
            self.start(turn, again);
        }
    }

    /// Fails the queries that have made no progress.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let (now, timeout) = (turn.now.monotonic, turn.shard.settings.load_timeout);
        while let Some(number) = self.deadlines.pop_due(now) {
            let Some(run) = self.runs.get(&number) else {
                continue;
            };
            if run.progress + timeout <= now {
                self.end(turn, number, Err(Failure::Unavailable));
            } else {
                self.deadlines.push(now + timeout, number);
            }
        }
        self.subscriptions.deadline_reached(turn);
    }

    /// Continues a query after a step.
    fn stepped<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        outcome: Result<(), Failure>,
        reads: Vec<Name>,
    ) {
        if let Err(failure) = outcome {
            return self.end(turn, number, Err(failure));
        }
        self.recount(number);
        for name in reads {
            let asker = Asker::Query {
                address: turn.shard.address,
                run: number,
            };
            turn.read_value(name, asker);
        }
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.is_ready()) else {
            return;
        };
        if let Err(failure) = run.advance() {
            return self.end(turn, number, Err(failure));
        }
        if run.store().is_some() {
            run.awaits_page = true;
            self.waiting.push_back(number);
            return;
        }
        self.end(turn, number, Ok(()));
    }

    /// Requests the next pages at the end of a turn. Each query has at most one page on its way, and the queries take turns.
    pub(crate) fn end_turn<E: Effects>(
        &mut self,
        context: &ShardContext,
        now: Instant,
        out: &mut E,
    ) {
        while self.pages < PAGES_MAX
            && let Some(number) = self.waiting.pop_front()
        {
            let Some(run) = self.runs.get_mut(&number) else {
                continue;
            };
            let Some(store) = run.store() else {
                continue;
            };
            run.progress = now;
            out.store(match run.store_read(context) {
                StoreRead::Page { after, count_max } => StoreRequest::Scan {
                    store,
                    number,
                    prefix: run.prefix.clone(),
                    after,
                    count_max,
                },
                StoreRead::Entries(read) => StoreRequest::Index {
                    store,
                    number,
                    read,
                },
                StoreRead::Records(names) => StoreRequest::Find {
                    store,
                    number,
                    names,
                },
            });
            self.pages += 1;
        }
    }

    /// Answers a session's query and starts the next one of the session, or gives a live query its rows.
    fn end<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        outcome: Result<(), Failure>,
    ) {
        let Some(run) = self.remove(number) else {
            return;
        };
        let explanation = match run.purpose {
            Purpose::Session { explains: true, .. } => Some(run.explanation()),
            _ => None,
        };
        let (session, correlation, counts) = match run.purpose {
            Purpose::Session {
                session,
                correlation,
                counts,
                ..
            } => (session, correlation, counts),
            Purpose::Live(live) => {
                let rows = outcome.map(|()| run.rows.into_loaded());
                return self.live_loaded(turn, live, rows);
            }
        };
        let correlation = correlation.as_deref();
        let answer = outcome.and_then(|()| {
            let answer = run.rows.answer(counts, explanation.as_deref());
            answer.map_err(Failure::from)
        });
        match answer {
            Ok(data) => {
                let result = message::Query::Result {
                    correlation,
                    data: &data,
                };
                turn.send(session, &Message::Query(result));
            }
            Err(failure) => {
                let (reason, data) = failure.refusal(turn.shard);
                refuse(turn, session, correlation, reason, &data);
            }
        }
        let Some(queue) = self.sessions.get_mut(&session) else {
            return;
        };
        queue.retain(|other| *other != number);
        match queue.front().copied() {
            None => {
                self.sessions.remove(&session);
            }
            Some(next)
                if self
                    .runs
                    .get(&next)
                    .is_some_and(|next| next.progress == Instant(0)) =>
            {
                self.start(turn, next);
            }
            Some(_) => {}
        }
    }
}

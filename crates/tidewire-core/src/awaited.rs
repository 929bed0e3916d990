//! The other nodes, and the requests to their shards that are not answered yet.
//!
//! Everything that waits for a shard of another node is in one table. [`TurnContext::post`](crate::context::TurnContext::post) adds to it,
//! and answers remove from it. Each request is kept as the entry that answers it if the node is lost: the answer of an owner that can't do
//! it. So no primitive handles the loss separately, and a request to a node that is lost already has the same answer. The state that a
//! shard keeps for sessions of the lost node is not here: `engine/node.rs` ends it (decision 0097).

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::address::{Address, SessionId};
use crate::entry::{
    Answer, Asker, CallNotice, Entry, HistoryEntry, HistoryPage, Listening, PendingReplyId,
    ReadFailed, RecordAnswer, RecordOperation, RecordRead, RecordRefusal, RecordRequest,
    RecordRequestKind, ReplyPart, RpcDelivery, RpcEntry, Snapshot, TransactionResult, WorkEntry,
};
use crate::message::{Reason, RecordAction};
use crate::table::{self, Map};
use crate::text::Name;

/// A node can't join with this birth: it is not later than one that the shard knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} can't join with birth {birth}, because its birth {known} is known")]
pub struct BirthRepeated {
    /// The node.
    pub node: u16,
    /// The refused birth.
    pub birth: u64,
    /// The latest birth of the node that the shard knows.
    pub known: u64,
}

/// Another node, in its latest life.
#[derive(Clone, Copy, Debug)]
struct Node {
    birth: u64,
    is_lost: bool,
}

/// The fields of an answer by which it finds its request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Record(SessionId, Name),
    Value(Name, AskerKey),
    /// The owner, and the number of the pending reply.
    Reply(Address, NonZeroU64),
    History(SessionId, Name, u32),
    Call(SessionId, Name, Box<str>),
    Proceed(Address, SessionId),
    Rate(Name, u8),
}

/// The asker of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AskerKey {
    Session(SessionId),
    Lagging(SessionId),
    Record(Name),
    Listening(u64),
    EventRight(u64),
    Reauthorize(u64),
    Query(u64),
}

/// A request without an answer.
#[derive(Debug)]
struct Request {
    /// Counts the requests of this shard.
    number: u64,
    owner: Address,
    /// The answer if the owner is lost.
    refusal: Entry,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Awaited {
    nodes: BTreeMap<u16, Node>,
    requests: Map<Key, SmallVec<[Request; 1]>>,
    counts: RequestCounts,
    next: u64,
}

/// The number of requests.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    all: usize,
    /// Reads and writes of records by sessions.
    records: usize,
    /// Calls by sessions.
    calls: usize,
}

impl RequestCounts {
    fn add(&mut self, key: &Key) {
        self.change(key, |count| *count += 1);
    }

    fn remove(&mut self, key: &Key, number: usize) {
        self.change(key, |count| *count -= number);
    }

    fn change(&mut self, key: &Key, change: impl Fn(&mut usize)) {
        change(&mut self.all);
        match key {
            Key::Record(..) => change(&mut self.records),
            Key::Call(..) => change(&mut self.calls),
            _ => {}
        }
    }
}

impl Awaited {
    /// Creates it without other nodes.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            requests: table::map(seed),
            counts: RequestCounts::default(),
            next: 0,
        }
    }

    /// Whether the shard has known another node.
    #[inline]
    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The number of requests that other nodes have not answered.
    pub(crate) fn len(&self) -> usize {
        self.counts.all
    }

    /// The number of these that read or write records.
    pub(crate) fn record_count(&self) -> usize {
        self.counts.records
    }

    /// The number of these that are calls.
    pub(crate) fn call_count(&self) -> usize {
        self.counts.calls
    }

    /// Whether a node can join with this birth.
    pub(crate) fn check_birth(&self, node: u16, birth: u64) -> Result<(), BirthRepeated> {
        match self.nodes.get(&node).map(|known| known.birth) {
            Some(known) if known >= birth => Err(BirthRepeated { node, birth, known }),
            _ => Ok(()),
        }
    }

    /// Adds a node that is new or was lost.
    pub(crate) fn join(&mut self, node: u16, birth: u64) {
        let is_lost = false;
        self.nodes.insert(node, Node { birth, is_lost });
    }

    /// The nodes that are linked.
    pub(crate) fn linked(&self) -> Vec<(u16, u64)> {
        let linked = self.nodes.iter().filter(|(_, known)| !known.is_lost);
        linked.map(|(node, known)| (*node, known.birth)).collect()
    }

    /// Expects these nodes to be linked: until then, requests to them are refused.
    pub(crate) fn expect(&mut self, nodes: &[u16]) {
        let (birth, is_lost) = (0, true);
        for node in nodes {
            self.nodes.entry(*node).or_insert(Node { birth, is_lost });
        }
    }

    /// Whether the node is linked, in the life of this birth.
    pub(crate) fn is_linked(&self, node: u16, birth: u64) -> bool {
        let known = self.nodes.get(&node);
        known.is_some_and(|known| known.birth == birth && !known.is_lost)
    }

    /// Whether the node was lost and has not joined again.
    pub(crate) fn is_lost(&self, node: u16) -> bool {
        self.nodes.get(&node).is_some_and(|known| known.is_lost)
    }

    /// Notes that a node is lost. Returns the answers to all its requests, in the order of the requests; `None` if it is not linked.
    pub(crate) fn lose(&mut self, node: u16) -> Option<Vec<Entry>> {
        let known = self.nodes.get_mut(&node).filter(|known| !known.is_lost)?;
        known.is_lost = true;
        let mut lost = Vec::new();
        let counts = &mut self.counts;
        self.requests.retain(|key, requests| {
            let before = requests.len();
            let mut index = 0;
            while index < requests.len() {
                match requests[index].owner.node == node {
                    true => lost.push(requests.remove(index)),
                    false => index += 1,
                }
            }
            counts.remove(key, before - requests.len());
            !requests.is_empty()
        });
        lost.sort_unstable_by_key(|request: &Request| request.number);
        Some(lost.into_iter().map(|request| request.refusal).collect())
    }

    /// Notes the requests of an entry for a shard of another node.
    pub(crate) fn sent(&mut self, to: Address, entry: &Entry) {
        if !self.nodes.contains_key(&to.node) {
            return;
        }
        visit_refusals(to, entry, |refusal| {
            let Some(key) = Key::of(to, &refusal).filter(|_| is_answered(&refusal)) else {
                return;
            };
            let request = Request {
                number: self.next,
                owner: to,
                refusal,
            };
            self.next += 1;
            self.counts.add(&key);
            self.requests.entry(key).or_default().push(request);
        });
    }

    /// Notes that a request is answered, if the entry of another node's shard is an answer.
    pub(crate) fn answered(&mut self, from: Address, entry: &Entry) {
        let Some(key) = Key::of(from, entry) else {
            return;
        };
        let Some(requests) = self.requests.get_mut(&key) else {
            return;
        };
        let index = match entry {
            Entry::RecordAnswer(answer) => requests.iter().position(|request| {
                matches!(&request.refusal, Entry::RecordAnswer(refusal) if is_same_request(refusal, answer))
            }),
            // The owner has refused a second call with the correlation id of a running one.
            Entry::RpcDelivery(RpcDelivery {
                what: CallNotice::Failed(Reason::InvalidCorrelation),
                ..
            }) => requests.len().checked_sub(1),
            _ => Some(0),
        };
        if let Some(index) = index {
            requests.remove(index);
            self.counts.remove(&key, 1);
            if requests.is_empty() {
                self.requests.remove(&key);
                table::shrink_map(&mut self.requests);
            }
        }
    }
}

/// Calls `visit` with the answers to an entry for a shard that is lost.
pub(crate) fn visit_refusals(to: Address, entry: &Entry, mut visit: impl FnMut(Entry)) {
    visit(match entry {
        Entry::RecordRequest(request) => return visit_record_refusals(request, visit),
        Entry::ReadValue { name, asker } => Entry::Value {
            name: name.clone(),
            asker: asker.clone(),
            value: Err(ReadFailed),
        },
        &Entry::PresenceQuery { reply, .. } => Entry::ReplyPart {
            reply,
            part: ReplyPart::Users(Vec::new()),
        },
        &(Entry::Online {
            reply: Some(reply), ..
        }
        | Entry::Rpc(RpcEntry::Provide { reply, .. } | RpcEntry::Unprovide { reply, .. })
        | Entry::Listening(
            Listening::Add {
                reply: Some(reply), ..
            }
            | Listening::Remove {
                reply: Some(reply), ..
            },
        )) => Entry::ReplyPart {
            reply,
            part: ReplyPart::Done,
        },
        Entry::Rpc(RpcEntry::Request(call)) => Entry::RpcDelivery(RpcDelivery {
            session: call.requestor,
            name: call.name.clone(),
            correlation: call.correlation.clone(),
            kept_bytes: call.kept_bytes(),
            what: CallNotice::Failed(Reason::NoProvider),
        }),
        Entry::History(HistoryEntry::Read(read)) => {
            Entry::History(HistoryEntry::Page(Box::new(HistoryPage::unavailable(read))))
        }
        &Entry::Work(WorkEntry::Proceed { session }) => Entry::Work(WorkEntry::Proceeded {
            session,
            owner: to,
            work: 0,
            is_done: true,
        }),
        // The session has ended with its node, so it never lets this owner proceed.
        &Entry::Work(WorkEntry::Deferred { session, .. }) => {
            Entry::Work(WorkEntry::SessionEnded { session })
        }
        // The shard itself grants the permits, so each of the user's shards has the whole rate until the owner returns.
        Entry::RateAsked { .. } => entry.clone(),
        _ => return,
    });
}

fn visit_record_refusals(request: &RecordRequest, mut visit: impl FnMut(Entry)) {
    use RecordRefusal::{DeleteFailed, LoadFailed, UpdateFailed};
    let mut refuse = |name: &Name, reply, what| {
        visit(Entry::RecordAnswer(RecordAnswer {
            session: request.session,
            name: name.clone(),
            reply,
            what,
        }));
    };
    let refused = |why, action, serial, correlation: Option<&str>, write_ack| Answer::Refused {
        why,
        action,
        serial,
        correlation: correlation.map(Box::from),
        write_ack,
    };
    match &request.what {
        RecordRequestKind::Bulk {
            action,
            names,
            reply,
            correlation,
        } => {
            let action = RecordAction::Bulk(*action);
            for bulk in names {
                let index = bulk.index;
                let reply = reply.map(|reply| PendingReplyId { index, ..reply });
                let correlation = correlation.as_deref();
                let what = refused(LoadFailed, action, bulk.serial, correlation, false);
                refuse(&bulk.name, reply, what);
            }
        }
        RecordRequestKind::One(name, operation) => {
            let what = match operation {
                RecordOperation::Read(RecordRead::Value) => {
                    refused(LoadFailed, RecordAction::Read, None, None, false)
                }
                RecordOperation::Read(RecordRead::Version) => {
                    refused(LoadFailed, RecordAction::Head, None, None, false)
                }
                RecordOperation::Read(RecordRead::State(correlation)) => refused(
                    LoadFailed,
                    RecordAction::Read,
                    None,
                    Some(correlation),
                    false,
                ),
                // This is no decision: the shard of the session asks the next owner (`reauthorize.rs`).
                RecordOperation::Read(RecordRead::Right(right)) => Answer::Reauthorized {
                    ticket: right.ticket,
                    lost: None,
                },
                RecordOperation::Delete => {
                    refused(DeleteFailed, RecordAction::Delete, None, None, false)
                }
                // The outcome of a write is unknown.
                RecordOperation::Write(write) => {
                    let correlation = write.correlation.as_deref();
                    refused(
                        UpdateFailed,
                        write.action,
                        None,
                        correlation,
                        write.write_ack,
                    )
                }
                // The outcome of a transaction is unknown as well.
                RecordOperation::Transaction(transaction) => Answer::Decided {
                    correlation: transaction.correlation.clone(),
                    result: TransactionResult::Refused {
                        name: name.clone(),
                        why: UpdateFailed,
                    },
                },
                RecordOperation::Put(put) => {
                    let correlation = Some(&*put.correlation);
                    match put.data {
                        Some(_) => {
                            let action = RecordAction::CreateAndUpdate;
                            refused(UpdateFailed, action, None, correlation, true)
                        }
                        None => {
                            refused(DeleteFailed, RecordAction::Delete, None, correlation, false)
                        }
                    }
                }
            };
            refuse(name, None, what);
        }
    }
}

/// Whether an owner always answers the request with this refusal. A session that requests no acknowledgement gets none.
fn is_answered(refusal: &Entry) -> bool {
    match refusal {
        Entry::RecordAnswer(RecordAnswer {
            what:
                Answer::Refused {
                    why: RecordRefusal::UpdateFailed,
                    write_ack,
                    ..
                },
            ..
        }) => *write_ack,
        _ => true,
    }
}

/// Whether an answer belongs to the request with this refusal. An owner handles equal requests of a session in their order.
fn is_same_request(refusal: &RecordAnswer, answer: &RecordAnswer) -> bool {
    use RecordAction::{Bulk, Delete, Head, Read};
    let (of, own_serial, own, acked) = match (&refusal.what, &answer.what) {
        (
            Answer::Refused {
                action,
                serial,
                correlation,
                write_ack,
                ..
            },
            _,
        ) => (*action, *serial, correlation.as_deref(), *write_ack),
        (Answer::Reauthorized { ticket: own, .. }, Answer::Reauthorized { ticket, .. }) => {
            return own == ticket;
        }
        (
            Answer::Decided {
                correlation: own, ..
            },
            Answer::Decided { correlation, .. },
        ) => return own == correlation,
        _ => return false,
    };
    match &answer.what {
        Answer::Granted { serial, .. } => own_serial == Some(*serial),
        Answer::Snapshot(snapshot) => {
            let is_read = match snapshot {
                Snapshot::Read(_) => of == Read && own.is_none(),
                Snapshot::Head(_) => of == Head,
                Snapshot::Nothing | Snapshot::Known(_) => false,
            };
            let is_bulk = matches!(of, Bulk(_)) && own_serial.is_none();
            (is_read || is_bulk) && refusal.reply == answer.reply
        }
        Answer::NotFound => of == Read && own.is_none(),
        Answer::Deleted => of == Delete && own.is_none(),
        Answer::Written { correlation } => acked && own == correlation.as_deref(),
        Answer::Fetched { correlation, .. } => of == Read && own == Some(correlation),
        Answer::Stored { correlation, .. } | Answer::PreconditionFailed { correlation, .. } => {
            of != Read && own == Some(correlation)
        }
        Answer::VersionExists {
            correlation,
            write_ack,
            ..
        }
        | Answer::InvalidVersion {
            correlation,
            write_ack,
            ..
        } => acked && *write_ack && own == correlation.as_deref(),
        Answer::Refused {
            action,
            serial,
            correlation,
            write_ack,
            ..
        } => {
            (of, own_serial, own, acked) == (*action, *serial, correlation.as_deref(), *write_ack)
                && refusal.reply == answer.reply
        }
        Answer::Reauthorized { .. }
        | Answer::Lost { .. }
        | Answer::Resumed(_)
        | Answer::Decided { .. } => false,
    }
}

impl Key {
    /// The key of an answer of this shard.
    fn of(from: Address, answer: &Entry) -> Option<Self> {
        Some(match answer {
            Entry::RecordAnswer(answer) => Self::Record(answer.session, answer.name.clone()),
            Entry::Value { name, asker, .. } => Self::Value(name.clone(), AskerKey::of(asker)),
            Entry::ReplyPart { reply, .. } => Self::Reply(from, reply.number),
            Entry::History(HistoryEntry::Page(page)) => {
                Self::History(page.session, page.name.clone(), page.serial)
            }
            Entry::RpcDelivery(delivery) if delivery.what.ends_call() => {
                let correlation = delivery.correlation.clone();
                Self::Call(delivery.session, delivery.name.clone(), correlation)
            }
            Entry::Work(WorkEntry::Proceeded { session, owner, .. }) => {
                Self::Proceed(*owner, *session)
            }
            Entry::RateGranted {
                user, operation, ..
            }
            | Entry::RateAsked {
                user, operation, ..
            } => Self::Rate(user.clone(), *operation as u8),
            _ => return None,
        })
    }
}

impl AskerKey {
    fn of(asker: &Asker) -> Self {
        match asker {
            Asker::Session(session) => Self::Session(*session),
            Asker::Lagging(session, _) => Self::Lagging(*session),
            Asker::Record { name, .. } => Self::Record(name.clone()),
            Asker::Listening { number, .. } => Self::Listening(*number),
            Asker::EventRight { ticket, .. } => Self::EventRight(*ticket),
            Asker::Reauthorize { ticket, .. } => Self::Reauthorize(*ticket),
            Asker::Query { run, .. } => Self::Query(*run),
        }
    }
}

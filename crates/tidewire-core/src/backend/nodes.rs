//! Backends of other nodes: their introduction to a node that joins, and the loss of a node with its sessions and backends (decision 0146).
//!
//! A node may be lost while a backend waits for its shards: for the end of an ask, or of its hand-over. So the shard of the backend counts
//! for each node what it has not answered. Answers have no sender, so [`Backends::linked`] takes it from the link.

use std::collections::BTreeMap;

use super::{Backends, Own, Source, shards_of_node};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::message::{BackendKind, Message};

/// The version of the protocol between nodes from which on backends serve sessions of other nodes. A node of an earlier version would keep
/// a backend whose node is lost.
pub(super) const LEVEL: u16 = 6;
/// The change of the number of sessions that is announced, at least.
const LOAD_STEP: usize = 8;

/// The answers to an ask, or to the hand-over of a backend, that the shards of another node owe.
#[derive(Debug, Default)]
pub(super) struct OfNode {
    /// Shards that have not handled it.
    pub(super) shards: usize,
    /// Sessions or backends that got it and have not answered.
    pub(super) asked: u32,
}

/// By node.
pub(super) type OfNodes = BTreeMap<u16, OfNode>;

/// The answers that these shards of other nodes owe.
pub(super) fn awaited_of<E>(turn: &TurnContext<'_, E>, shards: &[Address]) -> OfNodes {
    let mut nodes = OfNodes::new();
    let own = turn.shard.address.node;
    for shard in shards.iter().filter(|shard| shard.node != own) {
        nodes.entry(shard.node).or_default().shards += 1;
    }
    nodes
}

/// These shards without the ones of lost nodes.
pub(super) fn without_lost<E>(turn: &TurnContext<'_, E>, mut shards: Vec<Address>) -> Vec<Address> {
    let own = turn.shard.address.node;
    shards.retain(|shard| shard.node == own || !turn.awaited.is_lost(shard.node));
    shards
}

impl Own {
    fn serve(&self, backend: SessionId, earlier: Option<SessionId>, received: u64) -> Entry {
        Entry::Backend(BackendEntry::Serve {
            backend,
            namespaces: self.namespaces.clone(),
            sessions: u32::try_from(self.announced).unwrap_or(u32::MAX),
            earlier,
            received,
        })
    }

    /// Announces to the shards what the backend serves, and the backend that it was before the loss of its node.
    pub(super) fn announce<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        earlier: Option<SessionId>,
    ) {
        self.announced = self.sessions.len();
        let shards = match turn.shard.level >= LEVEL {
            true => turn.shard.shards().collect(),
            false => shards_of_node(turn),
        };
        let received = std::mem::take(&mut self.received);
        for shard in shards {
            let of_shard = received.get(&shard).copied().unwrap_or_default();
            turn.post(shard, self.serve(backend, earlier, of_shard));
        }
    }

    /// Announces the number of sessions, if it has changed by an eighth.
    pub(super) fn announce_load<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) {
        let step = LOAD_STEP.max(self.announced / 8);
        if self.sessions.len().abs_diff(self.announced) >= step && !self.namespaces.is_empty() {
            self.announce(turn, backend, None);
        }
    }

    /// Notes which sessions the backend serves, from a message for it.
    pub(super) fn note_session(&mut self, message: &OwnedBackend) {
        match (message.kind, message.session) {
            (BackendKind::Opened, Some(session)) => _ = self.sessions.insert(session),
            (BackendKind::Closed, Some(session)) => _ = self.sessions.remove(&session),
            _ => {}
        }
    }

    /// The same from a command of the backend.
    pub(super) fn note_command(&mut self, kind: BackendKind, session: SessionId) {
        use BackendKind::{End, EndConnection, Refuse, Release};
        if matches!(kind, Refuse | Release | End | EndConnection) {
            self.sessions.remove(&session);
        }
    }

    /// Ends the sessions of a lost node, and the requests that wait for its shards.
    fn node_lost<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        node: u16,
    ) {
        let of_node = |address: &Address| address.node == node;
        self.sent.retain(|shard, _| !of_node(shard));
        for (source, _) in &mut self.unconfirmed {
            if matches!(source, Source::Shard(shard) if of_node(shard)) {
                *source = Source::Lost;
            }
        }
        let sessions = self.sessions.iter().filter(|id| of_node(&id.address));
        for session in sessions.copied().collect::<Vec<_>>() {
            self.sessions.remove(&session);
            let closed = OwnedBackend {
                name: Some("lost".into()),
                ..OwnedBackend::about(BackendKind::Closed, session)
            };
            self.note_sent(Source::Lost);
            turn.send(backend, &Message::Backend(Box::new(closed.message())));
        }
        self.announce_load(turn, backend);
        self.asks.node_lost(node);
        self.send_notices(turn, backend);
        self.shards_stopped(turn, backend, |hand_over| {
            hand_over.nodes.remove(&node).map_or(0, |it| it.shards)
        });
    }
}

impl Backends {
    /// The entries by which the shards of a node that joins learn of the backends of this shard. One that ends soon gets no sessions of them.
    pub(crate) fn introduced(&self, level: u16) -> Vec<Entry> {
        let staying = self.own.iter().filter(|(_, own)| {
            level >= LEVEL && own.hand_over.is_none() && !own.namespaces.is_empty()
        });
        let mut entries = Vec::new();
        for (backend, own) in staying {
            entries.push(own.serve(*backend, None, 0));
            if !own.again.is_empty() {
                entries.push(Entry::Backend(BackendEntry::DeliverAgain {
                    backend: *backend,
                    namespaces: own.again.clone(),
                }));
            }
        }
        entries
    }

    /// Introduces the backends of this shard to all other nodes, if the new view is the first one in which these know the entries.
    pub(crate) fn level_changed<E: Effects>(&self, turn: &mut TurnContext<'_, E>, before: u16) {
        if before >= LEVEL {
            return;
        }
        let own = turn.shard.address.node;
        for entry in self.introduced(turn.shard.level) {
            for shard in turn.shard.shards().filter(|shard| shard.node != own) {
                turn.post(shard, entry.clone());
            }
        }
    }

    /// Notes what a shard of another node has answered, before the entry is handled.
    pub(crate) fn linked(&mut self, from: Address, entry: &Entry) {
        let Entry::Backend(entry) = entry else {
            return;
        };
        let (backend, ask) = match entry {
            BackendEntry::Asked { backend, ask, .. }
            | BackendEntry::Response { backend, ask, .. } => (backend, Some(*ask)),
            BackendEntry::HandedOver { backend } => (backend, None),
            _ => return,
        };
        let own = self.own.get_mut(backend);
        let of_node = own.and_then(|own| match ask {
            Some(ask) => own.asks.of_node(ask, from.node),
            None => own.hand_over.as_mut()?.nodes.get_mut(&from.node),
        });
        let Some(of_node) = of_node else {
            return;
        };
        match entry {
            BackendEntry::Response { .. } => of_node.asked = of_node.asked.saturating_sub(1),
            BackendEntry::Asked { count, .. } => {
                of_node.shards = of_node.shards.saturating_sub(1);
                of_node.asked = of_node.asked.saturating_add(*count);
            }
            _ => of_node.shards = of_node.shards.saturating_sub(1),
        }
    }

    /// Handles the loss of a node: the end of its sessions and of its backends.
    pub(crate) fn node_lost<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        self.asks.node_lost(node);
        for (backend, own) in &mut self.own {
            own.node_lost(turn, *backend, node);
        }
        let lost = self.known.iter().map(|known| known.backend);
        let lost = lost.filter(|backend| backend.address.node == node);
        for backend in lost.collect::<Vec<_>>() {
            self.reserve(turn, backend);
        }
    }
}

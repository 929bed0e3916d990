//! The engine's requests to the world, which the simulation handles later.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::Entry;
use tidewire_core::message::Message;
use tidewire_core::publication::InterestTopic;

use crate::nodes::index_of;
use crate::reader::Heard;

/// The engine's requests to the world.
#[derive(Debug, Default)]
pub struct Outside {
    pub at: usize,
    pub mailboxes: Vec<VecDeque<Entry>>,
    pub logs: Vec<Vec<Heard>>,
    pub requests: VecDeque<(usize, StoreRequest)>,
    pub logins: Vec<AuthRequest>,
    pub awaited: BTreeSet<SessionId>,
    pub visible: Option<u64>,
}

impl Effects for Outside {
    fn append(&mut self, _format: Format, message: &Message<'_>) -> Span {
        let log = &mut self.logs[self.at];
        log.push(Heard::of(message));
        let end = log.len() as u64;
        Span {
            start: end - 1,
            end,
        }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        self.mailboxes[index_of(to)].push_back(entry);
    }

    fn publish(&mut self, _topic: InterestTopic, _name: &str, _entry: impl Fn() -> Entry) {}

    fn visit_pattern_shards(&self, _event: &str, _visit: impl FnMut(Address)) {}

    fn interest(&mut self, number: u64, _change: InterestChange) {
        self.visible = Some(number);
    }

    fn store(&mut self, request: StoreRequest) {
        self.requests.push_back((self.at, request));
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        panic!("{session:?} is closed: {reason:?}");
    }

    /// Logins are decided at once here, so no message waits for one.
    fn resume(&mut self, _session: SessionId) {}

    fn await_drained(&mut self, session: SessionId) {
        self.awaited.insert(session);
    }
}

//! Events without history: each that is published after a subscription is acknowledged arrives once, from all nodes.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::address::SessionId;

use super::{Checked, World, ensure, pick};
use crate::client::{EMITTED, EMITTED_PATTERN, Said};

/// A publication.
#[derive(Debug)]
struct Publication {
    name: &'static str,
    /// The process of its publisher.
    node: u16,
    birth: u64,
    /// The sessions whose subscriptions were acknowledged when the shard of the publisher took it, and that have kept them.
    subscribers: BTreeSet<SessionId>,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Events {
    publications: BTreeMap<u64, Publication>,
    /// The count of the publications of clients.
    count: u64,
    heard: BTreeSet<(SessionId, u64)>,
}

impl World {
    /// A message of a client about an event.
    pub(super) fn acts_on_event(&mut self, index: usize) -> Option<Said> {
        if self.random.chance(50) {
            self.events.count += 1;
            return Some(Said::Emit(
                pick(&mut self.random, &EMITTED),
                self.events.count,
            ));
        }
        if !self.clients[index].inbox.is_empty() {
            return None;
        }
        let name = match self.random.chance(20) {
            true => EMITTED_PATTERN,
            false => pick(&mut self.random, &EMITTED),
        };
        match self.clients[index].subscribed.get(name) {
            None => Some(Said::SubscribeEvent(name)),
            Some(true) => Some(Said::UnsubscribeEvent(name)),
            // It is not acknowledged yet.
            Some(false) => None,
        }
    }

    /// A shard has taken a message of a client.
    pub(super) fn took_event(&mut self, session: SessionId, said: &Said) {
        match said {
            // Messages of a session that the shard has closed have no effect.
            _ if self.outside.closed.iter().any(|(it, _)| *it == session) => {}
            Said::Emit(name, number) => {
                let others = self.clients.iter().filter(|it| it.session != session);
                let subscribed = others.filter(|it| it.has_acknowledged(name));
                let node = session.address.node;
                let publication = Publication {
                    name,
                    node,
                    birth: self.nodes[&node].birth,
                    subscribers: subscribed.map(|it| it.session).collect(),
                };
                self.events.publications.insert(*number, publication);
            }
            Said::UnsubscribeEvent(_) => {
                let mut clients = self.clients.iter();
                let client = clients.find(|it| it.session == session);
                for publication in self.events.publications.values_mut() {
                    if !client.is_some_and(|it| it.has_acknowledged(publication.name)) {
                        publication.subscribers.remove(&session);
                    }
                }
            }
            _ => {}
        }
    }

    /// A client gets an event.
    pub(super) fn hears_event(&mut self, session: SessionId, name: &str, number: u64) -> Checked {
        let is_first = self.events.heard.insert((session, number));
        ensure(is_first, || {
            format!("{session:?} gets event {number} of {name} twice")
        })?;
        let publication = self.events.publications.get(&number);
        let is_of_other = publication.is_some_and(|it| it.node != session.address.node);
        self.met.events_between += usize::from(is_of_other);
        Ok(())
    }

    /// At rest, each shard posts an event to the nodes with subscribers, and to no other.
    pub(super) fn interest_is_right(&mut self) -> Checked {
        for name in EMITTED {
            let clients = self.clients.iter().filter(|it| it.has_acknowledged(name));
            let nodes = clients.map(|it| it.session.address.node);
            let nodes: BTreeSet<u16> = nodes.collect();
            for shard in self.live() {
                let others = nodes.iter().filter(|node| **node != shard.node);
                let wanted: BTreeSet<u16> = others.copied().collect();
                let receivers = self.outside.receivers(shard, name);
                ensure(receivers == wanted, || {
                    format!("{shard:?} posts {name} to {receivers:?}, subscribers have {wanted:?}")
                })?;
            }
        }
        Ok(())
    }

    /// At rest, each subscriber has the events of all processes that have not ended.
    pub(super) fn events_have_arrived(&self) -> Checked {
        for (number, publication) in &self.events.publications {
            if self.birth(publication.node) != Some(publication.birth) {
                continue;
            }
            for client in &self.clients {
                let session = client.session;
                let is_missing = publication.subscribers.contains(&session)
                    && !self.events.heard.contains(&(session, *number));
                ensure(!is_missing, || {
                    let node = publication.node;
                    format!("{session:?} has not got event {number} of node {node}")
                })?;
            }
        }
        Ok(())
    }
}

//! The execution of requests on trees.

use std::rc::Rc;

use serde_json::{Value, json};
use tidewire_core::message::RecordBulk;

use super::RecordModel;
use super::request::{Request, RequestKind, Stamp};
use super::state::{Awaited, Effect, ModelRecord, State};
use crate::expected::Want;
use crate::nodes::index_of;
use crate::wire::{Act, Delta, Refused, apply};

impl RecordModel {
    pub(super) fn execute(&mut self, now: u64, request: Request) {
        let Some(record) = self.records.get(&request.name) else {
            return;
        };
        let state = record.state().clone();
        let session = request.stamp.session;
        let name = request.name.clone();
        let name = name.as_str();
        match request.kind.clone() {
            RequestKind::Subscribe { action, instance } => {
                self.done(&request, true);
                self.subscribe(&request.stamp, name, action, instance);
            }
            RequestKind::Notify | RequestKind::Reloaded => self.done(&request, true),
            RequestKind::Read => {
                let want = match state.value {
                    Some((version, value)) => Want::Value(version, value),
                    None => Want::NotFound,
                };
                self.expect(session, name, None, want, state.stamp);
            }
            RequestKind::Head => {
                let version = state.value.map_or(-1, |(version, _)| version);
                self.expect(session, name, None, Want::Version(version), state.stamp);
            }
            RequestKind::Delete => self.delete(now, &request.stamp, name, state.value.is_some()),
            RequestKind::Write {
                version,
                id,
                act,
                delta,
            } => {
                self.write(now, &request.stamp, name, state, version, id, act, &delta);
            }
        }
    }

    pub(super) fn refuse(&mut self, request: Request, why: Refused) {
        self.done(&request, false);
        let session = request.stamp.session;
        let (why, id) = match request.kind {
            // A refused notify names no record.
            RequestKind::Notify | RequestKind::Reloaded => return,
            RequestKind::Delete if !matches!(why, Refused::Denied | Refused::RuleFailed) => {
                (Refused::Delete, None)
            }
            RequestKind::Write { id, .. } => (why, id),
            _ => (why, None),
        };
        self.expect(session, &request.name, None, Want::Refused(why, id), None);
    }

    fn has_room(&self, owner: usize, name: &str) -> bool {
        let volatile = self.records.get(name).is_some_and(|record| record.volatile);
        let dirty = &self.dirty[owner];
        let routes = &self.terms.routes;
        let store = routes.find(name);
        let dirty_in_store = dirty.keys().filter(|name| routes.find(name) == store);
        volatile || dirty.contains_key(name) || dirty_in_store.count() < self.terms.dirty_max
    }

    fn change(&mut self, name: &str, value: Option<(i32, Rc<Value>)>, stamp: &Rc<Stamp>) {
        if let Some(record) = self.records.get_mut(name) {
            record.states.push(State {
                value,
                stamp: Some(stamp.clone()),
                since: self.step,
            });
            if !record.volatile {
                self.dirty[record.owner]
                    .entry(name.into())
                    .or_default()
                    .queued = true;
            }
        }
    }

    fn subscribe(&mut self, stamp: &Rc<Stamp>, name: &str, action: RecordBulk, instance: usize) {
        let Some(record) = self.records.get(name) else {
            return;
        };
        let session = stamp.session;
        if action == RecordBulk::SubscribeCreateAndRead && record.state().value.is_none() {
            if !self.has_room(record.owner, name) {
                return self.expect(
                    session,
                    name,
                    None,
                    Want::Refused(Refused::Create, None),
                    None,
                );
            }
            self.change(name, Some((0, Rc::new(json!({})))), stamp);
        }
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        if self.live.contains(&session) {
            record.subscribers.push((session, instance));
        }
        let state = record.state().clone();
        let version = state.value.as_ref().map_or(-1, |(version, _)| *version);
        let want = match action {
            RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead => {
                let value = state
                    .value
                    .map_or_else(|| Rc::new(json!({})), |(_, value)| value);
                Want::Value(version, value)
            }
            RecordBulk::SubscribeAndHead => Want::Version(version),
            _ => return,
        };
        self.expect(session, name, Some(instance), want, state.stamp);
    }

    fn delete(&mut self, now: u64, stamp: &Rc<Stamp>, name: &str, exists: bool) {
        let session = stamp.session;
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        let owner = record.owner;
        if exists && !self.has_room(owner, name) {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Delete, None),
                None,
            );
        }
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        for (subscriber, instance) in std::mem::take(&mut record.subscribers) {
            if subscriber == session {
                let instances = self.instances.entry((session, name.into())).or_default();
                instances.deleted = instance + 1;
            } else {
                self.expect(
                    subscriber,
                    name,
                    Some(instance),
                    Want::Deleted,
                    Some(stamp.clone()),
                );
            }
        }
        if exists {
            self.change(name, None, stamp);
        }
        let awaited = self.awaited(now, name, Vec::new());
        if self.live.contains(&session) {
            self.deletes.insert((session, name.into()), awaited);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one write, used once"
    )]
    fn write(
        &mut self,
        now: u64,
        stamp: &Rc<Stamp>,
        name: &str,
        state: State,
        version: i32,
        id: Option<String>,
        act: Act,
        delta: &Delta,
    ) {
        let session = stamp.session;
        let exists = state.value.is_some();
        let (current, before) = state.value.unwrap_or_else(|| (0, Rc::new(json!({}))));
        if !exists && !act.creates() && id.is_none() {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Update, id),
                None,
            );
        }
        let wraps = current == i32::MAX;
        let next = if wraps { 1 } else { current + 1 };
        if version != -1 && version != next {
            let want = if version <= current {
                Want::VersionExists(current, before, id)
            } else {
                Want::InvalidVersion(current, id)
            };
            return self.expect(session, name, None, want, state.stamp);
        }
        let Some(owner) = self.records.get(name).map(|record| record.owner) else {
            return;
        };
        if !self.has_room(owner, name) {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Update, id),
                None,
            );
        }
        let after = Rc::new(apply(&before, delta));
        self.change(name, Some((next, after.clone())), stamp);
        let index = self.records.get(name).map_or(0, ModelRecord::change_count);
        let subscribers = self
            .records
            .get(name)
            .map(|record| record.subscribers.clone())
            .unwrap_or_default();
        let mut effects = Vec::new();
        for (subscriber, instance) in subscribers {
            let shard = index_of(subscriber.address);
            let key = (subscriber, name.to_owned());
            let lasts = self
                .instances
                .get(&key)
                .is_some_and(|instances| instance >= instances.ended);
            if lasts && shard != owner {
                effects.push(Effect {
                    session: subscriber,
                    instance,
                    posted: (name.to_owned(), next as u32, after.to_string(), shard),
                });
            }
            if subscriber != session {
                let want = Want::Changed {
                    version: next,
                    before: before.clone(),
                    after: after.clone(),
                    whole: wraps,
                    index,
                };
                self.expect(subscriber, name, Some(instance), want, Some(stamp.clone()));
            }
        }
        if let Some(id) = id
            && self.live.contains(&session)
        {
            let awaited = self.awaited(now, name, effects);
            self.writes.insert((session, id), awaited);
        }
    }

    fn awaited(&self, now: u64, name: &str, effects: Vec<Effect>) -> Awaited {
        let change_count = self.records.get(name).map_or(0, ModelRecord::change_count);
        Awaited {
            change_count,
            since: now,
            effects,
        }
    }
}

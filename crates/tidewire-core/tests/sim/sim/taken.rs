//! Reports each message that a shard has taken to the models.

use std::collections::BTreeMap;
use std::rc::Rc;

use tidewire_core::address::SessionId;
use tidewire_core::message::RecordBulk;

use super::{Sim, shown};
use crate::check::{Checked, Violation};
use crate::nodes::index_of;
use crate::permission;
use crate::record_model::{Request, RequestKind, Stamp};
use crate::right::{Right, is_guarded};
use crate::shared::is_shared;
use crate::wire::Said;

impl Sim {
    /// Reports a message that a shard has taken to the models.
    pub(super) fn taken(&mut self, stamp: &Rc<Stamp>, said: &Said, given: u64) -> Checked {
        let session = stamp.session;
        if self.trace {
            println!("{:6} {} said {said:?}", self.summary.steps, shown(session));
        }
        if self.guarded_taken(session, said) || self.shared_taken(session, said) {
            return Ok(());
        }
        match said {
            Said::EventSubscribe { names, id } => {
                for name in names {
                    if self.takes_right(session, Right::Event(name.clone())) {
                        self.events.subscribe(session, name, id);
                    }
                }
            }
            Said::EventUnsubscribe { names, .. } => {
                for name in names {
                    self.gives_back(session, Right::Event(name.clone()));
                    self.events.unsubscribe(session, name);
                }
            }
            Said::Emit { name, data } => {
                let allowed = self.event_ruling(name, given)?;
                let shard = index_of(session.address);
                if allowed && !self.mutes(session, name) {
                    self.rights.published(data, shard);
                    self.events.publish(name, data, stamp.clone());
                    self.events.comes(shard, name, data);
                }
            }
            Said::Bulk {
                action: RecordBulk::Unsubscribe,
                names,
                ..
            } => {
                for name in names {
                    self.records.end(session, name);
                }
            }
            Said::Bulk { action, names, id } => {
                let reads = matches!(
                    action,
                    RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead
                );
                if !reads {
                    self.records.begin_bulk(session, id, names.len());
                }
                let requests = names
                    .iter()
                    .map(|name| Request {
                        name: name.clone(),
                        stamp: stamp.clone(),
                        kind: match action {
                            RecordBulk::Notify => RequestKind::Notify,
                            _ => RequestKind::Subscribe {
                                action: *action,
                                instance: self.records.begin(session, name, *action),
                            },
                        },
                        bulk: (!reads).then(|| id.clone()),
                    })
                    .collect();
                self.route(session, requests)?;
            }
            Said::Read { name } => self.route_one(stamp, name, RequestKind::Read)?,
            Said::Head { name } => self.route_one(stamp, name, RequestKind::Head)?,
            Said::Delete { name } => self.route_one(stamp, name, RequestKind::Delete)?,
            Said::Write {
                name,
                version,
                id,
                act,
                delta,
            } => {
                let kind = RequestKind::Write {
                    version: *version,
                    id: id.clone(),
                    act: *act,
                    delta: delta.clone(),
                };
                self.route_one(stamp, name, kind)?;
            }
            _ => self.service_taken(session, said),
        }
        Ok(())
    }

    /// Whether the rules at the session's shard forbid all sessions to publish or call this name.
    fn mutes(&self, session: SessionId, name: &str) -> bool {
        let rules = self.rights.at(index_of(session.address));
        rules.mute.contains(name)
    }

    /// Handles a message about shared records, which another process also writes. Returns false for other messages.
    fn shared_taken(&mut self, session: SessionId, said: &Said) -> bool {
        match said {
            Said::Bulk { names, .. } => names.iter().any(|name| is_shared(name)),
            Said::Write { name, id, .. } if is_shared(name) => {
                if self.owner(name) == index_of(session.address) {
                    self.shared.arrive(name, id.as_deref().unwrap_or_default());
                }
                true
            }
            Said::Head { name } => is_shared(name),
            _ => false,
        }
    }

    /// Handles a message about guarded records, which only the model of rights follows. Returns false for other messages.
    fn guarded_taken(&mut self, session: SessionId, said: &Said) -> bool {
        match said {
            Said::Bulk { action, names, .. } if names.iter().any(|name| is_guarded(name)) => {
                for name in names {
                    let right = Right::Record(name.clone());
                    if *action == RecordBulk::Unsubscribe {
                        self.gives_back(session, right);
                    } else {
                        self.takes_right(session, right);
                    }
                }
                true
            }
            Said::Write { name, id, .. } if is_guarded(name) => {
                let (owner, id) = (self.owner(name), id.as_deref().unwrap_or_default());
                if owner == index_of(session.address) {
                    self.rights.authorized_write(name, id, owner);
                }
                true
            }
            Said::Head { name } => is_guarded(name),
            _ => false,
        }
    }

    /// Whether the permission allowed the event that the shard has just taken. `given` is the step at which the shard first saw
    /// the event.
    pub(super) fn event_ruling(&mut self, name: &str, given: u64) -> Result<bool, Violation> {
        let Some(ruling) = self.rulings.take().pop() else {
            return Ok(true);
        };
        match ruling.said {
            permission::Said::Needs => Ok(false),
            said => {
                let allowed = said == permission::Said::Allowed;
                self.records.gate_was(name, allowed, given)?;
                Ok(allowed)
            }
        }
    }

    pub(super) fn service_taken(&mut self, session: SessionId, said: &Said) {
        match said {
            Said::Provide { names, id } => {
                for name in names {
                    if self.takes_right(session, Right::Provide(name.clone())) {
                        self.rpcs.provide(session, name, id);
                    }
                }
            }
            Said::Unprovide { names, .. } => {
                for name in names {
                    self.gives_back(session, Right::Provide(name.clone()));
                    self.rpcs.unprovide(session, name);
                }
            }
            // The requestor's shard refuses this call.
            Said::Call { name, .. } if self.mutes(session, name) => {}
            Said::Call { name, id, data } => {
                let number = data.parse().unwrap_or(0);
                self.rights.published(data, index_of(session.address));
                self.rpcs
                    .call(session, name, id, number, self.now.monotonic);
            }
            Said::Answer { what, name, id, .. } => self.rpcs.answer(session, name, id, *what),
            Said::Listen { records, pattern } | Said::Unlisten { records, pattern } => {
                let key = (session, *records, pattern.clone());
                let right = Right::Listen(*records, pattern.clone());
                let listens = matches!(said, Said::Listen { .. });
                if listens {
                    self.takes_right(session, right);
                } else {
                    self.gives_back(session, right);
                }
                let unlistened = self.unlistened.entry(key).or_default();
                unlistened.listens = listens;
                unlistened.acks_due += usize::from(!listens);
            }
            Said::QueryAll => self.presences.asks(session, None),
            Said::Query { id, .. } => self.presences.asks(session, Some(id)),
            Said::WatchAll => self.watch_taken(session, None, ""),
            Said::UnwatchAll => {
                self.gives_back(session, Right::Watch(None));
                self.presences.unwatch(session, None);
            }
            Said::Watch { users, id } => {
                for user in users {
                    self.watch_taken(session, Some(user), id);
                }
            }
            Said::Unwatch { users, .. } => {
                for user in users {
                    self.gives_back(session, Right::Watch(Some(user.clone())));
                    self.presences.unwatch(session, Some(user));
                }
            }
            _ => {}
        }
    }

    fn watch_taken(&mut self, session: SessionId, user: Option<&str>, id: &str) {
        if self.takes_right(session, Right::Watch(user.map(str::to_owned))) {
            self.presences.watch(session, user, id);
        }
    }

    pub(super) fn route_one(
        &mut self,
        stamp: &Rc<Stamp>,
        name: &str,
        kind: RequestKind,
    ) -> Checked {
        let request = Request {
            name: name.into(),
            stamp: stamp.clone(),
            kind,
            bulk: None,
        };
        self.route(stamp.session, vec![request])
    }

    pub(super) fn route(&mut self, session: SessionId, requests: Vec<Request>) -> Checked {
        let mut by_owner: BTreeMap<usize, Vec<Request>> = BTreeMap::new();
        for request in requests {
            by_owner
                .entry(self.owner(&request.name))
                .or_default()
                .push(request);
        }
        for (owner, requests) in by_owner {
            if owner == index_of(session.address) {
                for request in requests {
                    self.records.arrive(owner, self.now.monotonic.0, request)?;
                }
            } else {
                self.records.posted(session, owner, requests);
            }
        }
        Ok(())
    }

    pub(super) fn owner(&self, name: &str) -> usize {
        index_of(self.slots.owner(name))
    }
}

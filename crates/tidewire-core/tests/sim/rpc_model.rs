//! A naive model of rpcs: every call ends once, by a provider that was offered the call or for a good reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::time::Instant;

use crate::check::{Check, Checked, ensure, violated};
use crate::wire::{CallSaid, RpcHeard};

/// A provider to which the owner has offered a call.
#[derive(Clone, Copy, Debug)]
struct Asked {
    provider: SessionId,
    /// The provider has rejected the call, or is gone.
    declined: bool,
}

#[derive(Debug)]
struct Call {
    number: u64,
    name: String,
    /// The model's clock at the call.
    clock: u64,
    since: Instant,
    asked: Vec<Asked>,
    /// The owner may have offered the call to another provider, without a message to any session.
    has_moved: bool,
    /// The answers of all providers so far.
    answers: Vec<(SessionId, CallSaid)>,
}

/// A registration at the provider's shard.
#[derive(Debug)]
struct Registration {
    id: String,
    /// The clock at the ack. After it, every owner knows the registration.
    acked: Option<u64>,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct RpcModel {
    /// By requestor and correlation id.
    calls: BTreeMap<(SessionId, String), Call>,
    by_number: BTreeMap<u64, (SessionId, String)>,
    /// The calls offered to each provider, by name and the provider's correlation id.
    served: BTreeMap<(SessionId, String, String), u64>,
    registrations: BTreeMap<(SessionId, String), Registration>,
    /// Registrations that new rules forbid, as far as the provider's shard knows. The model does not know when their owners learn
    /// of it.
    doubtful: BTreeSet<(SessionId, String)>,
    accept_timeout: Duration,
    response_timeout: Duration,
    /// Counts events, to order events within one instant.
    clock: u64,
}

impl RpcModel {
    pub fn new(accept_timeout: Duration, response_timeout: Duration) -> Self {
        Self {
            accept_timeout,
            response_timeout,
            ..Self::default()
        }
    }

    /// A provider registers at its shard.
    pub fn provide(&mut self, session: SessionId, name: &str, id: &str) {
        let id = id.to_owned();
        self.doubtful.remove(&(session, name.to_owned()));
        self.registrations
            .insert((session, name.into()), Registration { id, acked: None });
    }

    /// A provider ends a registration at its shard.
    pub fn unprovide(&mut self, session: SessionId, name: &str) {
        self.move_calls(|of| of == name);
        self.registrations.remove(&(session, name.to_owned()));
    }

    /// A shard has applied rules that forbid some of its sessions' registrations. The owners may offer the calls to other
    /// providers.
    pub fn doubt(&mut self, is_forbidden: impl Fn(SessionId, &str) -> bool) {
        for (session, name) in self.registrations.keys() {
            if is_forbidden(*session, name) {
                self.doubtful.insert((*session, name.clone()));
            }
        }
        for call in self.calls.values_mut() {
            for asked in &mut call.asked {
                asked.declined |= is_forbidden(asked.provider, &call.name);
            }
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        self.move_calls(|name| doubtful.iter().any(|(_, of)| of == name));
        self.doubtful = doubtful;
    }

    /// Whether the call has not been offered to a provider yet.
    pub fn is_fresh(&self, number: &str) -> bool {
        let key = number
            .parse()
            .ok()
            .and_then(|number: u64| self.by_number.get(&number));
        let call = key.and_then(|key| self.calls.get(key));
        call.is_some_and(|call| call.asked.is_empty() && !call.has_moved)
    }

    /// A provider's shard has returned a call, because the provider withdrew the name before the owner knew. The owner offers the
    /// call to the next provider.
    pub fn turned_back(&mut self, id: &str) {
        for ((_, of), call) in &mut self.calls {
            call.has_moved |= of == id;
        }
    }

    fn move_calls(&mut self, concerns: impl Fn(&str) -> bool) {
        for call in self.calls.values_mut() {
            call.has_moved |= concerns(&call.name);
        }
    }

    /// A provider has received an ack.
    pub fn acked(&mut self, session: SessionId, id: &str) {
        self.clock += 1;
        let now = self.clock;
        for ((of, _), registration) in &mut self.registrations {
            if *of == session && registration.id == id {
                registration.acked = Some(now);
            }
        }
    }

    /// A client calls an rpc at its own shard.
    pub fn call(&mut self, session: SessionId, name: &str, id: &str, number: u64, now: Instant) {
        self.clock += 1;
        self.by_number.insert(number, (session, id.to_owned()));
        let call = Call {
            number,
            name: name.into(),
            clock: self.clock,
            since: now,
            asked: Vec::new(),
            has_moved: false,
            answers: Vec::new(),
        };
        self.calls.insert((session, id.to_owned()), call);
    }

    /// A provider answers at its shard.
    pub fn answer(&mut self, session: SessionId, name: &str, id: &str, what: CallSaid) {
        let served = (session, name.to_owned(), id.to_owned());
        let Some(call) = self
            .served
            .get(&served)
            .and_then(|number| self.by_number.get(number))
            .and_then(|key| self.calls.get_mut(key))
        else {
            return;
        };
        call.answers.push((session, what));
        if what == CallSaid::Reject
            && let Some(asked) = call
                .asked
                .iter_mut()
                .find(|asked| asked.provider == session)
        {
            asked.declined = true;
        }
    }

    /// A session receives a message of a call.
    pub fn hear(
        &mut self,
        session: SessionId,
        name: &str,
        id: &str,
        what: &RpcHeard,
        now: Instant,
    ) -> Checked {
        match what {
            RpcHeard::Request(data) => return self.hear_request(session, name, id, data),
            RpcHeard::MultipleAccept | RpcHeard::Unknown => return Ok(()),
            _ => {}
        }
        let key = (session, id.to_owned());
        let Some(call) = self.calls.get_mut(&key).filter(|call| call.name == name) else {
            return violated(
                Check::RpcAnsweredOnce,
                format!("{session:?} hears {what:?} of call {id} to {name}, which is not open"),
            );
        };
        if *what == RpcHeard::Accepted {
            let known = call
                .answers
                .iter()
                .any(|(_, said)| *said == CallSaid::Accept);
            return ensure(known, Check::RpcFromProvider, || {
                format!("call {} was accepted by nobody", call.number)
            });
        }
        let call = self.calls.remove(&key);
        self.by_number.retain(|_, of| *of != key);
        match call {
            Some(call) => self.check_end(&call, what, now),
            None => Ok(()),
        }
    }

    /// A session is gone. The model forgets its calls, and counts the calls offered to it as declined.
    pub fn session_ended(&mut self, session: SessionId) {
        self.calls.retain(|(of, _), _| *of != session);
        self.by_number.retain(|_, (of, _)| *of != session);
        let registered = self.registrations.keys().filter(|(of, _)| *of == session);
        let names: BTreeSet<String> = registered.map(|(_, name)| name.clone()).collect();
        self.move_calls(|name| names.contains(name));
        self.registrations.retain(|(of, _), _| *of != session);
        self.doubtful.retain(|(of, _)| *of != session);
        for asked in self.calls.values_mut().flat_map(|call| &mut call.asked) {
            asked.declined |= asked.provider == session;
        }
    }

    /// The node has crashed.
    pub fn crash(&mut self) {
        self.calls.clear();
        self.by_number.clear();
        self.served.clear();
        self.registrations.clear();
        self.doubtful.clear();
    }

    /// Checks that every call has ended and every registration has its ack.
    pub fn quiet(&self) -> Checked {
        let open = self.calls.iter().next();
        ensure(open.is_none(), Check::RpcAnsweredOnce, || {
            format!("never answered: {open:?}")
        })?;
        let waiting = self
            .registrations
            .iter()
            .find(|(_, registration)| registration.acked.is_none());
        ensure(waiting.is_none(), Check::AnsweredOnce, || {
            format!("registered without an ack: {waiting:?}")
        })
    }

    fn hear_request(&mut self, session: SessionId, name: &str, id: &str, data: &str) -> Checked {
        let number = data.parse().unwrap_or(0);
        let served = (session, name.to_owned(), id.to_owned());
        self.served.insert(served, number);
        // The requestor may be gone, or may have received a timeout.
        let Some(call) = self
            .by_number
            .get(&number)
            .and_then(|key| self.calls.get_mut(key))
        else {
            return Ok(());
        };
        let free = call
            .asked
            .iter()
            .all(|asked| asked.declined && asked.provider != session);
        let asked = call.asked.clone();
        call.asked.push(Asked {
            provider: session,
            declined: self.doubtful.contains(&(session, name.to_owned())),
        });
        ensure(free && call.name == name, Check::RpcFromProvider, || {
            format!("call {number} is handed to {session:?} while {asked:?} have it")
        })
    }

    fn check_end(&self, call: &Call, what: &RpcHeard, now: Instant) -> Checked {
        let last = call.asked.last().map(|asked| asked.provider);
        let from_asked = |said: CallSaid| {
            call.answers
                .iter()
                .any(|(provider, answer)| *answer == said && Some(*provider) == last)
        };
        let waited = now.since(call.since);
        let is_right = match what {
            RpcHeard::Response(data) => {
                from_asked(CallSaid::Response) && *data == call.number.to_string()
            }
            RpcHeard::Error(data) => {
                from_asked(CallSaid::Error) && *data == call.number.to_string()
            }
            RpcHeard::AcceptTimeout => waited >= self.accept_timeout,
            RpcHeard::ResponseTimeout => waited >= self.response_timeout,
            RpcHeard::NoProvider => return self.check_no_provider(call),
            _ => false,
        };
        ensure(is_right, Check::RpcFromProvider, || {
            format!("{call:?} ends with {what:?}")
        })
    }

    /// Checks that each provider that was registered all the time was offered the call.
    fn check_no_provider(&self, call: &Call) -> Checked {
        let forgotten = self
            .registrations
            .iter()
            .find(|((session, name), registration)| {
                *name == call.name
                    && !self.doubtful.contains(&(*session, name.clone()))
                    && registration.acked.is_some_and(|acked| acked < call.clock)
                    && !call.asked.iter().any(|asked| asked.provider == *session)
            });
        ensure(forgotten.is_none(), Check::RpcFromProvider, || {
            format!("{call:?} found no provider but {forgotten:?}")
        })
    }
}

//! Sessions without a socket: a task of the front gives their messages and takes their answers, see [`carrier`].
//!
//! Each has a place lent from the connections', so that to the engine it is a session like any other.
//!
//! [`carrier`]: crate::carrier

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tidewire_core::effect::{Flow, Input, Span};
use tidewire_core::message::{Connection as Introduction, Message};
use tidewire_core::rate::Charged;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::protocol::deepstream::Deepstream;

use super::Conductor;
use super::reading::UNCOUNTED_PAYLOAD_MAX;
use crate::carrier::{CarriedMail, Carrier, End, Stay};
use crate::connection::CARRIED;
use crate::credit::NOBODY;
use crate::handle::Peer;
use crate::place::Subject;
use crate::share::{Caller, Standing};
use crate::stats::{add, topic_index};
use crate::traces;

/// A session and the data that it has not received yet.
#[derive(Debug)]
struct Carried {
    carrier: Arc<Carrier>,
    /// Peer of the session, until the login.
    peer: Option<Arc<Peer>>,
    /// Messages, and how many bytes of them the engine has taken.
    messages: Vec<u8>,
    taken: usize,
    /// The next message has to wait until the engine wants it again.
    is_waiting: bool,
    /// That message was counted already.
    is_counted: bool,
    /// Its caller has paid for that message.
    has_paid: bool,
    /// Caller that pays for the messages of the session, from the login on.
    caller: Option<Caller>,
    /// Which of them.
    charged: Charged,
    /// What its request holds, until the login.
    standing: Option<Arc<Standing>>,
    /// Nothing is given before this time, because its address was closed for a limit or its caller has spent its rate.
    held_until: Option<Instant>,
    /// The session coalesces, so the shard tells it when it lags.
    is_watched: bool,
    is_lagging: bool,
    /// Bytes that may wait for it when more comes.
    bytes_max: usize,
    /// It ends with this turn.
    end: Option<End>,
}

/// The sessions without a socket of a shard.
#[derive(Debug, Default)]
pub(super) struct CarriedSessions {
    sessions: HashMap<Key, Carried>,
    /// Those whose first messages are held back, by the end of that.
    held: BTreeSet<(Instant, Key)>,
    ending: Vec<Key>,
    /// What waits for those who were given something in this turn.
    filled: Vec<Filled>,
    /// Those of whom the engine wants to know that little waits for them, and little does.
    drained: Vec<Key>,
    /// Bytes that were last copied out of the log. Most sessions have the ranges of the one before.
    last: (Vec<Span>, Bytes),
    nobody: Option<Arc<Peer>>,
}

/// What waits for a session that was given something.
#[derive(Clone, Copy, Debug)]
struct Filled {
    key: Key,
    bytes: usize,
    /// The part of it that this turn has added. The task of the session could not have taken that part yet.
    added: usize,
}

impl CarriedSessions {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes that wait for a session to take them; `None` if there is no such session.
    pub(super) fn waiting_bytes(&self, key: Key) -> Option<usize> {
        let carried = self.sessions.get(&key)?;
        Some(carried.carrier.waiting_bytes())
    }

    /// All of them with the bytes that wait for each to take them.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, Key)> {
        let sessions = self.sessions.iter();
        sessions.map(|(key, carried)| (carried.carrier.waiting_bytes(), *key))
    }

    /// Whether one ends with this turn.
    pub(super) fn has_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// When the next one is no longer held back.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.first().map(|(until, _)| *until)
    }

    /// Who it is, until the login; nobody if there is no such session.
    pub(super) fn peer(&mut self, key: Key) -> &mut Option<Arc<Peer>> {
        match self.sessions.get_mut(&key) {
            Some(carried) => &mut carried.peer,
            None => &mut self.nobody,
        }
    }

    /// A session has logged in as this caller; false if the caller holds all that one may hold. What has a socket is none of these.
    pub(super) fn logged_in(&mut self, key: Key, caller: impl FnOnce() -> Caller) -> bool {
        let Some(carried) = self.sessions.get_mut(&key) else {
            return true;
        };
        let caller = carried.caller.insert(caller());
        let standing = carried.standing.take();
        standing.is_none_or(|standing| standing.move_to(caller).is_ok())
    }

    /// Gives the task of a session what the webhook has for clients that log in over HTTP, as JSON.
    pub(super) fn give_token(&self, key: Key, token: String) {
        if let Some(carried) = self.sessions.get(&key) {
            // A session logs in once.
            let _ = carried.carrier.token.set(token);
        }
    }

    /// Takes back the bytes that wait for a session that must no longer get them.
    pub(super) fn take_back(&self, key: Key) {
        if let Some(carried) = self.sessions.get(&key) {
            carried.carrier.take_back();
        }
    }

    /// Gives a session its ranges of the log.
    pub(super) fn push(&mut self, key: Key, spans: &[Span], logs: &TurnLogs) {
        let Some(carried) = self.sessions.get(&key) else {
            return;
        };
        if self.last.0 != spans {
            let mut chunk = BytesMut::new();
            for span in spans {
                chunk.extend_from_slice(logs.slice(CARRIED.0, &(span.start..span.end)));
            }
            self.last = (spans.to_vec(), chunk.freeze());
        }
        let chunk = self.last.1.clone();
        let added = chunk.len();
        let bytes = carried.carrier.push(chunk);
        self.filled.push(Filled { key, bytes, added });
    }
}

impl Conductor {
    pub(super) fn take_carried(&mut self, mail: CarriedMail) {
        match mail {
            CarriedMail::Open {
                carrier,
                peer,
                standing,
                stay,
                messages,
            } => self.open_carried(carrier, (peer, standing), stay, messages),
            CarriedMail::Messages { carrier, messages } => {
                let Some(key) = carrier.key.get() else { return };
                if self.is_draining {
                    return self.end_carried(*key, End::GoingAway);
                }
                if let Some(carried) = self.carried.sessions.get_mut(key) {
                    carried.messages.extend_from_slice(&messages);
                    self.give_carried(*key);
                }
            }
            CarriedMail::Drained(carrier) => {
                if let Some(key) = carrier.key.get() {
                    self.carried.drained.push(*key);
                }
            }
            CarriedMail::Taken => {}
            CarriedMail::Gone(carrier) => {
                if let Some(key) = carrier.key.get() {
                    self.remove_carried(*key, None);
                }
            }
        }
    }

    fn open_carried(
        &mut self,
        carrier: Arc<Carrier>,
        (peer, standing): (Arc<Peer>, Option<Arc<Standing>>),
        stay: Stay,
        messages: Vec<u8>,
    ) {
        if self.is_draining {
            return carrier.end(End::GoingAway);
        }
        let key = self.event_loop.connections_mut().lend_place();
        // Nobody else sets it.
        let _ = carrier.key.set(key);
        let session = self.session(key);
        self.handle(Input::Opened {
            session,
            format: CARRIED,
        });
        let origin = Subject::new(peer.address.ip()).hash();
        self.engine.set_origin(session, origin);
        let (bytes_max, charged) = match stay {
            Stay::Passing { bytes_max } => {
                self.engine.set_passing(session);
                (bytes_max, Charged::All)
            }
            Stay::Lasting => (self.limits.outbox.bytes_max, Charged::Subscriptions),
        };
        let address = peer.address.ip();
        let delay = self.backoff.arrival(self.now.monotonic, address);
        self.carried.sessions.insert(
            key,
            Carried {
                carrier,
                peer: Some(peer),
                messages,
                taken: 0,
                is_waiting: false,
                is_counted: false,
                has_paid: false,
                caller: None,
                charged,
                standing,
                held_until: delay.map(|delay| delay.until),
                is_watched: false,
                is_lagging: false,
                bytes_max,
                end: None,
            },
        );
        let Some(delay) = delay else {
            return self.give_carried(key);
        };
        let stats = self.own.stats();
        add(&stats.backoff_waits, 1);
        add(&stats.backoff_refusals, u64::from(delay.refuse));
        if delay.refuse {
            let refused = tidewire_core::effect::CloseReason::Refused;
            return self.end_carried(key, End::Engine(refused));
        }
        self.carried.held.insert((delay.until, key));
    }

    /// Lets sessions continue when their time has passed.
    pub(super) fn release_carried(&mut self) {
        while let Some((until, key)) = self.carried.held.first().copied()
            && until <= self.now.monotonic
        {
            self.carried.held.pop_first();
            if let Some(carried) = self.carried.sessions.get_mut(&key) {
                carried.held_until = None;
                self.give_carried(key);
            }
        }
    }

    /// The message that had to wait may be given again.
    pub(super) fn resume_carried(&mut self, key: Key) {
        if let Some(carried) = self.carried.sessions.get_mut(&key)
            && std::mem::take(&mut carried.is_waiting)
        {
            self.give_carried(key);
        }
    }

    /// Gives the engine all messages of a session, until one has to wait.
    fn give_carried(&mut self, key: Key) {
        let session = self.session(key);
        while let Some(carried) = self.carried.sessions.get_mut(&key) {
            if carried.is_waiting || carried.held_until.is_some() || carried.end.is_some() {
                return;
            }
            let untaken = &carried.messages[carried.taken..];
            let Some(bytes) = Deepstream::message_bytes(untaken) else {
                // The front encodes whole messages, so nothing is left behind the last one.
                carried.messages.clear();
                carried.taken = 0;
                return;
            };
            let flow = match Deepstream::decode(&untaken[..bytes]) {
                Ok(message) => {
                    let was_counted = std::mem::replace(&mut carried.is_counted, true);
                    if !was_counted {
                        add(&self.own.stats().messages_in[topic_index(&message)], 1);
                    }
                    if let Message::Connection(Introduction::Challenge { coalesces, .. }) = message
                    {
                        carried.is_watched = coalesces;
                    }
                    if let Some(caller) = &carried.caller
                        && !carried.has_paid
                    {
                        let now = self.now.monotonic;
                        if let Err(until) =
                            self.callers.take(now, caller, &message, carried.charged)
                        {
                            add(&self.own.stats().caller_waits, 1);
                            carried.held_until = Some(until);
                            self.carried.held.insert((until, key));
                            return;
                        }
                        carried.has_paid = true;
                    }
                    let (engine, sink) = (&mut self.engine, &mut self.sink);
                    traces::give(engine, self.now, session, &message, sink)
                }
                Err(_) => Flow::Taken,
            };
            match flow {
                Flow::Taken => {
                    carried.taken += bytes;
                    carried.is_counted = false;
                    carried.has_paid = false;
                    if bytes > UNCOUNTED_PAYLOAD_MAX {
                        self.engine.add_work(session, bytes);
                    }
                }
                Flow::Wait => carried.is_waiting = true,
            }
            self.has_unflushed = true;
            self.charge(NOBODY, bytes);
            self.run_deferred();
        }
    }

    /// Requests a notice to the engine when few bytes wait for a session.
    pub(super) fn await_carried(&mut self, key: Key) {
        let drained_bytes = self.limits.outbox.drained_bytes;
        if let Some(carried) = self.carried.sessions.get(&key)
            && !carried.carrier.await_drained(drained_bytes)
        {
            self.carried.drained.push(key);
        }
    }

    /// Looks at what waits for those who were given something: who lags, who has drained, who is too slow.
    pub(super) fn settle_carried(&mut self) {
        let marks = self.limits.outbox;
        for Filled { key, bytes, added } in std::mem::take(&mut self.carried.filled) {
            let Some(carried) = self.carried.sessions.get_mut(&key) else {
                continue;
            };
            if bytes - added > carried.bytes_max {
                add(&self.own.stats().slow_disconnects, 1);
                self.remove_carried(key, Some(End::Slow));
            } else if bytes > marks.lagging_bytes && carried.is_watched && !carried.is_lagging {
                carried.is_lagging = true;
                if !carried.carrier.await_drained(marks.drained_bytes) {
                    self.carried.drained.push(key);
                }
                let session = self.session(key);
                self.handle(Input::Lagging { session });
            }
        }
        for key in std::mem::take(&mut self.carried.drained) {
            if let Some(carried) = self.carried.sessions.get_mut(&key) {
                carried.is_lagging = false;
                let session = self.session(key);
                self.handle(Input::Drained { session });
            }
        }
    }

    /// Ends a session with this turn, behind the messages that the engine decided for it.
    pub(super) fn end_carried(&mut self, key: Key, end: End) {
        if let Some(carried) = self.carried.sessions.get_mut(&key)
            && carried.end.is_none()
        {
            carried.end = Some(end);
            self.carried.ending.push(key);
        }
    }

    /// Marks the bytes that wait for a session; false if there are none.
    pub(super) fn mark_carried(&self, key: Key) -> bool {
        let carried = self.carried.sessions.get(&key);
        carried.is_some_and(|carried| carried.carrier.mark())
    }

    /// Whether something that was marked waits for the session still.
    pub(super) fn has_marked_carried(&self, key: Key) -> bool {
        let carried = self.carried.sessions.get(&key);
        carried.is_some_and(|carried| carried.carrier.has_marked())
    }

    /// Ends a session that has lost a right and did not take the messages that were decided before.
    pub(super) fn sever_carried(&mut self, key: Key) {
        if let Some(carried) = self.carried.sessions.get(&key)
            && carried.carrier.take_back()
        {
            add(&self.own.stats().rights_cuts, 1);
            self.remove_carried(key, Some(End::Severed));
        }
    }

    pub(super) fn end_all_carried(&mut self) {
        let keys: Vec<Key> = self.carried.sessions.keys().copied().collect();
        for key in keys {
            self.end_carried(key, End::GoingAway);
        }
    }

    /// Tells the tasks of the sessions that end with this turn, behind everything that the turn has for them.
    pub(super) fn finish_carried(&mut self) {
        for key in std::mem::take(&mut self.carried.ending) {
            let end = self.carried.sessions.get(&key);
            let end = end.and_then(|carried| carried.end);
            self.remove_carried(key, end);
        }
    }

    /// Ends a session because the node holds too much, and this session most of it.
    pub(super) fn end_carried_holder(&mut self, key: Key) {
        self.remove_carried(key, Some(End::Slow));
    }

    fn remove_carried(&mut self, key: Key, end: Option<End>) {
        let Some(carried) = self.carried.sessions.remove(&key) else {
            return;
        };
        self.logins.remove(&key);
        if let Some(end) = end {
            carried.carrier.end(end);
        }
        if let Some(until) = carried.held_until {
            self.carried.held.remove(&(until, key));
        }
        let session = self.session(key);
        self.handle(Input::Closed { session });
        self.free_place(key);
    }
}

//! Sessions without a socket: a task of the front sends their messages and receives their answers, see [`carrier`].
//!
//! Each has a key from the table of connections, so the engine handles it like any other session.
//!
//! [`carrier`]: crate::carrier

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tidewire_core::effect::{Flow, Input, Span};
use tidewire_core::rate::Charged;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;

use super::Conductor;
use super::reading::UNCOUNTED_PAYLOAD_MAX;
use crate::carrier::{CarriedMail, Carrier, End, Stay};
use crate::connection_limiter::Subject;
use crate::credit::NO_CONNECTION;
use crate::peer::PeerDetails;
use crate::reply::{Replies, ReplyLog};
use crate::request::OwnedRequest;
use crate::share::{Caller, Standing};
use crate::sink::CARRIED;
use crate::stats::{add, topic_index};

/// A session and the data that it has not received yet.
#[derive(Debug)]
struct Carried {
    carrier: Arc<Carrier>,
    /// PeerDetails of the session, until the login.
    peer: Option<Arc<PeerDetails>>,
    /// Messages that the engine has not handled.
    requests: VecDeque<OwnedRequest>,
    /// Whether the next message has to wait until the engine resumes the session.
    is_waiting: bool,
    /// Whether that message was counted already.
    is_counted: bool,
    /// Whether the caller has paid for that message.
    has_paid: bool,
    /// The caller that pays for the messages of the session, after the login.
    caller: Option<Caller>,
    /// The kinds of messages for which the caller pays.
    charged: Charged,
    /// The resources of its request, until the login.
    standing: Option<Arc<Standing>>,
    /// No message is handled before this time, because its address was closed for a limit or its caller has used up its rate.
    held_until: Option<Instant>,
    /// Whether the session coalesces, so that the shard reports to the engine when it lags.
    is_watched: bool,
    is_lagging: bool,
    /// Bytes that may wait for the session when more bytes arrive.
    bytes_max: usize,
    /// The reason with which the session ends in this turn.
    end: Option<End>,
}

/// The sessions without a socket of a shard.
#[derive(Debug, Default)]
pub(super) struct CarriedSessions {
    sessions: HashMap<Key, Carried>,
    /// Sessions whose messages are delayed, by the end of the delay.
    held: BTreeSet<(Instant, Key)>,
    ending: Vec<Key>,
    /// The sessions that got bytes in this turn.
    filled: Vec<Filled>,
    /// Sessions with few waiting bytes whose notice the engine has requested.
    drained: Vec<Key>,
    /// The replies that were last taken from the log. Most sessions get the same ranges as the session before.
    last: (Vec<Span>, Replies),
    no_peer: Option<Arc<PeerDetails>>,
}

/// The waiting bytes of a session that got bytes in this turn.
#[derive(Clone, Copy, Debug)]
struct Filled {
    key: Key,
    bytes: usize,
    /// The part that this turn has added. The task of the session could not take that part yet.
    added: usize,
}

impl CarriedSessions {
    /// The number of these sessions.
    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes that wait for a session to take them; `None` if the session does not exist.
    pub(super) fn waiting_bytes(&self, key: Key) -> Option<usize> {
        let carried = self.sessions.get(&key)?;
        Some(carried.carrier.waiting_bytes())
    }

    /// All sessions with the bytes that wait for each of them.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, Key)> {
        let sessions = self.sessions.iter();
        sessions.map(|(key, carried)| (carried.carrier.waiting_bytes(), *key))
    }

    /// Whether a session ends with this turn.
    pub(super) fn has_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// When the next delay ends.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.first().map(|(until, _)| *until)
    }

    /// The peer of a session, until the login; `None` if the session does not exist.
    pub(super) fn peer(&mut self, key: Key) -> &mut Option<Arc<PeerDetails>> {
        match self.sessions.get_mut(&key) {
            Some(carried) => &mut carried.peer,
            None => &mut self.no_peer,
        }
    }

    /// Notes that a session has logged in as this caller. Returns false if the caller has used up its share. Sessions with a socket are
    /// not counted.
    pub(super) fn logged_in(&mut self, key: Key, caller: impl FnOnce() -> Caller) -> bool {
        let Some(carried) = self.sessions.get_mut(&key) else {
            return true;
        };
        let caller = carried.caller.insert(caller());
        let standing = carried.standing.take();
        standing.is_none_or(|standing| standing.move_to(caller).is_ok())
    }

    /// Passes the webhook's data for clients that log in over HTTP, as JSON, to the task of a session.
    pub(super) fn give_token(&self, key: Key, token: String) {
        if let Some(carried) = self.sessions.get(&key) {
            // A session logs in once.
            let _ = carried.carrier.token.set(token);
        }
    }

    /// Removes the waiting bytes of a session that must no longer get them.
    pub(super) fn take_back(&self, key: Key) {
        if let Some(carried) = self.sessions.get(&key) {
            carried.carrier.take_back();
        }
    }

    /// Sends a session its ranges of the log.
    pub(super) fn push(&mut self, key: Key, spans: &[Span], log: &ReplyLog) {
        let Some(carried) = self.sessions.get(&key) else {
            return;
        };
        if self.last.0 != spans {
            self.last = (spans.to_vec(), log.replies(spans));
        }
        let chunk = self.last.1.clone();
        let added = chunk.bytes();
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
                requests,
            } => self.open_carried(carrier, (peer, standing), stay, requests),
            CarriedMail::Requests { carrier, requests } => {
                let Some(key) = carrier.key.get() else { return };
                if self.is_draining {
                    return self.end_carried(*key, End::GoingAway);
                }
                if let Some(carried) = self.carried.sessions.get_mut(key) {
                    carried.requests.extend(requests);
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
        (peer, standing): (Arc<PeerDetails>, Option<Arc<Standing>>),
        stay: Stay,
        requests: Vec<OwnedRequest>,
    ) {
        if self.is_draining {
            return carrier.end(End::GoingAway);
        }
        let key = self.event_loop.connections_mut().lend_slot();
        // Only this function sets it.
        let _ = carrier.key.set(key);
        let session = self.session(key);
        let coalesces = matches!(stay, Stay::Lasting { coalesces: true });
        self.handle(Input::Opened {
            session,
            format: CARRIED,
            coalesces: Some(coalesces),
        });
        let origin = Subject::new(peer.address.ip()).hash();
        self.engine.set_origin(session, origin);
        let (bytes_max, charged) = match stay {
            Stay::Passing { bytes_max } => {
                self.engine.set_passing(session);
                (bytes_max, Charged::All)
            }
            Stay::Lasting { .. } => (self.limits.outbox.bytes_max, Charged::Subscriptions),
        };
        let address = peer.address.ip();
        let delay = self.backoff.arrival(self.now.monotonic, address);
        self.carried.sessions.insert(
            key,
            Carried {
                carrier,
                peer: Some(peer),
                requests: requests.into(),
                is_waiting: false,
                is_counted: false,
                has_paid: false,
                caller: None,
                charged,
                standing,
                held_until: delay.map(|delay| delay.until),
                is_watched: coalesces,
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

    /// Continues with sessions whose delay has ended.
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

    /// Continues with the message that had to wait.
    pub(super) fn resume_carried(&mut self, key: Key) {
        if let Some(carried) = self.carried.sessions.get_mut(&key)
            && std::mem::take(&mut carried.is_waiting)
        {
            self.give_carried(key);
        }
    }

    /// Passes all messages of a session to the engine, until one has to wait.
    fn give_carried(&mut self, key: Key) {
        let session = self.session(key);
        while let Some(carried) = self.carried.sessions.get_mut(&key) {
            if carried.is_waiting || carried.held_until.is_some() || carried.end.is_some() {
                return;
            }
            let Some(request) = carried.requests.front() else {
                return;
            };
            let (bytes, message) = (request.bytes(), request.message());
            let was_counted = std::mem::replace(&mut carried.is_counted, true);
            if !was_counted {
                add(&self.own.stats().messages_in[topic_index(&message)], 1);
            }
            if let Some(caller) = &carried.caller
                && !carried.has_paid
            {
                let now = self.now.monotonic;
                if let Err(until) = self.callers.take(now, caller, &message, carried.charged) {
                    add(&self.own.stats().caller_waits, 1);
                    carried.held_until = Some(until);
                    self.carried.held.insert((until, key));
                    return;
                }
                carried.has_paid = true;
            }
            let (engine, sink) = (&mut self.engine, &mut self.sink);
            match sink.handle_message(engine, self.now, session, &message) {
                Flow::Taken => {
                    carried.requests.pop_front();
                    carried.is_counted = false;
                    carried.has_paid = false;
                    if bytes > UNCOUNTED_PAYLOAD_MAX {
                        self.engine.add_work(session, bytes);
                    }
                }
                Flow::Wait => carried.is_waiting = true,
            }
            self.has_unflushed = true;
            self.charge(NO_CONNECTION, bytes);
            self.run_deferred();
        }
    }

    /// Requests that the engine is notified when few bytes wait for a session.
    pub(super) fn await_carried(&mut self, key: Key) {
        let drained_bytes = self.limits.outbox.drained_bytes;
        if let Some(carried) = self.carried.sessions.get(&key)
            && !carried.carrier.await_drained(drained_bytes)
        {
            self.carried.drained.push(key);
        }
    }

    /// Checks the sessions that got bytes in this turn for lag and for their limit, and reports the drained ones.
    pub(super) fn settle_carried(&mut self) {
        // The limit applies to the bytes without this turn's part, because the task had no chance to take that part. So a session that
        // takes everything between two turns is not ended for one large turn. A session that coalesces is reported as lagging once, and
        // asks for the drained notice in the same step; if its task has taken the bytes in the meantime, the notice is due at once.
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

    /// Ends a session with this turn, after the messages that the engine decided for it.
    pub(super) fn end_carried(&mut self, key: Key, end: End) {
        if let Some(carried) = self.carried.sessions.get_mut(&key)
            && carried.end.is_none()
        {
            carried.end = Some(end);
            self.carried.ending.push(key);
        }
    }

    /// Marks the bytes that wait for a session. Returns false if no bytes wait.
    pub(super) fn mark_carried(&self, key: Key) -> bool {
        let carried = self.carried.sessions.get(&key);
        carried.is_some_and(|carried| carried.carrier.mark())
    }

    /// Whether marked bytes still wait for the session.
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

    /// Ends the sessions that end with this turn, after all messages of the turn.
    pub(super) fn finish_carried(&mut self) {
        for key in std::mem::take(&mut self.carried.ending) {
            let end = self.carried.sessions.get(&key);
            let end = end.and_then(|carried| carried.end);
            self.remove_carried(key, end);
        }
    }

    /// Ends a session because the node uses too much memory, and this session most of it.
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
        self.free_key(key);
    }
}

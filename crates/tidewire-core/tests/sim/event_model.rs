//! A naive model of events: which session must hear an event, which may, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::Value;
use tidewire_core::address::SessionId;

use crate::check::{Check, Checked, Violation, ensure, violated};
use crate::nodes::index_of;
use crate::record_model::Stamp;
use crate::wire::parse;

/// One session's subscription to one event.
#[derive(Debug, Default)]
struct Subscription {
    /// The session's shard has the subscription.
    lasts: bool,
    /// The session has read the ack of the request with this id.
    acked: bool,
    waits_for: Option<String>,
    required: BTreeSet<u64>,
    heard: BTreeSet<u64>,
    /// Events that reached the session's shard during the subscription and that the session has not heard.
    due: BTreeSet<u64>,
    /// The number of skipped events that the server has reported to the session.
    missed: usize,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct EventModel {
    subscriptions: BTreeMap<(SessionId, String), Subscription>,
    /// Name and stamp of each event, by its number.
    sent: BTreeMap<u64, (String, Rc<Stamp>)>,
    /// The newest event of each sender that each session has heard.
    newest: BTreeMap<(SessionId, SessionId), u64>,
}

impl EventModel {
    /// A session subscribes at its shard; `id` is the id of the expected ack.
    pub fn subscribe(&mut self, session: SessionId, name: &str, id: &str) {
        let subscription = self
            .subscriptions
            .entry((session, name.into()))
            .or_default();
        if !subscription.lasts {
            subscription.lasts = true;
            subscription.acked = false;
            subscription.waits_for = Some(id.into());
            subscription.due.clear();
            subscription.missed = 0;
        }
    }

    /// A session unsubscribes at its shard. Events in flight to it may be lost.
    pub fn unsubscribe(&mut self, session: SessionId, name: &str) {
        let subscription = self
            .subscriptions
            .entry((session, name.into()))
            .or_default();
        subscription.lasts = false;
        subscription.acked = false;
        subscription.required.clear();
    }

    /// A session has read an ack.
    pub fn acked(&mut self, session: SessionId, id: &str) {
        for ((of, _), subscription) in &mut self.subscriptions {
            if *of == session && subscription.waits_for.as_deref() == Some(id) {
                subscription.acked = subscription.lasts;
                subscription.waits_for = None;
            }
        }
    }

    /// A client publishes an event at its own shard.
    pub fn publish(&mut self, name: &str, data: &str, stamp: Rc<Stamp>) {
        let number = number_of(data);
        for ((session, of), subscription) in &mut self.subscriptions {
            if of == name && subscription.acked && *session != stamp.session {
                subscription.required.insert(number);
            }
        }
        self.sent.insert(number, (name.into(), stamp));
    }

    /// An event reaches a shard.
    pub fn comes(&mut self, shard: usize, name: &str, data: &str) {
        let number = number_of(data);
        let Some((_, stamp)) = self.sent.get(&number) else {
            return;
        };
        for ((session, of), subscription) in &mut self.subscriptions {
            let here = index_of(session.address) == shard;
            if here && of == name && subscription.lasts && *session != stamp.session {
                subscription.due.insert(number);
            }
        }
    }

    /// A session receives the number of events that it missed.
    pub fn heard_gap(&mut self, session: SessionId, name: &str, missed: u32) -> Checked {
        let subscription = self.subscriptions.get_mut(&(session, name.to_owned()));
        match subscription.filter(|subscription| subscription.lasts) {
            Some(subscription) => {
                subscription.missed += missed as usize;
                Ok(())
            }
            None => violated(
                Check::GapCounted,
                format!("{session:?} is told of a gap in {name}, which it does not want"),
            ),
        }
    }

    /// A session hears an event. Returns the stamp of the client message that caused it.
    pub fn hear(
        &mut self,
        session: SessionId,
        name: &str,
        data: &str,
    ) -> Result<Rc<Stamp>, Violation> {
        let number = number_of(data);
        let Some((sent_as, stamp)) = self.sent.get(&number) else {
            return violated(
                Check::EventOnce,
                format!("{session:?} hears {data}, which was not published"),
            );
        };
        let subscription = self
            .subscriptions
            .entry((session, name.into()))
            .or_default();
        let is_due =
            sent_as == name && stamp.session != session && subscription.heard.insert(number);
        ensure(is_due, Check::EventOnce, || {
            format!(
                "{session:?} hears {name} {data} of {stamp:?} twice, as its own or under a wrong name"
            )
        })?;
        subscription.required.remove(&number);
        subscription.due.remove(&number);
        let newest = self.newest.entry((session, stamp.session)).or_insert(0);
        ensure(*newest < number, Check::EventOrder, || {
            format!(
                "{session:?} hears event {number} of {:?} after {newest}",
                stamp.session
            )
        })?;
        *newest = number;
        Ok(stamp.clone())
    }

    /// Whether a session is subscribed.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.subscriptions
            .iter()
            .any(|((_, of), subscription)| of == name && subscription.lasts)
    }

    /// A session is gone.
    pub fn session_ended(&mut self, session: SessionId) {
        self.subscriptions.retain(|(of, _), _| *of != session);
    }

    /// The node has crashed.
    pub fn crash(&mut self) {
        self.subscriptions.clear();
    }

    /// Checks that sessions have heard all required events, and that every subscription got its ack.
    pub fn quiet(&self) -> Checked {
        for ((session, name), subscription) in &self.subscriptions {
            let lost = subscription.required.difference(&subscription.due);
            let lost: Vec<&u64> = lost.collect();
            ensure(lost.is_empty(), Check::EventArrives, || {
                format!("{session:?} never heard events {lost:?} of {name}")
            })?;
            let (due, missed) = (&subscription.due, subscription.missed);
            ensure(
                !subscription.lasts || due.len() == missed,
                Check::GapCounted,
                || format!("{session:?} did not hear {due:?} of {name} and was told of {missed}"),
            )?;
            ensure(
                !subscription.lasts || subscription.acked,
                Check::AnsweredOnce,
                || format!("{session:?} has got no ack for {name}"),
            )?;
        }
        Ok(())
    }
}

fn number_of(data: &str) -> u64 {
    match parse(data) {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        _ => 0,
    }
}

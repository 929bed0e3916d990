//! A naive model: which events a session must hear, which it may, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::address::SessionId;
use tidewire_core::event_pattern::matches;

use crate::permission::Rules;

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub String);

pub type Checked = Result<(), Violation>;

/// Counts of the events of the runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub heard: u64,
    pub heard_twice_subscribed: u64,
    pub heard_by_gate: u64,
    pub refused: u64,
    pub with_history: u64,
    pub rule_changes: u64,
    pub waited: u64,
    pub ended: u64,
}

impl Met {
    pub fn add(&mut self, other: Self) {
        self.heard += other.heard;
        self.heard_twice_subscribed += other.heard_twice_subscribed;
        self.heard_by_gate += other.heard_by_gate;
        self.refused += other.refused;
        self.with_history += other.with_history;
        self.rule_changes += other.rule_changes;
        self.waited += other.waited;
        self.ended += other.ended;
    }

    pub fn has_everything(&self) -> bool {
        let all = [
            self.heard,
            self.heard_twice_subscribed,
            self.heard_by_gate,
            self.refused,
            self.with_history,
            self.rule_changes,
            self.waited,
            self.ended,
        ];
        all.iter().all(|count| *count > 0)
    }
}

/// A subscription of a session, to a pattern or a name.
#[derive(Clone, Debug, Default)]
struct Subscription {
    /// The session has read the acknowledgement.
    is_acked: bool,
    /// The id of the request that waits for its acknowledgement.
    awaited: Option<String>,
}

#[derive(Debug, Default)]
struct ModelSession {
    user: String,
    subscriptions: BTreeMap<(bool, String), Subscription>,
    /// Events that it must hear, unless a rule refuses them.
    required: BTreeSet<u64>,
    heard: BTreeSet<u64>,
    /// The newest event of each sender and history.
    newest: BTreeMap<(SessionId, String), u64>,
}

#[derive(Debug)]
struct Sent {
    name: String,
    by: SessionId,
    /// The first round of rules that may decide about it.
    round: usize,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Model {
    sessions: BTreeMap<SessionId, ModelSession>,
    sent: BTreeMap<u64, Sent>,
    /// All rounds of rules, in their order.
    pub rounds: Vec<Rules>,
    pub met: Met,
}

impl Model {
    /// Creates it with the first round of rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            rounds: vec![rules],
            ..Self::default()
        }
    }

    pub fn opened(&mut self, session: SessionId, user: &str) {
        let user = user.to_owned();
        let opened = ModelSession {
            user,
            ..ModelSession::default()
        };
        self.sessions.insert(session, opened);
    }

    pub fn ended(&mut self, session: SessionId) {
        self.met.ended += 1;
        self.sessions.remove(&session);
    }

    /// A shard takes a subscription.
    pub fn subscribe(&mut self, session: SessionId, is_pattern: bool, name: &str, id: &str) {
        let Some(session) = self.sessions.get_mut(&session) else {
            return;
        };
        let key = (is_pattern, name.to_owned());
        let subscription = session.subscriptions.entry(key).or_default();
        *subscription = Subscription {
            is_acked: false,
            awaited: Some(id.to_owned()),
        };
    }

    /// A shard ends a subscription. Events on their way may or may not arrive.
    pub fn unsubscribe(&mut self, session: SessionId, is_pattern: bool, name: &str) {
        let Some(session) = self.sessions.get_mut(&session) else {
            return;
        };
        session.subscriptions.remove(&(is_pattern, name.to_owned()));
        let sent = &self.sent;
        let (required, subscriptions) = (&mut session.required, &session.subscriptions);
        required.retain(|number| is_acked(subscriptions, &sent[number].name));
    }

    /// A session reads an acknowledgement.
    pub fn acked(&mut self, session: SessionId, id: &str) {
        let Some(session) = self.sessions.get_mut(&session) else {
            return;
        };
        for subscription in session.subscriptions.values_mut() {
            if subscription.awaited.as_deref() == Some(id) {
                subscription.awaited = None;
                subscription.is_acked = true;
            }
        }
    }

    /// A shard takes an event from its publisher, by the rules of this round.
    pub fn publish(&mut self, by: SessionId, name: &str, number: u64, round: usize) {
        for (id, session) in &mut self.sessions {
            if *id != by && is_acked(&session.subscriptions, name) {
                session.required.insert(number);
            }
        }
        let name = name.to_owned();
        self.sent.insert(number, Sent { name, by, round });
    }

    /// A session reads an event that its shard encoded by these rules. `gate` is whether the event's gate has ever been open.
    pub fn hear(
        &mut self,
        id: SessionId,
        name: &str,
        number: u64,
        rules: Rules,
        gate: bool,
    ) -> Checked {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Ok(());
        };
        let sent = &self.sent[&number];
        let is_right = sent.name == name && sent.by != id && session.heard.insert(number);
        if !is_right {
            let why = format!("{id:?} hears {number} of {name} again, as its own or wrongly");
            return Err(Violation(why));
        }
        if !rules.allows(&session.user, name).unwrap_or(gate) {
            let why = format!("{id:?} hears {number} of {name}, which {rules:?} refuse");
            return Err(Violation(why));
        }
        session.required.remove(&number);
        // Events with history are ordered by their owner, all others by their publisher.
        let history = match is_kept(name) {
            true => name.to_owned(),
            false => String::new(),
        };
        let newest = session.newest.entry((sent.by, history)).or_default();
        if *newest >= number {
            let why = format!("{id:?} hears {number} of {name} after {newest}");
            return Err(Violation(why));
        }
        *newest = number;
        self.met.heard += 1;
        self.met.with_history += u64::from(is_kept(name));
        self.met.heard_by_gate += u64::from(rules == Rules::ByGate && !name.starts_with("free/"));
        let lasting = session.subscriptions.iter();
        let fits = lasting.filter(|((is_pattern, text), _)| fits(*is_pattern, text, name));
        self.met.heard_twice_subscribed += u64::from(fits.count() > 1);
        Ok(())
    }

    /// At the end no message is on its way. `always` is whether the gate of an event was open all the time.
    pub fn quiet(&mut self, always: impl Fn(&str) -> bool) -> Checked {
        for (id, session) in &self.sessions {
            for number in &session.required {
                let Sent { name, round, .. } = &self.sent[number];
                let mut rounds = self.rounds[*round..].iter();
                let is_allowed =
                    rounds.all(|rules| rules.allows(&session.user, name).unwrap_or(always(name)));
                if is_allowed {
                    return Err(Violation(format!("{id:?} never heard {number} of {name}")));
                }
                self.met.refused += 1;
            }
            let mut subscriptions = session.subscriptions.values();
            if subscriptions.any(|one| !one.is_acked) {
                return Err(Violation(format!(
                    "{id:?} has a subscription without an ack"
                )));
            }
        }
        Ok(())
    }
}

/// Whether the events of this name have a history.
pub fn is_kept(name: &str) -> bool {
    name.starts_with("kept/")
}

fn fits(is_pattern: bool, text: &str, name: &str) -> bool {
    match is_pattern {
        true => matches(text, name),
        false => text == name,
    }
}

fn is_acked(subscriptions: &BTreeMap<(bool, String), Subscription>, name: &str) -> bool {
    let mut all = subscriptions.iter();
    all.any(|((is_pattern, text), one)| one.is_acked && fits(*is_pattern, text, name))
}

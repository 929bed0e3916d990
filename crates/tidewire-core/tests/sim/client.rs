//! A client. It performs random operations of an application, and keeps records as `@deepstream/client` does: it reads once,
//! counts versions itself, applies its own writes before the server has seen them, and merges after a conflict.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Value, json};
use tidewire_core::address::SessionId;
use tidewire_core::effect::Format;
use tidewire_core::message::{RecordAction, RecordBulk};

use crate::expected::name_of;
use crate::guarded::{self, GuardedClient};
use crate::random::Random;
use crate::record_model::{Seen, Stamp};
use crate::right::{GUARDED, Right, is_guarded};
use crate::rude::{Rude, is_rude};
use crate::services::Services;
use crate::shared::{SHARED, is_shared};
use crate::wire::{Act, Delta, Heard, Said, apply, parse};

pub const RECORDS: [&str; 9] = [
    "r/0", "r/1", "r/2", "r/3", "mem/0", "ruled/0", "ruled/1", "gate/0", "gate/1",
];
pub const EVENTS: [&str; 5] = ["e/0", "e/1", "e/2", "gated/0", "gated/1"];
const PATHS: [&str; 5] = ["a", "b", "c.d", "c.e", "f"];

/// A message that a client sends, and the messages that the client had seen by then.
#[derive(Clone, Debug)]
pub struct Sent {
    pub said: Said,
    /// The number of messages that all clients had sent before.
    pub sent: u64,
    pub seen: Rc<Seen>,
}

/// The state of a record at a client.
#[derive(Clone, Debug)]
enum ExpectedRecord {
    /// The client has sent a subscription, perhaps right after it ended an earlier one. Only after the ack does a message
    /// certainly belong to the new subscription.
    Wanted {
        acked: bool,
    },
    Open {
        version: i32,
        value: Value,
    },
    /// The client has sent the end of the subscription.
    Ending,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Client {
    pub user: String,
    pub format: Format,
    /// Whether the client requests coalescing.
    pub coalesces: bool,
    pub session: Option<SessionId>,
    pub open: bool,
    records: BTreeMap<String, ExpectedRecord>,
    /// The correlation id of the newest subscription to each record.
    subscribed: BTreeMap<String, String>,
    /// Records whose delete has no answer yet.
    deleting: Vec<String>,
    events: BTreeMap<String, bool>,
    seen: Seen,
    correlation: u64,
    outgoing: Vec<Said>,
    /// For each open record: the latest notice about its provider.
    provided: BTreeMap<String, bool>,
    pub services: Services,
    pub guarded: GuardedClient,
    /// State for the shared records, which another process also writes.
    pub shared: GuardedClient,
    /// This run has shared records.
    pub shares: bool,
    /// Rules change in this run, so the client uses only the guarded records.
    pub is_ruled: bool,
}

impl Client {
    pub fn new(user: String, format: Format, coalesces: bool) -> Self {
        Self {
            user,
            format,
            coalesces,
            session: None,
            open: false,
            records: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            deleting: Vec::new(),
            events: BTreeMap::new(),
            seen: Seen::new(),
            correlation: 0,
            outgoing: Vec::new(),
            provided: BTreeMap::new(),
            services: Services::default(),
            guarded: GuardedClient::default(),
            shared: GuardedClient::default(),
            shares: false,
            is_ruled: false,
        }
    }

    /// The client has connected.
    pub fn connected(&mut self, session: SessionId, coalesces: bool) {
        self.session = Some(session);
        self.say(Said::Challenge { coalesces });
    }

    /// The connection is gone. After the next login the client subscribes again to the records and events that were open.
    pub fn lost(&mut self) {
        self.session = None;
        self.open = false;
        self.deleting.clear();
        self.outgoing.clear();
        self.provided.clear();
        self.services.lost();
        self.guarded.lost();
        self.shared.lost();
    }

    /// The messages that the client is about to send.
    pub fn outgoing(&self) -> &[Said] {
        &self.outgoing
    }

    /// Takes the messages since the last call. `before` is the number of messages that all clients had sent before.
    pub fn take_outgoing(&mut self, before: u64) -> Vec<Sent> {
        if self.outgoing.is_empty() {
            return Vec::new();
        }
        let seen = Rc::new(self.seen.clone());
        let outgoing = std::mem::take(&mut self.outgoing).into_iter();
        outgoing
            .zip(before..)
            .map(|(said, sent)| Sent {
                said,
                sent,
                seen: seen.clone(),
            })
            .collect()
    }

    /// Performs a random operation.
    pub fn act(&mut self, random: &mut Random, next_event: &mut u64) {
        if random.chance(3) {
            return self.say(Said::Rude(*random.pick(&Rude::ALL)));
        }
        if random.chance(35) {
            let said = self.services.act(random, next_event);
            return self.outgoing.extend(said);
        }
        if self.is_ruled && random.chance(40) {
            *next_event += 1;
            let said = self.guarded.act(&GUARDED, random, *next_event);
            return self.say(said);
        }
        if self.shares && random.chance(20) {
            *next_event += 1;
            let said = self.shared.act(&SHARED, random, *next_event);
            return self.say(said);
        }
        let kinds = if self.is_ruled { 7 } else { 21 };
        match random.below(kinds) {
            20 => self.notify(random),
            0..4 => {
                *next_event += 1;
                let name = random.pick(&EVENTS).to_string();
                let data = next_event.to_string();
                self.say(Said::Emit { name, data });
            }
            4..7 => self.change_event(random),
            7..11 => self.change_record(random),
            11..16 => self.write(random),
            16 => self.set_data(random),
            17 => self.delete(random),
            18 => {
                let name = random.pick(&RECORDS).to_string();
                self.say(Said::Read { name });
            }
            _ => {
                let name = random.pick(&RECORDS).to_string();
                self.say(Said::Head { name });
            }
        }
    }

    /// Opens or closes a gate that rules of events read.
    pub fn turn_gate(&mut self, random: &mut Random) {
        let name = format!("gate/{}", random.below(2));
        let data = json!({ "open": random.chance(60) }).to_string();
        let id = random.chance(50).then(|| self.next_id());
        self.say(Said::Write {
            name,
            version: -1,
            id,
            act: Act::CreateAndUpdate,
            delta: Delta::Whole(data),
        });
    }

    /// Reads a message and reacts to it.
    pub fn hear(&mut self, heard: &Heard, stamp: Option<&Rc<Stamp>>, random: &mut Random) {
        if let Some(stamp) = stamp {
            self.learn(stamp);
        }
        let said = self.services.hear(heard, random);
        self.outgoing.extend(said);
        self.outgoing.extend(self.guarded.hear(heard));
        self.outgoing.extend(self.shared.hear(heard));
        if name_of(heard).is_some_and(|name| is_guarded(name) || is_rude(name) || is_shared(name)) {
            return;
        }
        match heard {
            Heard::Accepted => {
                let user = match random.chance(2) {
                    true => "{".into(),
                    false => json!({ "user": self.user }).to_string(),
                };
                self.say(Said::Login { user });
            }
            Heard::LoggedIn => self.logged_in(random),
            Heard::LoginRefused => {
                let user = json!({ "user": self.user }).to_string();
                self.say(Said::Login { user });
            }
            Heard::Value {
                name,
                version,
                data,
            } => self.adopt(name, *version, parse(data)),
            Heard::Version { name, version } => {
                if let Some(ExpectedRecord::Wanted { .. }) = self.records.get(name) {
                    if *version == -1 {
                        self.adopt(name, -1, json!({}));
                    } else {
                        self.say(Said::Read { name: name.clone() });
                    }
                }
            }
            Heard::NotFound { name } => self.adopt(name, -1, json!({})),
            Heard::Changed {
                name,
                version,
                delta,
            } => self.changed(name, *version, delta),
            Heard::Deleted { name } => {
                if let Some(ExpectedRecord::Open { .. } | ExpectedRecord::Wanted { acked: true }) =
                    self.records.get(name)
                {
                    self.records.remove(name);
                }
            }
            Heard::DeleteDone { name } => {
                self.deleting.retain(|deleting| deleting != name);
                self.records.remove(name);
            }
            Heard::VersionExists {
                name,
                version,
                data: Some(data),
                ..
            } => self.merge(name, *version, parse(data), random),
            Heard::InvalidVersion { name, .. } => self.say(Said::Read { name: name.clone() }),
            Heard::RecordRefused {
                name, action, id, ..
            } => self.refused(name, *action, id.as_deref()),
            Heard::RecordAck {
                action: RecordBulk::Unsubscribe,
                id,
                ..
            } => {
                if let Some(ExpectedRecord::Ending) = self.records.get(id) {
                    self.records.remove(id);
                }
            }
            Heard::Ended {
                right: Right::Event(name),
                ..
            } => {
                self.events.insert(name.clone(), false);
            }
            Heard::HasProvider { name, provided } => {
                self.provided.insert(name.clone(), *provided);
            }
            Heard::RecordAck { action, names, .. } if *action != RecordBulk::Notify => {
                for name in names {
                    self.provided.remove(name);
                    if let Some(ExpectedRecord::Wanted { acked }) = self.records.get_mut(name) {
                        *acked = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends all its subscriptions.
    pub fn unsubscribe_all(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        for name in names {
            self.unsubscribe(&name);
        }
        let names: Vec<String> = std::mem::take(&mut self.events).into_keys().collect();
        let id = self.next_id();
        self.say(Said::EventUnsubscribe { names, id });
    }

    /// Writes each of the given records, which only their own model follows.
    pub fn write_all(&mut self, names: &[&str], next_event: &mut u64) {
        for name in names {
            *next_event += 1;
            self.say(guarded::write(name, *next_event));
        }
    }

    /// Queries which users are online.
    pub fn query_presence(&mut self) {
        let said = self.services.query();
        self.say(said);
        self.say(Said::QueryAll);
    }

    /// The open records; the flag is true if the record has a provider, as far as the client knows.
    pub fn open_records(&self) -> impl Iterator<Item = (&str, bool)> {
        self.records
            .iter()
            .filter(|(_, held)| matches!(held, ExpectedRecord::Open { .. }))
            .map(|(name, _)| {
                let provided = self.provided.get(name).copied().unwrap_or(false);
                (name.as_str(), provided)
            })
    }

    fn say(&mut self, said: Said) {
        if let Said::Bulk { action, names, id } = &said
            && !matches!(action, RecordBulk::Unsubscribe | RecordBulk::Notify)
        {
            for name in names {
                self.subscribed.insert(name.clone(), id.clone());
            }
        }
        self.outgoing.push(said);
    }

    fn next_id(&mut self) -> String {
        self.correlation += 1;
        self.correlation.to_string()
    }

    fn learn(&mut self, stamp: &Stamp) {
        let direct = std::iter::once((&stamp.session, &stamp.number));
        for (session, number) in stamp.seen.iter().chain(direct) {
            let known = self.seen.entry(*session).or_insert(0);
            *known = (*known).max(*number);
        }
    }

    /// Subscribes again to all records and events that were open when the connection was lost.
    fn logged_in(&mut self, random: &mut Random) {
        self.open = true;
        let names: Vec<String> = self
            .events
            .iter()
            .filter(|(_, on)| **on)
            .map(|(name, _)| name.clone())
            .collect();
        if !names.is_empty() {
            let id = self.next_id();
            self.say(Said::EventSubscribe { names, id });
        }
        self.records
            .retain(|_, held| !matches!(held, ExpectedRecord::Ending));
        let names: Vec<String> = self.records.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        for held in self.records.values_mut() {
            *held = ExpectedRecord::Wanted { acked: true };
        }
        let action = *random.pick(&[
            RecordBulk::SubscribeAndHead,
            RecordBulk::SubscribeCreateAndRead,
        ]);
        let id = self.next_id();
        self.say(Said::Bulk { action, names, id });
    }

    fn change_event(&mut self, random: &mut Random) {
        let count = 1 + random.below(2);
        let on = random.chance(70);
        let mut names: Vec<String> = Vec::new();
        for _ in 0..count {
            let name = random.pick(&EVENTS).to_string();
            if self.events.get(&name).copied().unwrap_or(false) != on && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return;
        }
        for name in &names {
            self.events.insert(name.clone(), on);
        }
        let id = self.next_id();
        self.say(if on {
            Said::EventSubscribe { names, id }
        } else {
            Said::EventUnsubscribe { names, id }
        });
    }

    fn change_record(&mut self, random: &mut Random) {
        let name = random.pick(&RECORDS).to_string();
        let action = *random.pick(&[
            RecordBulk::SubscribeCreateAndRead,
            RecordBulk::SubscribeCreateAndRead,
            RecordBulk::SubscribeAndRead,
        ]);
        if self.deleting.contains(&name) {
            // The client could not distinguish the end by the delete from the start of a new subscription.
            return;
        }
        match self.records.get(&name) {
            None => {
                let mut names = vec![name];
                for more in RECORDS {
                    if !self.records.contains_key(more)
                        && !self.deleting.iter().any(|name| name == more)
                        && !names.iter().any(|name| name == more)
                        && random.chance(20)
                    {
                        names.push(more.into());
                    }
                }
                for name in &names {
                    self.records
                        .insert(name.clone(), ExpectedRecord::Wanted { acked: false });
                }
                let id = self.next_id();
                self.say(Said::Bulk { action, names, id });
            }
            Some(ExpectedRecord::Open { .. }) if random.chance(40) => {
                self.unsubscribe(&name);
                if random.chance(40) {
                    // The client changes its mind: the end of the old subscription and the new subscription cross.
                    self.records
                        .insert(name.clone(), ExpectedRecord::Wanted { acked: false });
                    let id = self.next_id();
                    self.say(Said::Bulk {
                        action,
                        names: vec![name],
                        id,
                    });
                }
            }
            _ => {}
        }
    }

    fn unsubscribe(&mut self, name: &str) {
        self.records.insert(name.into(), ExpectedRecord::Ending);
        self.say(Said::Bulk {
            action: RecordBulk::Unsubscribe,
            names: vec![name.into()],
            id: name.into(),
        });
    }

    fn write(&mut self, random: &mut Random) {
        let open: Vec<String> = self
            .records
            .iter()
            .filter(|(_, held)| matches!(held, ExpectedRecord::Open { .. }))
            .map(|(name, _)| name.clone())
            .collect();
        if open.is_empty() {
            return self.set_data(random);
        }
        let name = random.pick(&open).clone();
        let id = random.chance(40).then(|| self.next_id());
        let (act, delta) = any_change(random);
        let Some(ExpectedRecord::Open { version, value }) = self.records.get_mut(&name) else {
            return;
        };
        let expected = match random.below(12) {
            // Without a version, with an existing version, or with a version in the future.
            0 => -1,
            1 => (*version).max(1),
            2 => version.saturating_add(2),
            _ => {
                *version = after(*version);
                *value = apply(value, &delta);
                *version
            }
        };
        self.say(Said::Write {
            name,
            version: expected,
            id,
            act,
            delta,
        });
    }

    fn set_data(&mut self, random: &mut Random) {
        let name = random.pick(&RECORDS).to_string();
        let id = random.chance(60).then(|| self.next_id());
        let (act, delta) = match any_change(random) {
            (Act::Update, delta) => (Act::CreateAndUpdate, delta),
            (Act::Patch, delta) => (Act::CreateAndPatch, delta),
            other => other,
        };
        self.say(Said::Write {
            name,
            version: -1,
            id,
            act,
            delta,
        });
    }

    fn delete(&mut self, random: &mut Random) {
        let name = random.pick(&RECORDS).to_string();
        if !self.deleting.contains(&name) && random.chance(60) {
            self.deleting.push(name.clone());
            self.say(Said::Delete { name });
        }
    }

    /// Sends a notice that the store has changed without the server, although it has not.
    fn notify(&mut self, random: &mut Random) {
        let names = RECORDS
            .into_iter()
            .filter(|_| random.chance(25))
            .map(str::to_owned)
            .collect();
        let id = self.next_id();
        self.say(Said::Bulk {
            action: RecordBulk::Notify,
            names,
            id,
        });
    }

    fn adopt(&mut self, name: &str, version: i32, value: Value) {
        if let Some(held @ (ExpectedRecord::Wanted { acked: true } | ExpectedRecord::Open { .. })) =
            self.records.get_mut(name)
        {
            *held = ExpectedRecord::Open { version, value };
        }
    }

    fn changed(&mut self, name: &str, new: i32, delta: &Delta) {
        let Some(ExpectedRecord::Open { version, value }) = self.records.get_mut(name) else {
            return;
        };
        if new == after(*version) {
            *version = new;
            *value = apply(value, delta);
        } else if let Delta::Whole(data) = delta {
            self.adopt(name, new, parse(data));
        } else {
            self.say(Said::Read { name: name.into() });
        }
    }

    /// The client adopts the remote value, or overwrites it with its own value.
    fn merge(&mut self, name: &str, remote: i32, theirs: Value, random: &mut Random) {
        let Some(ExpectedRecord::Open { version, value }) = self.records.get_mut(name) else {
            return;
        };
        if random.chance(50) || *value == theirs {
            return self.adopt(name, remote, theirs);
        }
        *version = after(remote);
        let (version, data) = (*version, value.to_string());
        self.say(Said::Write {
            name: name.into(),
            version,
            id: None,
            act: Act::Update,
            delta: Delta::Whole(data),
        });
    }

    fn refused(&mut self, name: &str, action: Option<RecordAction>, id: Option<&str>) {
        match action {
            // The refusal may belong to an earlier subscription.
            Some(RecordAction::Bulk(_)) => {
                if self.subscribed.get(name).map(String::as_str) == id {
                    self.records.remove(name);
                }
            }
            // The outcome of the delete is unknown, so the client starts again.
            None | Some(RecordAction::Delete) => {
                self.deleting.retain(|deleting| deleting != name);
                if self.records.contains_key(name) {
                    self.unsubscribe(name);
                }
            }
            Some(RecordAction::Read | RecordAction::Head) => {
                if let Some(ExpectedRecord::Wanted { .. }) = self.records.get(name) {
                    self.unsubscribe(name);
                }
            }
            Some(_) => self.say(Said::Read { name: name.into() }),
        }
    }
}

/// The version of the next write.
fn after(version: i32) -> i32 {
    if version == i32::MAX {
        1
    } else {
        version.max(0) + 1
    }
}

fn any_change(random: &mut Random) -> (Act, Delta) {
    let number = random.below(1000);
    let path = random.pick(&PATHS).to_string();
    match random.below(5) {
        0 => {
            let value = json!({ "a": number, "c": { "d": [number, null, "x"] } });
            (Act::Update, Delta::Whole(value.to_string()))
        }
        1 => (Act::Erase, Delta::Set { path, data: None }),
        2 => {
            let second = random.pick(&PATHS).to_string();
            let list = json!([{ "path": path, "data": number }, { "path": second }, { "path": "f", "data": { "g": number } }]);
            (Act::PatchMulti, Delta::Many(list.to_string()))
        }
        _ => {
            let data = Some(json!([number, { "é": "\u{1f30a}" }]).to_string());
            (Act::Patch, Delta::Set { path, data })
        }
    }
}

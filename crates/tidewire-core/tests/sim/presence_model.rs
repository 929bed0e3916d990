//! A naive model of presence: the changes of each user in the order in which the owner sees them.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::address::SessionId;
use tidewire_core::message::PresenceAction;

use crate::check::{Check, Checked, ensure, violated};
use crate::services::presence_of;
use crate::wire::parse;

/// A user came online or went offline.
#[derive(Debug)]
struct Change {
    online: bool,
    /// The session that brought the user online; it must not hear of the change.
    by: Option<SessionId>,
}

/// The watch of one session over one user, or over all users.
#[derive(Debug, Default)]
struct Watch {
    lasts: bool,
    waits_for: Option<String>,
    /// By user: the number of changes when the session read the ack. The session must hear all later ones.
    since: Option<BTreeMap<String, usize>>,
    /// Number of acks that are still due.
    acks: usize,
    /// By user: the possible numbers of changes that the session has heard or missed so far. Before the ack several are possible.
    heard: BTreeMap<String, BTreeSet<usize>>,
}

impl Watch {
    /// The index of the first change of the user that the session must hear.
    fn required_from(&self, user: &str) -> usize {
        match &self.since {
            Some(since) => since.get(user).copied().unwrap_or(0),
            None => usize::MAX,
        }
    }
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct PresenceModel {
    sessions: BTreeMap<String, usize>,
    /// Every change of each user.
    changes: BTreeMap<String, Vec<Change>>,
    /// By session, and by user or `None` for all users.
    watches: BTreeMap<(SessionId, Option<String>), Watch>,
    queries: BTreeMap<(SessionId, Option<String>), usize>,
}

impl PresenceModel {
    /// The owner counts a session of the user: `opened` is the new session, or `None` if one has ended.
    pub fn count(&mut self, user: &str, opened: Option<SessionId>) {
        let sessions = self.sessions.entry(user.into()).or_insert(0);
        let before = *sessions;
        *sessions = match opened {
            Some(_) => before + 1,
            None => before.saturating_sub(1),
        };
        if (before == 0) != (*sessions == 0) {
            self.changes.entry(user.into()).or_default().push(Change {
                online: opened.is_some(),
                by: opened,
            });
        }
    }

    /// A session starts a watch at its shard.
    pub fn watch(&mut self, session: SessionId, user: Option<&str>, id: &str) {
        let watch = self
            .watches
            .entry((session, user.map(str::to_owned)))
            .or_default();
        watch.lasts = true;
        watch.since = None;
        watch.acks += 1;
        watch.waits_for = Some(id.into());
    }

    /// A session ends a watch at its shard.
    pub fn unwatch(&mut self, session: SessionId, user: Option<&str>) {
        let key = (session, user.map(str::to_owned));
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.lasts = false;
            watch.since = None;
        }
    }

    /// A session has read an ack.
    pub fn acked(&mut self, session: SessionId, action: PresenceAction, id: &str) {
        let all = match action {
            PresenceAction::SubscribeAll => true,
            PresenceAction::Subscribe => false,
            _ => return,
        };
        let counts: BTreeMap<String, usize> = self
            .changes
            .iter()
            .map(|(user, changes)| (user.clone(), changes.len()))
            .collect();
        for ((of, user), watch) in &mut self.watches {
            // The ack of a watch over all users has no id, so the model counts these acks.
            let concerned = *of == session && user.is_none() == all;
            if concerned && (all || watch.waits_for.as_deref() == Some(id)) {
                watch.acks -= 1;
                if watch.lasts && (watch.acks == 0 || !all) {
                    watch.since = Some(counts.clone());
                }
            }
        }
    }

    /// A session hears of a change. It must be the next one; before the ack, the session may skip changes. A session must
    /// not hear of a change that it caused.
    pub fn hear(&mut self, session: SessionId, user: &str, online: bool, all: bool) -> Checked {
        let key = (session, (!all).then(|| user.to_owned()));
        let changes = self.changes.get(user).map_or(&[][..], Vec::as_slice);
        let watch = self.watches.entry(key).or_default();
        let required_from = watch.required_from(user);
        let indices = watch
            .heard
            .entry(user.into())
            .or_insert_with(|| BTreeSet::from([0]));
        let mut next = BTreeSet::new();
        for index in &*indices {
            let others = changes.iter().enumerate().skip(*index);
            for (heard, change) in others.filter(|(_, change)| change.by != Some(session)) {
                if change.online == online {
                    next.insert(heard + 1);
                }
                if heard >= required_from {
                    break;
                }
            }
        }
        ensure(!next.is_empty(), Check::PresenceNotices, || {
            format!(
                "{session:?} hears that {user} is online: {online}, after {indices:?} of {changes:?}"
            )
        })?;
        *indices = next;
        Ok(())
    }

    /// A session queries which users are online.
    pub fn asks(&mut self, session: SessionId, id: Option<&str>) {
        *self
            .queries
            .entry((session, id.map(str::to_owned)))
            .or_insert(0) += 1;
    }

    /// A session gets the list of online users, which must be exact if `calm` is set.
    pub fn hear_all(
        &mut self,
        session: SessionId,
        own: &str,
        users: &[String],
        calm: bool,
    ) -> Checked {
        self.answered(session, None)?;
        let mut online = self.online();
        online.remove(own);
        let said: BTreeSet<String> = users.iter().cloned().collect();
        ensure(!calm || said == online, Check::PresenceQuery, || {
            format!("{session:?} hears {users:?}, online are {online:?}")
        })
    }

    /// A session gets the state of the users that it queried.
    pub fn hear_of(&mut self, session: SessionId, id: &str, data: &str, calm: bool) -> Checked {
        self.answered(session, Some(id))?;
        let online = self.online();
        ensure(
            !calm || parse(data) == presence_of(&online),
            Check::PresenceQuery,
            || format!("{session:?} hears {data}, online are {online:?}"),
        )
    }

    /// A session is gone.
    pub fn session_ended(&mut self, session: SessionId) {
        self.watches.retain(|(of, _), _| *of != session);
        self.queries.retain(|(of, _), _| *of != session);
    }

    /// The node has crashed.
    pub fn crash(&mut self) {
        *self = Self::default();
    }

    /// Checks that watching sessions have heard every change, and that every query got its answer.
    pub fn quiet(&self) -> Checked {
        for ((session, user), watch) in self.watches.iter().filter(|(_, watch)| watch.lasts) {
            ensure(watch.since.is_some(), Check::AnsweredOnce, || {
                format!("{session:?} has got no ack for watching {user:?}")
            })?;
            for (changed, changes) in &self.changes {
                let all = user.as_ref().is_none_or(|user| user == changed);
                let required_from = watch.required_from(changed);
                let own = |change: &Change| change.by == Some(*session);
                let complete = changes.iter().skip(required_from).all(own)
                    || watch.heard.get(changed).is_some_and(|indices| {
                        let mut last = indices.iter().next_back().into_iter();
                        last.any(|last| changes.iter().skip(*last).all(own))
                    });
                ensure(!all || complete, Check::PresenceNotices, || {
                    format!("{session:?} has not heard all of {changed}: {changes:?}, {watch:?}")
                })?;
            }
        }
        let open = self.queries.iter().find(|(_, count)| **count > 0);
        ensure(open.is_none(), Check::AnsweredOnce, || {
            format!("a query was not answered: {open:?}")
        })
    }

    fn online(&self) -> BTreeSet<String> {
        self.sessions
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(user, _)| user.clone())
            .collect()
    }

    fn answered(&mut self, session: SessionId, id: Option<&str>) -> Checked {
        match self.queries.get_mut(&(session, id.map(str::to_owned))) {
            Some(open) if *open > 0 => {
                *open -= 1;
                Ok(())
            }
            _ => violated(
                Check::AnsweredOnce,
                format!("{session:?} hears an answer to query {id:?} that it did not ask"),
            ),
        }
    }
}

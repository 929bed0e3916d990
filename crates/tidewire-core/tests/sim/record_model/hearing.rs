//! The messages that sessions must hear, and the check that they do.

use std::rc::Rc;

use tidewire_core::address::SessionId;
use tidewire_core::message::RecordBulk;

use super::request::Stamp;
use super::state::Awaited;
use super::{RecordModel, is_read};
use crate::check::{Check, Checked, Violation, ensure, violated};
use crate::expected::{Expected, Want, matches, name_of};
use crate::outside::Outside;
use crate::stores::SimStores;
use crate::wire::{Delta, Heard, Refused, parse};

impl RecordModel {
    pub(super) fn expect(
        &mut self,
        session: SessionId,
        name: &str,
        instance: Option<usize>,
        want: Want,
        stamp: Option<Rc<Stamp>>,
    ) {
        let key = (session, name.to_owned());
        let ended = self
            .instances
            .get(&key)
            .map_or(0, |instances| instances.ended);
        if self.live.contains(&session) && instance.is_none_or(|instance| instance >= ended) {
            self.expected.entry(key).or_default().push_back(Expected {
                instance,
                want,
                stamp,
            });
        }
    }

    /// A session receives a message about a record. Returns the stamp of the client message that caused it.
    pub fn hear(
        &mut self,
        now: u64,
        session: SessionId,
        heard: &Heard,
        stores: &SimStores,
        outside: &Outside,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        match heard {
            Heard::RecordAck { action, names, id } => {
                self.hear_ack(session, *action, names, id)?;
                Ok(None)
            }
            Heard::Written { name, id } => {
                let awaited = self.writes.remove(&(session, id.clone()));
                self.hear_done(name, awaited, stores, outside)
            }
            Heard::DeleteDone { name } => {
                let awaited = self.deletes.remove(&(session, name.clone()));
                self.hear_done(name, awaited, stores, outside)
            }
            Heard::RecordRefused {
                why: Refused::Update,
                id: Some(id),
                ..
            } if self.is_late(now, self.writes.get(&(session, id.clone()))) => {
                self.writes.remove(&(session, id.clone()));
                Ok(None)
            }
            Heard::RecordRefused {
                why: Refused::Delete,
                name,
                ..
            } if self.is_late(now, self.deletes.get(&(session, name.clone()))) => {
                self.deletes.remove(&(session, name.clone()));
                Ok(None)
            }
            _ => self.hear_expected(session, heard),
        }
    }

    /// Checks that sessions have heard all expected messages and received all acknowledgements.
    pub fn quiet(&self) -> Checked {
        for ((session, name), expected) in &self.expected {
            let ended = self.ended(*session, name);
            let missing = expected
                .iter()
                .find(|expected| expected.instance.is_none_or(|instance| instance >= ended));
            if let Some(missing) = missing {
                let just_read = self
                    .instances
                    .get(&(*session, name.clone()))
                    .is_some_and(|instances| instances.just_read);
                let is_owed =
                    self.lagged.contains(session) && matches!(missing.want, Want::Changed { .. });
                let check = match is_owed {
                    true => Check::CaughtUp,
                    false => gap_or_order(missing, just_read),
                };
                violated(
                    check,
                    format!("{session:?} never heard of {name}: {missing:?}"),
                )?;
            }
        }
        for ((session, name), skipped) in &self.skipped {
            let ended = self.ended(*session, name);
            let lasts = skipped.instance.is_none_or(|instance| instance >= ended);
            ensure(!lasts, Check::CaughtUp, || {
                format!("{session:?} skipped {skipped:?} of {name} and got nothing for it")
            })?;
        }
        let bulk = self
            .bulks
            .iter()
            .find(|(_, bulk)| bulk.missing > 0 || bulk.allowed);
        ensure(bulk.is_none(), Check::AnsweredOnce, || {
            format!("a bulk message was not acknowledged: {bulk:?}")
        })?;
        let waiting = self
            .records
            .values()
            .flat_map(|record| &record.waiting)
            .next();
        ensure(waiting.is_none(), Check::AnsweredOnce, || {
            format!("never decided: {waiting:?}")
        })?;
        let unanswered = self.writes.iter().chain(&self.deletes).next();
        ensure(unanswered.is_none(), Check::AnsweredOnce, || {
            format!("never answered: {unanswered:?}")
        })
    }

    fn hear_ack(
        &mut self,
        session: SessionId,
        action: RecordBulk,
        names: &[String],
        id: &str,
    ) -> Checked {
        if action == RecordBulk::Unsubscribe {
            if let Some(instances) = self.instances.get_mut(&(session, id.to_owned())) {
                instances.current = None;
            }
        } else if is_read(action) {
            for name in names {
                if let Some(instances) = self.instances.get_mut(&(session, name.clone())) {
                    instances.current = Some(instances.heard);
                    instances.heard += 1;
                }
            }
        } else {
            let bulk = self.bulks.remove(&(session, id.to_owned()));
            let right = bulk
                .as_ref()
                .is_some_and(|bulk| bulk.missing == 0 && bulk.allowed);
            return ensure(right, Check::AnsweredOnce, || {
                format!("{session:?} hears the ack {id} of {bulk:?}")
            });
        }
        Ok(())
    }

    fn hear_done(
        &mut self,
        name: &str,
        awaited: Option<Awaited>,
        stores: &SimStores,
        outside: &Outside,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        let Some(awaited) = awaited else {
            return violated(
                Check::AnsweredOnce,
                format!("{name}: an answer that nobody waits for"),
            );
        };
        let kept = stores.of(name).change_count(name);
        let volatile = self.records.get(name).is_some_and(|record| record.volatile);
        let durable = kept >= awaited.change_count || volatile;
        ensure(durable, Check::Durable, || {
            format!(
                "{name}: change {} is acknowledged, the store has {kept}",
                awaited.change_count
            )
        })?;
        let kept = kept.min(awaited.change_count);
        let newest = self.acknowledged.entry(name.into()).or_insert(0);
        *newest = (*newest).max(kept);
        let missing = awaited.effects.iter().find(|effect| {
            // An owner that evicts records loads more often than the model, so it decides later. The subscription may have ended
            // by then.
            let is_certain = !self.terms.evicts
                || (self.live.contains(&effect.session)
                    && effect.instance >= self.ended(effect.session, name));
            is_certain && !outside.posted.contains(&effect.posted)
        });
        ensure(missing.is_none(), Check::AnswerAfterEffects, || {
            format!("{name}: acknowledged before this was posted: {missing:?}")
        })?;
        Ok(None)
    }

    fn is_late(&self, now: u64, awaited: Option<&Awaited>) -> bool {
        awaited.is_some_and(|awaited| awaited.since + self.terms.write_timeout_ns <= now)
    }

    fn hear_expected(
        &mut self,
        session: SessionId,
        heard: &Heard,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        let Some(name) = name_of(heard) else {
            return Ok(None);
        };
        let key = (session, name.to_owned());
        let ended = self.ended(session, name);
        let (current, just_read) = self.instances.get(&key).map_or((None, false), |instances| {
            (instances.current, instances.just_read)
        });
        let may_skip = self.lagged.contains(&session);
        if may_skip && let Some(stamp) = self.hear_coalesced(&key, current, heard) {
            return Ok(stamp);
        }
        let queue = self.expected.entry(key.clone()).or_default();
        while let Some(front) = queue.pop_front() {
            let belongs = front.instance.is_none() || front.instance == current;
            if belongs && matches(&front.want, heard) {
                let is_step = matches!(front.want, Want::Changed { .. });
                let skipped = self
                    .skipped
                    .get(&key)
                    .filter(|skipped| skipped.instance == current);
                ensure(!is_step || skipped.is_none(), Check::RecordOrder, || {
                    format!("{session:?} hears the step {heard:?} and skipped {skipped:?}")
                })?;
                if front.want == Want::Deleted {
                    self.skipped.remove(&key);
                }
                if front.instance.is_some()
                    && let Some(instances) = self.instances.get_mut(&key)
                {
                    instances.just_read = front.want.is_read();
                }
                return Ok(front.stamp);
            }
            let is_answer = !matches!(heard, Heard::Changed { .. });
            if may_skip && belongs && is_answer && matches!(front.want, Want::Changed { .. }) {
                self.skipped.insert(key.clone(), front);
                continue;
            }
            if front.instance.is_none_or(|instance| instance >= ended) {
                return violated(
                    gap_or_order(&front, just_read),
                    format!(
                        "{session:?} hears {heard:?} in subscription {current:?} instead of {front:?}"
                    ),
                );
            }
        }
        violated(
            Check::RecordOrder,
            format!("{session:?} hears {heard:?} and nothing was due"),
        )
    }

    /// The first subscription of which the session must still hear. A session also hears of a subscription that ended with its
    /// own delete, unless the session lagged.
    fn ended(&self, session: SessionId, name: &str) -> usize {
        let instances = self.instances.get(&(session, name.to_owned()));
        instances.map_or(0, |instances| {
            if self.lagged.contains(&session) {
                instances.ended.max(instances.deleted)
            } else {
                instances.ended
            }
        })
    }

    /// Takes a coalesced change of a session that lagged: a whole value that the record had, from the skipped change on. The
    /// value may be one that the session itself wrote. It replaces all changes up to there. Returns `None` if the message is not
    /// a coalesced change.
    fn hear_coalesced(
        &mut self,
        key: &(SessionId, String),
        current: Option<usize>,
        heard: &Heard,
    ) -> Option<Option<Rc<Stamp>>> {
        let Heard::Changed {
            version,
            delta: Delta::Whole(data),
            ..
        } = heard
        else {
            return None;
        };
        let record = self.records.get(&key.1)?;
        let index_in = |expected: &Expected| match &expected.want {
            Want::Changed { index, .. } if expected.instance == current => Some(*index),
            _ => None,
        };
        let skipped = self.skipped.get(key).and_then(index_in);
        let queue = self.expected.entry(key.clone()).or_default();
        let owed = skipped.or_else(|| queue.front().and_then(index_in))?;
        let index = record.index_of(*version, &parse(data), owed)?;
        self.skipped.remove(key);
        while queue
            .pop_front_if(|front| index_in(front).is_some_and(|made| made <= index))
            .is_some()
        {}
        Some(record.states[index].stamp.clone())
    }
}

/// The promise that is broken if a session did not hear this.
fn gap_or_order(missing: &Expected, just_read: bool) -> Check {
    let at_the_read = missing.instance.is_some() && (just_read || missing.want.is_read());
    if at_the_read {
        Check::ReadWithoutGap
    } else {
        Check::RecordOrder
    }
}

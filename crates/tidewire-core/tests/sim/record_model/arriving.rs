//! Requests in flight to the owner, and requests that wait there for a load or a rule.

use tidewire_core::address::SessionId;
use tidewire_core::entry::RecordRequest;

use super::RecordModel;
use super::request::{Request, RequestKind, is_same};
use super::state::{Bulk, Waiting};
use crate::check::{Check, Checked, Violation, ensure, violated};
use crate::permission::{Ruling, Said, gate_of};
use crate::wire::Refused;

impl RecordModel {
    /// A session's shard sends a request to an owner on another shard.
    pub fn posted(&mut self, session: SessionId, owner: usize, requests: Vec<Request>) {
        self.on_the_way
            .entry((session, owner))
            .or_default()
            .push_back(requests);
    }

    /// The owner takes a request from its mailbox.
    pub fn taken(
        &mut self,
        owner: usize,
        request: &RecordRequest,
    ) -> Result<Vec<Request>, Violation> {
        let way = self.on_the_way.entry((request.session, owner)).or_default();
        match way.pop_front() {
            Some(sent) if is_same(&request.what, &sent) => Ok(sent),
            sent => violated(
                Check::ConnectionOrder,
                format!(
                    "{:?} sent {sent:?} before {:?}",
                    request.session, request.what
                ),
            ),
        }
    }

    /// The owner executes a request, or keeps it until the record's value is loaded.
    pub fn arrive(&mut self, owner: usize, now: u64, request: Request) -> Checked {
        for (session, number) in request.stamp.seen.iter() {
            let earlier = self
                .on_the_way
                .get(&(*session, owner))
                .and_then(|way| way.front())
                .and_then(|requests| requests.first());
            ensure(
                earlier.is_none_or(|earlier| earlier.stamp.number > *number),
                Check::Reaction,
                || {
                    format!(
                        "{request:?} has seen message {number} of {session:?} and overtakes {earlier:?}"
                    )
                },
            )?;
        }
        let name = request.name.clone();
        let waiting = Waiting {
            since: now,
            step: self.step,
            request,
        };
        let timeout = self.terms.load_timeout_ns;
        let record = self.record(&name, owner);
        record.waiting.push_back(waiting);
        if !record.known {
            record.timers.push(now + timeout);
        }
        self.go_on(now, &name);
        Ok(())
    }

    /// Begins a bulk message, which gets its acknowledgement once all its names are done.
    pub fn begin_bulk(&mut self, session: SessionId, id: &str, count: usize) {
        let bulk = Bulk {
            missing: count,
            allowed: count == 0,
        };
        self.bulks.insert((session, id.into()), bulk);
    }

    /// The permission has ruled on the first waiting request of a record that has a gate.
    pub fn ruled(&mut self, now: u64, ruling: &Ruling) -> Checked {
        let Some(record) = self.records.get_mut(&ruling.name) else {
            return Ok(());
        };
        let first_need = !std::mem::take(&mut record.needs_gate);
        if ruling.said == Said::Needs && first_need {
            record.needs_gate = true;
            return Ok(());
        }
        let Some(waiting) = record.waiting.pop_front() else {
            return violated(
                Check::RecordOrder,
                format!("{ruling:?} is about a request that was not there"),
            );
        };
        let ruled = waiting.request.kind.is_ruled(&ruling.name);
        ensure(ruled, Check::RecordOrder, || {
            format!("{ruling:?} overtakes {waiting:?}")
        })?;
        match ruling.said {
            // The rule needs the gate again after its read, so the gate could not be read.
            Said::Needs => self.refuse(waiting.request, Refused::RuleFailed),
            Said::Allowed => {
                self.gate_was(&ruling.name, true, waiting.step)?;
                self.execute(now, waiting.request);
            }
            Said::Denied => {
                self.gate_was(&ruling.name, false, waiting.step)?;
                self.refuse(waiting.request, Refused::Denied);
            }
        }
        self.go_on(now, &ruling.name);
        Ok(())
    }

    /// A rule has found the gate of a name open or closed. The gate must have been in this state at some time since `step`.
    pub fn gate_was(&self, name: &str, open: bool, step: u64) -> Checked {
        if self.terms.evicts {
            // The owner may have been reloading the gate, so its value may be older than the model's.
            return Ok(());
        }
        let gate = gate_of(name).unwrap_or_default();
        let states = self
            .records
            .get(&gate)
            .map_or(&[][..], |record| record.states.as_slice());
        let held = states.iter().enumerate().any(|(index, state)| {
            let until = states.get(index + 1).map_or(u64::MAX, |next| next.since);
            until >= step && state.is_open() == open
        });
        ensure(held || (states.is_empty() && !open), Check::Ruling, || {
            format!("{name} was taken as open: {open}, since step {step} its gate was {states:?}")
        })
    }

    /// Executes the waiting requests of a record, up to the first one that needs a rule or a load.
    pub(super) fn go_on(&mut self, now: u64, name: &str) {
        while let Some(record) = self.records.get_mut(name)
            && record.known
            && let Some(waiting) = record
                .waiting
                .pop_front_if(|waiting| !waiting.request.kind.is_ruled(name))
        {
            if matches!(waiting.request.kind, RequestKind::Notify) {
                self.notify(now, waiting);
            } else {
                self.execute(now, waiting.request);
            }
        }
    }

    /// Loads the record again, unless the value in memory is certainly newer than the store's.
    fn notify(&mut self, now: u64, mut waiting: Waiting) {
        let name = waiting.request.name.clone();
        let Some(record) = self.records.get_mut(&name) else {
            return;
        };
        if record.volatile || self.dirty[record.owner].contains_key(&name) {
            return self.done(&waiting.request, true);
        }
        record.known = false;
        record.timers.push(now + self.terms.load_timeout_ns);
        waiting.request.kind = RequestKind::Reloaded;
        record.waiting.push_front(waiting);
    }

    /// One name of a bulk message is done.
    pub(super) fn done(&mut self, request: &Request, allowed: bool) {
        if let Some(id) = &request.bulk
            && let Some(bulk) = self.bulks.get_mut(&(request.stamp.session, id.clone()))
        {
            bulk.missing -= 1;
            bulk.allowed |= allowed;
        }
    }

    /// An owner has handled its deadlines and gives up loads that took too long.
    pub fn deadline_reached(&mut self, owner: usize, now: u64) {
        let mut late = Vec::new();
        let timeout = self.terms.load_timeout_ns;
        for record in self
            .records
            .values_mut()
            .filter(|record| record.owner == owner)
        {
            let fired = record.timers.extract_if(.., |due| *due <= now).max();
            let Some(fired) = fired.filter(|_| !record.known) else {
                continue;
            };
            while let Some(waiting) = record
                .waiting
                .pop_front_if(|waiting| waiting.since + timeout <= fired)
            {
                late.push(waiting.request);
            }
        }
        for request in late {
            self.refuse(request, Refused::LoadTimeout);
        }
    }
}

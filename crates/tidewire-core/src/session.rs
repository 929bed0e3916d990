//! Sessions: identified peers, and what each of them holds.

use std::sync::Arc;

use crate::address::SessionId;
use crate::effect::{AuthOutcome, Format, Principal};
use crate::hub::Memberships;
use crate::message::Topic;
use crate::table::{self, Map, Set};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// How far a session has come.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing was said yet.
    Challenge,
    /// The peer may log in.
    Login,
    /// The auth chain is thinking.
    Checking,
    /// The next answer is held back.
    Detained(Box<Detention>),
    /// The peer is known.
    Open(Arc<Principal>),
}

/// An answer that is held back.
#[derive(Debug)]
pub(crate) struct Detention {
    /// When it is given.
    pub(crate) until: Instant,
    /// Whether it is a final no.
    pub(crate) refuse: bool,
    pub(crate) stage: DetentionStage,
}

/// Which answer it is.
#[derive(Debug)]
pub(crate) enum DetentionStage {
    /// To the challenge.
    Challenge {
        /// Whether it has come.
        asked: bool,
    },
    /// To the login.
    Login {
        /// What the auth chain has said.
        outcome: Option<AuthOutcome>,
    },
}

/// A record that the session is subscribed to, or wants to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// Tells this subscription from an earlier one of the same name.
    pub(crate) serial: u32,
    /// The owner's interest epoch once it is granted.
    pub(crate) granted: Option<u64>,
}

/// What few sessions have; boxed, so that the others don't pay for it.
#[derive(Debug)]
pub(crate) struct Offers {
    /// The rpcs that it provides.
    pub(crate) provided: Set<Name>,
    /// The patterns that it listens with.
    pub(crate) patterns: Set<(Topic, Name)>,
}

/// The reads of rules for the message that has to wait.
#[derive(Debug, Default)]
pub(crate) struct RuleReads {
    /// The records read so far.
    pub(crate) values: Vec<(Name, Option<Payload>)>,
    /// Whether a read failed.
    pub(crate) failed: bool,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) format: Format,
    pub(crate) phase: Phase,
    /// Logins refused so far.
    pub(crate) refused: u32,
    /// Whether an answer was held back, so that its time to log in begins again once.
    pub(crate) was_detained: bool,
    /// When something last arrived.
    pub(crate) heard: Instant,
    /// Calls made and not answered yet.
    pub(crate) calls: u32,
    /// Counts the record subscriptions.
    pub(crate) serial: u32,
    /// Everything it gets publications of.
    pub(crate) memberships: Memberships,
    pub(crate) holds: Map<Name, Hold>,
    pub(crate) offers: Option<Box<Offers>>,
    pub(crate) rule_reads: Option<Box<RuleReads>>,
}

impl Session {
    /// The principal of an open session.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        match &self.phase {
            Phase::Open(principal) => Some(principal),
            _ => None,
        }
    }

    /// Names, patterns and registrations that it holds.
    pub(crate) fn subscription_count(&self) -> usize {
        let offers = self
            .offers
            .as_ref()
            .map_or(0, |offers| offers.provided.len() + offers.patterns.len());
        // A granted record is both a hold and a membership, one that is not granted yet is a hold only. The larger
        // number is exact once the owners have answered, and bounds what waits by the same limit.
        self.holds.len().max(self.memberships.len()) + offers
    }

    /// What it offers, made on first use.
    pub(crate) fn offers(&mut self, seed: u64) -> &mut Offers {
        self.offers.get_or_insert_with(|| {
            Box::new(Offers {
                provided: table::set(seed),
                patterns: table::set(seed),
            })
        })
    }
}

/// The sessions of a shard, by their place.
#[derive(Debug)]
pub(crate) struct Sessions {
    places: Vec<Option<Box<Session>>>,
    seed: u64,
    count: usize,
}

impl Sessions {
    /// No sessions.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            places: Vec::new(),
            seed,
            count: 0,
        }
    }

    /// Opens a session at the place that its id names.
    pub(crate) fn open(&mut self, id: SessionId, format: Format, now: Instant) {
        let place = id.index as usize;
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let session = Session {
            id,
            format,
            phase: Phase::Challenge,
            refused: 0,
            was_detained: false,
            heard: now,
            calls: 0,
            serial: 0,
            memberships: Memberships::new(self.seed),
            holds: table::map(self.seed),
            offers: None,
            rule_reads: None,
        };
        if self.places[place].replace(Box::new(session)).is_none() {
            self.count += 1;
        }
    }

    /// The session, unless it has ended.
    pub(crate) fn find(&self, id: SessionId) -> Option<&Session> {
        self.places
            .get(id.index as usize)?
            .as_deref()
            .filter(|session| session.id == id)
    }

    /// The session, unless it has ended.
    pub(crate) fn find_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.places
            .get_mut(id.index as usize)?
            .as_deref_mut()
            .filter(|session| session.id == id)
    }

    /// Whoever is at that place now.
    pub(crate) fn at(&self, index: u32) -> Option<&Session> {
        self.places.get(index as usize)?.as_deref()
    }

    /// Whoever is at that place now.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.places.get_mut(index as usize)?.as_deref_mut()
    }

    /// Ends a session.
    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Box<Session>> {
        self.find(id)?;
        self.count -= 1;
        self.places[id.index as usize].take()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

//! Tickets: credentials for one request whose address is all that a page can set, as of an `EventSource`.
//!
//! A ticket of the HTTP API stands for the data of a login that succeeded and is exchanged for it, not for its result: the auth chain
//! is asked again, so that what was revoked meanwhile stays out. One of the admin page stands for whom its holder acts as.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::hex::hex;

/// How long a ticket is good. A page asks for it right before it uses it.
const LIFE: Duration = Duration::from_secs(30);
/// Tickets that are remembered. At the limit the oldest is forgotten.
const TICKETS_MAX: usize = 10_000;

/// The tickets that were given and not used.
#[derive(Debug)]
pub(crate) struct Tickets<T>(Mutex<Given<T>>);

#[derive(Debug)]
struct Given<T> {
    meanings: HashMap<String, T>,
    /// By the time at which they end.
    ends: VecDeque<(Instant, String)>,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self(Mutex::new(Given {
            meanings: HashMap::new(),
            ends: VecDeque::new(),
        }))
    }
}

impl<T> Tickets<T> {
    /// A ticket that stands for this; `None` if the system has no random numbers.
    pub(crate) fn give(&self, meaning: T, now: Instant) -> Option<String> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes).ok()?;
        let ticket = hex(&bytes);
        let mut given = self.0.lock();
        given.forget_ended(now);
        if given.ends.len() >= TICKETS_MAX
            && let Some((_, oldest)) = given.ends.pop_front()
        {
            given.meanings.remove(&oldest);
        }
        given.ends.push_back((now + LIFE, ticket.clone()));
        given.meanings.insert(ticket.clone(), meaning);
        Some(ticket)
    }

    /// What a ticket stands for. It is good once.
    pub(crate) fn take(&self, ticket: &str, now: Instant) -> Option<T> {
        let mut given = self.0.lock();
        given.forget_ended(now);
        given.meanings.remove(ticket)
    }
}

impl<T> Given<T> {
    fn forget_ended(&mut self, now: Instant) {
        while let Some((_, ticket)) = self.ends.pop_front_if(|(end, _)| *end <= now) {
            self.meanings.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::login::Credentials;

    #[test]
    fn a_ticket_is_good_once_and_for_half_a_minute() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let alice = Credentials::token("alice");
        let first = tickets.give(alice.clone(), now).expect("random numbers");
        let second = tickets.give(alice.clone(), now).expect("random numbers");
        assert_ne!(first, second);
        assert_eq!(tickets.take(&first, now), Some(alice));
        assert_eq!(tickets.take(&first, now), None);
        assert_eq!(tickets.take(&second, now + LIFE), None);
        assert!(tickets.0.lock().meanings.is_empty());
    }

    #[test]
    fn at_the_limit_the_oldest_is_forgotten() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let give = || {
            tickets
                .give(Credentials::none(), now)
                .expect("random numbers")
        };
        let first = give();
        let second = give();
        for _ in 2..=TICKETS_MAX {
            give();
        }
        assert_eq!(tickets.take(&first, now), None);
        assert!(tickets.take(&second, now).is_some());
    }
}

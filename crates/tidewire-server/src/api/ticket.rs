//! Tickets: credentials for one request whose address is all that a page can set, as of an `EventSource`.
//!
//! A ticket stands for the data of a login that succeeded and is exchanged for it, not for its result: the auth chain is asked
//! again, so that what was revoked meanwhile stays out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::login::Credentials;

/// How long a ticket is good. A page asks for it right before it uses it.
const LIFE: Duration = Duration::from_secs(30);
/// Tickets that are remembered. At the limit the oldest is forgotten.
const TICKETS_MAX: usize = 10_000;

/// The tickets that were given and not used.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    credentials: HashMap<String, Credentials>,
    /// By the time at which they end.
    ends: VecDeque<(Instant, String)>,
}

impl Tickets {
    /// A ticket for these credentials; `None` if the system has no random numbers.
    pub(super) fn give(&self, credentials: Credentials, now: Instant) -> Option<String> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes).ok()?;
        let ticket: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut given = self.0.lock();
        given.forget_ended(now);
        if given.ends.len() >= TICKETS_MAX
            && let Some((_, oldest)) = given.ends.pop_front()
        {
            given.credentials.remove(&oldest);
        }
        given.ends.push_back((now + LIFE, ticket.clone()));
        given.credentials.insert(ticket.clone(), credentials);
        Some(ticket)
    }

    /// The credentials that a ticket stands for. It is good once.
    pub(super) fn take(&self, ticket: &str, now: Instant) -> Option<Credentials> {
        let mut given = self.0.lock();
        given.forget_ended(now);
        given.credentials.remove(ticket)
    }
}

impl Given {
    fn forget_ended(&mut self, now: Instant) {
        while let Some((_, ticket)) = self.ends.pop_front_if(|(end, _)| *end <= now) {
            self.credentials.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(tickets.0.lock().credentials.is_empty());
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

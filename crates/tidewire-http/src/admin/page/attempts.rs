//! Counts wrong keys by address. A client can't try keys at the speed of the machine, and it can't lock out clients at other
//! addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_shard::backoff::subject;
use tokio::time::Instant;

/// The time after which the count of an address starts again.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that the server remembers. When all entries have wrong keys within the window, the server refuses keys from all
/// other addresses: a flood from many addresses must not use more memory.
const ADDRESSES_MAX: usize = 10_000;

/// The recent wrong keys of an address.
#[derive(Debug)]
struct Wrong {
    since: Instant,
    count: u32,
}

/// Wrong keys by address. See the comment at the top of this file.
#[derive(Debug)]
pub(super) struct Attempts {
    /// By address; an IPv6 address counts for its whole /64 network, because a client may have all of it.
    wrong: Mutex<HashMap<IpAddr, Wrong>>,
    count_max: u32,
}

impl Attempts {
    /// No wrong key so far; each address may send `count_max` wrong keys in a minute.
    pub(super) fn new(count_max: u32) -> Self {
        Self {
            wrong: Mutex::default(),
            count_max,
        }
    }

    /// How long an address must wait before the server checks another key from it; `None` if it need not wait.
    pub(super) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut wrong = self.wrong.lock();
        if wrong.len() >= ADDRESSES_MAX {
            wrong.retain(|_, known| now - known.since < WINDOW);
        }
        let left = |since: Instant| WINDOW.saturating_sub(now - since);
        match wrong.get(&subject(address)) {
            Some(known) if known.count >= self.count_max => Some(left(known.since)),
            None if wrong.len() >= ADDRESSES_MAX => Some(WINDOW),
            _ => None,
        }
        .filter(|left| !left.is_zero())
    }

    /// Counts a wrong key from an address.
    pub(super) fn note(&self, address: IpAddr, now: Instant) {
        let mut wrong = self.wrong.lock();
        let known = wrong.entry(subject(address)).or_insert(Wrong {
            since: now,
            count: 0,
        });
        if now - known.since >= WINDOW {
            (known.since, known.count) = (now, 0);
        }
        known.count = known.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_waits_for_the_rest_of_the_minute_and_others_do_not() {
        let attempts = Attempts::new(2);
        let (start, here) = (Instant::now(), address("2001:db8::1"));
        let second = |count| start + Duration::from_secs(count);
        for _ in 0..2 {
            assert_eq!(attempts.wait(here, start), None);
            attempts.note(here, start);
        }
        let wait = attempts.wait(here, second(20));
        assert_eq!(wait, Some(Duration::from_secs(40)));
        assert_eq!(attempts.wait(address("2001:db8::2"), second(20)), wait);
        assert_eq!(attempts.wait(address("2001:db8:0:1::1"), second(20)), None);
        assert_eq!(attempts.wait(here, second(60)), None);
        attempts.note(here, second(60));
        assert_eq!(
            attempts.wait(here, second(60)),
            None,
            "the count starts again"
        );
    }

    #[test]
    fn a_flood_from_everywhere_is_forgotten_after_a_minute() {
        let attempts = Attempts::new(2);
        let now = Instant::now();
        for number in 0..ADDRESSES_MAX as u32 {
            attempts.note(IpAddr::V4(number.into()), now);
        }
        let other = address("192.0.2.1");
        assert_eq!(attempts.wait(other, now), Some(WINDOW));
        assert_eq!(attempts.wait(other, now + WINDOW), None);
        assert!(attempts.wrong.lock().is_empty());
    }
}

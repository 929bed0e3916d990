//! The rates of callers over HTTP. Each request is a separate session, so its use of a rate is remembered here for later requests, by
//! user or address and for all shards.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use tidewire_core::message::Message;
use tidewire_core::principal::Principal;
use tidewire_core::rate::{CallerBuckets, Charged, Rates};
use tidewire_core::time::Instant;

use crate::share::Caller;

/// Below this number no caller is forgotten.
const CALLERS_KEPT: usize = 1024;
/// The number of callers that are remembered. Beyond it, new callers only have the rates of each session.
const CALLERS_MAX: usize = 100_000;

/// The use of rates by callers over HTTP, and the identification of callers.
#[derive(Debug)]
pub(crate) struct CallerRates {
    rates: Rates,
    is_off: bool,
    /// Whether each login proves the user's name. If not, a caller could choose another name for each request.
    names_are_proved: bool,
    callers: Mutex<Callers>,
}

#[derive(Debug)]
struct Callers {
    buckets: HashMap<Caller, CallerBuckets>,
    /// Above this number, callers with full buckets are forgotten.
    kept: usize,
}

impl CallerRates {
    pub(crate) fn new(rates: &Rates, names_are_proved: bool) -> Self {
        Self {
            rates: rates.clone(),
            is_off: rates.connection.iter().all(Option::is_none),
            names_are_proved,
            callers: Mutex::new(Callers {
                buckets: HashMap::new(),
                kept: CALLERS_KEPT,
            }),
        }
    }

    /// The caller of a logged-in session over HTTP: its user, if the name was proved and is not shared, or else its address.
    pub(crate) fn caller(&self, principal: &Principal, address: IpAddr) -> Caller {
        let is_proved = self.names_are_proved || principal.credential().is_some();
        let is_shared = principal.user_id.as_str().eq_ignore_ascii_case("open");
        match is_proved && !is_shared {
            true => Caller::User(principal.user_id.clone()),
            false => Caller::at(address),
        }
    }

    /// Takes the permits that a message costs.
    ///
    /// # Errors
    /// The time at which the caller has enough permits, if it has too few now.
    pub(crate) fn take(
        &self,
        now: Instant,
        caller: &Caller,
        message: &Message<'_>,
        charged: Charged,
    ) -> Result<(), Instant> {
        if self.is_off {
            return Ok(());
        }
        let mut callers = self.callers.lock();
        callers.forget_full(now);
        let is_full = callers.buckets.len() >= CALLERS_MAX;
        if is_full && !callers.buckets.contains_key(caller) {
            return Ok(());
        }
        let buckets = callers.buckets.entry(caller.clone()).or_default();
        buckets.take(now, &self.rates, message, charged)
    }
}

impl Callers {
    fn forget_full(&mut self, now: Instant) {
        if self.buckets.len() < self.kept {
            return;
        }
        self.buckets.retain(|_, buckets| !buckets.are_full(now));
        self.kept = (2 * self.buckets.len()).clamp(CALLERS_KEPT, CALLERS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidewire_core::message::Record;
    use tidewire_core::rate::{Operation, Rate};
    use tidewire_core::text::Name;

    use super::*;

    const READ: Message<'_> = Message::Record(Record::Read { name: "a" });

    fn rates() -> Rates {
        let mut rates = Rates::default();
        rates.connection[Operation::Read as usize] = Some(Rate {
            interval: Duration::from_millis(100),
            burst: 2,
        });
        rates
    }

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_name_counts_only_where_it_was_proved() {
        let named = |name: &str| Principal::new(Name::from(name));
        let address = address(7);
        let check = |names_are_proved, name: &str, is_user: bool| {
            let rates = CallerRates::new(&rates(), names_are_proved);
            let expected = match is_user {
                true => Caller::User(Name::from(name)),
                false => Caller::at(address),
            };
            assert_eq!(rates.caller(&named(name), address), expected, "{name}");
        };
        check(true, "anna", true);
        check(false, "anna", false);
        check(true, "OPEN", false);
        check(true, "open", false);
    }

    #[test]
    fn callers_are_forgotten_when_they_have_all_their_permits() {
        let rates = CallerRates::new(&rates(), true);
        let take = |now, number: u32| {
            let now = Instant(0) + Duration::from_millis(now);
            rates.take(now, &Caller::at(address(number)), &READ, Charged::All)
        };
        for _ in 0..2 {
            assert_eq!(take(1_000, 1), Ok(()));
        }
        assert!(take(1_000, 1).is_err());
        assert_eq!(take(1_000, 2), Ok(()));
        let count = u32::try_from(CALLERS_KEPT).expect("few");
        (3..=count).for_each(|number| assert_eq!(take(1_000, number), Ok(())));
        assert_eq!(rates.callers.lock().buckets.len(), CALLERS_KEPT);
        assert_eq!(take(9_000, count + 1), Ok(()));
        assert_eq!(rates.callers.lock().buckets.len(), 1);
    }
}

//! Tickets: credentials for one request that can carry them only in its URL, as a page's `EventSource` does.
//!
//! A ticket of the HTTP API represents the data of a successful login, not the result. When a client redeems the ticket, the auth
//! chain evaluates the login again, so a credential that was revoked in the meantime stays refused. A ticket of the admin page
//! represents the principal that its holder acts as.
//!
//! With open authentication, every peer can request tickets. So tickets of the HTTP API are limited in number and bytes, in total
//! and per address, and count towards `limits.memory_bytes_max`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_config::plan::Plan;
use tidewire_core::hex::hex;
use tidewire_net::memory_budget::{MemoryBudget, Share};
use tidewire_shard::backoff::subject;
use tokio::time::Instant;

use super::credentials::Credentials;

/// Lifetime of a ticket. A page requests it right before it uses it.
pub(crate) const LIFE: Duration = Duration::from_secs(30);
/// Maximum number of tickets of the admin page. At the limit, the oldest one is discarded.
const TICKETS_MAX: usize = 10_000;

/// The tickets that were issued and not used.
#[derive(Debug)]
pub struct Tickets<T>(Mutex<Given<T>>);

#[derive(Debug)]
struct Given<T> {
    meanings: HashMap<String, T>,
    /// Expiry times, in order.
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
    /// Issues a ticket for this meaning; `None` if the system has no random numbers.
    pub fn give(&self, meaning: T, now: Instant) -> Option<String> {
        let ticket = random_ticket()?;
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

    /// Redeems a ticket, once. Returns its meaning.
    pub fn take(&self, ticket: &str, now: Instant) -> Option<T> {
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

/// Memory of a ticket in addition to its login, in bytes: three copies of its text, and its entries in the tables.
const TICKET_BYTES: usize = 512;
/// An address may use at most 1/`ADDRESS_PART` of all tickets and of their bytes.
const ADDRESS_PART: usize = 10;

/// The limits of login tickets.
#[derive(Clone, Copy, Debug)]
pub struct TicketLimits {
    /// Maximum number of tickets.
    pub tickets_max: usize,
    /// Maximum memory of the tickets and their logins, in bytes.
    pub bytes_max: usize,
}

impl TicketLimits {
    /// The limits of the configuration.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let http = &plan.config.http;
        Self {
            tickets_max: http.tickets_max,
            bytes_max: http.tickets_bytes_max.as_usize(),
        }
    }
}

/// Metrics of login tickets.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Tickets that were issued and not used.
    pub tickets: Gauge,
    /// Bytes of these tickets and their logins.
    pub bytes: Gauge,
    /// Tickets that were discarded for newer ones.
    pub displaced: Counter,
}

/// A new ticket of the HTTP API.
#[derive(Debug)]
pub struct IssuedTicket {
    /// The ticket.
    pub ticket: String,
    /// The tickets that it has displaced.
    pub displaced: Vec<String>,
}

/// The tickets of the HTTP API.
#[derive(Debug)]
pub struct LoginTickets {
    limits: TicketLimits,
    given: Mutex<GivenLogins>,
    counts: Counts,
}

#[derive(Debug)]
struct GivenLogins {
    logins: HashMap<String, Login>,
    /// By number. Tickets are numbered as they are issued, and they expire in the same order.
    order: BTreeMap<u64, (Instant, String)>,
    addresses: HashMap<IpAddr, OfAddress>,
    next: u64,
    bytes: usize,
    share: Share,
}

#[derive(Debug)]
struct Login {
    credentials: Credentials,
    number: u64,
    address: IpAddr,
    bytes: usize,
}

/// The tickets of one address.
#[derive(Debug, Default)]
struct OfAddress {
    numbers: BTreeSet<u64>,
    bytes: usize,
}

impl LoginTickets {
    /// Starts without tickets.
    pub fn new(limits: TicketLimits, budget: &MemoryBudget, counts: Counts) -> Self {
        Self {
            limits,
            given: Mutex::new(GivenLogins {
                logins: HashMap::new(),
                order: BTreeMap::new(),
                addresses: HashMap::new(),
                next: 0,
                bytes: 0,
                share: budget.clone().share(),
            }),
            counts,
        }
    }

    /// Issues a ticket for this login; `None` if the node has no memory for it, or the system has no random numbers. At the limits
    /// of an address, the address loses its oldest ticket. At the total limits, the address that uses the most bytes does.
    pub fn give(
        &self,
        credentials: Credentials,
        address: IpAddr,
        now: Instant,
    ) -> Option<IssuedTicket> {
        let ticket = random_ticket()?;
        let (address, bytes) = (subject(address), credentials.as_json().len() + TICKET_BYTES);
        let TicketLimits {
            tickets_max,
            bytes_max,
        } = self.limits;
        let mut given = self.given.lock();
        given.forget_ended(now);
        let mut displaced = Vec::new();
        while let Some(of_address) = given.addresses.get(&address)
            && (of_address.numbers.len() >= (tickets_max / ADDRESS_PART).max(1)
                || of_address.bytes + bytes > bytes_max / ADDRESS_PART)
        {
            displaced.extend(self.displace(&mut given, address));
        }
        while given.logins.len() >= tickets_max || given.bytes + bytes > bytes_max {
            let addresses = given.addresses.iter();
            let most = addresses.max_by_key(|(_, of_address)| of_address.bytes);
            let Some(most) = most.map(|(address, _)| *address) else {
                break;
            };
            displaced.extend(self.displace(&mut given, most));
        }
        let total = given.bytes + bytes;
        given.share.report(total, 0);
        if total > bytes_max || given.share.budget().excess_without_spare() > 0 {
            let before = given.bytes;
            given.share.report(before, 0);
            return None;
        }
        given.bytes = total;
        given.next += 1;
        let number = given.next;
        given.order.insert(number, (now + LIFE, ticket.clone()));
        let of_address = given.addresses.entry(address).or_default();
        of_address.numbers.insert(number);
        of_address.bytes += bytes;
        let login = Login {
            credentials,
            number,
            address,
            bytes,
        };
        given.logins.insert(ticket.clone(), login);
        self.show(&given);
        Some(IssuedTicket { ticket, displaced })
    }

    /// Redeems a ticket, once. Returns its login.
    pub fn take(&self, ticket: &str, now: Instant) -> Option<Credentials> {
        let mut given = self.given.lock();
        given.forget_ended(now);
        let login = given.remove(ticket);
        self.show(&given);
        login.map(|login| login.credentials)
    }

    /// Makes the oldest ticket of an address invalid.
    fn displace(&self, given: &mut GivenLogins, address: IpAddr) -> Option<String> {
        let of_address = given.addresses.get(&address)?;
        let number = of_address.numbers.first()?;
        let (_, ticket) = given.order.get(number).cloned()?;
        given.remove(&ticket);
        self.counts.displaced.inc();
        Some(ticket)
    }

    fn show(&self, given: &GivenLogins) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.counts.tickets.set(number(given.logins.len()));
        self.counts.bytes.set(number(given.bytes));
    }
}

impl GivenLogins {
    fn forget_ended(&mut self, now: Instant) {
        while let Some((_, (end, ticket))) = self.order.first_key_value()
            && *end <= now
        {
            let ticket = ticket.clone();
            self.remove(&ticket);
        }
    }

    fn remove(&mut self, ticket: &str) -> Option<Login> {
        let login = self.logins.remove(ticket)?;
        self.order.remove(&login.number);
        if let Some(of_address) = self.addresses.get_mut(&login.address) {
            of_address.numbers.remove(&login.number);
            of_address.bytes -= login.bytes;
            if of_address.numbers.is_empty() {
                self.addresses.remove(&login.address);
            }
        }
        self.bytes -= login.bytes;
        let bytes = self.bytes;
        self.share.report(bytes, 0);
        Some(login)
    }
}

/// A random ticket of 192 bits; `None` if the system has no random numbers.
fn random_ticket() -> Option<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
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

    const LIMITS: TicketLimits = TicketLimits {
        tickets_max: 20,
        bytes_max: 1 << 20,
    };

    fn login_tickets(limits: TicketLimits, memory_bytes_max: usize) -> LoginTickets {
        let budget = MemoryBudget::new(memory_bytes_max);
        LoginTickets::new(limits, &budget, Counts::default())
    }

    fn address(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn a_ticket_of_a_login_is_good_once_and_for_half_a_minute() {
        let tickets = login_tickets(LIMITS, 1 << 30);
        let now = Instant::now();
        let alice = Credentials::token("alice");
        let give = || {
            tickets
                .give(alice.clone(), address(1), now)
                .expect("a ticket")
                .ticket
        };
        let (first, second) = (give(), give());
        assert_ne!(first, second);
        assert_eq!(tickets.counts.tickets.get(), 2);
        assert_eq!(tickets.take(&first, now), Some(alice.clone()));
        assert_eq!(tickets.take(&first, now), None);
        assert_eq!(tickets.take(&second, now + LIFE), None);
        assert_eq!(
            (tickets.counts.tickets.get(), tickets.counts.bytes.get()),
            (0, 0)
        );
        assert!(tickets.given.lock().addresses.is_empty());
    }

    #[test]
    fn an_address_displaces_its_own_tickets_and_no_others() {
        let tickets = login_tickets(LIMITS, 1 << 30);
        let now = Instant::now();
        let give = |number| {
            let issued = tickets.give(Credentials::none(), address(number), now);
            issued.map(|issued| issued.ticket)
        };
        let other = give(1).expect("a ticket");
        let first = give(2).expect("a ticket");
        for _ in 0..50 {
            give(2).expect("a ticket");
        }
        assert_eq!(tickets.counts.tickets.get(), 3);
        assert_eq!(tickets.counts.displaced.get(), 49);
        assert_eq!(tickets.take(&first, now), None);
        assert!(tickets.take(&other, now).is_some());
        for number in 10..250 {
            give(number).expect("a ticket");
        }
        assert_eq!(tickets.counts.tickets.get(), 20);
    }

    #[test]
    fn bytes_of_tickets_are_bounded_and_count_in_the_memory_of_the_node() {
        let tickets = login_tickets(LIMITS, 80 << 10);
        let now = Instant::now();
        let large = Credentials::token(&"x".repeat(16 << 10));
        let give = |number| tickets.give(large.clone(), address(number), now);
        let given = (1..=10).filter_map(give).count();
        assert_eq!(given, 4, "there is memory for four");
        let limits = TicketLimits {
            bytes_max: 200 << 10,
            ..LIMITS
        };
        let tickets = login_tickets(limits, 1 << 30);
        let give = |number| tickets.give(large.clone(), address(number), now);
        let last = (1..=100).filter_map(give).last().expect("a ticket");
        assert!(tickets.counts.bytes.get() <= 200 << 10);
        assert!(
            tickets.take(&last.ticket, now).is_some(),
            "the newest is kept"
        );
        assert!(!last.displaced.is_empty());
    }
}

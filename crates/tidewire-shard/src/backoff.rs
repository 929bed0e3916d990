//! Reconnect back-off for peers that were disconnected for exceeding a limit.
//!
//! Some clients reconnect at once and without end, so a client that is closed without a delay returns at full speed. All
//! shards share the table, which has one lock. The lock is taken once for each connection and login if the table has entries, and never
//! if it is empty. The table only computes the delay; the engine delays the answers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_config::plan::Plan;
use tidewire_config::section::AuthKind;
use tidewire_core::identity;
use tidewire_core::text::Name;
use tidewire_core::time::Instant;

/// Each wait is longer than the one before by this factor. With 1 s, 5 s, 25 s and then 30 s, a client that is closed after each connect
/// connects at most five times in any minute. Doubling would allow seven.
const WAIT_GROWTH: u32 = 5;
/// Further disconnects change nothing, so that no client has to wait for hours until they are forgiven.
const DISCONNECTS_MAX: u32 = 10;

/// Settings of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The wait after the first disconnect. Default 1 s.
    pub wait_min: Duration,
    /// The longest wait. Zero disables all waits. Default 30 s.
    pub wait_max: Duration,
    /// After this time without a disconnect, one disconnect is forgiven. Default 1 min.
    pub forgive_interval: Duration,
    /// Disconnects by the client's own fault after which the answer is a final refusal. Default 5.
    pub faults_max: u32,
    /// Refused logins of requests from one address that count as one disconnect. Default 3.
    pub login_attempts_max: u32,
    /// Refused logins per minute, of one user from one address, that cause no wait. Three times as many of one address and of one user
    /// cause no wait either. Each further one doubles the next wait. Default 10.
    pub login_refusals_max: u32,
    /// Whether logins prove user ids. With open authentication they do not: any peer may use any name.
    pub names_are_proved: bool,
    /// The number of addresses, and also of users, that are remembered. At the limit the ones with the oldest disconnects are forgotten.
    /// Default 10,000.
    pub entries_max: usize,
}

impl BackoffSettings {
    /// Takes the settings from the configuration.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let backoff = &plan.config.backoff;
        Self {
            wait_min: backoff.wait_min,
            wait_max: backoff.wait_max,
            forgive_interval: backoff.forgive_interval,
            faults_max: backoff.faults_max,
            login_attempts_max: plan.config.auth.attempts_max,
            login_refusals_max: backoff.login_refusals_max,
            names_are_proved: !plan.auth_chain.contains(&AuthKind::Open),
            entries_max: plan.config.limits.backoff_entries_max,
        }
    }
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            wait_min: Duration::from_secs(1),
            wait_max: Duration::from_secs(30),
            forgive_interval: Duration::from_secs(60),
            faults_max: 5,
            login_attempts_max: 3,
            login_refusals_max: 10,
            names_are_proved: true,
            entries_max: 10_000,
        }
    }
}

/// The reason for which a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectCause {
    /// It did not read, or used most memory when the node exceeded its budget. That can happen to any client on a bad line, and never
    /// leads to a final refusal.
    Slow,
    /// It violated the protocol or a limit of messages, or could not log in.
    Fault,
}

/// The delay of a connection or login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// When it gets its answer.
    pub until: Instant,
    /// Whether the answer is a final refusal.
    pub refuse: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Disconnects that are not forgiven yet.
    disconnects: u32,
    /// Disconnects by the client's own fault that are not forgiven yet.
    faults: u32,
    /// The start of the interval after which the next disconnect is forgiven.
    since: Instant,
    until: Instant,
    /// Closed connections that have not returned yet. Thousands of innocent clients may share an address, so only as many connections
    /// wait as were closed.
    owed: u32,
}

impl Entry {
    fn forgive(&mut self, now: Instant, interval: Duration) {
        let intervals = now.since(self.since).as_nanos() / interval.as_nanos().max(1);
        let forgiven = u32::try_from(intervals).unwrap_or(u32::MAX);
        if forgiven > 0 {
            self.disconnects = self.disconnects.saturating_sub(forgiven);
            self.faults = self.faults.saturating_sub(forgiven);
            self.since = self.since + interval * forgiven;
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.disconnects == 0 && self.until <= now
    }
}

#[derive(Debug, Default)]
struct Tables {
    addresses: HashMap<IpAddr, Entry>,
    /// Refused logins of requests since the last one that counted as a disconnect.
    attempts: HashMap<IpAddr, u32>,
    users: HashMap<Name, Entry>,
}

/// The back-off of a node's peers. See the head of this file.
#[derive(Debug)]
pub struct ReconnectBackoff {
    settings: BackoffSettings,
    tables: Mutex<Tables>,
    /// Number of entries, so that no thread takes the lock for an empty table.
    count: AtomicUsize,
}

impl ReconnectBackoff {
    /// Creates an empty table.
    #[must_use]
    pub fn new(settings: BackoffSettings) -> Self {
        Self {
            settings,
            tables: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// The number of remembered addresses and users.
    pub fn entry_count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes that a connection was closed for exceeding a limit. A fault counts for its user if it has logged in, or else for its
    /// address. A user id that is shared, or that any peer could use, has no delays, because they would affect other clients. In that
    /// case the address is delayed: its next connections wait, but are not refused for good.
    pub fn note_disconnect(
        &self,
        now: Instant,
        address: Option<IpAddr>,
        user: Option<&Name>,
        cause: DisconnectCause,
    ) {
        let settings = &self.settings;
        if settings.wait_max.is_zero() {
            return;
        }
        let fault = u32::from(cause == DisconnectCause::Fault);
        let mut tables = self.tables.lock();
        if let Some(address) = address {
            let fault = if user.is_none() { fault } else { 0 };
            count_disconnect(
                &mut tables.addresses,
                &subject(address),
                now,
                fault,
                settings,
            );
        }
        if let Some(user) = user.filter(|user| self.is_own(user)) {
            count_disconnect(&mut tables.users, user, now, fault, settings);
        }
        self.recount(&tables);
    }

    /// Notes that a request's login was refused. A socket may try again a few times before it is closed. A request is a new session each
    /// time, so its address is counted.
    pub fn refused_login(&self, now: Instant, address: IpAddr) {
        let settings = &self.settings;
        let mut tables = self.tables.lock();
        let subject = subject(address);
        if tables.attempts.len() >= settings.entries_max && !tables.attempts.contains_key(&subject)
        {
            tables.attempts.clear();
        }
        let attempts = tables.attempts.entry(subject).or_insert(0);
        *attempts += 1;
        if *attempts < settings.login_attempts_max {
            return;
        }
        tables.attempts.remove(&subject);
        drop(tables);
        self.note_disconnect(now, Some(address), None, DisconnectCause::Fault);
    }

    /// Returns the delay of a connection from `address`, if it has one. The following connection has no delay unless another one was
    /// closed.
    pub fn arrival(&self, now: Instant, address: IpAddr) -> Option<Delay> {
        if self.entry_count() == 0 {
            return None;
        }
        let mut tables = self.tables.lock();
        let entry = self.look_up(&mut tables.addresses, &subject(address), now);
        let delay = entry.filter(|entry| entry.owed > 0).map(|entry| {
            entry.owed -= 1;
            self.delay(entry)
        });
        self.recount(&tables);
        delay.filter(|delay| delay.refuse || delay.until > now)
    }

    /// Returns the delay of an accepted login from `address`, if it has one.
    pub fn login(&self, now: Instant, address: IpAddr, user: &Name) -> Option<Delay> {
        if self.entry_count() == 0 {
            return None;
        }
        let mut tables = self.tables.lock();
        // If one client can log in from an address, others may do so, too. So an address is refused for good only while no client logs in
        // from it.
        if let Some(entry) = tables.addresses.get_mut(&subject(address)) {
            entry.faults = 0;
        }
        let delay = match self.is_own(user) {
            true => self.look_up(&mut tables.users, user, now),
            false => None,
        };
        let delay = delay.map(|entry| self.delay(entry));
        self.recount(&tables);
        delay.filter(|delay| delay.refuse || delay.until > now)
    }

    /// Whether a user id belongs to one user, who has proved it.
    fn is_own(&self, user: &Name) -> bool {
        self.settings.names_are_proved && !identity::is_shared(user)
    }

    /// The current entry. An expired entry is removed.
    fn look_up<'t, K: Eq + Hash + Clone>(
        &self,
        table: &'t mut HashMap<K, Entry>,
        key: &K,
        now: Instant,
    ) -> Option<&'t mut Entry> {
        let entry = table.get_mut(key)?;
        entry.forgive(now, self.settings.forgive_interval);
        if entry.is_over(now) {
            table.remove(key);
        }
        table.get_mut(key)
    }

    fn delay(&self, entry: &Entry) -> Delay {
        Delay {
            until: entry.until,
            refuse: entry.faults > 0 && entry.faults >= self.settings.faults_max,
        }
    }

    fn recount(&self, tables: &Tables) {
        let count = tables.addresses.len() + tables.users.len();
        self.count.store(count, Ordering::Relaxed);
    }
}

fn count_disconnect<K: Eq + Hash + Clone>(
    table: &mut HashMap<K, Entry>,
    key: &K,
    now: Instant,
    fault: u32,
    settings: &BackoffSettings,
) {
    if table.len() >= settings.entries_max && !table.contains_key(key) {
        make_room(table, now, settings.forgive_interval);
    }
    let entry = table.entry(key.clone()).or_insert(Entry {
        disconnects: 0,
        faults: 0,
        since: now,
        until: now,
        owed: 0,
    });
    entry.forgive(now, settings.forgive_interval);
    if entry.until <= now {
        entry.owed = 0;
    }
    entry.disconnects = (entry.disconnects + 1).min(DISCONNECTS_MAX);
    entry.faults = (entry.faults + fault).min(DISCONNECTS_MAX);
    entry.since = now;
    entry.until = entry.until.max(now + wait(entry.disconnects, settings));
    entry.owed = entry.owed.saturating_add(1);
}

/// Removes expired entries. If no entry has expired, removes the one with the oldest disconnect.
fn make_room<K: Eq + Hash + Clone>(
    table: &mut HashMap<K, Entry>,
    now: Instant,
    interval: Duration,
) {
    table.retain(|_, entry| {
        entry.forgive(now, interval);
        !entry.is_over(now)
    });
    // If several entries are equally old, any of them may be removed. Nothing else depends on the order of the table.
    let oldest = table.iter().min_by_key(|(_, entry)| entry.since);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        table.remove(&key);
    }
}

fn wait(disconnects: u32, settings: &BackoffSettings) -> Duration {
    let factor = WAIT_GROWTH.saturating_pow(disconnects.saturating_sub(1));
    settings
        .wait_min
        .saturating_mul(factor)
        .min(settings.wait_max)
}

/// The key of an address in the table: the /64 of an IPv6 address, because a client with one address of it can use all of them.
pub fn subject(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use tidewire_config::machine::Machine;
    use tidewire_config::plan::plan;
    use tidewire_config::{Sources, load};

    use super::*;

    /// An address of the documentation.
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(millis: u64) -> Instant {
        Instant(1_000_000_000_000) + Duration::from_millis(millis)
    }

    fn fresh() -> ReconnectBackoff {
        ReconnectBackoff::new(BackoffSettings::default())
    }

    /// When the next connection is answered, in milliseconds.
    fn answered(backoff: &ReconnectBackoff, now: u64) -> u64 {
        let delay = backoff.arrival(at(now), HERE);
        let until = delay.map_or(at(now), |delay| delay.until);
        u64::try_from(until.since(at(0)).as_millis()).expect("small")
    }

    #[test]
    fn the_defaults_are_those_of_the_table_of_options() {
        let loaded = load(&Sources::default()).expect("no options are right");
        let plan = plan(&loaded, &Machine::read()).expect("a plan");
        let settings = BackoffSettings {
            names_are_proved: true,
            ..BackoffSettings::of(&plan)
        };
        assert_eq!(settings, BackoffSettings::default());
    }

    #[test]
    fn a_client_that_is_always_disconnected_connects_five_times_a_minute() {
        let backoff = fresh();
        let mut connects = Vec::new();
        let mut now = 0;
        while now < 600_000 {
            connects.push(now);
            now = answered(&backoff, now);
            backoff.note_disconnect(at(now), Some(HERE), None, DisconnectCause::Slow);
        }
        assert_eq!(connects[..6], [0, 0, 1_000, 6_000, 31_000, 61_000]);
        for start in &connects {
            let within = |connect: &&u64| (*start..start + 60_000).contains(*connect);
            let count = connects.iter().filter(within).count();
            assert!(count <= 5, "{count} from {start} on");
        }
    }

    #[test]
    fn only_as_many_connections_of_an_address_wait_as_were_closed() {
        let backoff = fresh();
        backoff.note_disconnect(at(0), Some(HERE), None, DisconnectCause::Slow);
        backoff.note_disconnect(at(0), Some(HERE), None, DisconnectCause::Slow);
        assert_eq!(answered(&backoff, 0), 5_000);
        assert_eq!(answered(&backoff, 0), 5_000);
        assert_eq!(backoff.arrival(at(0), HERE), None);
        let elsewhere = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(backoff.arrival(at(0), elsewhere), None);
    }

    #[test]
    fn every_login_of_a_user_waits_wherever_it_comes_from() {
        let (backoff, user) = (fresh(), Name::from("alice"));
        backoff.note_disconnect(at(0), Some(HERE), Some(&user), DisconnectCause::Slow);
        let elsewhere = IpAddr::from([192, 0, 2, 2]);
        for _ in 0..3 {
            let delay = backoff.login(at(400), elsewhere, &user);
            assert_eq!(delay.map(|delay| delay.until), Some(at(1_000)));
        }
        assert_eq!(backoff.login(at(1_000), elsewhere, &user), None);
        assert_eq!(backoff.login(at(400), HERE, &"bob".into()), None);
    }

    #[test]
    fn without_a_name_no_peer_is_delayed_for_others() {
        for user in [identity::NAMELESS, identity::OPEN] {
            let (backoff, user) = (fresh(), Name::from(user));
            for _ in 0..6 {
                backoff.note_disconnect(at(0), Some(HERE), Some(&user), DisconnectCause::Fault);
            }
            let elsewhere = IpAddr::from([192, 0, 2, 2]);
            assert_eq!(backoff.arrival(at(0), elsewhere), None);
            assert_eq!(backoff.login(at(0), elsewhere, &user), None);
            assert_eq!(backoff.login(at(0), HERE, &user), None);
            let delay = backoff.arrival(at(0), HERE);
            assert!(
                delay.is_some_and(|delay| !delay.refuse),
                "the address waits"
            );
        }
    }

    #[test]
    fn an_unproven_name_is_not_delayed() {
        let backoff = ReconnectBackoff::new(BackoffSettings {
            names_are_proved: false,
            ..BackoffSettings::default()
        });
        let user = Name::from("alice");
        for _ in 0..6 {
            backoff.note_disconnect(at(0), Some(HERE), Some(&user), DisconnectCause::Fault);
        }
        assert_eq!(backoff.login(at(0), HERE, &user), None);
        let delay = backoff.arrival(at(0), HERE);
        assert!(
            delay.is_some_and(|delay| !delay.refuse),
            "the address waits"
        );
    }

    #[test]
    fn slow_readers_are_never_refused_for_good() {
        let (backoff, user) = (fresh(), Name::from("alice"));
        for _ in 0..50 {
            backoff.note_disconnect(at(0), Some(HERE), Some(&user), DisconnectCause::Slow);
        }
        let delays = [
            backoff.arrival(at(0), HERE),
            backoff.login(at(0), HERE, &user),
        ];
        let expected = Some(Delay {
            until: at(30_000),
            refuse: false,
        });
        assert_eq!(delays, [expected, expected]);
    }

    #[test]
    fn faults_end_in_a_permanent_refusal_of_the_user_or_the_address() {
        let (backoff, user) = (fresh(), Name::from("alice"));
        for _ in 0..5 {
            backoff.note_disconnect(at(0), Some(HERE), Some(&user), DisconnectCause::Fault);
        }
        let refuses = |delay: Option<Delay>| delay.is_some_and(|delay| delay.refuse);
        assert!(refuses(backoff.login(at(0), HERE, &user)));
        assert!(!refuses(backoff.arrival(at(0), HERE)));
        for _ in 0..5 {
            backoff.note_disconnect(at(0), Some(HERE), None, DisconnectCause::Fault);
        }
        assert!(refuses(backoff.arrival(at(0), HERE)));
        // Another client logs in from there.
        backoff.login(at(0), HERE, &"bob".into());
        assert!(!refuses(backoff.arrival(at(0), HERE)));
    }

    #[test]
    fn disconnects_are_forgiven_over_time() {
        let backoff = fresh();
        for _ in 0..3 {
            backoff.note_disconnect(at(0), Some(HERE), None, DisconnectCause::Slow);
        }
        assert_eq!(backoff.arrival(at(100_000), HERE), None);
        backoff.note_disconnect(at(120_000), Some(HERE), None, DisconnectCause::Slow);
        assert_eq!(answered(&backoff, 120_000), 125_000);
        assert_eq!(backoff.arrival(at(900_000), HERE), None);
        assert_eq!(backoff.entry_count(), 0);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest_disconnect() {
        let backoff = ReconnectBackoff::new(BackoffSettings {
            entries_max: 3,
            ..BackoffSettings::default()
        });
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in 0..5 {
            let now = at(u64::from(number));
            backoff.note_disconnect(now, Some(address(number)), None, DisconnectCause::Slow);
        }
        assert_eq!(backoff.entry_count(), 3);
        let known: Vec<u8> = (0..5)
            .filter(|number| backoff.arrival(at(5), address(*number)).is_some())
            .collect();
        assert_eq!(known, [2, 3, 4]);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let parse = |text: &str| subject(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:1"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:192.0.2.1"), HERE);
    }

    #[test]
    fn a_wait_of_zero_disables_delays() {
        let backoff = ReconnectBackoff::new(BackoffSettings {
            wait_max: Duration::ZERO,
            ..BackoffSettings::default()
        });
        backoff.note_disconnect(at(0), Some(HERE), None, DisconnectCause::Fault);
        assert_eq!(backoff.arrival(at(0), HERE), None);
    }
}

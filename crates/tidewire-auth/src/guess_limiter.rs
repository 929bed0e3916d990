//! Counts refused password logins and computes how long the next attempt must wait.
//!
//! Refusals count for three subjects: a user at an address, an address, and a user. Each subject may have a number of free
//! refusals a minute. Each further refusal doubles the delay until the next attempt of the subject is evaluated, and attempts are
//! evaluated one at a time. An attempt that would wait for longer than [`PATIENCE`] is turned away without evaluation, so the
//! attacker learns nothing.
//!
//! If a user has logged in from an address before, the user is known there. Refusals of other users at that address, and of the
//! same user elsewhere, then do not delay that user there. Without this rule, an attacker could lock a user out by guessing.
//! Decision: 0055.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_shard::backoff::{BackoffSettings, subject};
use tidewire_shard::peer::PeerDetails;
use tokio::time::Instant;

/// Maximum time that an attempt waits to be evaluated. With a longer one, a legitimate user would look at a page that does
/// nothing.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// An address may have many users, and a user many addresses. Each of them may therefore have this many times the free refusals of
/// one user at one address.
const SHARED_FACTOR: u32 = 3;
/// Refusals beyond the free ones that are remembered. With this many, a delay of 1 s has doubled beyond any `backoff.wait_max`;
/// more would take hours to be forgiven.
const EXCESS_MAX: u32 = 10;
/// Period of the free refusals, and of the log: at most one line per subject.
const MINUTE: Duration = Duration::from_secs(60);
/// Refusals within a minute that cause a log line. A person who mistypes a password has fewer.
const LOGGED_FROM: u32 = 10;

/// Counters of delayed attempts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Attempts that were delayed because of earlier refusals.
    pub delayed: Counter,
    /// Attempts that were turned away without evaluation because of earlier refusals.
    pub held_off: Counter,
    /// Subjects whose refusals are tracked.
    pub subjects: Gauge,
}

/// The refusals of a node. See the file comment.
#[derive(Debug)]
pub struct GuessLimiter {
    settings: BackoffSettings,
    /// Has a random key, so that an attacker can't make two names collide.
    hasher: RandomState,
    tables: Mutex<Tables>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Tables {
    pairs: HashMap<u64, FailedAttempts>,
    addresses: HashMap<IpAddr, FailedAttempts>,
    users: HashMap<u64, FailedAttempts>,
    known: HashMap<u64, ()>,
    /// The entries of `known`, oldest first.
    known_order: VecDeque<u64>,
}

/// The subjects that an attempt counts for, as far as the server knows them before it evaluates the attempt.
#[derive(Clone, Debug)]
pub struct Subject {
    pair: u64,
    address: IpAddr,
    user: u64,
    /// The user name for the log; absent if the login has none.
    name: Option<String>,
}

/// When an attempt is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Free,
    /// At this time.
    At(Instant),
    /// Never: the attempt is turned away.
    HeldOff,
}

/// An attempt that was admitted without delay and waits for its turn to be evaluated.
#[derive(Clone, Debug)]
pub struct Watched {
    limiter: Arc<GuessLimiter>,
    subject: Subject,
}

/// The refusals of a subject.
#[derive(Clone, Copy, Debug)]
struct FailedAttempts {
    refusals: u32,
    /// Start of the period in which refusals are forgiven.
    since: Instant,
    /// Time at which the last attempt was, or will be, evaluated. The next one follows after the delay.
    last: Instant,
    /// The minute that is counted for the log, its refusals, and whether a line was logged.
    minute: Instant,
    minute_refusals: u32,
    is_logged: bool,
}

impl FailedAttempts {
    fn new(now: Instant) -> Self {
        Self {
            refusals: 0,
            since: now,
            last: now,
            minute: now,
            minute_refusals: 0,
            is_logged: false,
        }
    }

    fn forgive(&mut self, now: Instant, free: u32) {
        let interval = MINUTE / free.max(1);
        let passed = now.saturating_duration_since(self.since).as_nanos();
        let forgiven = u32::try_from(passed / interval.as_nanos().max(1)).unwrap_or(u32::MAX);
        if forgiven >= self.refusals {
            self.refusals = 0;
            self.since = now;
        } else {
            self.refusals -= forgiven;
            self.since += interval * forgiven;
        }
    }

    /// The delay between two attempts.
    fn delay(&self, free: u32, settings: &BackoffSettings) -> Duration {
        let Some(excess) = self.refusals.checked_sub(free) else {
            return Duration::ZERO;
        };
        let factor = 2u32.saturating_pow(excess);
        settings
            .wait_min
            .saturating_mul(factor)
            .min(settings.wait_max)
    }

    /// Counts a refusal. Returns the refusals of this minute if a log line is due.
    fn refuse(&mut self, now: Instant, free: u32) -> Option<u32> {
        self.forgive(now, free);
        self.refusals = (self.refusals + 1).min(free + EXCESS_MAX);
        self.last = self.last.max(now);
        if now.saturating_duration_since(self.minute) >= MINUTE {
            (self.minute, self.minute_refusals, self.is_logged) = (now, 0, false);
        }
        self.minute_refusals += 1;
        let is_due = self.minute_refusals >= LOGGED_FROM && !self.is_logged;
        self.is_logged |= is_due;
        is_due.then_some(self.minute_refusals)
    }
}

impl GuessLimiter {
    /// Starts without refusals. `backoff.wait_max` of 0 disables the delays.
    #[must_use]
    pub fn new(settings: BackoffSettings, counts: Counts) -> Arc<Self> {
        Arc::new(Self {
            settings,
            hasher: RandomState::new(),
            tables: Mutex::default(),
            counts,
        })
    }

    /// The subject of a login with this user name and these credentials. If the login has no user name, the credentials represent the
    /// user, so that one visitor's refusals with an expired session do not count for other users at the same address.
    #[must_use]
    pub fn subject(&self, name: Option<String>, credentials: &str, peer: &PeerDetails) -> Subject {
        let user = match &name {
            Some(name) => self.hasher.hash_one((0u8, name)),
            None => {
                let headers = ["authorization", "cookie"].map(|name| peer.header(name));
                let certificate = peer.certificate.as_ref().map(|certificate| &certificate.0);
                let credentials = (1u8, credentials, headers, certificate);
                self.hasher.hash_one(credentials)
            }
        };
        let address = subject(peer.address.ip());
        Subject {
            pair: self.hasher.hash_one((address, user)),
            address,
            user,
            name,
        }
    }

    fn shared_free(&self) -> u32 {
        let free = self.settings.login_refusals_max;
        free.saturating_mul(SHARED_FACTOR)
    }

    /// Decides when a new attempt is evaluated. A time slot given to this attempt delays the attempts after it.
    pub fn admit(&self, subject: &Subject, now: Instant) -> Admission {
        if self.settings.wait_max.is_zero() {
            return Admission::Free;
        }
        let mut tables = self.tables.lock();
        let is_known = tables.known.contains_key(&subject.pair);
        let (free, shared_free) = (self.settings.login_refusals_max, self.shared_free());
        let Tables {
            pairs,
            addresses,
            users,
            ..
        } = &mut *tables;
        let entries = [
            (pairs.get_mut(&subject.pair), free),
            (addresses.get_mut(&subject.address), shared_free),
            (users.get_mut(&subject.user), shared_free),
        ];
        let count = if is_known { 1 } else { entries.len() };
        let mut start = now;
        let mut delayed = Vec::new();
        for (entry, free) in entries.into_iter().take(count) {
            let Some(entry) = entry else { continue };
            entry.forgive(now, free);
            let mut delay = entry.delay(free, &self.settings);
            if delay.is_zero() {
                continue;
            }
            if is_known {
                delay = delay.min(PATIENCE);
            }
            start = start.max(entry.last + delay);
            delayed.push(entry);
        }
        if start > now + PATIENCE {
            self.counts.held_off.inc();
            return Admission::HeldOff;
        }
        if delayed.is_empty() {
            return Admission::Free;
        }
        for entry in delayed {
            entry.last = start;
        }
        self.counts.delayed.inc();
        Admission::At(start)
    }

    /// Watches an attempt that was admitted without delay, so that it is checked again when its turn comes.
    #[must_use]
    pub fn watch(self: &Arc<Self>, subject: Subject) -> Watched {
        Watched {
            limiter: Arc::clone(self),
            subject,
        }
    }

    /// Records that an attempt was accepted.
    pub fn accepted(&self, subject: &Subject) {
        let mut tables = self.tables.lock();
        tables.pairs.remove(&subject.pair);
        if tables.known.insert(subject.pair, ()).is_none() {
            tables.known_order.push_back(subject.pair);
            if tables.known_order.len() > self.settings.entries_max
                && let Some(oldest) = tables.known_order.pop_front()
            {
                tables.known.remove(&oldest);
            }
        }
        self.recount(&tables);
    }

    /// Records that an attempt was refused.
    pub fn refused(&self, subject: &Subject, now: Instant) {
        let (free, shared_free) = (self.settings.login_refusals_max, self.shared_free());
        let (of_address, of_user) = {
            let mut tables = self.tables.lock();
            self.count(&mut tables.pairs, subject.pair, now, free);
            let of_address = self.count(&mut tables.addresses, subject.address, now, shared_free);
            let of_user = self.count(&mut tables.users, subject.user, now, shared_free);
            self.recount(&tables);
            (of_address, of_user)
        };
        if let Some(refusals) = of_address {
            let address = subject.address;
            tracing::warn!(
                %address,
                refusals,
                "logins from an address are refused repeatedly"
            );
        }
        if let Some(refusals) = of_user
            && let Some(user) = &subject.name
        {
            tracing::warn!(user, refusals, "logins of a user are refused repeatedly");
        }
    }

    fn count<K: Eq + Hash + Clone>(
        &self,
        table: &mut HashMap<K, FailedAttempts>,
        key: K,
        now: Instant,
        free: u32,
    ) -> Option<u32> {
        if table.len() >= self.settings.entries_max && !table.contains_key(&key) {
            make_room(table, now, free);
        }
        let entry = table.entry(key).or_insert_with(|| FailedAttempts::new(now));
        entry.refuse(now, free)
    }

    fn recount(&self, tables: &Tables) {
        let count = tables.pairs.len() + tables.addresses.len() + tables.users.len();
        self.counts
            .subjects
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether an attempt that was admitted without delay would be delayed now.
    fn is_over(&self, subject: &Subject) -> bool {
        if self.settings.wait_max.is_zero() {
            return false;
        }
        let tables = self.tables.lock();
        let is_over = |entry: Option<&FailedAttempts>, free: u32| {
            entry.is_some_and(|entry| !entry.delay(free, &self.settings).is_zero())
        };
        if is_over(
            tables.pairs.get(&subject.pair),
            self.settings.login_refusals_max,
        ) {
            return true;
        }
        !tables.known.contains_key(&subject.pair)
            && (is_over(tables.addresses.get(&subject.address), self.shared_free())
                || is_over(tables.users.get(&subject.user), self.shared_free()))
    }
}

impl Watched {
    /// Whether the attempt is turned away because of refusals since it was admitted.
    pub(super) fn is_held_off(&self) -> bool {
        let is_over = self.limiter.is_over(&self.subject);
        if is_over {
            self.limiter.counts.held_off.inc();
        }
        is_over
    }
}

/// Removes subjects whose refusals are forgiven, and in addition the subject whose next refusal would be forgiven first.
fn make_room<K: Eq + Hash + Clone>(
    table: &mut HashMap<K, FailedAttempts>,
    now: Instant,
    free: u32,
) {
    table.retain(|_, entry| {
        entry.forgive(now, free);
        entry.refusals > 0
    });
    let oldest = table.iter().min_by_key(|(_, entry)| entry.since);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        table.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::text::Payload;

    use super::*;
    use crate::login_attempt::LoginAttempt;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter() -> Arc<GuessLimiter> {
        GuessLimiter::new(BackoffSettings::default(), Counts::default())
    }

    fn subject_of(limiter: &GuessLimiter, address: u8, data: &str) -> Subject {
        let peer = PeerDetails::at(([192, 0, 2, address], 1).into());
        LoginAttempt::new(&Payload::from_checked(data), Arc::new(peer)).subject(limiter)
    }

    fn of_user(limiter: &GuessLimiter, address: u8, name: &str) -> Subject {
        let data = format!(r#"{{"username":"{name}","password":"x"}}"#);
        subject_of(limiter, address, &data)
    }

    /// Makes `rate` attempts a second for `seconds`, in turn for `names` users. Returns how many were evaluated and refused.
    fn attack(
        limiter: &GuessLimiter,
        start: Instant,
        address: u8,
        names: u32,
        rate: u32,
        seconds: u32,
    ) -> usize {
        let mut evaluated: Vec<Instant> = Vec::new();
        let mut due: VecDeque<(Instant, Subject)> = VecDeque::new();
        for number in 0..rate * seconds {
            let now = start + SECOND * number / rate;
            while let Some((at, _)) = due.front()
                && *at <= now
            {
                let (at, subject) = due.pop_front().expect("there is one");
                limiter.refused(&subject, at);
                evaluated.push(at);
            }
            let subject = of_user(limiter, address, &format!("user-{}", number % names));
            match limiter.admit(&subject, now) {
                Admission::Free => {
                    limiter.refused(&subject, now);
                    evaluated.push(now);
                }
                Admission::At(at) => due.push_back((at, subject)),
                Admission::HeldOff => {}
            }
        }
        evaluated.len()
    }

    #[test]
    fn guesses_of_one_user_from_one_address_soon_wait_half_a_minute() {
        let limiter = limiter();
        let now = Instant::now();
        let evaluated = attack(&limiter, now, 1, 1, 3_000, 12);
        assert!((10..=16).contains(&evaluated), "{evaluated}");
        assert!(limiter.counts.held_off.get() > 35_000);
    }

    #[test]
    fn guesses_of_many_users_from_one_address_soon_wait_too() {
        let limiter = limiter();
        let evaluated = attack(&limiter, Instant::now(), 1, 100_000, 3_000, 12);
        assert!((30..=40).contains(&evaluated), "{evaluated}");
    }

    #[test]
    fn an_attacked_user_gets_in_from_another_address_at_once() {
        let limiter = limiter();
        let now = Instant::now();
        attack(&limiter, now, 1, 1, 60, 30);
        let rightful = of_user(&limiter, 2, "user-0");
        assert_eq!(limiter.admit(&rightful, now + SECOND * 30), Admission::Free);
    }

    #[test]
    fn another_user_gets_in_at_the_address_of_the_attacker() {
        let limiter = limiter();
        let now = Instant::now();
        attack(&limiter, now, 1, 1, 60, 30);
        let rightful = of_user(&limiter, 1, "anna");
        assert_eq!(limiter.admit(&rightful, now + SECOND * 30), Admission::Free);
    }

    #[test]
    fn a_user_known_at_an_address_is_delayed_by_own_refusals_only_and_at_most_a_second() {
        let limiter = limiter();
        let now = Instant::now();
        let (known, elsewhere) = (
            of_user(&limiter, 1, "user-0"),
            of_user(&limiter, 2, "user-0"),
        );
        limiter.accepted(&elsewhere);
        limiter.accepted(&known);
        // From the same address for many users; then for this user from many addresses.
        attack(&limiter, now, 1, 1_000, 60, 30);
        for address in 3..200 {
            attack(&limiter, now, address, 1, 60, 30);
        }
        let later = now + SECOND * 30;
        let stranger = of_user(&limiter, 250, "user-0");
        assert_ne!(limiter.admit(&stranger, later), Admission::Free);
        assert_eq!(limiter.admit(&elsewhere, later), Admission::Free);
        attack(&limiter, later, 2, 1, 60, 30);
        let later = later + SECOND * 33;
        let admission = limiter.admit(&elsewhere, later);
        assert!(
            matches!(admission, Admission::At(at) if at <= later + PATIENCE),
            "{admission:?}"
        );
    }

    #[test]
    fn refusals_during_the_wait_for_a_turn_count_against_an_attempt() {
        let limiter = limiter();
        let (now, subject) = (Instant::now(), of_user(&limiter, 1, "anna"));
        let watched = limiter.watch(subject.clone());
        for refused in 0..10 {
            assert!(!watched.is_held_off(), "{refused}");
            limiter.refused(&subject, now);
        }
        assert!(watched.is_held_off());
    }

    #[test]
    fn refusals_are_forgiven() {
        let limiter = limiter();
        let (now, subject) = (Instant::now(), of_user(&limiter, 1, "anna"));
        for _ in 0..100 {
            limiter.refused(&subject, now);
        }
        assert_eq!(
            limiter.admit(&subject, now + SECOND * 20),
            Admission::HeldOff
        );
        assert_eq!(limiter.admit(&subject, now + SECOND * 125), Admission::Free);
    }

    #[test]
    fn credentials_without_a_name_are_their_own_subject() {
        let limiter = limiter();
        let now = Instant::now();
        let first = subject_of(&limiter, 1, r#"{"token":"a"}"#);
        for _ in 0..20 {
            limiter.refused(&first, now);
        }
        assert_eq!(limiter.admit(&first, now), Admission::HeldOff);
        let second = subject_of(&limiter, 1, r#"{"token":"b"}"#);
        assert_eq!(limiter.admit(&second, now), Admission::Free);
    }

    #[test]
    fn a_line_a_minute_is_due_from_ten_refusals_on() {
        let now = Instant::now();
        let mut entry = FailedAttempts::new(now);
        let lines = |entry: &mut FailedAttempts, now| {
            let refuse = |_| entry.refuse(now, 10);
            (0..30).filter_map(refuse).collect::<Vec<u32>>()
        };
        assert_eq!(lines(&mut entry, now), [10]);
        assert_eq!(lines(&mut entry, now + SECOND * 59), [0; 0]);
        assert_eq!(lines(&mut entry, now + SECOND * 60), [10]);
    }

    #[test]
    fn the_tables_are_bounded() {
        let settings = BackoffSettings {
            entries_max: 3,
            ..BackoffSettings::default()
        };
        let limiter = GuessLimiter::new(settings, Counts::default());
        let now = Instant::now();
        for number in 0..9 {
            let subject = of_user(&limiter, number, &format!("user-{number}"));
            limiter.refused(&subject, now + SECOND * number.into());
            limiter.accepted(&of_user(&limiter, number, "known"));
        }
        let tables = limiter.tables.lock();
        assert_eq!(tables.known.len(), 3);
        let sizes = [
            tables.pairs.len(),
            tables.addresses.len(),
            tables.users.len(),
        ];
        assert!(sizes.iter().all(|size| (1..=3).contains(size)), "{sizes:?}");
        assert_eq!(
            limiter.counts.subjects.get(),
            sizes.iter().sum::<usize>() as i64
        );
    }

    #[test]
    fn a_wait_of_zero_disables_delays() {
        let settings = BackoffSettings {
            wait_max: Duration::ZERO,
            ..BackoffSettings::default()
        };
        let limiter = GuessLimiter::new(settings, Counts::default());
        let (now, subject) = (Instant::now(), of_user(&limiter, 1, "anna"));
        for _ in 0..100 {
            limiter.refused(&subject, now);
        }
        assert_eq!(limiter.admit(&subject, now), Admission::Free);
        assert!(!limiter.watch(subject).is_held_off());
    }
}

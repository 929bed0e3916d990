//! Connection permits: the places that connections occupy.
//!
//! A socket has a descriptor permit as soon as it is accepted, and is counted at its peer's address. The sockets of a trusted proxy are
//! not counted. Behind a proxy, each WebSocket is counted at its client's address, which its request contains.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidewire_config::value::Auto;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A group of addresses whose connections are counted together: an IPv4 address, or the first 64 bits of an IPv6 address, which one
/// customer has. It is small, because every connection has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject(NonZeroU64);

impl Subject {
    /// The subject of an address.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        let bits = match address.to_canonical() {
            // No IPv6 network has this number, because the block is reserved.
            IpAddr::V4(address) => 1 << 32 | u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        // The network of `::1` has the number 0, and no other address has it.
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    /// A short hash, for uses in which collisions do no harm. Never 0.
    pub fn hash(self) -> u16 {
        // Fibonacci hashing: the highest bits depend on all of them.
        let mixed = self.0.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed >> 48) as u16).max(1)
    }
}

/// Counts the connections of a node.
#[derive(Debug)]
pub struct ConnectionLimiter {
    open: AtomicUsize,
    open_max: usize,
    /// One permit for each socket that the limit of open files allows.
    pub descriptors: Arc<Semaphore>,
    per_address_max: Auto<usize>,
    /// Sockets or WebSockets by address. An address without connections has no entry.
    addresses: Mutex<HashMap<Subject, usize>>,
}

impl ConnectionLimiter {
    /// Creates places for `open_max` connections, among `descriptors` sockets.
    #[must_use]
    pub fn new(open_max: usize, per_address_max: Auto<usize>, descriptors: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            open_max,
            descriptors: Arc::new(Semaphore::new(descriptors)),
            per_address_max,
            addresses: Mutex::default(),
        })
    }

    /// Counts a connection at its address. Returns `None` if `limits.connections_per_address_max` is reached there.
    #[must_use]
    pub fn count(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let max = match self.per_address_max {
            Auto::Set(max) => max,
            Auto::Auto if address.to_canonical().is_loopback() => usize::MAX,
            Auto::Auto => (self.open_max / 2).max(1),
        };
        let subject = Subject::new(address);
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(subject).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        drop(addresses);
        Some(Counted {
            limiter: Arc::clone(self),
            subject: Some(subject),
        })
    }

    fn uncount(&self, subject: Subject) {
        let mut addresses = self.addresses.lock();
        if let Entry::Occupied(mut count) = addresses.entry(subject) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Occupies a place and the descriptor permit of the socket. If no place is free, returns the ticket.
    ///
    /// # Errors
    /// `limits.connections_max` is reached.
    pub fn take(
        self: &Arc<Self>,
        ticket: SocketPermits,
    ) -> Result<ConnectionPermit, SocketPermits> {
        let add = |open: usize| (open < self.open_max).then_some(open + 1);
        match self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        {
            Ok(_) => {
                // The place releases both itself, and does not keep the two objects: every connection has a place, so it must be small.
                ticket.descriptor.forget();
                let counted = ticket.counted;
                Ok(ConnectionPermit {
                    limiter: Arc::clone(self),
                    subject: counted.and_then(|mut counted| counted.subject.take()),
                })
            }
            Err(_) => Err(ticket),
        }
    }

    /// The number of open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// The number of addresses with connections.
    #[must_use]
    pub fn address_count(&self) -> usize {
        self.addresses.lock().len()
    }
}

/// The count of a connection at its address, until this is dropped.
#[derive(Debug)]
pub struct Counted {
    limiter: Arc<ConnectionLimiter>,
    /// `None` if another owner releases it.
    subject: Option<Subject>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(subject) = self.subject.take() {
            self.limiter.uncount(subject);
        }
    }
}

/// The permits of a socket after it was accepted.
#[derive(Debug)]
pub struct SocketPermits {
    /// Its permit for a descriptor.
    pub descriptor: OwnedSemaphorePermit,
    /// Its count at its address; `None` for the socket of a trusted proxy.
    pub counted: Option<Counted>,
}

/// A connection's place, at its address and among all, with the descriptor permit of its socket. The owner must drop it after it has
/// closed the socket.
#[derive(Debug)]
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    subject: Option<Subject>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(subject) = self.subject {
            self.limiter.uncount(subject);
        }
        self.limiter.open.fetch_sub(1, Ordering::AcqRel);
        self.limiter.descriptors.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn ticket(limiter: &Arc<ConnectionLimiter>, counted: Option<Counted>) -> SocketPermits {
        let descriptors = Arc::clone(&limiter.descriptors);
        let descriptor = descriptors.try_acquire_owned().expect("a descriptor");
        SocketPermits {
            descriptor,
            counted,
        }
    }

    #[test]
    fn the_limit_of_an_address_does_not_affect_another() {
        let limiter = ConnectionLimiter::new(100, Auto::Set(2), 100);
        let here = || limiter.count(address("192.0.2.1"));
        let (first, second) = (here(), here());
        assert!(first.is_some() && second.is_some());
        assert!(here().is_none());
        assert!(limiter.count(address("::ffff:192.0.2.1")).is_none());
        assert!(limiter.count(address("192.0.2.2")).is_some());
        drop(first);
        assert!(here().is_some(), "what is given back can be had again");
        drop(second);
        assert_eq!(limiter.address_count(), 0, "nobody is remembered");
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let limiter = ConnectionLimiter::new(100, Auto::Set(1), 100);
        let _held = ["2001:db8::1", "2001:db8:0:1::1", "::1", "0.0.0.1"]
            .map(|text| limiter.count(address(text)).expect(text));
        assert!(limiter.count(address("2001:db8::ffff:1")).is_none());
    }

    #[test]
    fn one_address_gets_half_of_all_and_loopback_is_not_limited() {
        let limiter = ConnectionLimiter::new(4, Auto::Auto, 100);
        let here = || limiter.count(address("192.0.2.1"));
        let _held = [here(), here()];
        assert!(here().is_none());
        let local: Vec<_> = (0..9)
            .map(|_| limiter.count(address("127.0.0.1")))
            .collect();
        assert!(local.iter().all(Option::is_some));
    }

    #[test]
    fn a_dropped_permit_releases_everything() {
        let limiter = ConnectionLimiter::new(1, Auto::Set(1), 2);
        let counted = limiter.count(address("192.0.2.1"));
        let permit = limiter.take(ticket(&limiter, counted)).expect("a place");
        assert_eq!((limiter.open(), limiter.address_count()), (1, 1));
        assert!(limiter.count(address("192.0.2.1")).is_none());
        let other = limiter.count(address("192.0.2.2"));
        let refused = limiter
            .take(ticket(&limiter, other))
            .expect_err("all are taken");
        assert!(refused.counted.is_some(), "the ticket is given back whole");
        drop(refused);
        drop(permit);
        assert_eq!((limiter.open(), limiter.address_count()), (0, 0));
        assert_eq!(limiter.descriptors.available_permits(), 2);
    }
}

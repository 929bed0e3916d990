//! Places that the callers of the HTTP API may hold at the same time. No caller can hold all of them.
//!
//! A caller is the address of a request until its login, and the user afterwards. It may take more places if it then holds at most as
//! many as stay free for all others. So one caller gets at most half of all places, two callers get a third each, and the next caller
//! always finds a place. The server does not have to know the number of callers for this. A caller without places may take any free
//! place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidewire_core::text::Name;

use super::connection_limiter::Subject;

/// A caller whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Before the login, and of users without their own name: an address, or the first 64 bits of an IPv6 address.
    Address(AddressKey),
    /// A user.
    User(Name),
}

/// An address as callers are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressKey(Subject);

impl Caller {
    /// The caller at this address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(AddressKey(Subject::new(address)))
    }
}

/// The reason why no place was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All places are taken.
    Full,
    /// The caller has used up its share.
    Share,
}

/// Places that callers share.
#[derive(Debug)]
pub struct Shares {
    max: usize,
    held: Mutex<ShareUsage>,
}

#[derive(Debug, Default)]
struct ShareUsage {
    total: usize,
    by_caller: HashMap<Caller, usize>,
}

impl ShareUsage {
    fn admit(&mut self, max: usize, caller: &Caller, count: usize) -> Result<(), Refused> {
        let total = self.total.saturating_add(count);
        if total > max {
            return Err(Refused::Full);
        }
        let own = self.by_caller.get(caller).copied().unwrap_or(0);
        if own > 0 && own + count > max - total {
            return Err(Refused::Share);
        }
        self.total = total;
        *self.by_caller.entry(caller.clone()).or_default() += count;
        Ok(())
    }

    fn give_back(&mut self, caller: &Caller, count: usize) {
        self.total -= count;
        if let Entry::Occupied(mut own) = self.by_caller.entry(caller.clone()) {
            *own.get_mut() -= count;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

impl Shares {
    /// Creates `max` places.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            held: Mutex::default(),
        })
    }

    /// Takes `count` places for a caller, until the seat is dropped.
    ///
    /// # Errors
    /// Too few places are free, or the caller would hold more than its share.
    pub fn take(self: &Arc<Self>, caller: Caller, count: usize) -> Result<Seat, Refused> {
        self.held.lock().admit(self.max, &caller, count)?;
        Ok(Seat {
            shares: Arc::clone(self),
            state: Mutex::new((caller, count)),
        })
    }

    /// All places.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The number of taken places.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.held.lock().total
    }
}

/// The places that a caller holds.
#[derive(Debug)]
pub struct Seat {
    shares: Arc<Shares>,
    state: Mutex<(Caller, usize)>,
}

impl Seat {
    /// Changes the number of places to `count`. A decrease always succeeds.
    ///
    /// # Errors
    /// Too few places are free, or the caller would hold more than its share. The seat keeps its places.
    pub fn resize(&self, count: usize) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let (caller, own) = &mut *state;
        let mut held = self.shares.held.lock();
        match count.checked_sub(*own) {
            Some(more) => held.admit(self.shares.max, caller, more)?,
            None => held.give_back(caller, *own - count),
        }
        *own = count;
        Ok(())
    }

    /// The number of its places.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().1
    }

    /// Caller that holds the places.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.state.lock().0.clone()
    }

    /// Counts the places for another caller after this call: the address of the request has logged in as a user.
    ///
    /// # Errors
    /// That caller would hold more than its share. The places stay counted as before.
    pub fn move_to(&self, caller: &Caller) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let (before, count) = &mut *state;
        if before == caller {
            return Ok(());
        }
        let mut held = self.shares.held.lock();
        held.give_back(before, *count);
        if let Err(refused) = held.admit(self.shares.max, caller, *count) {
            held.total += *count;
            *held.by_caller.entry(before.clone()).or_default() += *count;
            return Err(refused);
        }
        before.clone_from(caller);
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (caller, count) = self.state.get_mut();
        self.shares.held.lock().give_back(caller, *count);
    }
}

/// The places that one request holds of all shared places.
#[derive(Debug)]
pub struct Standing {
    seat: Seat,
    body: OnceLock<Seat>,
}

impl Standing {
    /// Creates it for a request that has its place.
    #[must_use]
    pub fn new(seat: Seat) -> Self {
        Self {
            seat,
            body: OnceLock::new(),
        }
    }

    /// Caller of the request.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.seat.caller()
    }

    /// Keeps the places of the request's body.
    pub fn keep_body(&self, seat: Seat) {
        // A request has one body.
        let _ = self.body.set(seat);
    }

    /// Counts all of its places for this caller after this call.
    ///
    /// # Errors
    /// That caller would hold more than its share of requests.
    pub fn move_to(&self, caller: &Caller) -> Result<(), Refused> {
        self.seat.move_to(caller)?;
        if let Some(body) = self.body.get() {
            // The body has arrived already. If its user has no share of bodies left, the address still holds the place of this body.
            let _ = body.move_to(caller);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Caller {
        Caller::at(text.parse().expect("an address"))
    }

    fn user(name: &str) -> Caller {
        Caller::User(Name::from(name))
    }

    /// Takes single places until one is refused.
    fn take_all(shares: &Arc<Shares>, caller: &Caller) -> (Vec<Seat>, Refused) {
        let mut seats = Vec::new();
        loop {
            match shares.take(caller.clone(), 1) {
                Ok(seat) => seats.push(seat),
                Err(refused) => return (seats, refused),
            }
        }
    }

    #[test]
    fn callers_get_equal_shares_and_the_next_one_always_gets_a_seat() {
        let shares = Shares::new(1_000);
        let (first, refused) = take_all(&shares, &at("192.0.2.1"));
        assert_eq!((first.len(), refused), (500, Refused::Share));
        let (second, refused) = take_all(&shares, &at("192.0.2.2"));
        assert_eq!((second.len(), refused), (250, Refused::Share));
        assert!(shares.take(user("anna"), 1).is_ok());
        drop(first);
        let (more, _) = take_all(&shares, &at("192.0.2.2"));
        assert_eq!(second.len() + more.len(), 500);
        drop((second, more));
        assert_eq!(shares.taken(), 0);
        assert!(shares.held.lock().by_caller.is_empty());
    }

    #[test]
    fn the_only_caller_without_seats_takes_all_free_ones() {
        let shares = Shares::new(64);
        let whole = shares.take(at("192.0.2.1"), 64).expect("a whole body");
        let refused = shares.take(at("192.0.2.2"), 1).expect_err("it is full");
        assert_eq!(refused, Refused::Full);
        drop(whole);
        assert!(shares.take(at("192.0.2.2"), 65).is_err());
        // A single place is enough for a server that works on one request at a time.
        let one = Shares::new(1);
        let seat = one.take(user("anna"), 1).expect("it is free");
        assert!(one.take(user("anna"), 1).is_err());
        drop(seat);
        assert!(one.take(user("anna"), 1).is_ok());
    }

    #[test]
    fn a_seat_moves_to_its_user_unless_the_user_has_its_share() {
        let shares = Shares::new(8);
        let seats: Vec<Seat> = (0..4)
            .map(|_| {
                let seat = shares.take(at("192.0.2.1"), 1).expect("a place");
                seat.move_to(&user("anna")).expect("a share");
                seat
            })
            .collect();
        let fifth = shares
            .take(at("192.0.2.1"), 1)
            .expect("the address has none");
        assert_eq!(fifth.move_to(&user("anna")), Err(Refused::Share));
        assert_eq!(shares.taken(), 5);
        fifth.move_to(&user("bert")).expect("a place for another");
        drop((seats, fifth));
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn a_seat_grows_within_the_share() {
        let shares = Shares::new(10);
        let seat = shares.take(user("anna"), 2).expect("places");
        seat.resize(5).expect("half of all");
        assert_eq!(seat.resize(6), Err(Refused::Share));
        assert_eq!(shares.taken(), 5);
        seat.resize(1).expect("fewer");
        assert_eq!(shares.taken(), 1);
        drop(seat);
        assert_eq!(shares.taken(), 0);
    }
}

//! The waiting logins of a node: logins that wait for a turn to hash, for the answer of a server, or for their delay. They are
//! limited in number and bytes, in total and per address, and count towards `limits.memory_bytes_max`. If a login exceeds a limit,
//! the server puts it off before it stores any of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_config::plan::Plan;
use tidewire_core::text::Payload;
use tidewire_net::memory_budget::{MemoryBudget, Share};
use tidewire_shard::backoff::subject;
use tidewire_shard::peer::PeerDetails;

/// Memory of a waiting login in addition to its text, in bytes: its task, its queue entries, and the head of its request to a
/// server.
const TASK_BYTES: usize = 2 << 10;

/// The limits of waiting logins.
#[derive(Clone, Copy, Debug)]
pub struct WaitingLimits {
    /// Maximum number of waiting logins.
    pub logins_max: usize,
    /// Maximum bytes of all waiting logins.
    pub bytes_max: usize,
    /// Maximum number of waiting logins from one address.
    pub address_logins_max: usize,
    /// Maximum bytes of the waiting logins from one address.
    pub address_bytes_max: usize,
}

impl WaitingLimits {
    /// The limits of the configuration.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let auth = &plan.config.auth;
        Self {
            logins_max: auth.waiting_max,
            bytes_max: auth.waiting_bytes_max.as_usize(),
            address_logins_max: auth.waiting_per_address_max,
            address_bytes_max: auth.waiting_bytes_per_address_max.as_usize(),
        }
    }
}

/// Metrics of waiting logins.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Logins that wait.
    pub logins: Gauge,
    /// Bytes of these logins.
    pub bytes: Gauge,
    /// Logins that were put off because a limit was reached.
    pub put_off: Counter,
}

/// The waiting logins of a node. See the file comment.
#[derive(Debug)]
pub struct WaitingLogins {
    limits: WaitingLimits,
    state: Mutex<State>,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    total: Sum,
    addresses: HashMap<IpAddr, Sum>,
    share: Share,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    logins: usize,
    bytes: usize,
}

impl Sum {
    fn with(self, bytes: usize) -> Self {
        Self {
            logins: self.logins + 1,
            bytes: self.bytes + bytes,
        }
    }

    fn without(self, bytes: usize) -> Self {
        Self {
            logins: self.logins - 1,
            bytes: self.bytes - bytes,
        }
    }
}

/// The place of a waiting login; dropping it releases the place.
#[derive(Debug)]
pub struct LoginPermit {
    waiting: Arc<WaitingLogins>,
    address: IpAddr,
    bytes: usize,
}

impl WaitingLogins {
    /// Starts without waiting logins.
    #[must_use]
    pub fn new(limits: WaitingLimits, budget: &MemoryBudget, counts: Counts) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::new(State {
                total: Sum::default(),
                addresses: HashMap::new(),
                share: budget.clone().share(),
            }),
            counts,
        })
    }

    /// Takes a place for a login; `None` if a limit is reached.
    #[must_use]
    pub fn take_permit(
        self: &Arc<Self>,
        data: &Payload,
        peer: &PeerDetails,
    ) -> Option<LoginPermit> {
        let bytes = login_bytes(data, peer);
        let address = subject(peer.address.ip());
        let permit = self.try_permit(address, bytes);
        if permit.is_none() {
            self.counts.put_off.inc();
        }
        permit
    }

    fn try_permit(self: &Arc<Self>, address: IpAddr, bytes: usize) -> Option<LoginPermit> {
        let limits = &self.limits;
        let mut state = self.state.lock();
        let total = state.total.with(bytes);
        let of_address = state.addresses.get(&address).copied().unwrap_or_default();
        let of_address = of_address.with(bytes);
        let is_within = total.logins <= limits.logins_max
            && total.bytes <= limits.bytes_max
            && of_address.logins <= limits.address_logins_max
            && of_address.bytes <= limits.address_bytes_max;
        if !is_within {
            return None;
        }
        state.share.report(total.bytes, 0);
        if state.share.budget().excess_without_spare() > 0 {
            let before = state.total.bytes;
            state.share.report(before, 0);
            return None;
        }
        state.total = total;
        state.addresses.insert(address, of_address);
        self.show(&state);
        Some(LoginPermit {
            waiting: Arc::clone(self),
            address,
            bytes,
        })
    }

    fn show(&self, state: &State) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.counts.logins.set(number(state.total.logins));
        self.counts.bytes.set(number(state.total.bytes));
    }
}

impl Drop for LoginPermit {
    fn drop(&mut self) {
        let mut state = self.waiting.state.lock();
        state.total = state.total.without(self.bytes);
        let bytes = state.total.bytes;
        state.share.report(bytes, 0);
        if let Some(of_address) = state.addresses.get_mut(&self.address) {
            *of_address = of_address.without(self.bytes);
            if of_address.logins == 0 {
                state.addresses.remove(&self.address);
            }
        }
        self.waiting.show(&state);
    }
}

/// Memory of a waiting login, in bytes. Its text and the headers of its connection count twice, because the request to a server
/// copies them.
fn login_bytes(data: &Payload, peer: &PeerDetails) -> usize {
    let headers = peer.headers.iter();
    let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
    TASK_BYTES + 2 * (data.as_str().len() + headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: u8) -> PeerDetails {
        PeerDetails::at(([192, 0, 2, address], 1).into())
    }

    fn waiting(limits: WaitingLimits, memory_bytes_max: usize) -> Arc<WaitingLogins> {
        let budget = MemoryBudget::new(memory_bytes_max);
        WaitingLogins::new(limits, &budget, Counts::default())
    }

    const LIMITS: WaitingLimits = WaitingLimits {
        logins_max: 5,
        bytes_max: 1 << 20,
        address_logins_max: 3,
        address_bytes_max: 64 << 10,
    };

    #[test]
    fn logins_are_bounded_in_number_by_address_and_in_total() {
        let waiting = waiting(LIMITS, 1 << 30);
        let data = Payload::from_checked("{}");
        let take = |address| waiting.take_permit(&data, &peer(address));
        let mut permits: Vec<LoginPermit> = (0..3).filter_map(|_| take(1)).collect();
        assert_eq!(permits.len(), 3);
        assert!(take(1).is_none());
        permits.extend((0..2).filter_map(|_| take(2)));
        assert_eq!(permits.len(), 5);
        assert!(take(3).is_none());
        assert_eq!(waiting.counts.logins.get(), 5);
        assert_eq!(waiting.counts.put_off.get(), 2);
        drop(permits.swap_remove(0));
        assert!(take(1).is_some());
        drop(permits);
        assert!(waiting.state.lock().addresses.is_empty());
        assert_eq!(
            (waiting.counts.logins.get(), waiting.counts.bytes.get()),
            (0, 0)
        );
    }

    #[test]
    fn their_bytes_are_bounded_and_count_in_the_memory_of_the_node() {
        let data = Payload::from(format!("{{\"x\":\"{}\"}}", "x".repeat(15 << 10)));
        let take =
            |waiting: &Arc<WaitingLogins>, address| waiting.take_permit(&data, &peer(address));
        let limited = waiting(LIMITS, 1 << 30);
        let first = take(&limited, 1).expect("32 KiB");
        assert!(take(&limited, 1).is_none());
        assert!(take(&limited, 2).is_some());
        assert_eq!(limited.state.lock().share.budget().used(), first.bytes);
        let without_memory = waiting(LIMITS, first.bytes + 1_000);
        let second = take(&without_memory, 1).expect("there is memory for one");
        assert!(take(&without_memory, 2).is_none());
        drop(second);
        assert!(take(&without_memory, 2).is_some());
    }
}

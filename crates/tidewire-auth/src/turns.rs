//! Fair turns at a resource that only a few may use at a time: the addresses take turns, however many logins of each address wait.
//!
//! If a waiting login is dropped because its connection closed, it leaves the queue at once.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_shard::backoff::subject;
use tokio::sync::oneshot;

/// A group of waiters. The groups take turns; within a group, waiters are served in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaiterGroup {
    /// Logins from this address, or this /64 of IPv6 addresses.
    Address(IpAddr),
    /// Changes of stored users.
    Changes,
}

impl WaiterGroup {
    /// The group of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self::Address(subject(address))
    }
}

/// Hands out turns; clones share them.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    /// Turns that are not in use.
    free: usize,
    /// Counter for the numbers of waiters and for the places of groups in `order`.
    next: u64,
    groups: HashMap<WaiterGroup, Waiters>,
    /// The groups that have waiters, in the order in which they are served.
    order: BTreeMap<u64, WaiterGroup>,
}

#[derive(Debug)]
struct Waiters {
    /// The key of its group in `order`.
    order_key: u64,
    /// By waiter number.
    senders: BTreeMap<u64, oneshot::Sender<Turn>>,
}

/// A turn. When it is dropped, the next waiter gets it.
#[derive(Debug)]
pub struct Turn(Option<Turns>);

impl Turns {
    /// Allows `turns_max` turns at a time, but at least one.
    #[must_use]
    pub fn new(turns_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue {
            free: turns_max.max(1),
            next: 0,
            groups: HashMap::new(),
            order: BTreeMap::new(),
        })))
    }

    /// Waits for a turn.
    pub async fn turn(&self, group: WaiterGroup) -> Turn {
        let (number, given) = {
            let mut queue = self.0.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Turn(Some(self.clone()));
            }
            queue.wait(group)
        };
        let waiting = Waiting {
            turns: self,
            group,
            number,
        };
        let turn = given.await;
        drop(waiting);
        // The sender is dropped only with the queue, and `self` keeps the queue alive.
        turn.unwrap_or(Turn(None))
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        let queue = self.0.lock();
        queue.groups.values().map(|group| group.senders.len()).sum()
    }

    /// Gives the turn to the next waiter.
    fn pass_on(&self) {
        loop {
            let next = {
                let mut queue = self.0.lock();
                let Some(next) = queue.pop() else {
                    queue.free += 1;
                    return;
                };
                next
            };
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // This waiter has just left. Try the next one, and keep the drop of this turn from passing it on a second time.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn wait(&mut self, group: WaiterGroup) -> (u64, oneshot::Receiver<Turn>) {
        let (number, order_key) = (self.number(), self.number());
        let (sender, given) = oneshot::channel();
        let waiters = self.groups.entry(group).or_insert_with(|| {
            self.order.insert(order_key, group);
            Waiters {
                order_key,
                senders: BTreeMap::new(),
            }
        });
        waiters.senders.insert(number, sender);
        (number, given)
    }

    /// Takes the first waiter of the next group, and moves the group to the end of the order.
    fn pop(&mut self) -> Option<oneshot::Sender<Turn>> {
        let (_, group) = self.order.pop_first()?;
        let order_key = self.number();
        let waiters = self.groups.get_mut(&group)?;
        let (_, sender) = waiters.senders.pop_first()?;
        if waiters.senders.is_empty() {
            self.groups.remove(&group);
        } else {
            waiters.order_key = order_key;
            self.order.insert(order_key, group);
        }
        Some(sender)
    }

    fn remove(&mut self, group: WaiterGroup, number: u64) {
        let Some(waiters) = self.groups.get_mut(&group) else {
            return;
        };
        waiters.senders.remove(&number);
        if waiters.senders.is_empty() {
            self.order.remove(&waiters.order_key);
            self.groups.remove(&group);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
struct Waiting<'a> {
    turns: &'a Turns,
    group: WaiterGroup,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turns.0.lock().remove(self.group, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn group(number: u8) -> WaiterGroup {
        WaiterGroup::of([192, 0, 2, number].into())
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn groups_take_turns_regardless_of_their_size() {
        let turns = Turns::new(1);
        let mut turn = poll(pin!(turns.turn(group(1))));
        assert!(turn.is_some());
        let groups = [1, 1, 1, 1, 2, 3, 1];
        let mut waiting = groups.map(|number| Some((number, Box::pin(turns.turn(group(number))))));
        for (_, waiting) in waiting.iter_mut().flatten() {
            assert!(poll(waiting.as_mut()).is_none());
        }
        assert_eq!(turns.waiting_count(), groups.len());
        let mut served = Vec::new();
        while served.len() < groups.len() {
            drop(turn.take());
            for waiter in &mut waiting {
                if let Some((number, future)) = waiter
                    && let Some(given) = poll(future.as_mut())
                {
                    served.push(*number);
                    assert!(turn.replace(given).is_none(), "one has the turn at a time");
                    *waiter = None;
                }
            }
        }
        assert_eq!(served, [1, 2, 3, 1, 1, 1, 1]);
    }

    #[test]
    fn an_abandoned_waiter_leaves_the_queue_and_loses_no_turn() {
        let turns = Turns::new(1);
        let turn = poll(pin!(turns.turn(group(1))));
        {
            let mut gone = Box::pin(turns.turn(group(2)));
            assert!(poll(gone.as_mut()).is_none());
            assert_eq!(turns.waiting_count(), 1);
        }
        assert_eq!(turns.waiting_count(), 0);
        let mut given_and_gone = Box::pin(turns.turn(group(2)));
        assert!(poll(given_and_gone.as_mut()).is_none());
        drop(turn);
        drop(given_and_gone);
        assert!(
            poll(pin!(turns.turn(group(3)))).is_some(),
            "the turn is free again"
        );
        let queue = turns.0.lock();
        assert!(queue.groups.is_empty() && queue.order.is_empty());
    }
}

//! The mailbox of a shard: first in, first out, any number of senders, one receiver, no lock.
//!
//! Senders push nodes onto a stack; the receiver takes the whole stack and reverses it. A push never blocks and never
//! fails, so two full shards can't wait for each other. Limits at the sockets bound the entries in flight.

use std::ptr;

#[cfg(not(test))]
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(test)]
use loom::sync::atomic::{AtomicPtr, Ordering};

/// Wakes a receiver that may be asleep.
pub trait Wake: Send + Sync {
    /// Ends the receiver's sleep, or the next one if it is not asleep.
    fn wake(&self);
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // It writes to an eventfd, which can only fail when the process is out of kernel memory. The receiver then
        // wakes at its own deadline.
        let _ = mio::Waker::wake(self);
    }
}

struct Node<T> {
    next: *mut Node<T>,
    item: T,
}

/// The shared part of a mailbox. Any thread may push; one thread takes.
pub struct Mailbox<T, W: Wake = mio::Waker> {
    head: AtomicPtr<Node<T>>,
    waker: W,
}

// SAFETY: the raw pointers are nodes that the mailbox owns alone; items only move from the sender's thread to the
// receiver's, for which `T: Send` is enough.
unsafe impl<T: Send, W: Wake> Send for Mailbox<T, W> {}
// SAFETY: as above; `push` and `take` touch shared state through the atomic only.
unsafe impl<T: Send, W: Wake> Sync for Mailbox<T, W> {}

impl<T, W: Wake> Mailbox<T, W> {
    /// An empty mailbox. A push into the empty mailbox uses `waker`.
    pub fn new(waker: W) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            waker,
        }
    }

    /// Appends `item`. The receiver gets one thread's items in their order. If a push happened before another one, in
    /// any thread, the receiver gets it first.
    pub fn push(&self, item: T) {
        self.push_all(std::iter::once(item));
    }

    /// The same for several items, in their order and with nothing between them. It wakes the receiver once.
    pub fn push_all(&self, items: impl IntoIterator<Item = T>) {
        let mut oldest: *mut Node<T> = ptr::null_mut();
        let mut newest = oldest;
        for item in items {
            let next = newest;
            newest = Box::into_raw(Box::new(Node { next, item }));
            if oldest.is_null() {
                oldest = newest;
            }
        }
        if newest.is_null() {
            return;
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: no node of the chain is shared before the exchange below succeeds.
            unsafe { (*oldest).next = head };
            match self
                .head
                .compare_exchange_weak(head, newest, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(current) => head = current,
            }
        }
        if head.is_null() {
            self.waker.wake();
        }
    }

    /// Takes everything there is, oldest first. Only the receiver calls it; a second receiver would get other
    /// items, not the same ones.
    pub fn take(&self) -> MailboxDrain<T> {
        let mut newest = self.head.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: the swap made this thread the only owner of the whole chain, and acquired what the senders wrote.
            let next = unsafe { (*newest).next };
            // SAFETY: as above.
            unsafe { (*newest).next = oldest };
            oldest = newest;
            newest = next;
        }
        MailboxDrain { oldest }
    }

    /// Whether nothing waits at this instant.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// Wakes the receiver without a message.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

impl<T, W: Wake> Drop for Mailbox<T, W> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What [`Mailbox::take`] found, oldest first.
pub struct MailboxDrain<T> {
    oldest: *mut Node<T>,
}

impl<T> Iterator for MailboxDrain<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.oldest.is_null() {
            return None;
        }
        // SAFETY: the chain is owned by this value alone, and each node was made by `Box::into_raw` and is taken once.
        let node = unsafe { Box::from_raw(self.oldest) };
        self.oldest = node.next;
        Some(node.item)
    }
}

impl<T> Drop for MailboxDrain<T> {
    fn drop(&mut self) {
        for item in self.by_ref() {
            drop(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// An eventfd: a sleep ends at once if a wake came since the last one.
    #[derive(Default)]
    struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        fn sleep(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    impl Wake for Arc<Bell> {
        fn wake(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    /// Explores every schedule with up to two preemptions: without the bound they take many minutes.
    fn explore(test: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(test);
    }

    /// Receives until `count` items are there, asleep whenever there is nothing; a lost wake-up never ends.
    fn receive<T>(mailbox: &Mailbox<T, Arc<Bell>>, bell: &Bell, count: usize) -> Vec<T> {
        let mut received = Vec::new();
        loop {
            received.extend(mailbox.take());
            if received.len() >= count {
                return received;
            }
            bell.sleep();
        }
    }

    #[test]
    fn each_senders_order_is_kept_and_no_wake_up_is_lost() {
        explore(|| {
            let bell = Arc::new(Bell::default());
            let mailbox = Arc::new(Mailbox::new(bell.clone()));
            let senders: Vec<_> = [10, 20]
                .into_iter()
                .map(|base| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || {
                        if base == 10 {
                            mailbox.push(base);
                            mailbox.push(base + 1);
                        } else {
                            mailbox.push_all([base, base + 1]);
                        }
                    })
                })
                .collect();
            let received = receive(&mailbox, &bell, 4);
            for sender in senders {
                sender.join().unwrap();
            }
            for base in [10, 20] {
                let of_sender: Vec<_> = received
                    .iter()
                    .filter(|item| **item / 10 == base / 10)
                    .collect();
                assert_eq!(of_sender, [&base, &(base + 1)]);
            }
            assert!(received.windows(2).any(|pair| pair == [20, 21]));
        });
    }

    #[test]
    fn a_reaction_to_a_message_arrives_after_it() {
        explore(|| {
            let bell = Arc::new(Bell::default());
            let mailbox = Arc::new(Mailbox::new(bell.clone()));
            let between = Arc::new(Mailbox::new(Arc::new(Bell::default())));
            let first = {
                let (mailbox, between) = (mailbox.clone(), between.clone());
                thread::spawn(move || {
                    mailbox.push(1);
                    between.push(());
                })
            };
            let second = {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    if between.take().count() == 1 {
                        mailbox.push(2);
                    } else {
                        mailbox.push(3);
                    }
                })
            };
            let received = receive(&mailbox, &bell, 2);
            first.join().unwrap();
            second.join().unwrap();
            if received.contains(&2) {
                assert_eq!(received, [1, 2]);
            }
        });
    }

    #[test]
    fn unreceived_messages_are_dropped_once() {
        explore(|| {
            let item = std::sync::Arc::new(());
            let mailbox = Mailbox::new(Arc::new(Bell::default()));
            mailbox.push(item.clone());
            mailbox.push_all([item.clone(), item.clone()]);
            mailbox.push_all([]);
            let mut taken = mailbox.take();
            assert!(taken.next().is_some());
            mailbox.push(item.clone());
            drop(taken);
            assert_eq!(std::sync::Arc::strong_count(&item), 2);
            drop(mailbox);
            assert_eq!(std::sync::Arc::strong_count(&item), 1);
        });
    }
}

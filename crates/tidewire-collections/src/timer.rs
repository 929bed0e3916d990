//! Deadlines of one duration. Because every item waits equally long, a queue suffices and no heap is needed.

use std::collections::VecDeque;

use tidewire_message::time::Instant;

/// A queue with less capacity than this is not worth shrinking.
const SHRUNK_MIN: usize = 1024;

/// Items in the order of their deadlines.
#[derive(Debug)]
pub struct DeadlineQueue<T> {
    queue: VecDeque<(Instant, T)>,
}

impl<T> Default for DeadlineQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DeadlineQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// Adds an item. If its deadline is before the last one, as after a change of settings, it gets the last deadline.
    pub fn push(&mut self, deadline: Instant, item: T) {
        let deadline = self
            .queue
            .back()
            .map_or(deadline, |(last, _)| deadline.max(*last));
        self.queue.push_back((deadline, item));
    }

    /// Returns the next item whose deadline has passed. Items that no longer matter are also returned; the caller must check.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        match self.queue.front() {
            Some((deadline, _)) if *deadline <= now => {
                let item = self.queue.pop_front().map(|(_, item)| item);
                self.shrink();
                item
            }
            _ => None,
        }
    }

    /// Drops items at the front that no longer matter, so that a queue of long deadlines stays short.
    pub fn drop_front_while(&mut self, pointless: impl Fn(&T) -> bool) {
        self.drop_due_front_while(|_, item| pointless(item));
    }

    /// The same if the item's deadline decides whether it still matters.
    pub fn drop_due_front_while(&mut self, pointless: impl Fn(Instant, &T) -> bool) {
        while self
            .queue
            .front()
            .is_some_and(|(deadline, item)| pointless(*deadline, item))
        {
            self.queue.pop_front();
        }
        self.shrink();
    }

    /// The number of items, including the ones that no longer matter.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Frees memory that only a burst needed.
    fn shrink(&mut self) {
        let room = self.queue.capacity();
        if room > SHRUNK_MIN && self.queue.len() < room / 4 {
            self.queue.shrink_to(room / 2);
        }
    }

    /// The deadline of the first item that is not before the searched one. The items must be in that order.
    pub fn deadline(&self, is_before: impl Fn(&T) -> bool) -> Option<Instant> {
        let index = self.queue.partition_point(|(_, item)| is_before(item));
        self.queue.get(index).map(|(deadline, _)| *deadline)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_when_due_and_in_order() {
        let mut queue = DeadlineQueue::new();
        queue.push(Instant(10), 'a');
        queue.push(Instant(5), 'b');
        assert_eq!(queue.next(), Some(Instant(10)));
        assert_eq!(queue.pop_due(Instant(9)), None);
        assert_eq!(queue.pop_due(Instant(10)), Some('a'));
        assert_eq!(queue.pop_due(Instant(10)), Some('b'));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn pointless_items_at_the_front_are_dropped() {
        let mut queue = DeadlineQueue::new();
        for item in [1, 2, 9, 3] {
            queue.push(Instant(item), item);
        }
        queue.drop_front_while(|item| *item < 5);
        assert_eq!(queue.pop_due(Instant(100)), Some(9));
        assert_eq!(queue.pop_due(Instant(100)), Some(3));
    }
}

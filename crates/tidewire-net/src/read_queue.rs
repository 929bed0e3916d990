//! The order in which ready connections are read.
//!
//! A turn ends when it has done enough work, so a connection may have to wait for the turns of those before it. A connection whose last
//! read was expensive waits in a queue of its own, behind the cheap ones: otherwise ten connections with expensive messages would delay
//! each event of another client by ten turns.

use std::collections::VecDeque;

use crate::connection::Key;

/// After this many cheap reads in a row an expensive one is due, so busy clients do not keep the others waiting.
const CHEAP_READS_MAX: u32 = 32;

/// The connections that wait to be read. Each is in it at most once.
#[derive(Debug, Default)]
pub(crate) struct ReadQueue {
    cheap: VecDeque<Key>,
    expensive: VecDeque<Key>,
    cheap_reads: u32,
}

impl ReadQueue {
    pub(crate) fn push(&mut self, key: Key, is_expensive: bool) {
        match is_expensive {
            false => self.cheap.push_back(key),
            true => self.expensive.push_back(key),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Key> {
        if !self.is_next_expensive()
            && let Some(key) = self.cheap.pop_front()
        {
            self.cheap_reads = (self.cheap_reads + 1).min(CHEAP_READS_MAX);
            return Some(key);
        }
        self.cheap_reads = 0;
        self.expensive.pop_front()
    }

    /// Whether the next connection is an expensive one.
    pub(crate) fn is_next_expensive(&self) -> bool {
        let is_due = self.cheap.is_empty() || self.cheap_reads >= CHEAP_READS_MAX;
        is_due && !self.expensive.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.cheap.len() + self.expensive.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHEAP_READS_MAX, ReadQueue};
    use crate::connection::Key;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 0,
        }
    }

    fn popped(queue: &mut ReadQueue) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop().map(|key| key.index)).collect()
    }

    #[test]
    fn cheap_connections_are_read_first_and_each_kind_in_its_order() {
        let mut queue = ReadQueue::default();
        for (index, is_expensive) in [(1, true), (2, false), (3, true), (4, false)] {
            queue.push(key(index), is_expensive);
        }
        assert_eq!((queue.len(), queue.is_next_expensive()), (4, false));
        assert_eq!(popped(&mut queue), [2, 4, 1, 3]);
        assert_eq!((queue.len(), queue.is_next_expensive()), (0, false));
    }

    #[test]
    fn expensive_connections_do_not_wait_for_ever() {
        let mut queue = ReadQueue::default();
        queue.push(key(1_000), true);
        let mut cheap_reads = 0;
        loop {
            queue.push(key(1), false);
            let is_expensive = queue.is_next_expensive();
            match queue.pop() {
                Some(key) if key.index == 1 => cheap_reads += 1,
                _ => {
                    assert!(is_expensive);
                    break;
                }
            }
            assert!(!is_expensive);
        }
        assert_eq!(cheap_reads, CHEAP_READS_MAX);
    }
}

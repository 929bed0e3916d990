//! Checks a grid's deliveries: every receiver gets every message of a round once, and no other message.
//!
//! One bit for each receiver and publisher; a payload is the number of its message, so the check is a subtraction and
//! a bit, and the generator's speed stays that of its decoder.

use thiserror::Error;

use crate::payload::{self, Content};

/// The first number, so that all numbers have equally many digits, and all frames the same length.
const NUMBERS_FROM: u64 = 1_000_000;

/// A fault of the deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not one of the grid's messages.
    #[error("connection {receiver} received {payload:?}, which no connection published")]
    Unknown {
        /// The receiver.
        receiver: usize,
        /// The received payload.
        payload: String,
    },
    /// A message of this round for the second time.
    #[error("connection {receiver} received message {message} of connection {publisher} twice")]
    Doubled {
        /// The receiver.
        receiver: usize,
        /// The publisher.
        publisher: usize,
        /// Its number.
        message: u64,
    },
    /// A message of a round that was complete, so it came twice.
    #[error("connection {receiver} received message {message} again after the end of its round")]
    Late {
        /// The receiver.
        receiver: usize,
        /// Its number.
        message: u64,
    },
    /// A publisher's own message.
    #[error("connection {receiver} received its own message {message}")]
    Own {
        /// The receiver.
        receiver: usize,
        /// Its number.
        message: u64,
    },
    /// No further delivery arrives.
    #[error("{count} deliveries were lost, first of message {message}")]
    Lost {
        /// The number of lost deliveries.
        count: u64,
        /// The first message that a receiver misses.
        message: u64,
    },
    /// The deadline passed first.
    #[error("{count} deliveries of round {round} are missing, first at connection {receiver}")]
    Missing {
        /// The round.
        round: u64,
        /// The number of missing deliveries.
        count: u64,
        /// The first receiver that misses one.
        receiver: usize,
    },
}

/// The deliveries of the current round.
#[derive(Debug)]
pub struct DeliveryLog {
    /// The receiver that publishes each message of a round.
    publishers: Vec<usize>,
    /// One row of bits for each receiver.
    seen: Vec<u64>,
    /// Words in a row.
    row_words: usize,
    receiver_count: usize,
    has_echo: bool,
    round: u64,
    missing: u64,
}

impl DeliveryLog {
    /// A ledger before its first round. `publishers` are receivers, each as often as it publishes in a round; with
    /// `has_echo` they receive their own messages too.
    #[must_use]
    pub fn new(receiver_count: usize, publishers: Vec<usize>, has_echo: bool) -> Self {
        let row_words = publishers.len().div_ceil(64);
        Self {
            publishers,
            seen: vec![0; row_words * receiver_count],
            row_words,
            receiver_count,
            has_echo,
            round: 0,
            missing: 0,
        }
    }

    /// The publishers.
    #[must_use]
    pub fn publishers(&self) -> &[usize] {
        &self.publishers
    }

    /// The number of deliveries in a round.
    #[must_use]
    pub fn round_deliveries(&self) -> u64 {
        let own = if self.has_echo {
            0
        } else {
            self.publishers.len()
        };
        (self.receiver_count * self.publishers.len() - own) as u64
    }

    /// Starts the next round.
    pub fn begin_round(&mut self) {
        self.round += 1;
        self.missing = self.round_deliveries();
        self.seen.fill(0);
    }

    /// The payload that a publisher sends in this round.
    #[must_use]
    pub fn payload(&self, publisher: usize, content: Content) -> String {
        content.with_number(self.first_message() + publisher as u64)
    }

    /// The number of this round's first message.
    fn first_message(&self) -> u64 {
        NUMBERS_FROM + self.round * self.publishers.len() as u64
    }

    /// The number of arrived deliveries of this round.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.round_deliveries() - self.missing
    }

    /// Whether all of this round is delivered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Records a delivery.
    ///
    /// # Errors
    /// It should not have arrived.
    pub fn take(&mut self, receiver: usize, payload: &str) -> Result<(), Fault> {
        let number = payload::number(payload);
        let message: u64 = number.parse().map_err(|_| unknown(receiver, payload))?;
        let first = self.first_message();
        if message < first {
            return Err(Fault::Late { receiver, message });
        }
        let publisher = (message - first) as usize;
        let Some(&source) = self.publishers.get(publisher) else {
            return Err(unknown(receiver, payload));
        };
        if source == receiver && !self.has_echo {
            return Err(Fault::Own { receiver, message });
        }
        let word = &mut self.seen[receiver * self.row_words + publisher / 64];
        let bit = 1 << (publisher % 64);
        if *word & bit != 0 {
            return Err(Fault::Doubled {
                receiver,
                publisher: source,
                message,
            });
        }
        *word |= bit;
        self.missing -= 1;
        Ok(())
    }

    /// The error for a round that did not become complete in time.
    #[must_use]
    pub fn missing(&self) -> Fault {
        let expected = |receiver: usize| {
            let is_own = |publisher: &&usize| !self.has_echo && **publisher == receiver;
            self.publishers.len() - self.publishers.iter().filter(is_own).count()
        };
        let received = |receiver: usize| -> usize {
            let row = &self.seen[receiver * self.row_words..][..self.row_words];
            row.iter().map(|word| word.count_ones() as usize).sum()
        };
        let receiver = (0..self.receiver_count)
            .find(|&receiver| received(receiver) < expected(receiver))
            .unwrap_or_default();
        Fault::Missing {
            round: self.round,
            count: self.missing,
            receiver,
        }
    }
}

fn unknown(receiver: usize, payload: &str) -> Fault {
    Fault::Unknown {
        receiver,
        payload: payload.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three receivers, of which 2 and 0 publish, in round 1: messages 2 (of 2) and 3 (of 0).
    fn delivery_log(has_echo: bool) -> DeliveryLog {
        let mut delivery_log = DeliveryLog::new(3, vec![2, 0], has_echo);
        delivery_log.begin_round();
        delivery_log
    }

    #[test]
    fn a_round_is_complete_when_all_have_all() {
        let mut delivery_log = delivery_log(false);
        assert_eq!(
            (
                delivery_log.payload(0, Content::Number),
                delivery_log.payload(1, Content::Number)
            ),
            ("1000002".into(), "1000003".into())
        );
        for (receiver, payload) in [(0, "1000002"), (1, "1000002"), (1, "1000003")] {
            delivery_log.take(receiver, payload).unwrap();
            assert!(!delivery_log.is_complete());
        }
        delivery_log.take(2, "1000003").unwrap();
        assert!(delivery_log.is_complete());
        delivery_log.begin_round();
        assert!(!delivery_log.is_complete());
        assert_eq!(delivery_log.payload(0, Content::Number), "1000004");
    }

    #[test]
    fn with_an_echo_publishers_receive_their_own() {
        let mut delivery_log = delivery_log(true);
        assert_eq!(delivery_log.round_deliveries(), 6);
        for receiver in 0..3 {
            delivery_log.take(receiver, "1000002").unwrap();
            delivery_log.take(receiver, "1000003").unwrap();
        }
        assert!(delivery_log.is_complete());
    }

    #[test]
    fn unexpected_deliveries_are_found() {
        let check = |receiver, payload: &str, expected: Fault| {
            let mut delivery_log = delivery_log(false);
            delivery_log.take(1, "1000002").unwrap();
            assert_eq!(delivery_log.take(receiver, payload), Err(expected));
            assert_eq!(delivery_log.missing, 3, "a fault is no delivery");
        };
        check(
            1,
            "1000002",
            Fault::Doubled {
                receiver: 1,
                publisher: 2,
                message: 1_000_002,
            },
        );
        check(
            1,
            "1000001",
            Fault::Late {
                receiver: 1,
                message: 1_000_001,
            },
        );
        check(
            2,
            "1000002",
            Fault::Own {
                receiver: 2,
                message: 1_000_002,
            },
        );
        check(1, "1000004", unknown(1, "1000004"));
        check(1, "\"1000002\"", unknown(1, "\"1000002\""));
    }

    #[test]
    fn a_missing_delivery_is_named() {
        let mut delivery_log = delivery_log(false);
        for (receiver, payload) in [(0, "1000002"), (1, "1000002"), (2, "1000003")] {
            delivery_log.take(receiver, payload).unwrap();
        }
        let expected = Fault::Missing {
            round: 1,
            count: 1,
            receiver: 1,
        };
        assert_eq!(delivery_log.missing(), expected);
    }

    #[test]
    fn a_publisher_of_two_messages_lacks_both() {
        let mut delivery_log = DeliveryLog::new(2, vec![0, 0], false);
        delivery_log.begin_round();
        assert_eq!(delivery_log.round_deliveries(), 2);
        delivery_log.take(1, "1000002").unwrap();
        let (round, count, receiver) = (1, 1, 1);
        let expected = Fault::Missing {
            round,
            count,
            receiver,
        };
        assert_eq!(delivery_log.missing(), expected);
        delivery_log.take(1, "1000003").unwrap();
        assert!(delivery_log.is_complete());
    }

    #[test]
    fn rows_of_more_than_a_word_do_not_touch() {
        let mut delivery_log = DeliveryLog::new(70, (0..70).collect(), false);
        delivery_log.begin_round();
        for receiver in 0..70 {
            for publisher in (0..70).filter(|publisher| *publisher != receiver) {
                delivery_log
                    .take(receiver, &delivery_log.payload(publisher, Content::Number))
                    .unwrap();
            }
        }
        assert!(delivery_log.is_complete());
    }
}

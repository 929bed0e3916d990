//! The cost of a durable write without Tidewire: the disk alone, and databases without a server in between, each with
//! a given number of rows per transaction.

pub mod disk;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::statistics::per_second;

/// The stored row of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Its key.
    pub name: String,
    /// A number as large as Tidewire's.
    pub incarnation: i64,
    /// Grows with each write.
    pub version: u32,
    /// JSON.
    pub data: String,
    /// Another 32 bits with each write, as a checksum has; their value does not matter.
    pub checksum: u32,
}

/// A store of rows.
pub trait Bare {
    /// Its name in a report.
    fn label(&self) -> &'static str;

    /// Replaces or adds rows in one transaction. They are on disk, synced, when it returns.
    ///
    /// # Errors
    /// The transaction failed.
    fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure>;
}

/// The result of a turn, of a bare store or of Tidewire.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Rows on disk, or acknowledged writes.
    pub writes: u64,
    /// In this time.
    pub elapsed: Duration,
    /// The duration of each transaction, or of each acknowledgement.
    pub latencies: Histogram,
    /// Transactions.
    pub commits: u64,
}

impl Turn {
    /// Writes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(self.writes, self.elapsed).unwrap_or_default()
    }

    /// Rows of a transaction, on average.
    #[must_use]
    pub fn rows_each(&self) -> f64 {
        self.writes as f64 / self.commits.max(1) as f64
    }
}

/// An approximate incarnation of Tidewire's first opening of a store.
const INCARNATION: i64 = 1 << 40;

/// Turns the number of a write into 32 bits that look like a checksum (the golden ratio).
const CHECKSUM_STEP: u32 = 0x9e37_79b9;

/// The rows that all contenders write: the same names, and data of the same size.
#[derive(Clone, Debug)]
pub struct Rows {
    /// `None` for the rows of the current transaction.
    rows: Vec<Option<StoredRow>>,
    /// The order of the rows.
    order: Vec<u32>,
    next: usize,
    data: Data,
    writes: u64,
    /// The rows of the transaction, and their indexes.
    batch: Vec<StoredRow>,
    indexes: Vec<usize>,
}

impl Rows {
    /// `count` rows with data of `bytes` bytes, in sequence.
    #[must_use]
    pub fn new(count: usize, bytes: usize) -> Self {
        let data = Data::new(bytes);
        let row = |number| StoredRow {
            name: name(number),
            incarnation: INCARNATION,
            version: 0,
            data: String::new(),
            checksum: 0,
        };
        Self {
            rows: (0..count).map(|number| Some(row(number))).collect(),
            order: (0..).take(count).collect(),
            next: 0,
            data,
            writes: 0,
            batch: Vec::new(),
            indexes: Vec::new(),
        }
    }

    /// Sets the order in which clients have written the rows, repeated.
    pub fn follow(&mut self, order: Vec<u32>) {
        self.order = order;
        self.next = 0;
    }

    /// Writes for this time, `each` of them in a transaction. Time between transactions does not count.
    ///
    /// # Errors
    /// The store failed.
    pub fn write(
        &mut self,
        bare: &mut dyn Bare,
        each: usize,
        time: Duration,
    ) -> Result<Turn, Failure> {
        let end = Instant::now() + time;
        let mut turn = Turn::default();
        while Instant::now() < end {
            let rows = self.take(each);
            let start = Instant::now();
            bare.commit(rows)?;
            let took = start.elapsed();
            turn.writes += rows.len() as u64;
            turn.elapsed += took;
            turn.latencies.add(took);
            turn.commits += 1;
        }
        Ok(turn)
    }

    /// The next rows, each with its next version. A row that comes twice is written once, as in a commit of
    /// Tidewire's.
    fn take(&mut self, each: usize) -> &[StoredRow] {
        for (index, row) in self.indexes.drain(..).zip(self.batch.drain(..)) {
            self.rows[index] = Some(row);
        }
        for _ in 0..self.order.len() {
            if self.batch.len() == each {
                break;
            }
            let index = self.order[self.next] as usize;
            self.next = (self.next + 1) % self.order.len();
            let Some(mut row) = self.rows[index].take() else {
                continue;
            };
            self.writes += 1;
            row.version += 1;
            row.data.clear();
            row.data.push_str(self.data.of(self.writes));
            row.checksum = CHECKSUM_STEP.wrapping_mul(self.writes as u32);
            self.indexes.push(index);
            self.batch.push(row);
        }
        &self.batch
    }
}

/// The name of a record.
#[must_use]
pub fn name(number: usize) -> String {
    format!("bench/store/{number}")
}

/// The data of writes, each with its number, of `bytes` bytes if that is enough.
#[derive(Clone, Debug)]
pub struct Data {
    text: Vec<u8>,
}

/// The text before the number of the write.
const DATA_HEAD: &str = "{\"write\":\"";
/// Digits of that number.
const DATA_DIGITS: usize = 10;

impl Data {
    /// Data of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (head, end) = (
            format!("{DATA_HEAD}{:0DATA_DIGITS$}\",\"filling\":\"", 0),
            "\"}",
        );
        let filling = bytes.saturating_sub(head.len() + end.len());
        let text = head + &"x".repeat(filling) + end;
        Self {
            text: text.into_bytes(),
        }
    }

    /// The data of a write, with the last digits of its number.
    pub fn of(&mut self, write: u64) -> &str {
        let mut left = write;
        for digit in self.text[DATA_HEAD.len()..][..DATA_DIGITS].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        std::str::from_utf8(&self.text).expect("it is ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(Vec<Vec<StoredRow>>);

    impl Bare for Counted {
        fn label(&self) -> &'static str {
            "counted"
        }

        fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure> {
            self.0.push(rows.to_vec());
            Ok(())
        }
    }

    #[test]
    fn a_transaction_has_as_many_different_rows_as_asked_for() {
        let mut counted = Counted(Vec::new());
        let mut rows = Rows::new(10, 100);
        let turn = rows
            .write(&mut counted, 4, Duration::from_millis(1))
            .unwrap();
        assert_eq!(turn.commits, counted.0.len() as u64);
        assert_eq!(turn.latencies.count(), turn.commits);
        assert_eq!(turn.rows_each(), 4.0);
        let mut versions = std::collections::HashMap::new();
        for rows in &counted.0 {
            for row in rows {
                let before = versions.insert(row.name.clone(), row.version);
                assert!(before < Some(row.version), "{row:?} after {before:?}");
            }
        }
        // More than there are is all of them.
        assert_eq!(rows.take(11).len(), 10);
    }

    #[test]
    fn rows_follow_the_order_of_clients() {
        let mut rows = Rows::new(4, 50);
        rows.follow(vec![2, 0, 2, 3]);
        let mut check = |expected: [(&str, u32); 3]| {
            let taken = rows.take(3).iter().map(|row| (&*row.name, row.version));
            assert!(taken.eq(expected), "{expected:?}");
        };
        // The second write of a row within a transaction is skipped.
        let (first, third, fourth) = ("bench/store/0", "bench/store/2", "bench/store/3");
        check([(third, 1), (first, 1), (fourth, 1)]);
        check([(third, 2), (first, 2), (fourth, 2)]);
    }

    #[test]
    fn data_has_its_size_and_is_json() {
        for bytes in [0, 30, 100, 1000] {
            let mut data = Data::new(bytes);
            for (write, digits) in [(7, "0000000007"), (12_345_678_901, "2345678901")] {
                let data = data.of(write);
                assert!(
                    data.len() >= bytes && data.len() <= bytes.max(40),
                    "{bytes}"
                );
                let value: serde_json::Value = serde_json::from_str(data).unwrap();
                assert!(value["filling"].is_string());
                assert_eq!(value["write"], digits);
            }
        }
    }

    /// All that need no server keep what they are given.
    #[test]
    fn rows_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut sqlite = sqlite::Sqlite::open(folder.path()).unwrap();
        let mut rows = Rows::new(5, 50);
        for _ in 0..3 {
            sqlite.commit(rows.take(5)).unwrap();
        }
        assert_eq!(sqlite.versions().unwrap(), [3; 5]);
        let mut disk = disk::Disk::open(folder.path()).unwrap();
        disk.commit(rows.take(2)).unwrap();
    }
}

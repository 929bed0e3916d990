//! What a durable write costs without Tidewire: the disk alone, and databases that are asked directly, each with as many
//! rows in a transaction as it is told.

pub mod disk;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::statistics::per_second;

/// What is kept of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub name: String,
    /// Grows with each write.
    pub version: u32,
    /// JSON.
    pub data: String,
}

/// A place that keeps rows.
pub trait Bare {
    /// Its name in a report.
    fn label(&self) -> &'static str;

    /// Replaces or adds rows in one transaction. They are on disk, synced, when it returns.
    ///
    /// # Errors
    /// It could not.
    fn commit(&mut self, rows: &[Row]) -> Result<(), Failure>;
}

/// What a turn gave, of a bare store or of Tidewire.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Rows on disk, or acknowledged writes.
    pub writes: u64,
    /// In this time.
    pub elapsed: Duration,
    /// How long each transaction took, or each acknowledgement.
    pub latencies: Histogram,
    /// Transactions.
    pub commits: u64,
}

impl Turn {
    /// Writes in a second.
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

/// The rows that all contenders write: the same names, and data of the same size.
#[derive(Clone, Debug)]
pub struct Rows {
    rows: Vec<Row>,
    next: usize,
    version: u32,
}

impl Rows {
    /// As many as `count`, with data of `bytes` bytes.
    #[must_use]
    pub fn new(count: usize, bytes: usize) -> Self {
        let row = |number| Row {
            name: name(number),
            version: 1,
            data: Data::new(bytes).of(0).to_owned(),
        };
        Self {
            rows: (0..count).map(row).collect(),
            next: 0,
            version: 1,
        }
    }

    /// Writes for so long, `each` of them in a transaction. What is between transactions does not count.
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

    /// The next rows, each one written once more than before.
    fn take(&mut self, each: usize) -> &[Row] {
        if self.next + each > self.rows.len() {
            self.next = 0;
            self.version += 1;
        }
        let end = (self.next + each).min(self.rows.len());
        let rows = &mut self.rows[self.next..end];
        for row in &mut *rows {
            row.version = self.version;
        }
        self.next = end;
        rows
    }
}

/// The name of a record.
#[must_use]
pub fn name(number: usize) -> String {
    format!("bench/store/{number}")
}

/// The data of writes, each with its number, of `bytes` bytes where these are enough.
#[derive(Clone, Debug)]
pub struct Data {
    text: Vec<u8>,
}

/// What stands before the number of the write.
const DATA_HEAD: &str = "{\"write\":\"";
/// Digits of that number.
const DATA_DIGITS: usize = 10;

impl Data {
    /// Data of so many bytes.
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

    /// The data of a write, of whose number the last digits count.
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

    struct Counted(Vec<Vec<Row>>);

    impl Bare for Counted {
        fn label(&self) -> &'static str {
            "counted"
        }

        fn commit(&mut self, rows: &[Row]) -> Result<(), Failure> {
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

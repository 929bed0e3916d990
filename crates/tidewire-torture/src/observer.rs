//! A client with its own connection that subscribes to all records of the load. It checks that each change adds 1 to the version,
//! and notes the changes that the server must keep over a clean stop.

use std::collections::BTreeMap;

use tidewire_core::message::{Change, Message, Record, RecordBulk};

use super::operation_history;
use super::test_client::Outbox;

/// The last change of a record that the observer received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    /// The version; `None` while the observer is not subscribed.
    version: Option<i32>,
    /// The number of the change, or a lower bound of it after a delete.
    number: u64,
}

/// The observer in one run of the server.
#[derive(Debug, Default)]
pub(super) struct Observer {
    records: BTreeMap<String, Shown>,
    /// How many changes it received.
    pub(super) count: u64,
}

impl Observer {
    /// Subscribes to the records.
    pub(super) fn begin(names: &[String], out: &mut Outbox<'_>) -> Self {
        subscribe(names.iter().map(String::as_str).collect(), out);
        let records = names.iter().map(|name| (name.clone(), Shown::default()));
        Self {
            records: records.collect(),
            count: 0,
        }
    }

    /// Handles a message about a record.
    ///
    /// # Errors
    /// A change is unknown or out of order, or its version is not the previous version plus 1.
    pub(super) fn take(
        &mut self,
        message: &Record<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), String> {
        let (name, version, number) = match message {
            Record::ReadResponse {
                name,
                version,
                data,
                ..
            } => {
                let shown = self.shown(name)?;
                shown.version = Some((*version).max(0));
                shown.number = shown
                    .number
                    .max(operation_history::number_in(data).unwrap_or(0));
                return Ok(());
            }
            Record::Deleted { name } => {
                let shown = self.shown(name)?;
                shown.version = None;
                shown.number += 1;
                self.count += 1;
                // A delete has ended the subscription.
                subscribe(vec![*name], out);
                return Ok(());
            }
            Record::Write(write, change) => (write.name, write.version, number_of(change)),
            _ => return Ok(()),
        };
        let shown = self.shown(name)?;
        let Some(number) = number else {
            return Err(format!(
                "{name}: the subscriber received {message:?}, which no client wrote"
            ));
        };
        if shown.version.is_none_or(|before| before + 1 != version) {
            return Err(format!(
                "{name}: the subscriber received version {version} after {:?}",
                shown.version
            ));
        }
        if number <= shown.number {
            return Err(format!(
                "{name}: the subscriber received change {number} after change {}",
                shown.number
            ));
        }
        *shown = Shown {
            version: Some(version),
            number,
        };
        self.count += 1;
        Ok(())
    }

    /// Each record with the number of its last received change, or a lower bound of that number.
    pub(super) fn shown_numbers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.records
            .iter()
            .map(|(name, shown)| (name.as_str(), shown.number))
    }

    fn shown(&mut self, name: &str) -> Result<&mut Shown, String> {
        self.records
            .get_mut(name)
            .ok_or_else(|| format!("{name}: the subscriber has no subscription to it"))
    }
}

fn subscribe(names: Vec<&str>, out: &mut Outbox<'_>) {
    out.push(&Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names,
        correlation: Some("1"),
    }));
}

/// The number of a change in an update for subscribers.
fn number_of(change: &Change<'_>) -> Option<u64> {
    match change {
        Change::Update { data } | Change::Patch { data, .. } => {
            operation_history::number_in((*data)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::message::Write;

    use super::super::test_client::Outbox;
    use super::*;

    fn update<'a>(version: i32, text: &'a str) -> Record<'a> {
        let write = Write {
            name: "r",
            version,
            correlation: None,
            write_ack: false,
            key: None,
        };
        Record::Write(write, Change::Update { data: Some(text) })
    }

    fn check(steps: &[(i32, u64)], part: Option<&str>) {
        let mut bytes = Vec::new();
        let mut observer = Observer::begin(&["r".to_owned()], &mut Outbox::new(&mut bytes));
        let first = Record::ReadResponse {
            name: "r",
            version: 3,
            data: &operation_history::text("r", 5, 5),
            incarnation: Some(1),
        };
        observer.take(&first, &mut Outbox::new(&mut bytes)).unwrap();
        let mut fault = None;
        for (version, number) in steps {
            let text = operation_history::text("r", *number, *number);
            let taken = observer.take(&update(*version, &text), &mut Outbox::new(&mut bytes));
            fault = fault.or(taken.err());
        }
        match (&fault, part) {
            (None, None) => {}
            (Some(fault), Some(part)) => assert!(fault.contains(part), "{fault}"),
            _ => panic!("{fault:?} instead of {part:?}"),
        }
    }

    #[test]
    fn steps_are_one_and_changes_go_forward() {
        check(&[(4, 6), (5, 8)], None);
        check(&[(5, 6)], Some("version 5 after"));
        check(&[(4, 6), (4, 7)], Some("version 4 after"));
        check(&[(4, 5)], Some("change 5 after change 5"));
    }

    #[test]
    fn a_deleted_record_is_subscribed_to_again() {
        let mut bytes = Vec::new();
        let mut observer = Observer::begin(&["r".to_owned()], &mut Outbox::new(&mut bytes));
        let read = Record::ReadResponse {
            name: "r",
            version: -1,
            data: "{}",
            incarnation: None,
        };
        observer.take(&read, &mut Outbox::new(&mut bytes)).unwrap();
        observer
            .take(
                &update(1, &operation_history::text("r", 4, 4)),
                &mut Outbox::new(&mut bytes),
            )
            .unwrap();
        let sent = bytes.len();
        observer
            .take(&Record::Deleted { name: "r" }, &mut Outbox::new(&mut bytes))
            .unwrap();
        assert!(bytes.len() > sent);
        assert_eq!(observer.shown_numbers().collect::<Vec<_>>(), [("r", 5)]);
        let early = observer.take(
            &update(1, &operation_history::text("r", 6, 6)),
            &mut Outbox::new(&mut bytes),
        );
        assert!(early.is_err(), "before it is subscribed");
    }
}

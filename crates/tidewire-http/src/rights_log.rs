//! The changes of rights of a cluster, as rows of its store. Format: `spec/rights-log.md`.
//!
//! The rows give the changes one order: a node makes a change by adding the row behind the last one, which the store does for one node only.
//! The engine never sees the names of the rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidewire_auth::revocation_store::{from_parts, parts};
use tidewire_core::principal::Credential;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::store::{
    Expected, Incarnation, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord, Version,
    Written,
};
use tidewire_core::text::{Name, Payload, RESERVED};
use tidewire_core::time::WallTime;
use tidewire_store::awaited::AwaitedStore;
use tidewire_store::thread::{Scan, StoreClient};

use crate::rules_text::RulesText;

/// The part of a row's name that follows [`RESERVED`]. The number follows, as 16 hexadecimal digits.
const KIND: &str = "rights/";
/// Rows that one request reads or deletes.
const PAGE: usize = 1_000;

/// A change of rights, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedChange {
    /// Revokes a user or credential.
    Revoke {
        /// The user or credential, and the end of the revocation.
        revocation: Revocation,
        /// The time of the revocation.
        since: WallTime,
    },
    /// Reverses a revocation.
    Restore(Revoked),
    /// Replaces the rules.
    Rules {
        /// The new rules.
        rules: RulesText,
        /// The time of the change.
        since: WallTime,
    },
}

/// A row with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number. The rows have the numbers from 1 on; those without an effect may be missing.
    pub number: u64,
    /// The change.
    pub change: LoggedChange,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum RowForm {
    #[serde(rename_all = "camelCase")]
    Revoke {
        kind: String,
        name: String,
        since: u64,
        until: u64,
    },
    #[serde(rename_all = "camelCase")]
    Restore { kind: String, name: String },
    #[serde(rename_all = "camelCase")]
    Rules {
        file: String,
        text: String,
        sha256: String,
        since: u64,
    },
}

impl LoggedChange {
    fn to_json(&self) -> String {
        let form = match self {
            Self::Revoke { revocation, since } => {
                let (kind, name) = parts(&revocation.what);
                RowForm::Revoke {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                    since: since.0,
                    until: revocation.until.0,
                }
            }
            Self::Restore(what) => {
                let (kind, name) = parts(what);
                RowForm::Restore {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                }
            }
            Self::Rules { rules, since } => RowForm::Rules {
                file: rules.file().to_owned(),
                text: rules.text().to_owned(),
                sha256: rules.sha256().to_owned(),
                since: since.0,
            },
        };
        serde_json::to_string(&form).expect("texts and numbers are JSON")
    }

    /// `None` if the row is damaged or of a later version.
    fn from_json(text: &str) -> Option<Self> {
        Some(match serde_json::from_str(text).ok()? {
            RowForm::Revoke {
                kind,
                name,
                since,
                until,
            } => Self::Revoke {
                revocation: Revocation {
                    what: revoked(&kind, &name)?,
                    until: WallTime(until),
                },
                since: WallTime(since),
            },
            RowForm::Restore { kind, name } => Self::Restore(revoked(&kind, &name)?),
            RowForm::Rules {
                file,
                text,
                sha256,
                since,
            } => {
                let rules = RulesText::new(&file, &text);
                let since = WallTime(since);
                (rules.sha256() == sha256).then_some(Self::Rules { rules, since })?
            }
        })
    }
}

fn revoked(kind: &str, name: &str) -> Option<Revoked> {
    let id = Name::from(name);
    Some(Revoked::Credential(match kind {
        "password" => Credential::Password(id),
        "operator" => Credential::Operator(id),
        "backend" => Credential::Backend(id),
        _ => return from_parts(kind, name),
    }))
}

/// The rows in the store.
#[derive(Clone, Debug)]
pub struct RightsLog(AwaitedStore);

impl RightsLog {
    /// The rows of this store.
    #[must_use]
    pub fn new(store: StoreClient) -> Self {
        Self(AwaitedStore::new(store))
    }

    /// All rows with higher numbers, in their order.
    ///
    /// # Errors
    /// The store can't be read now, or a row is damaged or of a later version. A node must not skip such a row.
    pub async fn after(&self, number: u64) -> Result<Vec<Row>, StoreError> {
        let prefix = format!("{RESERVED}{KIND}");
        let mut rows = Vec::new();
        let mut after = row_name(number);
        loop {
            let scan = Scan {
                prefix: prefix.clone(),
                after: Some(after.clone()),
                count_max: PAGE,
            };
            let page = self.0.page(scan).await?;
            for (name, loaded) in page.records {
                let number = name.strip_prefix(&prefix);
                let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                let change = match &loaded {
                    Loaded::Found(record) => LoggedChange::from_json(record.data.as_str()),
                    Loaded::Missing | Loaded::Corrupt => None,
                };
                let row = number.zip(change).ok_or_else(|| {
                    let row = name.trim_start_matches(RESERVED);
                    let text = format!(
                        "the row {row} of the changes of rights is damaged or of a later version; upgrade this node, or restore the store from a backup"
                    );
                    StoreError::unavailable(text)
                })?;
                let (number, change) = row;
                rows.push(Row { number, change });
                after = name;
            }
            if !page.more {
                return Ok(rows);
            }
        }
    }

    /// Adds a row. Returns whether it is stored; otherwise another node has added one with this number.
    ///
    /// # Errors
    /// The outcome is unknown.
    pub async fn add(&self, row: &Row) -> Result<bool, StoreError> {
        let write = StoreWrite {
            writer: None,
            name: row_name(row.number),
            expected: Expected::Missing,
            change: StoreChange::Put(StoredRecord {
                // No two rows have the same number.
                incarnation: Incarnation(row.number),
                version: Version::CREATED,
                data: Payload::from(row.change.to_json()),
                write_keys: None,
            }),
        };
        let done = self.0.commit([write].into()).await?;
        Ok(matches!(done.as_slice(), [Written::Done]))
    }

    /// Deletes rows, all or none.
    ///
    /// # Errors
    /// The outcome is unknown.
    pub async fn remove(&self, numbers: &[u64]) -> Result<(), StoreError> {
        let delete = |number: &u64| StoreWrite {
            writer: None,
            name: row_name(*number),
            expected: Expected::Anything,
            change: StoreChange::Delete,
        };
        let writes: Vec<StoreWrite> = numbers.iter().map(delete).collect();
        self.0.commit(writes.into()).await.map(drop)
    }
}

fn row_name(number: u64) -> Name {
    Name::from(format!("{RESERVED}{KIND}{number:016x}").as_str())
}

/// Rows that a store lacks, and rows that came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// Rows with an effect that the store lacks, in their order.
    pub missing: Vec<Row>,
    /// The numbers of its rows that have no effect any longer.
    pub returned: Vec<u64>,
}

/// The rows that a node knows, to find those without an effect.
#[derive(Debug, Default)]
pub struct Ledger {
    newest: u64,
    /// The row of each revocation.
    revoked: BTreeMap<Revoked, RevokedBy>,
    /// The row of the rules in force.
    rules: Option<u64>,
    /// The newest row, if it has no effect, because nothing before it is left.
    spent: Option<Row>,
    /// Rows without an effect that the store may have.
    obsolete: BTreeSet<u64>,
}

/// The row that has revoked a user or credential.
#[derive(Debug)]
struct RevokedBy {
    number: u64,
    since: WallTime,
    until: WallTime,
}

impl Ledger {
    /// The number of rows without an effect from which on a node deletes them also if it makes no change.
    const OBSOLETE_MAX: usize = 1_000;

    /// Takes the next row.
    pub fn take(&mut self, row: &Row) {
        self.obsolete
            .extend(self.spent.take().map(|spent| spent.number));
        self.newest = row.number;
        let before = match &row.change {
            LoggedChange::Revoke { revocation, since } => {
                let revoked_by = RevokedBy {
                    number: row.number,
                    since: *since,
                    until: revocation.until,
                };
                let before = self.revoked.insert(revocation.what.clone(), revoked_by);
                before.map(|before| before.number)
            }
            LoggedChange::Restore(what) => {
                self.spent = Some(row.clone());
                self.revoked.remove(what).map(|before| before.number)
            }
            LoggedChange::Rules { .. } => self.rules.replace(row.number),
        };
        self.obsolete.extend(before);
    }

    /// Whether the node deletes rows without an effect although it makes no change: their number has reached the limit.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.obsolete.len() >= Self::OBSOLETE_MAX
    }

    /// The rows to delete. The newest one stays, because the next number follows it. A restoration leaves together with its revocation or
    /// after it, so no revocation returns.
    pub fn obsolete(&mut self, now: WallTime) -> Vec<u64> {
        let ended = self.revoked.extract_if(.., |_, by| by.until <= now);
        self.obsolete.extend(ended.map(|(_, by)| by.number));
        let newest = self.newest;
        let old = self.obsolete.iter().copied();
        old.filter(|number| *number < newest).take(PAGE).collect()
    }

    /// Compares the rows of a store that may have lost some. `rules` is the row of the rules in force.
    #[must_use]
    pub fn difference(&self, stored: &[Row], rules: Option<Row>) -> Difference {
        let revoked = self.revoked.iter().map(|(what, by)| Row {
            number: by.number,
            change: LoggedChange::Revoke {
                revocation: Revocation {
                    what: what.clone(),
                    until: by.until,
                },
                since: by.since,
            },
        });
        let known = revoked.chain(self.spent.clone()).chain(rules);
        let mut missing: BTreeMap<u64, Row> = known.map(|row| (row.number, row)).collect();
        // Rows that the store has lost may have made earlier ones ineffective.
        let returned = stored.iter().map(|row| row.number);
        let returned = returned.filter(|number| missing.remove(number).is_none());
        let returned = returned.filter(|number| *number <= self.newest).collect();
        Difference {
            missing: missing.into_values().collect(),
            returned,
        }
    }

    /// Forgets rows that are deleted.
    pub fn removed(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.obsolete.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str) -> Revoked {
        Revoked::User(Name::from(id))
    }

    fn revoke(what: Revoked, until: u64) -> LoggedChange {
        let until = WallTime(until);
        LoggedChange::Revoke {
            revocation: Revocation { what, until },
            since: WallTime(7),
        }
    }

    fn rules(text: &str) -> LoggedChange {
        let since = WallTime(7);
        LoggedChange::Rules {
            rules: RulesText::new("rules.yml", text),
            since,
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let id = || Name::from("id \"1\"");
        let certificate = from_parts("certificate", "0a1b").expect("a serial number");
        let credentials = [
            Credential::Token(id()),
            Credential::Key(id()),
            Credential::Password(id()),
            Credential::Operator(id()),
            Credential::Backend(id()),
        ];
        let all = credentials.map(Revoked::Credential).into_iter();
        for what in all.chain([user("anna"), certificate]) {
            for change in [revoke(what.clone(), u64::MAX), LoggedChange::Restore(what)] {
                let text = change.to_json();
                assert_eq!(LoggedChange::from_json(&text), Some(change), "{text}");
            }
        }
        let text = r#"{"revoke":{"kind":"user","name":"anna","since":7,"until":9}}"#;
        assert_eq!(revoke(user("anna"), 9).to_json(), text);
        let change = rules("event: { \"*\": { publish: true } }\n");
        let text = change.to_json();
        assert_eq!(LoggedChange::from_json(&text), Some(change), "{text}");
        let damaged = text.replace("true", "false");
        assert_eq!(LoggedChange::from_json(&damaged), None, "{damaged}");
        for later in [
            r#"{"forget":{"kind":"user","name":"anna"}}"#,
            r#"{"restore":{"kind":"device","name":"anna"}}"#,
            r#"{"restore":{"kind":"user","name":"anna","more":1}}"#,
            r#"{"rules":{"file":"rules.yml","text":"","since":7}}"#,
        ] {
            assert_eq!(LoggedChange::from_json(later), None, "{later}");
        }
    }

    #[test]
    fn rows_without_an_effect_are_deleted_and_the_newest_stays() {
        let mut ledger = Ledger::default();
        let mut number = 0;
        let mut take = |ledger: &mut Ledger, change| {
            number += 1;
            ledger.take(&Row { number, change });
        };
        take(&mut ledger, revoke(user("anna"), 50));
        take(&mut ledger, revoke(user("ben"), 10));
        take(&mut ledger, revoke(user("anna"), 60));
        assert_eq!(ledger.obsolete(WallTime(9)), [1]);
        take(&mut ledger, LoggedChange::Restore(user("anna")));
        assert_eq!(ledger.obsolete(WallTime(9)), [1, 3]);
        ledger.removed(&[1]);
        take(&mut ledger, revoke(user("cleo"), 20));
        assert_eq!(ledger.obsolete(WallTime(9)), [3, 4]);
        ledger.removed(&[3, 4]);
        assert_eq!(ledger.obsolete(WallTime(10)), [2]);
        assert_eq!(ledger.obsolete(WallTime(20)), [2], "the newest row stays");
    }

    #[test]
    fn rows_that_a_store_has_lost_are_found() {
        let changes = [
            rules("a"),
            revoke(user("anna"), 50),
            revoke(user("ben"), 60),
            LoggedChange::Restore(user("anna")),
            rules("b"),
            revoke(user("cleo"), 70),
            LoggedChange::Restore(user("cleo")),
        ];
        let rows = (1..).zip(changes);
        let rows: Vec<Row> = rows
            .map(|(number, change)| Row { number, change })
            .collect();
        let mut ledger = Ledger::default();
        for row in &rows {
            ledger.take(row);
        }
        let later = Row {
            number: 8,
            change: revoke(user("dora"), 80),
        };
        let kept = [rows[2].clone(), rows[4].clone(), rows[6].clone(), later];
        let none = Difference {
            missing: Vec::new(),
            returned: Vec::new(),
        };
        assert_eq!(ledger.difference(&kept, Some(rows[4].clone())), none);
        let lost = Difference {
            missing: vec![rows[2].clone(), rows[4].clone(), rows[6].clone()],
            returned: vec![1, 2],
        };
        let found = ledger.difference(&rows[..2], Some(rows[4].clone()));
        assert_eq!(found, lost);
    }

    #[test]
    fn the_newest_rules_stay() {
        let mut ledger = Ledger::default();
        let changes = [
            rules("a"),
            revoke(user("anna"), 10),
            rules("b"),
            rules("a"),
            LoggedChange::Restore(user("anna")),
            LoggedChange::Restore(user("ben")),
        ];
        for (number, change) in (1..).zip(changes) {
            ledger.take(&Row { number, change });
        }
        assert_eq!(ledger.obsolete(WallTime(99)), [1, 2, 3, 5]);
        ledger.removed(&[1, 2, 3, 5]);
        assert_eq!(ledger.obsolete(WallTime(99)), [0; 0]);
    }
}

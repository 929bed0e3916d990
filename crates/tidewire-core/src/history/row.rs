//! Histories in the store: records with names that no client can use. Contract: `spec/store.md`.

use std::time::Duration;

use crate::binary::EventPayload;
use crate::history_rules::{HistoryRules, Keep};
use crate::json;
use crate::store::{Incarnation, StoredRecord, Version};
use crate::text::{Name, Payload, RESERVED};
use crate::time::WallTime;

/// Prefix of the names of all rows, after [`RESERVED`].
const PREFIX: &str = "history/";

/// The range of the events of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) epoch: u64,
    /// The first offset that may have a row.
    pub(super) first: u64,
    /// The offset of the next event.
    pub(super) next: u64,
}

/// The content of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryRow {
    Head,
    Event(u64),
}

/// Prefix of the names of all rows.
#[must_use]
pub fn row_prefix() -> String {
    format!("{RESERVED}{PREFIX}")
}

/// Whether a record of the store is a row of a history.
pub fn is_row(name: &str) -> bool {
    let name = name.strip_prefix(RESERVED);
    name.is_some_and(|name| name.starts_with(PREFIX))
}

/// The event whose history has expired content, according to this record of the store: an expired event, or a history without events.
/// Names that the rules do not keep in the store are ignored.
#[must_use]
pub fn old_history(
    name: &str,
    record: &StoredRecord,
    rules: &HistoryRules,
    now: WallTime,
) -> Option<Name> {
    let (event, row) = HistoryRow::of(name)?;
    let rule = rules.find(event).filter(|rule| rule.keep == Keep::Store)?;
    let is_old = match row {
        HistoryRow::Head => Head::of(record).is_none_or(|head| head.first == head.next),
        HistoryRow::Event(_) => event_of(record.incarnation.0, record).is_none_or(|(at, _)| {
            let age = Duration::from_millis(now.0.saturating_sub(at.0));
            age >= rule.age_max
        }),
    };
    is_old.then(|| event.into())
}

impl HistoryRow {
    /// The name of the record that keeps this row of an event's history.
    pub(super) fn name(self, event: &str) -> Name {
        let bytes = event.len();
        let name = match self {
            Self::Head => format!("{RESERVED}{PREFIX}{bytes}:{event}/"),
            Self::Event(offset) => format!("{RESERVED}{PREFIX}{bytes}:{event}/{offset:016x}"),
        };
        name.as_str().into()
    }

    /// The event and the row that a record belongs to.
    pub(super) fn of(name: &str) -> Option<(&str, Self)> {
        let (bytes, rest) = name
            .strip_prefix(RESERVED)?
            .strip_prefix(PREFIX)?
            .split_once(':')?;
        let (event, row) = rest.split_at_checked(bytes.parse().ok()?)?;
        match row.strip_prefix('/')? {
            "" => Some((event, Self::Head)),
            offset => Some((event, Self::Event(u64::from_str_radix(offset, 16).ok()?))),
        }
    }
}

impl Head {
    pub(super) fn record(self) -> StoredRecord {
        record(self.epoch, &format!("[{},{}]", self.first, self.next))
    }

    pub(super) fn of(record: &StoredRecord) -> Option<Self> {
        let (first, next) = within(record)?.split_once(',')?;
        let head = Self {
            epoch: record.incarnation.0,
            first: first.parse().ok()?,
            next: next.parse().ok()?,
        };
        (0 < head.first && head.first <= head.next).then_some(head)
    }
}

/// The record of an event.
pub(super) fn event_record(
    epoch: u64,
    at: WallTime,
    payload: Option<EventPayload>,
) -> StoredRecord {
    let text = match payload {
        Some(EventPayload::Json(data)) => format!("[{},{}]", at.0, data.as_str()),
        Some(payload) => object_text(at, &payload),
        None => format!("[{}]", at.0),
    };
    record(epoch, &text)
}

/// The row of a payload with bytes or attachments is an object, because a version that can't read it treats it as a missing event.
fn object_text(at: WallTime, payload: &EventPayload) -> String {
    let mut text = format!("{{\"time\":{}", at.0);
    payload.push_members(&mut text);
    text + "}"
}

fn object_of(text: &str) -> Option<(WallTime, Option<EventPayload>)> {
    let is_time = |key: json::Literal<'_>| key.inner == "time";
    let (_, at) = json::entries(text).find(|(key, _)| key.is_some_and(is_time))?;
    let payload = EventPayload::of_members(text)?;
    Some((WallTime(at.parse().ok()?), Some(payload)))
}

/// The event in a record, unless it has another epoch.
pub(super) fn event_of(
    epoch: u64,
    record: &StoredRecord,
) -> Option<(WallTime, Option<EventPayload>)> {
    if record.incarnation.0 != epoch {
        return None;
    }
    if record.data.as_str().starts_with('{') {
        return object_of(record.data.as_str());
    }
    let text = within(record)?;
    let (at, payload) = match text.split_once(',') {
        Some((at, data)) => (at, Some(EventPayload::Json(Payload::from_checked(data)))),
        None => (text, None),
    };
    Some((WallTime(at.parse().ok()?), payload))
}

fn record(epoch: u64, text: &str) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(epoch),
        version: Version::CREATED,
        data: Payload::from_checked(text),
        write_keys: None,
    }
}

fn within(record: &StoredRecord) -> Option<&str> {
    record.data.as_str().strip_prefix('[')?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments::Attachments;
    use crate::binary::Binary;
    use crate::message::Publication;

    #[test]
    fn row_names_identify_event_and_row_for_any_event_name() {
        for event in ["a", "news/1", "5:a/", "ä/", "\u{1}history/1:a/0", "/"] {
            for row in [
                HistoryRow::Head,
                HistoryRow::Event(0),
                HistoryRow::Event(u64::MAX),
            ] {
                let name = row.name(event);
                assert!(is_row(&name));
                assert_eq!(HistoryRow::of(&name), Some((event, row)), "{name}");
            }
        }
        for name in [
            "a",
            "history/1:a/",
            "\u{1}users/1:a/",
            "\u{1}history/2:a/",
            "\u{1}history/1:ä/",
        ] {
            assert_eq!(HistoryRow::of(name), None, "{name}");
        }
    }

    #[test]
    fn rows_decode_to_what_was_encoded() {
        let head = Head {
            epoch: 7,
            first: 3,
            next: 9,
        };
        assert_eq!(Head::of(&head.record()), Some(head));
        let json = EventPayload::Json(Payload::from_checked(r#"{"a":[1,2]}"#));
        let binary = Binary::new(Some("text/x; a=\"b\""), *b"\0\xff");
        for payload in [None, Some(json), Some(EventPayload::Binary(binary))] {
            let stored = event_record(7, WallTime(5), payload.clone());
            assert_eq!(event_of(7, &stored), Some((WallTime(5), payload)));
            assert_eq!(event_of(8, &stored), None);
        }
        let stored = r#"{"time":5,"contentType":"text/x; a=\"b\"","base64":"AP8="}"#;
        let binary = Binary::new(Some("text/x; a=\"b\""), *b"\0\xff");
        let event = (WallTime(5), Some(EventPayload::Binary(binary)));
        assert_eq!(event_of(7, &record(7, stored)), Some(event));
        let stored =
            r#"{"time":5,"data":["a",{"_placeholder":true,"num":0}],"attachments":["AP8=",""]}"#;
        let (at, payload) = event_of(7, &record(7, stored)).expect("an event");
        let encoded = event_record(7, at, payload.clone());
        assert_eq!(encoded.data.as_str(), stored);
        let publication = Publication::numbered("e", payload.as_ref(), 9);
        let attachments = Attachments::new([&b"\0\xff"[..], b""]);
        assert_eq!(publication.attachments(), attachments.as_ref());
        assert!(publication.has_consistent_payload());
        for text in [
            "{}",
            r#"{"time":5,"contentType":"a/b"}"#,
            r#"{"time":5,"contentType":"a/b","base64":"AP8"}"#,
            r#"{"time":"5","contentType":"a/b","base64":""}"#,
            r#"{"contentType":"a/b","base64":""}"#,
            r#"{"time":5,"data":1}"#,
            r#"{"time":5,"attachments":[""]}"#,
            r#"{"time":5,"data":1,"attachments":[]}"#,
            r#"{"time":5,"data":1,"attachments":["AP8"]}"#,
        ] {
            assert_eq!(event_of(7, &record(7, text)), None, "{text}");
        }
        for text in ["[]", "[1]", "[0,1]", "[3,2]", "{}", "[a,b]"] {
            assert_eq!(Head::of(&record(7, text)), None, "{text}");
        }
    }
}

//! The events of a stream, and the positions up to which the client has the events with history.
//!
//! Every piece about such an event has an id with the positions of all events of the stream, so a client that reconnects with
//! the id can resume each of them. A message that is not the next one of its event is not sent to the client. After a gap
//! because the client was slow, the stream resumes the event.

use std::collections::HashMap;
use std::fmt::Write;

use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::json;
use tidewire_core::message::Position;

/// Separates the states of records from the positions of events in an id.
const SEPARATOR: char = '~';

/// The state of one event of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SentPosition {
    /// The position that the client has; `None` if the event has no history, or if the stream does not know its position yet.
    position: Option<Position>,
    /// The stream has requested to resume the event, and the answer has not arrived yet.
    is_resuming: bool,
}

/// How a message of an event relates to the position that the client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionOrder {
    /// It is the next message.
    Next,
    /// The stream skips this message: the client already has it, or it will arrive again after the ones before it.
    Other,
}

/// The payload of an event; undefined without both.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamPayload<'a> {
    /// JSON.
    pub(super) data: Option<&'a str>,
    /// Bytes.
    pub(super) binary: Option<&'a Binary>,
    /// The attachments of the JSON.
    pub(super) attachments: Option<&'a Attachments>,
}

impl StreamPayload<'_> {
    /// Appends bytes or attachments as members of an object.
    pub(super) fn push_binary(self, text: &mut String) {
        if let Some(binary) = self.binary {
            text.push_str(",\"contentType\":");
            json::string(binary.content_type(), text);
            text.push_str(",\"base64\":\"");
            text.push_str(&binary.base64());
            text.push('"');
        }
        if let Some(attachments) = self.attachments {
            text.push_str(",\"attachments\":");
            attachments.write_json(text);
        }
    }
}

/// The events of a stream. See the comment at the top of this file.
#[derive(Debug)]
pub(super) struct StreamEvents {
    names: Vec<String>,
    indexes: HashMap<String, usize>,
    sent: Vec<SentPosition>,
}

impl StreamEvents {
    /// The events of a stream; `id` is the id with which a client reconnects.
    pub(super) fn new(names: Vec<String>, id: Option<&str>) -> Self {
        let known = id.and_then(|id| parse_positions(id, names.len()));
        let positions = known.unwrap_or_else(|| vec![None; names.len()]);
        let sent = positions.into_iter().map(|position| SentPosition {
            position,
            is_resuming: position.is_some(),
        });
        let indexes = names.iter().cloned().zip(0..).collect();
        Self {
            sent: sent.collect(),
            indexes,
            names,
        }
    }

    /// The names.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The names and positions for the subscription.
    pub(super) fn wishes(&self) -> Vec<(&str, Option<Position>)> {
        let names = self.names.iter().map(String::as_str);
        let positions = self.sent.iter().map(|sent| sent.position);
        names.zip(positions).collect()
    }

    /// Sets the position of an event: the messages that follow come after it. This ends a resume.
    pub(super) fn begin(&mut self, name: &str, position: Option<Position>) {
        if let Some(sent) = self.find(name) {
            *sent = SentPosition {
                position,
                is_resuming: false,
            };
        }
    }

    /// Processes a message of an event with history.
    pub(super) fn take(&mut self, name: &str, offset: u64) -> PositionOrder {
        let Some(sent) = self.find(name) else {
            return PositionOrder::Other;
        };
        match &mut sent.position {
            Some(position) if !sent.is_resuming && offset == position.offset + 1 => {
                position.offset = offset;
                PositionOrder::Next
            }
            _ => PositionOrder::Other,
        }
    }

    /// Whether the stream is subscribed to the event itself.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.indexes.contains_key(name)
    }

    /// Starts to resume an event after the session has skipped some of its messages. Returns the position to resume from, if
    /// the event has history. Until the answer arrives, the stream sends no message of the event.
    pub(super) fn resume(&mut self, name: &str) -> Option<Position> {
        let sent = self.find(name)?;
        let position = sent.position?;
        sent.is_resuming = true;
        Some(position)
    }

    /// Appends the positions to an id, if there are any.
    pub(super) fn append_id(&self, id: &mut String) {
        if self.sent.iter().all(|sent| sent.position.is_none()) {
            return;
        }
        for (index, sent) in self.sent.iter().enumerate() {
            id.push(if index == 0 { SEPARATOR } else { '_' });
            match sent.position {
                // Writing to a string does not fail.
                Some(Position { epoch, offset }) => {
                    let _ = write!(id, "{epoch:x}-{offset:x}");
                }
                None => id.push('x'),
            }
        }
    }

    fn find(&mut self, name: &str) -> Option<&mut SentPosition> {
        let index = *self.indexes.get(name)?;
        self.sent.get_mut(index)
    }
}

/// The part of an id with the states of the records.
pub(super) fn record_part(id: &str) -> &str {
    id.split(SEPARATOR).next().unwrap_or(id)
}

fn parse_positions(id: &str, count: usize) -> Option<Vec<Option<Position>>> {
    let (_, events) = id.split_once(SEPARATOR)?;
    let positions: Option<Vec<_>> = events.split('_').map(parse_position).collect();
    positions.filter(|positions| positions.len() == count)
}

fn parse_position(text: &str) -> Option<Option<Position>> {
    if text == "x" {
        return Some(None);
    }
    let (epoch, offset) = text.split_once('-')?;
    Some(Some(Position {
        epoch: u64::from_str_radix(epoch, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(id: Option<&str>) -> StreamEvents {
        StreamEvents::new(vec!["a".into(), "b".into()], id)
    }

    fn id(events: &StreamEvents) -> String {
        let mut id = String::from("9_x");
        events.append_id(&mut id);
        id
    }

    const AT: Position = Position {
        epoch: 0x2a,
        offset: 7,
    };

    #[test]
    fn an_id_names_the_position_of_a_client() {
        let mut before = events(None);
        assert_eq!(id(&before), "9_x");
        before.begin("b", Some(AT));
        assert_eq!(before.take("b", 8), PositionOrder::Next);
        let text = id(&before);
        assert_eq!(text, "9_x~x_2a-8");
        assert_eq!(record_part(&text), "9_x");
        let after = events(Some(&text));
        let position = Position { offset: 8, ..AT };
        assert_eq!(after.wishes(), [("a", None), ("b", Some(position))]);
    }

    #[test]
    fn ids_of_other_streams_are_ignored() {
        for text in [
            "",
            "9_x",
            "9_x~",
            "9_x~x",
            "9_x~x_x_x",
            "9_x~x_2a",
            "9_x~x_2a-",
            "9_x~x_-8",
            "9_x~x_2a-8-1",
            "9_x~x_10000000000000000-1",
        ] {
            assert_eq!(
                events(Some(text)).wishes(),
                [("a", None), ("b", None)],
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_next_event_counts_as_sent() {
        let mut events = events(None);
        assert_eq!(events.take("a", 8), PositionOrder::Other);
        events.begin("a", Some(AT));
        for (offset, position) in [
            (9, PositionOrder::Other),
            (8, PositionOrder::Next),
            (8, PositionOrder::Other),
        ] {
            assert_eq!(events.take("a", offset), position, "{offset}");
        }
        assert_eq!(events.resume("b"), None);
        let position = Position { offset: 8, ..AT };
        assert_eq!(events.resume("a"), Some(position));
        assert_eq!(events.take("a", 9), PositionOrder::Other);
        events.begin("a", Some(position));
        assert_eq!(events.take("a", 9), PositionOrder::Next);
        assert_eq!(events.take("other", 1), PositionOrder::Other);
    }
}

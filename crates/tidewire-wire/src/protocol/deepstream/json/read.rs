//! Decodes a text into fields. Texts without escapes are borrowed; unescaped ones are stored here.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidewire_core::attachments::ATTACHMENTS_MAX;
use tidewire_core::binary::from_base64;
use tidewire_core::json::{self, JsonError, JsonKind, JsonLimits, Literal};
use tidewire_core::message::{Message, Position};

use super::TextError;
use super::key::Key;
use crate::protobuf::FieldError;
use crate::protocol::deepstream::fields::{Field, Fields, WireTopic, parse_session};
use crate::protocol::deepstream::{DecodeError, from_wire};
use crate::traceparent;

/// A message is within the frame limit when it arrives here, and the engine checks the nesting of payloads.
const LIMITS: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: usize::MAX,
    bytes_max: usize::MAX,
};

/// The largest exact integer of JavaScript: above 2^53 it can't distinguish neighbouring integers.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A message as it was read, without interpretation.
#[derive(Clone, Debug)]
pub struct JsonFields<'a> {
    topic: u32,
    /// The numbers, the flags and the trace context.
    numbers: Fields<'static>,
    texts: SmallVec<[(Field, Cow<'a, str>); 4]>,
    names: Vec<Cow<'a, str>>,
    except: Vec<Cow<'a, str>>,
    versions: Vec<(Cow<'a, str>, i32)>,
    positions: Vec<(Cow<'a, str>, Option<Position>)>,
    bytes: Option<Vec<u8>>,
    attachments: Vec<Vec<u8>>,
}

impl<'a> JsonFields<'a> {
    /// Decodes the payload of one text frame. Of equal keys the last one counts, as in `JSON.parse`; members without
    /// a meaning in their topic are ignored; `null` means absent, except as `parsedData`. Memory is proportional to
    /// the payload.
    ///
    /// # Errors
    ///
    /// The payload is not JSON or not a message. Unknown topics are messages.
    pub fn read(payload: &'a [u8]) -> Result<Self, TextError> {
        let text =
            std::str::from_utf8(payload).map_err(|_| DecodeError::Field(FieldError::Utf8))?;
        match json::check(text, LIMITS) {
            Ok(JsonKind::Object) => {}
            Ok(_) => return Err(DecodeError::Field(FieldError::WireType).into()),
            Err(JsonError::Malformed { offset }) => return Err(TextError::Malformed { offset }),
            Err(_) => return Err(DecodeError::Field(FieldError::Range).into()),
        }
        let members = members(text);
        let value = |key| {
            let mut members = members.iter();
            members.find(|(known, _)| *known == key).map(|it| it.1)
        };
        let topic = match value(Key::Topic) {
            Some(value) if value != NULL => number(value)?,
            _ => 0,
        };
        let mut read = Self {
            topic,
            numbers: Fields::default(),
            texts: SmallVec::new(),
            names: Vec::new(),
            except: Vec::new(),
            versions: Vec::new(),
            positions: Vec::new(),
            bytes: None,
            attachments: Vec::new(),
        };
        let Some(topic) = WireTopic::from_wire(topic) else {
            return Ok(read);
        };
        let parsed = value(Key::ParsedData);
        for field in topic.layout().iter().flatten() {
            match (value(Key::Field(*field)), parsed) {
                (_, Some(parsed)) if *field == Field::Data => {
                    read.texts.push((Field::Data, Cow::Borrowed(parsed)));
                }
                (Some(value), _) if value != NULL => read.read_field(*field, value)?,
                _ => {}
            }
        }
        Ok(read)
    }

    /// The topic's number; 0 if it was absent.
    #[must_use]
    pub fn topic(&self) -> u32 {
        self.topic
    }

    /// The fields that the topic has.
    #[must_use]
    pub fn fields(&self) -> Fields<'_> {
        let numbers = &self.numbers;
        let mut fields = Fields {
            action: numbers.action,
            is_error: numbers.is_error,
            is_ack: numbers.is_ack,
            original_topic: numbers.original_topic,
            original_action: numbers.original_action,
            is_write_ack: numbers.is_write_ack,
            version: numbers.version,
            seen_version: numbers.seen_version,
            incarnation: numbers.incarnation,
            only: numbers.only,
            existed: numbers.existed,
            batches: numbers.batches,
            jumps: numbers.jumps,
            missed: numbers.missed,
            epoch: numbers.epoch,
            offset: numbers.offset,
            session: numbers.session,
            count: numbers.count,
            is_local: numbers.is_local,
            timeout: numbers.timeout,
            trace: numbers.trace.clone(),
            bytes: self.bytes.as_deref(),
            ..Fields::default()
        };
        for (field, text) in &self.texts {
            if let Some(slot) = fields.text_mut(*field) {
                *slot = Some(text);
            }
        }
        fields.names = self.names.iter().map(|name| &**name).collect();
        fields.except = self.except.iter().map(|name| &**name).collect();
        let versions = self.versions.iter();
        fields.versions = versions
            .map(|(name, version)| (&**name, *version))
            .collect();
        fields.attachments = self.attachments.iter().map(Vec::as_slice).collect();
        let positions = self.positions.iter();
        fields.positions = positions
            .map(|(name, position)| (&**name, *position))
            .collect();
        fields
    }

    /// The message.
    ///
    /// # Errors
    ///
    /// The fields are not the fields of a message. Unknown topics and actions are messages.
    pub fn message(&self) -> Result<Message<'_>, DecodeError> {
        match WireTopic::from_wire(self.topic) {
            Some(topic) => from_wire(topic, self.fields()),
            None => Ok(Message::UnknownTopic),
        }
    }

    fn read_field(&mut self, field: Field, value: &'a str) -> Result<(), DecodeError> {
        let fields = &mut self.numbers;
        match field {
            Field::Action => fields.action = number(value)?,
            Field::Version => fields.version = Some(int32(value)?),
            Field::SeenVersion => fields.seen_version = Some(int32(value)?),
            Field::OriginalTopic => fields.original_topic = Some(number(value)?),
            Field::OriginalAction => fields.original_action = Some(number(value)?),
            Field::Only => fields.only = Some(number(value)?),
            Field::Missed => fields.missed = Some(number(value)?),
            Field::Incarnation => fields.incarnation = Some(incarnation(value)?),
            Field::Epoch => fields.epoch = Some(uint64(value)?),
            Field::Offset => fields.offset = Some(uint64(value)?),
            Field::IsError => fields.is_error = Some(flag(value)?),
            Field::IsAck => fields.is_ack = Some(flag(value)?),
            Field::IsWriteAck => fields.is_write_ack = Some(flag(value)?),
            Field::Existed => fields.existed = Some(flag(value)?),
            Field::Batches => fields.batches = Some(flag(value)?),
            Field::Jumps => fields.jumps = Some(flag(value)?),
            Field::Trace => fields.trace = traceparent::parse(&text(value)?).map(Box::new),
            Field::Session => fields.session = Some(parse_session(&text(value)?)?),
            Field::Count => fields.count = Some(number(value)?),
            Field::IsLocal => fields.is_local = Some(flag(value)?),
            Field::Timeout => fields.timeout = Some(number(value)?),
            Field::Names | Field::Except => {
                let names = entries(value, '[')?.map(|(_, name)| text(name));
                let names = names.collect::<Result<_, _>>()?;
                match field {
                    Field::Names => self.names = names,
                    _ => self.except = names,
                }
            }
            Field::Versions => {
                let versions = entries(value, '{')?;
                let version = |(name, version): (Option<Literal<'a>>, _)| {
                    let name = name
                        .and_then(Literal::text)
                        .ok_or(DecodeError::Field(FieldError::Utf8))?;
                    Ok::<_, DecodeError>((name, int32(version)?))
                };
                self.versions = versions.map(version).collect::<Result<_, _>>()?;
            }
            Field::Positions => {
                // An entry of two bytes becomes one of 48, so the entries are counted first.
                self.positions.reserve_exact(entries(value, '[')?.count());
                for (_, entry) in entries(value, '[')? {
                    self.positions.push(position(entry)?);
                }
            }
            Field::Bytes => {
                let bytes = from_base64(&text(value)?);
                self.bytes = Some(bytes.ok_or(DecodeError::Base64)?);
            }
            Field::Attachments => {
                // One more than an event may have, so that the engine refuses the event.
                for (_, entry) in entries(value, '[')?.take(ATTACHMENTS_MAX + 1) {
                    let bytes = from_base64(&text(entry)?);
                    self.attachments.push(bytes.ok_or(DecodeError::Base64)?);
                }
            }
            _ => self.texts.push((field, text(value)?)),
        }
        Ok(())
    }
}

const NULL: &str = "null";

/// The known members, each once.
fn members(text: &str) -> SmallVec<[(Key, &str); 16]> {
    let mut members: SmallVec<[(Key, &str); 16]> = SmallVec::new();
    let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
    for (name, value) in json::entries(text) {
        let name = name.and_then(Literal::text);
        let Some(key) = name.and_then(|name| Key::of(&name)) else {
            continue;
        };
        match members.iter_mut().find(|(known, _)| *known == key) {
            Some(member) => member.1 = value,
            None => members.push((key, value)),
        }
    }
    members
}

fn text(value: &str) -> Result<Cow<'_, str>, DecodeError> {
    let literal = Literal::scan(value).ok_or(DecodeError::Field(FieldError::WireType))?;
    literal.text().ok_or(DecodeError::Field(FieldError::Utf8))
}

fn flag(value: &str) -> Result<bool, DecodeError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(DecodeError::Field(FieldError::WireType)),
    }
}

/// Decodes an entry of `positions`. A position needs both epoch and offset.
fn position(entry: &str) -> Result<(Cow<'_, str>, Option<Position>), DecodeError> {
    let (mut name, mut epoch, mut offset) = (None, None, None);
    for (key, value) in entries(entry, '{')? {
        match key.and_then(Literal::text).as_deref() {
            Some("name") => name = Some(value),
            Some("epoch") => epoch = Some(value),
            Some("offset") => offset = Some(value),
            _ => {}
        }
    }
    let number = |value: Option<&str>| value.filter(|value| *value != NULL).map(uint64).transpose();
    let position = number(epoch)?.zip(number(offset)?);
    let name = match name.filter(|value| *value != NULL) {
        Some(name) => text(name)?,
        None => Cow::Borrowed(""),
    };
    Ok((
        name,
        position.map(|(epoch, offset)| Position { epoch, offset }),
    ))
}

fn number(value: &str) -> Result<u32, DecodeError> {
    u32::try_from(int32(value)?).map_err(|_| DecodeError::Field(FieldError::Range))
}

fn int32(value: &str) -> Result<i32, DecodeError> {
    match number_literal(value)?.parse() {
        Ok(number) => Ok(number),
        Err(_) => i32::try_from(spelled(value)?).map_err(|_| DecodeError::Field(FieldError::Range)),
    }
}

fn uint64(value: &str) -> Result<u64, DecodeError> {
    match number_literal(value)?.parse() {
        Ok(number) => Ok(number),
        Err(_) => u64::try_from(spelled(value)?).map_err(|_| DecodeError::Field(FieldError::Range)),
    }
}

/// The value, if it is a number.
fn number_literal(value: &str) -> Result<&str, DecodeError> {
    let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    is_number
        .then_some(value)
        .ok_or(DecodeError::Field(FieldError::WireType))
}

/// An integer in another spelling, such as 1.0 or 1e0.
fn spelled(value: &str) -> Result<i64, DecodeError> {
    let number: f64 = value
        .parse()
        .map_err(|_| DecodeError::Field(FieldError::Range))?;
    if number.fract() != 0.0 || number.abs() > EXACT_MAX {
        return Err(DecodeError::Field(FieldError::Range));
    }
    Ok(number as i64)
}

/// A number of 64 bits, as text, because JavaScript has no such integers.
fn incarnation(value: &str) -> Result<u64, DecodeError> {
    let digits = text(value)?;
    match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits
            .parse()
            .map_err(|_| DecodeError::Field(FieldError::Range)),
        false => Err(DecodeError::Field(FieldError::Range)),
    }
}

/// The entries of a value that must be a container of the kind that `open` opens.
fn entries(value: &str, open: char) -> Result<json::Entries<'_>, DecodeError> {
    match value.starts_with(open) {
        true => Ok(json::entries(value)),
        false => Err(DecodeError::Field(FieldError::WireType)),
    }
}

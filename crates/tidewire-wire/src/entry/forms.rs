//! Types whose form on the wire is that of another type: they hold what their node has derived, or have private fields.

use std::num::NonZeroU64;
use std::sync::Arc;

use tidewire_core::address::Address;
use tidewire_core::attachments::{AttachedPayload, Attachments};
use tidewire_core::binary::{Binary, EventPayload};
use tidewire_core::entry::{OwnedChange, OwnedPatch, ReadFailed, RightsMarker};
use tidewire_core::json::{Path, PathError, Token, parse_patches};
use tidewire_core::listen_pattern::ListenPattern;
use tidewire_core::message::Tag;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::store::{Dropped, StoredKey, Version, WriteKeys};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::{Instant, WallTime};
use tidewire_core::trace::Trace;

use super::DecodeError;
use super::context::Context;
use super::field::{
    Field, Source, Value, choices, message_of, prefixed, present_len, read_fields, structs,
    write_present,
};
use crate::protobuf::{Sink, WireType, varint_bytes};

/// Implements [`Value`] for types with the form of another type.
macro_rules! forms {
    ($($type:ty as $form:ty { $to:expr, $from:expr })*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = <$form>::WIRE_TYPE;

            fn value_len(&self) -> usize {
                let to: fn(&Self) -> $form = $to;
                to(self).value_len()
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                let to: fn(&Self) -> $form = $to;
                to(self).write_value(out);
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                let from: fn($form, &Context<'_>) -> Result<Self, DecodeError> = $from;
                let form = <$form>::read_value(source)?;
                from(form, source.context)
            }
        }
    )*};
}

struct PrincipalForm {
    user: Name,
    expires_at: Option<WallTime>,
    server: Option<Payload>,
    client: Option<Payload>,
    credential: Option<Credential>,
}

struct TraceForm {
    id: [u8; 16],
    span: [u8; 8],
    is_sampled: bool,
}

struct TaggedForm {
    tag: Tag,
    data: Payload,
}

struct VersionedForm {
    version: Version,
    data: Payload,
}

struct ReadForm {
    failed: bool,
    found: Option<VersionedForm>,
}

struct WriteKeysForm {
    kept: Vec<StoredKey>,
    dropped: Dropped,
}

/// A path as its text, or as steps if no text spells it.
struct PatchForm {
    path: Name,
    steps: Vec<StepForm>,
    data: Option<Payload>,
}

enum StepForm {
    Key(Box<str>),
    Index(u32),
}

enum ChangeForm {
    Update(Payload),
    Patch(OwnedPatch),
    /// The list as text, from which the receiver reads the patches.
    List(Payload),
    Patches(Vec<OwnedPatch>),
}

struct RightsMarkerForm {
    from: Address,
    number: u64,
    change: RightsForm,
}

enum RightsForm {
    /// The rules that all nodes know by the number of the change.
    Rules,
    Revoke(Revocation),
    Restore(Revoked),
}

struct PayloadForm {
    json: Option<Payload>,
    binary: Option<Binary>,
    attachments: Option<Attachments>,
}

struct NamesForm {
    names: Vec<Name>,
}

structs! {
    PrincipalForm { 1 user, 2 expires_at, 3 server, 4 client, 5 credential }
    TraceForm { 1 id, 2 span, 3 is_sampled }
    TaggedForm { 1 tag, 2 data }
    VersionedForm { 1 version, 2 data }
    ReadForm { 1 failed, 2 found }
    WriteKeysForm { 1 kept, 2 dropped }
    PatchForm { 1 path, 2 steps, 3 data }
    RightsMarkerForm { 1 from, 2 number, 3 change }
    PayloadForm { 1 json, 2 binary, 3 attachments }
    NamesForm { 1 names }
}

choices! {
    StepForm { 1 Key[key], 2 Index[index] }
    ChangeForm { 1 Update[data], 2 Patch[patch], 3 List[text], 4 Patches(1 patches) }
    RightsForm { 1 Rules, 2 Revoke[revocation], 3 Restore[what] }
}

forms! {
    NonZeroU64 as u64 {
        |number| number.get(),
        |number, _| NonZeroU64::new(number).ok_or(DecodeError::Missing)
    }
    Principal as PrincipalForm { principal_form, |form, _| Ok(principal(form)) }
    Trace as TraceForm {
        |trace| TraceForm {
            id: trace.id,
            span: trace.span,
            is_sampled: trace.is_sampled,
        },
        // The clock of a node means nothing to another one.
        |form, _| Ok(Trace {
            id: form.id,
            span: form.span,
            is_sampled: form.is_sampled,
            since: Instant::default(),
        })
    }
    (Tag, Payload) as TaggedForm {
        |(tag, data)| TaggedForm { tag: *tag, data: data.clone() },
        |form, _| Ok((form.tag, form.data))
    }
    Result<Option<(Version, Payload)>, ReadFailed> as ReadForm {
        |read| ReadForm {
            failed: read.is_err(),
            found: read.as_ref().ok().cloned().flatten().map(|(version, data)| {
                VersionedForm { version, data }
            }),
        },
        |form, _| Ok(match form.failed {
            true => Err(ReadFailed),
            false => Ok(form.found.map(|found| (found.version, found.data))),
        })
    }
    WriteKeys as WriteKeysForm {
        |keys| WriteKeysForm {
            kept: keys.kept().to_vec(),
            dropped: keys.dropped(),
        },
        |form, _| Ok(WriteKeys::stored(form.kept, form.dropped))
    }
    OwnedPatch as PatchForm { patch_form, |form, _| patch(form) }
    OwnedChange as ChangeForm { change_form, |form, _| change(form) }
    RightsMarker as RightsMarkerForm { rights_form, rights_marker }
}

fn principal_form(principal: &Principal) -> PrincipalForm {
    PrincipalForm {
        user: principal.user_id.clone(),
        expires_at: principal.expires_at(),
        server: principal.server_data().cloned(),
        client: principal.client_data().cloned(),
        credential: principal.credential().cloned(),
    }
}

fn principal(form: PrincipalForm) -> Principal {
    let mut principal = Principal::new(form.user);
    if let Some(expires_at) = form.expires_at {
        principal = principal.with_expiry(expires_at);
    }
    if form.server.is_some() || form.client.is_some() {
        principal = principal.with_data(form.server, form.client);
    }
    match form.credential {
        Some(credential) => principal.with_credential(credential),
        None => principal,
    }
}

fn patch_form(patch: &OwnedPatch) -> PatchForm {
    let of_token = |token: &Token<'_>| match token {
        Token::Key(key) => StepForm::Key(key.as_ref().into()),
        Token::Index(index) => StepForm::Index(*index),
    };
    // The patches of a list have no text of their path.
    let steps = match patch.text.is_empty() {
        true => patch.path.tokens().iter().map(of_token).collect(),
        false => Vec::new(),
    };
    PatchForm {
        path: patch.text.clone(),
        steps,
        data: patch.data.clone(),
    }
}

fn patch(form: PatchForm) -> Result<OwnedPatch, DecodeError> {
    let path = match form.steps.is_empty() {
        true => Path::parse(&form.path).map(Path::into_owned),
        false => Path::from_steps(form.steps.into_iter().map(|step| {
            Ok::<_, PathError>(match step {
                StepForm::Key(key) => Token::Key(String::from(key).into()),
                StepForm::Index(index) => Token::Index(index),
            })
        })),
    };
    Ok(OwnedPatch {
        text: form.path,
        path: Arc::new(path.map_err(|_| DecodeError::Path)?),
        data: form.data,
    })
}

fn change_form(change: &OwnedChange) -> ChangeForm {
    match change {
        OwnedChange::Update(data) => ChangeForm::Update(data.clone()),
        OwnedChange::Patch(patch) => ChangeForm::Patch(patch.clone()),
        OwnedChange::PatchMulti {
            text: Some(text),
            patches: _,
        } => ChangeForm::List(text.clone()),
        OwnedChange::PatchMulti {
            text: None,
            patches,
        } => ChangeForm::Patches(patches.to_vec()),
    }
}

fn change(form: ChangeForm) -> Result<OwnedChange, DecodeError> {
    Ok(match form {
        ChangeForm::Update(data) => OwnedChange::Update(data),
        ChangeForm::Patch(patch) => OwnedChange::Patch(patch),
        ChangeForm::Patches(patches) => OwnedChange::PatchMulti {
            text: None,
            patches: patches.into(),
        },
        ChangeForm::List(text) => {
            let list = parse_patches(text.as_str()).map_err(|_| DecodeError::Path)?;
            let patches = list.into_iter().map(|(path, data)| OwnedPatch {
                text: Name::from(""),
                path: Arc::new(path.into_owned()),
                data: data.map(Payload::from_checked),
            });
            let patches = patches.collect();
            OwnedChange::PatchMulti {
                text: Some(text),
                patches,
            }
        }
    })
}

fn rights_form(marker: &RightsMarker) -> RightsMarkerForm {
    RightsMarkerForm {
        from: marker.from,
        number: marker.number,
        change: match &marker.change {
            RightsChange::Rules(_) => RightsForm::Rules,
            RightsChange::Revoke(revocation) => RightsForm::Revoke(revocation.clone()),
            RightsChange::Restore(what) => RightsForm::Restore(what.clone()),
        },
    }
}

fn rights_marker(
    form: RightsMarkerForm,
    context: &Context<'_>,
) -> Result<RightsMarker, DecodeError> {
    let RightsMarkerForm {
        from,
        number,
        change,
    } = form;
    Ok(RightsMarker {
        from,
        number,
        change: match change {
            RightsForm::Rules => {
                let rules = (context.rules)(number);
                RightsChange::Rules(rules.ok_or(DecodeError::UnknownRules(number))?)
            }
            RightsForm::Revoke(revocation) => RightsChange::Revoke(revocation),
            RightsForm::Restore(what) => RightsChange::Restore(what),
        },
    })
}

/// The content type, and the bytes.
impl Value for Binary {
    const WIRE_TYPE: WireType = WireType::Bytes;

    fn value_len(&self) -> usize {
        prefixed(binary_len(self))
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(binary_len(self) as u64);
        for (number, bytes) in [(1, self.content_type().as_bytes()), (2, self.bytes())] {
            out.length_field(number, bytes.len());
            out.extend_from_slice(bytes);
        }
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        let mut message = source.nested()?;
        read_fields!(message, 1 content_type, 2 bytes);
        let content_type: Box<str> = Field::finish(content_type)?;
        let bytes: Box<[u8]> = Field::finish(bytes)?;
        Ok(Self::new(Some(&content_type), bytes))
    }
}

fn binary_len(binary: &Binary) -> usize {
    let of_field = |len: usize| 1 + prefixed(len);
    of_field(binary.content_type().len()) + of_field(binary.bytes().len())
}

/// The bytes of each.
impl Value for Attachments {
    const WIRE_TYPE: WireType = WireType::Bytes;

    fn value_len(&self) -> usize {
        prefixed(attachments_len(self))
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(attachments_len(self) as u64);
        for bytes in self.iter() {
            out.length_field(1, bytes.len());
            out.extend_from_slice(bytes);
        }
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        let mut message = source.nested()?;
        read_fields!(message, 1 attachments);
        let attachments: Vec<Box<[u8]>> = Field::finish(attachments)?;
        Self::new(attachments).ok_or(DecodeError::Missing)
    }
}

fn attachments_len(attachments: &Attachments) -> usize {
    attachments.iter().map(|it| 1 + prefixed(it.len())).sum()
}

/// The text. The receiver compiles it.
impl Value for ListenPattern {
    const WIRE_TYPE: WireType = WireType::Bytes;

    fn value_len(&self) -> usize {
        self.text().value_len()
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        self.text().write_value(out);
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        let text = source.text()?;
        source.context.pattern(text)
    }
}

/// The payloads of a page. An undefined one is a message without fields.
impl Field for Vec<Option<EventPayload>> {
    fn field_len(&self, number: u32) -> usize {
        let each = self.iter().map(payload_form);
        each.map(|form| present_len(&form, number)).sum()
    }

    fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        for payload in self {
            write_present(&payload_form(payload), number, out);
        }
    }

    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError> {
        let payload = match source.value(wire_type)? {
            PayloadForm {
                binary: Some(binary),
                ..
            } => Some(EventPayload::Binary(binary)),
            PayloadForm {
                json: Some(data),
                attachments: Some(attachments),
                ..
            } => {
                let attached = AttachedPayload { data, attachments };
                Some(EventPayload::Attached(Arc::new(attached)))
            }
            PayloadForm { json, .. } => json.map(EventPayload::Json),
        };
        known.get_or_insert_default().push(payload);
        Ok(())
    }

    fn finish(known: Option<Self>) -> Result<Self, DecodeError> {
        Ok(known.unwrap_or_default())
    }
}

fn payload_form(payload: &Option<EventPayload>) -> PayloadForm {
    let mut form = PayloadForm {
        json: None,
        binary: None,
        attachments: None,
    };
    match payload {
        None => {}
        Some(EventPayload::Json(data)) => form.json = Some(data.clone()),
        Some(EventPayload::Binary(binary)) => form.binary = Some(binary.clone()),
        Some(EventPayload::Attached(attached)) => {
            form.json = Some(attached.data.clone());
            form.attachments = Some(attached.attachments.clone());
        }
    }
    form
}

/// A list that may be absent, which differs from an empty one.
impl Field for Option<Vec<Name>> {
    fn field_len(&self, number: u32) -> usize {
        names_form(self).field_len(number)
    }

    fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        names_form(self).write_field(number, out);
    }

    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError> {
        let NamesForm { names } = source.value(wire_type)?;
        *known = Some(Some(names));
        Ok(())
    }

    fn finish(known: Option<Self>) -> Result<Self, DecodeError> {
        Ok(known.flatten())
    }
}

fn names_form(names: &Option<Vec<Name>>) -> Option<NamesForm> {
    let names = names.clone()?;
    Some(NamesForm { names })
}

//! The entries of the binary and the JSON form in the table of protocols.

use tidewire_core::message::{Connection, Message};

use super::json::{DeepstreamJson, JsonFields, TextError};
use super::{Deepstream, Dialect};
use crate::frame::websocket::PayloadKind;
use crate::protocol::{Codec, ForeignPayload, Introduction, Variant};

/// A client from 7.1 on, which reads PATCH_MULTI. Other clients have the first variant.
const WITH_PATCH_MULTI: Variant = Variant(1);
const VARIANTS: u8 = 2;

impl Dialect {
    fn of(variant: Variant) -> Self {
        match variant {
            WITH_PATCH_MULTI => Self::ClientWithPatchMulti,
            _ => Self::Client,
        }
    }
}

/// The features of the sender of a challenge.
fn introduction(message: &Message<'_>) -> Option<Introduction> {
    let Message::Connection(Connection::Challenge {
        sdk_version,
        batches,
        coalesces,
        ..
    }) = message
    else {
        return None;
    };
    Some(Introduction {
        variant: match Dialect::of_client(*sdk_version) {
            Dialect::ClientWithPatchMulti => WITH_PATCH_MULTI,
            Dialect::Client | Dialect::Server => Variant::default(),
        },
        reads_batches: *batches,
        coalesces: *coalesces,
    })
}

impl Codec for Deepstream {
    const NAME: &'static str = "deepstream";
    const CLIENTS: &'static str = "deepstream clients";
    const KIND: PayloadKind = PayloadKind::Binary;
    const VARIANTS: u8 = VARIANTS;
    const HAS_BATCHES: bool = true;

    /// `None` for a text message.
    type Payload<'a> = Option<&'a [u8]>;

    #[inline(always)]
    fn read(kind: PayloadKind, payload: &[u8]) -> Result<Self::Payload<'_>, ForeignPayload> {
        Ok((kind == PayloadKind::Binary).then_some(payload))
    }

    #[inline(always)]
    fn message<'p>(payload: &'p Self::Payload<'_>) -> Option<Message<'p>> {
        Self::decode((*payload)?).ok()
    }

    fn introduction(message: &Message<'_>) -> Option<Introduction> {
        introduction(message)
    }

    #[inline(always)]
    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode(Dialect::of(variant), message, out);
    }

    #[inline(always)]
    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode_frame(Dialect::of(variant), message, out);
    }

    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Self::message_bytes(batch)
    }
}

impl Codec for DeepstreamJson {
    const NAME: &'static str = "deepstream-json";
    const CLIENTS: &'static str = "clients that speak JSON";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = VARIANTS;
    const HAS_BATCHES: bool = false;

    /// `None` for JSON that is no message.
    type Payload<'a> = Option<JsonFields<'a>>;

    fn read(kind: PayloadKind, payload: &[u8]) -> Result<Self::Payload<'_>, ForeignPayload> {
        if kind == PayloadKind::Binary {
            return Err(ForeignPayload::NotText);
        }
        match JsonFields::read(payload) {
            Ok(fields) => Ok(Some(fields)),
            Err(TextError::Malformed { offset }) => {
                let format = "JSON";
                Err(ForeignPayload::Malformed { format, offset })
            }
            Err(TextError::Unreadable(_)) => Ok(None),
        }
    }

    fn message<'p>(payload: &'p Self::Payload<'_>) -> Option<Message<'p>> {
        payload.as_ref()?.message().ok()
    }

    fn introduction(message: &Message<'_>) -> Option<Introduction> {
        introduction(message)
    }

    #[inline(always)]
    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode(Dialect::of(variant), message, out);
    }

    #[inline(always)]
    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode_frame(Dialect::of(variant), message, out);
    }

    /// Each message has a frame of its own.
    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Some(batch.len())
    }
}

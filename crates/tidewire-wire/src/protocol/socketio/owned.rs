//! Packets that do not borrow from a payload: their attachments have arrived, or they were MessagePack.

use tidewire_core::attachments::{Attachment, Attachments};
use tidewire_core::message::{Auth, Backend, Message};

use super::packed::Unpacked;
use super::packet::{Packet, PacketType};
use super::{Decision, ForeignPayload, Form, application, decide, namespace, within};
use crate::protocol::{Namespace, SessionRequest};

/// A copy of a packet.
#[derive(Debug)]
pub struct OwnedPacket {
    packet_type: PacketType,
    namespace: Box<str>,
    ack: Option<Box<str>>,
    data: Option<Box<str>>,
    attachments: Option<Attachments>,
    decision: Decision<'static>,
}

impl OwnedPacket {
    /// A copy of a packet in text, with its attachments. `None` if the text is not a packet.
    pub fn attached(text: &str, attachments: Vec<Attachment>) -> Option<Box<Self>> {
        let packet = Packet::parse(text).ok()?;
        Self::of(&packet, Attachments::new(attachments), Form::Text).ok()
    }

    /// Reads a packet in MessagePack.
    pub fn unpack(bytes: &[u8]) -> Result<Box<Self>, ForeignPayload> {
        let unpacked = Unpacked::read(bytes)?;
        Self::of(
            &unpacked.packet(),
            unpacked.attachments(),
            Form::MessagePack,
        )
    }

    fn of(
        packet: &Packet<'_>,
        attachments: Option<Attachments>,
        form: Form,
    ) -> Result<Box<Self>, ForeignPayload> {
        Ok(Box::new(Self {
            packet_type: packet.packet_type,
            namespace: packet.namespace.into(),
            ack: packet.ack.map(Into::into),
            data: packet.data.map(Into::into),
            attachments,
            decision: decide(packet, form)?.into_owned(),
        }))
    }

    fn packet(&self) -> Packet<'_> {
        Packet {
            packet_type: self.packet_type,
            attachments: self.attachments.as_ref().map_or(0, Attachments::count),
            namespace: &self.namespace,
            ack: self.ack.as_deref(),
            data: self.data.as_deref(),
        }
    }

    fn namespace(&self) -> Namespace<'_> {
        namespace(&self.namespace)
    }

    fn credentials(&self) -> &str {
        self.data.as_deref().unwrap_or("{}")
    }

    /// Its message for the engine.
    pub fn message(&self) -> Option<Message<'_>> {
        match &self.decision {
            Decision::Join => Some(Message::Auth(Auth::Request {
                data: Some(self.credentials()),
            })),
            Decision::Command(command) => {
                Some(command.message(self.ack.as_deref(), self.attachments.as_ref()))
            }
            Decision::Leave | Decision::Answer(_) | Decision::NoNamespace(_) => None,
        }
    }

    /// Its request to the transport.
    pub fn session_request(&self) -> Option<SessionRequest<'_>> {
        let namespace = self.namespace();
        Some(match &self.decision {
            Decision::Join => SessionRequest::Join {
                namespace,
                credentials: self.credentials(),
            },
            Decision::Leave => SessionRequest::Leave { namespace },
            Decision::Command(_) => within(namespace)?,
            Decision::Answer(frames) => SessionRequest::Answer {
                namespace: Some(namespace),
                frames,
            },
            Decision::NoNamespace(frames) => SessionRequest::Answer {
                namespace: None,
                frames,
            },
        })
    }

    /// Its message for a backend.
    pub fn application(&self) -> Option<(Namespace<'_>, Box<Backend<'_>>)> {
        application::message(&self.packet(), self.attachments.clone())
    }
}

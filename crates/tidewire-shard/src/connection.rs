//! The state that a shard keeps for each of its connections. It is small, because every idle connection has it.

use std::sync::Arc;

use tidewire_core::effect::{CloseReason, Format};
use tidewire_wire::frame::websocket::{
    self, CloseCode, Decoder, FrameError, Opcode, PayloadKind, Role,
};
use tidewire_wire::protocol::{
    self, CloseWords, ConnectionCodec, Encoding, ForeignPayload, Introduction, Parts, Protocol,
};

use super::peer::PeerDetails;
use crate::backoff::DisconnectCause;
use crate::connection_limiter::ConnectionPermit;

/// A connection's state apart from its socket.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) decoder: Decoder,
    /// The message that has to wait.
    pub(crate) waiting: Option<Box<WaitingPayload>>,
    /// The parts of a message whose last payload has not been taken.
    pub(crate) parts: Parts,
    /// The peer of the connection, until the login.
    pub(crate) peer: Option<Arc<PeerDetails>>,
    /// Bytes posted to other shards and not handled there yet.
    pub(crate) inflight_bytes: u32,
    pub(crate) phase: Phase,
    pub(crate) pause_reasons: PauseReasons,
    pub(crate) binding: Binding,
    pub(crate) codec: ConnectionCodec,
    /// Released when the socket is closed.
    pub(crate) permit: ConnectionPermit,
}

impl State {
    pub(crate) fn new(
        peer: Arc<PeerDetails>,
        permit: ConnectionPermit,
        is_deflated: bool,
        protocol: Protocol,
    ) -> Self {
        Self {
            decoder: match is_deflated {
                true => Decoder::with_deflate(Role::Server),
                false => Decoder::new(Role::Server),
            },
            waiting: None,
            parts: Parts::default(),
            peer: Some(peer),
            inflight_bytes: 0,
            phase: Phase::Open,
            pause_reasons: PauseReasons::default(),
            binding: match (protocol.introduces(), protocol.has_namespaces()) {
                (true, _) => Binding::New,
                (false, false) => Binding::Introduced,
                (false, true) => Binding::Apart,
            },
            codec: ConnectionCodec::new(protocol),
            permit,
        }
    }

    /// The format for a peer that introduces itself so.
    pub(crate) fn format(&self, introduction: Introduction) -> Format {
        let protocol = self.codec.protocol();
        let encoding = Encoding {
            variant: introduction.variant,
            is_batched: introduction.reads_batches && protocol.has_batches(),
            ..Encoding::first(protocol, self.decoder.has_deflate())
        };
        Format(encoding.id())
    }
}

/// The payload of a message that has to wait.
#[derive(Debug)]
pub(crate) struct WaitingPayload {
    pub(crate) kind: PayloadKind,
    pub(crate) bytes: Box<[u8]>,
}

/// How a connection is bound to its session. One byte and one comparison for each message, because most connections are introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The peer has not introduced itself.
    New,
    /// The peer has introduced itself. Its format is fixed.
    Introduced,
    /// The same as `New` for a session that outlives the connection.
    NewKept,
    /// The same as `Introduced` for such a session, or the connection resumes one.
    Kept,
    /// The peer has introduced itself, but the main session of the connection is not open, or has another slot. `conductor/namespaces.rs`
    /// knows which.
    Apart,
    /// The same for sessions that outlive the connection.
    KeptApart,
}

impl Binding {
    /// Whether the session outlives the connection.
    pub(crate) fn is_kept(self) -> bool {
        matches!(self, Self::NewKept | Self::Kept | Self::KeptApart)
    }

    /// Whether the peer has introduced itself.
    pub(crate) fn is_introduced(self) -> bool {
        !matches!(self, Self::New | Self::NewKept)
    }

    /// Whether the main session is not open, or has another slot.
    pub(crate) fn is_apart(self) -> bool {
        matches!(self, Self::Apart | Self::KeptApart)
    }

    /// Notes whether the main session is not open, or has another slot.
    pub(crate) fn set_apart(&mut self, is_apart: bool) {
        *self = match (self.is_kept(), is_apart) {
            (false, false) => Self::Introduced,
            (false, true) => Self::Apart,
            (true, false) => Self::Kept,
            (true, true) => Self::KeptApart,
        };
    }

    /// Notes that the session outlives the connection.
    pub(crate) fn keep(&mut self) {
        *self = match self {
            Self::New | Self::NewKept => Self::NewKept,
            Self::Introduced | Self::Kept => Self::Kept,
            Self::Apart | Self::KeptApart => Self::KeptApart,
        };
    }

    /// Notes that the peer has introduced itself.
    pub(crate) fn introduce(&mut self) {
        *self = match self.is_kept() {
            true => Self::Kept,
            false => Self::Introduced,
        };
    }
}

/// The progress of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Messages are handled.
    Open,
    /// It ends with the turn: the shard sends the decided messages, then the close frame.
    Closing,
    /// The engine no longer knows it. The shard discards the bytes that the peer still sends, until the peer closes, too.
    Lingering,
}

/// The reasons not to read a connection. It is read when no reason is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PauseReasons(u8);

impl PauseReasons {
    /// A message has to wait.
    pub(crate) const WAITING: Self = Self(1);
    /// Too many bytes are in flight.
    pub(crate) const CREDIT: Self = Self(2);
    /// The connection is closing.
    pub(crate) const CLOSING: Self = Self(4);
    /// The server drains.
    pub(crate) const DRAIN: Self = Self(8);
    /// Its last message goes to a congested shard.
    pub(crate) const CONGESTION: Self = Self(16);
    /// Its session changes its transport.
    pub(crate) const TRANSPORT: Self = Self(32);

    /// The reasons that end without the peer.
    pub(crate) const HELD: Self = Self(1 | 2 | 16 | 32);

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// Why a connection is closed by a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCause {
    /// The peer sent a close frame. Its code is sent back.
    Peer(Option<CloseCode>),
    /// The peer broke the protocol of frames.
    Frame(FrameError),
    /// The peer does not speak the protocol of its path.
    Foreign(ForeignPayload),
    /// The engine closes it.
    Engine(CloseReason),
    /// The same for a session that must not get its unsent messages. It gets no last message either.
    Severed(CloseReason),
    /// The peer has confirmed more messages than it was sent.
    Confirmation,
    /// The node holds too much memory, and this session most of it.
    Memory,
    /// The server stops.
    GoingAway,
    /// An operator closes it.
    Operator,
}

impl CloseCause {
    /// The last message and the close frame, in the words of the protocol and the variant of the connection's main session.
    pub(crate) fn frame(self, codec: &ConnectionCodec) -> Vec<u8> {
        let protocol = codec.protocol();
        let words = |cause| {
            let CloseWords { code, text } = protocol.close_words(cause);
            websocket::close_payload(code, &text)
        };
        let payload = match self {
            Self::Peer(None) => Vec::new(),
            Self::Peer(Some(code)) => websocket::close_payload(code, ""),
            Self::Frame(error) => words(protocol::CloseCause::Frame(error)),
            Self::Foreign(foreign) => words(protocol::CloseCause::Foreign(foreign)),
            Self::Engine(reason) | Self::Severed(reason) => {
                words(protocol::CloseCause::Engine(reason))
            }
            Self::Confirmation => words(protocol::CloseCause::Confirmation),
            Self::Memory => words(protocol::CloseCause::Memory),
            Self::GoingAway => words(protocol::CloseCause::GoingAway),
            Self::Operator => words(protocol::CloseCause::Operator),
        };
        let mut frame = Vec::new();
        if let Self::Engine(reason) = self {
            let encoding = Encoding {
                variant: codec.variant(),
                ..Encoding::first(protocol, false)
            };
            for message in reason.close_messages() {
                encoding.encode_frame(message, &mut frame);
            }
        }
        websocket::encode(Opcode::Close, &payload, &mut frame);
        frame
    }

    /// Whether a client that is closed for this reason has to wait before its next login or connection is answered.
    pub(crate) fn cause(self) -> Option<DisconnectCause> {
        match self {
            Self::Frame(_)
            | Self::Foreign(_)
            | Self::Confirmation
            | Self::Engine(CloseReason::InvalidLogin | CloseReason::TooManyAuthAttempts) => {
                Some(DisconnectCause::Fault)
            }
            // A silent peer may have a broken line, and a record that can't be read is the server's fault. A client that is refused for
            // good, or that has not logged in in time, does not come back. So a delay would affect the next client behind the same
            // address.
            Self::Engine(
                CloseReason::AuthenticationTimeout
                | CloseReason::Barred
                | CloseReason::AuthUnavailable
                | CloseReason::Expired
                | CloseReason::Revoked
                | CloseReason::Silent
                | CloseReason::Refused
                | CloseReason::NotCaughtUp
                | CloseReason::DetachedTooLong
                | CloseReason::LoggedOut
                | CloseReason::NoBackend
                | CloseReason::Dismissed
                | CloseReason::Disconnected,
            )
            | Self::Severed(_)
            | Self::Peer(_)
            // Its back-off depends on its memory use.
            | Self::Memory
            | Self::GoingAway
            | Self::Operator => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_connection_stays_small() {
        assert!(size_of::<State>() <= 80, "{}", size_of::<State>());
    }

    #[test]
    fn a_close_message_is_sent_before_the_close_frame() {
        // Peers without a login have no message about it.
        let all = Protocol::ALL.iter().filter(|it| it.opens().is_none());
        for protocol in all {
            let codec = ConnectionCodec::new(*protocol);
            let frame = CloseCause::Engine(CloseReason::Revoked).frame(&codec);
            let mut close_message = Vec::new();
            for message in CloseReason::Revoked.close_messages() {
                Encoding::first(*protocol, false).encode_frame(message, &mut close_message);
            }
            assert!(!close_message.is_empty() && frame.starts_with(&close_message));
            assert_eq!(frame[close_message.len()], 0x88);
            let severed = CloseCause::Severed(CloseReason::Revoked);
            assert_eq!(severed.frame(&codec)[0], 0x88);
        }
    }

    #[test]
    fn a_goodbye_is_repeated() {
        let codec = ConnectionCodec::new(Protocol::ALL[0]);
        assert_eq!(CloseCause::Peer(None).frame(&codec), [0x88, 0]);
        assert_eq!(
            CloseCause::Peer(Some(CloseCode::NORMAL)).frame(&codec),
            [0x88, 2, 0x03, 0xE8]
        );
        assert_eq!(
            CloseCause::Frame(FrameError::TooBig).frame(&codec)[2..4],
            1009u16.to_be_bytes()
        );
    }
}

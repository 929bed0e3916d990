//! Protocols: the meaning of the bytes of one frame. Each protocol is a folder here with a [`Codec`], a line in [`Protocol`], and a page in
//! `spec/`. It translates to and from [`tidewire_core::message::Message`], and declares its paths, handshake, liveness and close frames.
//! Code outside this crate uses [`Protocol`], [`ConnectionCodec`] and [`Encoding`], and names no protocol.

mod close;
pub mod encoding;
mod handshake;
mod parts;
mod session;

use std::fmt::Debug;

use thiserror::Error;
use tidewire_core::message::{Backend, Message};
use tidewire_core::settings::Liveness;

use crate::frame::websocket::{CloseCode, Opcode, PayloadKind};

pub use close::{CloseCause, CloseWords};
pub use encoding::Encoding;
pub use handshake::{ExchangeRefusal, Handshake, HandshakeRefusal, HandshakeRequest, Terms};
pub use parts::{Part, Parts};
pub use session::{
    Namespace, NamespaceRefusal, NamespaceReply, ResumeRefusal, SessionReply, SessionRequest,
};

/// A form of a protocol's messages, chosen by what the peer's library reads. Each protocol numbers its own from 0, which is the form for
/// peers that have not introduced themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant(pub u8);

/// The features that a peer has announced in its first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The form of messages that it reads.
    pub variant: Variant,
    /// Whether it reads frames with several messages.
    pub reads_batches: bool,
    /// Whether it accepts the newest value of a record instead of each change if it lags.
    pub coalesces: bool,
}

/// Why a payload shows that the peer does not speak the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ForeignPayload {
    /// The protocol has text messages, and this one is binary.
    #[error("this path takes text messages")]
    NotText,
    /// It breaks a rule about the order of messages, or about the side that may send them.
    #[error("{0}")]
    Violation(&'static str),
    /// It can't be parsed.
    #[error("malformed {format} at byte {offset}")]
    Malformed {
        /// The format of the protocol's messages.
        format: &'static str,
        /// The first byte that can't continue the payload; its length if it is incomplete.
        offset: usize,
    },
}

impl ForeignPayload {
    /// The code of the close frame.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::NotText => CloseCode::UNSUPPORTED,
            Self::Violation(_) => CloseCode::POLICY,
            Self::Malformed { .. } => CloseCode::INVALID_PAYLOAD,
        }
    }
}

/// The paths on which the server accepts the WebSockets of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// The paths in an option of the configuration, such as `network.paths`.
    Option(&'static str),
    /// These.
    Fixed(&'static [&'static str]),
}

/// A protocol whose payloads are messages. A value of [`Codec::State`] belongs to one connection.
pub trait Codec {
    /// The protocol's name in the log, the metrics and the admin page.
    const NAME: &'static str;
    /// The clients that speak it, in a text such as "WebSockets for CLIENTS".
    const CLIENTS: &'static str;
    /// The kind of the server's WebSocket messages.
    const KIND: PayloadKind;
    /// The number of its variants.
    const VARIANTS: u8;
    /// Whether a frame may have several messages, one behind the other. [`Codec::first_bytes`] finds their ends.
    const HAS_BATCHES: bool;
    /// The paths of its WebSockets.
    const PATHS: Paths;
    /// The WebSocket subprotocols of which a client must offer one. If it is empty, the handshake negotiates none.
    const SUBPROTOCOLS: &'static [&'static str];
    /// Which side pings.
    const LIVENESS: Liveness;
    /// Whether a peer introduces itself before its login. The default is for protocols whose peers log in with their first message.
    const INTRODUCES: bool = false;
    /// Whether the handshake may agree on compression. A protocol that writes several frames for a message has none.
    const COMPRESSES: bool = true;
    /// The protocol of the connections that are to become the transport of a session, if it is another one with the same form of the change.
    const SWITCHES_AS: Option<Protocol> = None;
    /// The namespace in which a connection has a session from its beginning, which a backend serves. The protocol has no paths if no backend
    /// serves it. The default is for protocols whose peers log in.
    const OPENS: Option<&'static str> = None;

    /// The name of the protocol in the admin page for sessions of exchanges. The default is for protocols without them.
    const EXCHANGE_NAME: &'static str = Self::NAME;

    /// The facts about earlier messages of a connection that the meaning of its next one depends on. Each idle connection has one, so it is
    /// small; without such facts it is `()`, which costs a connection no byte.
    type State: Debug + Default;

    /// A payload that was checked, with the texts that had to be unescaped for its message.
    type Payload<'a>;

    /// The purpose of a request for one of the paths. The default is for protocols without rules about requests, which have no sessions of
    /// exchanges.
    ///
    /// # Errors
    /// The answer to a request that has none.
    fn handshake<'a>(_request: &HandshakeRequest<'a>) -> Result<Handshake<'a>, HandshakeRefusal> {
        Ok(Handshake::WebSocket)
    }

    /// The answer to a request that the server refuses for this reason; `None` if the protocol has no answer for it.
    fn exchange_refusal(_refusal: ExchangeRefusal, _is_upgrade: bool) -> Option<HandshakeRefusal> {
        None
    }

    /// Appends the frames that a new session of exchanges begins with. `token` names it in later requests.
    fn greet_exchange(_terms: &Terms, _token: &str, _out: &mut Vec<u8>) {}

    /// The state of a connection that is to become the transport of a session of exchanges.
    fn switching_state() -> Self::State {
        Self::State::default()
    }

    /// Appends the first messages of a request's body as frames of a client, at least one of them, and not many more than `bytes_max` bytes.
    /// Returns the bytes of the body behind which the next call continues.
    ///
    /// # Errors
    /// The body is not a list of messages.
    fn exchange_input(
        _body: &[u8],
        _bytes_max: usize,
        _out: &mut Vec<u8>,
    ) -> Result<usize, ForeignPayload> {
        Err(ForeignPayload::Violation("the protocol has no exchanges"))
    }

    /// Appends frames of the server as the body of an answer. Without frames it is the body that ends a poll without a message. `is_late`
    /// if the session has ended before the request.
    fn exchange_output(_frames: &[u8], _is_late: bool, _out: &mut Vec<u8>) {}

    /// Appends the frames that a new peer gets before it has sent anything. The default is for protocols whose peers begin.
    fn greet(_terms: &Terms, _out: &mut Vec<u8>) {}

    /// Reads a payload. If its message has to wait, the same payload is read again later, before any other.
    ///
    /// # Errors
    /// The peer does not speak the protocol, and its connection is closed.
    fn read<'a>(
        state: &Self::State,
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Self::Payload<'a>, ForeignPayload>;

    /// Reads a payload behind the parts of an unfinished message. The default is for protocols whose messages are one payload each.
    ///
    /// # Errors
    /// As for [`Codec::read`].
    #[inline(always)]
    fn read_behind<'a>(
        _parts: &Parts,
        state: &Self::State,
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Self::Payload<'a>, ForeignPayload> {
        Self::read(state, kind, payload)
    }

    /// The effect of a payload on the parts. A payload that is a part, but not the last one, has no message for the engine yet.
    #[inline(always)]
    fn part<'p>(_payload: &'p Self::Payload<'_>) -> Option<Part<'p>> {
        None
    }

    /// Notes that the engine has taken the message of a payload. It is called once for each message, before the next payload is read.
    #[inline(always)]
    fn advance(_state: &mut Self::State, _payload: &Self::Payload<'_>) {}

    /// The variant of the main session of a connection in this state. The default is for protocols whose peers introduce themselves, or have
    /// one variant.
    fn variant(_state: &Self::State) -> Variant {
        Variant::default()
    }

    /// The same behind a payload, whose message the engine has not taken yet.
    fn next_variant(_payload: &Self::Payload<'_>) -> Variant {
        Variant::default()
    }

    /// The variant of the sessions with a name, on a connection whose main session has this one, if a connection may have several sessions
    /// ([`Namespace`]). Theirs is the same for itself. The main session has another one, and shows whether the peer is alive.
    fn namespaced(_variant: Variant) -> Option<Variant> {
        None
    }

    /// The message of a payload. `None` if it has none: that gets the answer of an unknown topic, and the session stays open. Unknown kinds
    /// of messages are messages.
    fn message<'p>(payload: &'p Self::Payload<'_>) -> Option<Message<'p>>;

    /// The request to the transport that a payload makes. Such a payload has no message for the engine. The default is for protocols whose
    /// sessions end with their connections.
    #[inline(always)]
    fn session_request<'p>(_payload: &'p Self::Payload<'_>) -> Option<SessionRequest<'p>> {
        None
    }

    /// The message of a payload for the backend of its session, and the namespace of the session. It counts instead of the message and
    /// the request of the payload, if backends serve the namespace. The default is for protocols whose connections have one session.
    #[inline(always)]
    fn application<'p>(
        _payload: &'p Self::Payload<'_>,
    ) -> Option<(Namespace<'p>, Box<Backend<'p>>)> {
        None
    }

    /// Appends a reply to such a request as a server's WebSocket frame.
    fn encode_session_reply(_variant: Variant, _reply: SessionReply<'_>, _out: &mut Vec<u8>) {}

    /// Appends a message about the session of a namespace as a server's WebSocket frame. The default, as the next one, is for protocols whose
    /// connections have one session.
    fn encode_namespace_reply(_variant: Variant, _reply: NamespaceReply<'_>, _out: &mut Vec<u8>) {}

    /// Appends frames of a variant of [`Codec::namespaced`] in the form that names the session of the namespace.
    fn put_in_namespace(_variant: Variant, _namespace: &str, _frames: &[u8], _out: &mut Vec<u8>) {}

    /// The features that `message` announces, if it is the message with which peers introduce themselves.
    fn introduction(_message: &Message<'_>) -> Option<Introduction> {
        None
    }

    /// Appends `message` as a payload. Called once per encoding, not once per recipient.
    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>);

    /// Appends `message` as a server's WebSocket frame, as it goes to the turn log.
    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>);

    /// Bytes of the first message of a batch; `None` if it is incomplete.
    fn first_bytes(batch: &[u8]) -> Option<usize>;

    /// The content of the close frame.
    fn close_words(cause: CloseCause) -> CloseWords;
}

/// Declares the folders and the enum of the protocols, and passes each call to the protocol's codec.
macro_rules! protocols {
    ($($(#[$about:meta])* $protocol:ident: $codec:ty $(, in folder $folder:ident)?;)+) => {
        $($(pub mod $folder;)?)+

        /// The protocols that a connection can speak.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Protocol {
            $($(#[$about])* $protocol,)+
        }

        /// A payload that was read.
        #[derive(Debug)]
        pub enum Payload<'a> {
            $(#[doc = "Of the protocol with this name."] $protocol(<$codec as Codec>::Payload<'a>),)+
        }

        impl Payload<'_> {
            /// See [`Codec::session_request`].
            #[must_use]
            #[inline(always)]
            pub fn session_request(&self) -> Option<SessionRequest<'_>> {
                match self { $(Self::$protocol(payload) => <$codec as Codec>::session_request(payload),)+ }
            }

            /// See [`Codec::application`].
            #[must_use]
            pub fn application(&self) -> Option<(Namespace<'_>, Box<Backend<'_>>)> {
                match self { $(Self::$protocol(payload) => <$codec as Codec>::application(payload),)+ }
            }

            /// See [`Codec::next_variant`].
            #[must_use]
            pub fn next_variant(&self) -> Variant {
                match self { $(Self::$protocol(payload) => <$codec as Codec>::next_variant(payload),)+ }
            }

            /// Whether the message of this payload is not complete yet.
            #[must_use]
            #[inline(always)]
            pub fn is_unfinished(&self) -> bool {
                match self {
                    $(Self::$protocol(payload) => {
                        matches!(<$codec as Codec>::part(payload), Some(Part::Text(_) | Part::Attachment(_)))
                    })+
                }
            }

            /// Its message; `None` if it has none, which gets the answer of an unknown topic.
            #[must_use]
            #[inline(always)]
            pub fn message(&self) -> Option<Message<'_>> {
                match self { $(Self::$protocol(payload) => <$codec as Codec>::message(payload),)+ }
            }
        }

        /// The codec of one connection, with its state.
        #[derive(Debug)]
        pub enum ConnectionCodec {
            $(#[doc = "Of the protocol with this name."] $protocol(<$codec as Codec>::State),)+
        }

        impl ConnectionCodec {
            /// The codec of a new connection.
            #[must_use]
            pub fn new(protocol: Protocol) -> Self {
                match protocol { $(Protocol::$protocol => Self::$protocol(Default::default()),)+ }
            }

            /// The codec of a connection that is to become the transport of a session of exchanges.
            #[must_use]
            pub fn switching(protocol: Protocol) -> Self {
                match protocol {
                    $(Protocol::$protocol => match <$codec as Codec>::SWITCHES_AS {
                        Some(other) => Self::switching(other),
                        None => Self::$protocol(<$codec as Codec>::switching_state()),
                    },)+
                }
            }

            /// Its protocol.
            #[must_use]
            #[inline(always)]
            pub const fn protocol(&self) -> Protocol {
                match self { $(Self::$protocol(_) => Protocol::$protocol,)+ }
            }

            /// See [`Codec::variant`].
            #[must_use]
            pub fn variant(&self) -> Variant {
                match self { $(Self::$protocol(state) => <$codec as Codec>::variant(state),)+ }
            }

            /// Reads a payload, whose message is [`Payload::message`]. If that has to wait, the same payload is read again later. `parts` are
            /// the earlier payloads of its message.
            ///
            /// # Errors
            /// The peer does not speak the protocol, and its connection is closed.
            #[inline(always)]
            pub fn read<'a>(
                &self,
                parts: &Parts,
                kind: PayloadKind,
                payload: &'a [u8],
            ) -> Result<Payload<'a>, ForeignPayload> {
                Ok(match self {
                    $(Self::$protocol(state) => {
                        Payload::$protocol(<$codec as Codec>::read_behind(parts, state, kind, payload)?)
                    })+
                })
            }

            /// Notes that the engine has taken the message of a payload, or that the message is not complete yet.
            #[inline(always)]
            pub fn advance(&mut self, parts: &mut Parts, payload: &Payload<'_>) {
                match (self, payload) {
                    $((Self::$protocol(state), Payload::$protocol(payload)) => {
                        <$codec as Codec>::advance(state, payload);
                        if let Some(part) = <$codec as Codec>::part(payload) {
                            parts.apply(part);
                        }
                    })+
                    _ => debug_assert!(false, "a connection reads payloads of one protocol"),
                }
            }
        }

        impl Protocol {
            /// All protocols.
            pub const ALL: &[Self] = &[$(Self::$protocol),+];

            /// Its name in the log, the metrics and the admin page.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$protocol => <$codec as Codec>::NAME,)+ }
            }

            /// See [`Codec::EXCHANGE_NAME`].
            #[must_use]
            pub const fn exchange_name(self) -> &'static str {
                match self { $(Self::$protocol => <$codec as Codec>::EXCHANGE_NAME,)+ }
            }

            /// The clients that speak it.
            #[must_use]
            pub const fn clients(self) -> &'static str {
                match self { $(Self::$protocol => <$codec as Codec>::CLIENTS,)+ }
            }

            /// The kind of the server's WebSocket messages.
            #[must_use]
            pub const fn kind(self) -> PayloadKind {
                match self { $(Self::$protocol => <$codec as Codec>::KIND,)+ }
            }

            /// The number of its variants.
            #[must_use]
            pub const fn variants(self) -> u8 {
                match self { $(Self::$protocol => <$codec as Codec>::VARIANTS,)+ }
            }

            /// Whether a frame may have several messages.
            #[must_use]
            pub const fn has_batches(self) -> bool {
                match self { $(Self::$protocol => <$codec as Codec>::HAS_BATCHES,)+ }
            }

            /// The paths of its WebSockets.
            #[must_use]
            pub const fn paths(self) -> Paths {
                match self { $(Self::$protocol => <$codec as Codec>::PATHS,)+ }
            }

            /// The WebSocket subprotocols of which a client must offer one. If it is empty, the handshake negotiates none.
            #[must_use]
            pub const fn subprotocols(self) -> &'static [&'static str] {
                match self { $(Self::$protocol => <$codec as Codec>::SUBPROTOCOLS,)+ }
            }

            /// Which side pings.
            #[must_use]
            pub const fn liveness(self) -> Liveness {
                match self { $(Self::$protocol => <$codec as Codec>::LIVENESS,)+ }
            }

            /// See [`Codec::namespaced`].
            #[must_use]
            pub fn namespaced(self, variant: Variant) -> Option<Variant> {
                match self { $(Self::$protocol => <$codec as Codec>::namespaced(variant),)+ }
            }

            /// See [`Codec::OPENS`].
            #[must_use]
            pub const fn opens(self) -> Option<&'static str> {
                match self { $(Self::$protocol => <$codec as Codec>::OPENS,)+ }
            }

            /// Whether a peer introduces itself before its login.
            #[must_use]
            pub const fn introduces(self) -> bool {
                match self { $(Self::$protocol => <$codec as Codec>::INTRODUCES,)+ }
            }

            /// Whether the handshake may agree on compression.
            #[must_use]
            pub const fn compresses(self) -> bool {
                match self { $(Self::$protocol => <$codec as Codec>::COMPRESSES,)+ }
            }

            /// The purpose of a request for one of its paths.
            ///
            /// # Errors
            /// The answer to a request that has none.
            pub fn handshake<'a>(self, request: &HandshakeRequest<'a>) -> Result<Handshake<'a>, HandshakeRefusal> {
                match self { $(Self::$protocol => <$codec as Codec>::handshake(request),)+ }
            }

            /// See [`Codec::exchange_refusal`].
            #[must_use]
            pub fn exchange_refusal(self, refusal: ExchangeRefusal, is_upgrade: bool) -> Option<HandshakeRefusal> {
                match self { $(Self::$protocol => <$codec as Codec>::exchange_refusal(refusal, is_upgrade),)+ }
            }

            /// See [`Codec::greet_exchange`].
            pub fn greet_exchange(self, terms: &Terms, token: &str, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::greet_exchange(terms, token, out),)+ }
            }

            /// Appends the first messages of a request's body as frames of a client, at least one of them, and not many more than `bytes_max`
            /// bytes. Returns the bytes of the body behind which the next call continues.
            ///
            /// # Errors
            /// The body is not a list of messages.
            pub fn exchange_input(self, body: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<usize, ForeignPayload> {
                match self { $(Self::$protocol => <$codec as Codec>::exchange_input(body, bytes_max, out),)+ }
            }

            /// See [`Codec::exchange_output`].
            pub fn exchange_output(self, frames: &[u8], is_late: bool, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::exchange_output(frames, is_late, out),)+ }
            }

            /// See [`Codec::greet`].
            pub fn greet(self, terms: &Terms, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::greet(terms, out),)+ }
            }

            /// The content of the close frame.
            #[must_use]
            pub fn close_words(self, cause: CloseCause) -> CloseWords {
                match self { $(Self::$protocol => <$codec as Codec>::close_words(cause),)+ }
            }

            /// See [`Codec::encode_session_reply`].
            pub fn encode_session_reply(self, variant: Variant, reply: SessionReply<'_>, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::encode_session_reply(variant, reply, out),)+ }
            }

            /// See [`Codec::encode_namespace_reply`].
            pub fn encode_namespace_reply(self, variant: Variant, reply: NamespaceReply<'_>, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::encode_namespace_reply(variant, reply, out),)+ }
            }

            /// See [`Codec::put_in_namespace`].
            pub fn put_in_namespace(self, variant: Variant, namespace: &str, frames: &[u8], out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::put_in_namespace(variant, namespace, frames, out),)+ }
            }

            /// See [`Codec::introduction`].
            #[must_use]
            #[inline(always)]
            pub fn introduction(self, message: &Message<'_>) -> Option<Introduction> {
                match self { $(Self::$protocol => <$codec as Codec>::introduction(message),)+ }
            }

            #[inline(always)]
            fn encode(self, variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::encode(variant, message, out),)+ }
            }

            #[inline(always)]
            fn encode_frame(self, variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
                match self { $(Self::$protocol => <$codec as Codec>::encode_frame(variant, message, out),)+ }
            }

            #[inline(always)]
            fn first_bytes(self, batch: &[u8]) -> Option<usize> {
                match self { $(Self::$protocol => <$codec as Codec>::first_bytes(batch),)+ }
            }
        }
    };
}

protocols! {
    /// `spec/deepstream.md`.
    Deepstream: deepstream::Deepstream, in folder deepstream;
    /// `spec/deepstream-json.md`.
    DeepstreamJson: deepstream::json::DeepstreamJson;
    /// `docs/socketio.md`.
    SocketIo: socketio::SocketIo, in folder socketio;
    /// `docs/socketio.md`.
    EngineIo: socketio::bare::EngineIo;
}

impl Protocol {
    /// Whether a connection may have several sessions.
    #[must_use]
    pub fn has_namespaces(self) -> bool {
        self.namespaced(Variant::default()).is_some()
    }

    /// The liveness of the sessions of a variant. The main session of a connection pings for those with a name.
    #[must_use]
    pub fn liveness_of(self, variant: Variant) -> Liveness {
        match self.namespaced(variant) == Some(variant) {
            true => Liveness::Unchecked,
            false => self.liveness(),
        }
    }

    /// The opcode of the server's WebSocket messages.
    #[must_use]
    pub const fn opcode(self) -> Opcode {
        match self.kind() {
            PayloadKind::Text => Opcode::Text,
            PayloadKind::Binary => Opcode::Binary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codec_of_a_connection_without_state_costs_no_byte() {
        assert_eq!(size_of::<ConnectionCodec>(), size_of::<Protocol>());
    }

    /// Each payload is moved several times, so one protocol must not enlarge the payloads of the others.
    #[test]
    fn a_payload_stays_small() {
        assert!(
            size_of::<Payload<'_>>() <= 96,
            "{}",
            size_of::<Payload<'_>>()
        );
    }
}

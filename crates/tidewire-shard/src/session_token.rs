//! The token of a session that outlives its connection: it names the session and proves the right to resume it.

use std::fmt;
use std::hash::Hasher;
use std::str;

use siphasher::sip128::{Hasher128, SipHasher24};
use tidewire_core::address::{Address, SessionId};
use tidewire_core::slot::ClusterKey;
use tidewire_wire::protocol::{Namespace, SessionRequest};

/// Bytes that a stranger has to guess.
const SECRET_BYTES: usize = 16;

/// Digits of the text: node and shard in 4 each, index and generation in 8 each, then the secret.
const TEXT_LEN: usize = ID_LEN + 2 * SECRET_BYTES;
const ID_LEN: usize = 24;

/// The key with which the shards of a node make and check the secrets of sessions. A shard refuses an invented token without asking the shard
/// that the token names.
#[derive(Clone, Copy)]
pub(crate) struct TokenKey([u8; 16]);

impl TokenKey {
    /// The key of one run of a node. A later run uses the same ids for other sessions, so `seed` must be new for each run.
    pub(crate) fn new(key: &ClusterKey, seed: u64) -> Self {
        let mut hasher = SipHasher24::new_with_key(&key.0);
        hasher.write(b"session tokens");
        hasher.write_u64(seed);
        Self(hasher.finish128().as_bytes())
    }

    /// The token of a session.
    pub(crate) fn token(self, session: SessionId) -> SessionToken {
        let SessionId {
            address,
            index,
            generation,
        } = session;
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // The key is another one in each run of a node, so the node is not needed.
        hasher.write_u16(address.shard);
        hasher.write_u32(index);
        hasher.write_u32(generation);
        let secret = SessionSecret(hasher.finish128().as_bytes());
        SessionToken { session, secret }
    }

    /// Whether this node has made the token.
    pub(crate) fn has_made(self, token: &SessionToken) -> bool {
        self.token(token.session).secret.is(&token.secret)
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

/// The secret of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionSecret([u8; SECRET_BYTES]);

impl SessionSecret {
    /// The secret that another node has passed on.
    pub(crate) fn of(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> [u8; SECRET_BYTES] {
        self.0
    }

    /// Compares all bytes, so that the time does not depend on how many of a guess are right.
    fn is(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).map(|(one, two)| one ^ two);
        differences.fold(0, |all, difference| all | difference) == 0
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

/// A token, as its peer keeps it. Its text has 56 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionToken {
    pub(crate) session: SessionId,
    pub(crate) secret: SessionSecret,
}

impl SessionToken {
    /// Parses the text of a token. Only the shard that it names can check whether it is right.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        // A sign is not a digit, but the parser of numbers accepts one.
        if digits.len() != TEXT_LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let number = |digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let mut secret = [0; SECRET_BYTES];
        for (byte, digits) in secret.iter_mut().zip(digits[ID_LEN..].chunks(2)) {
            *byte = number(digits)? as u8;
        }
        Some(Self {
            session: SessionId {
                address: Address {
                    node: number(&digits[..4])? as u16,
                    shard: number(&digits[4..8])? as u16,
                },
                index: number(&digits[8..16])?,
                generation: number(&digits[16..ID_LEN])?,
            },
            secret: SessionSecret(secret),
        })
    }

    /// The node of the session.
    #[must_use]
    pub fn node(&self) -> u16 {
        self.session.address.node
    }

    /// The shard of the session at its node.
    #[must_use]
    pub fn shard(&self) -> u16 {
        self.session.address.shard
    }
}

impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionId {
            address,
            index,
            generation,
        } = self.session;
        let Address { node, shard } = address;
        write!(f, "{node:04x}{shard:04x}{index:08x}{generation:08x}")?;
        self.secret
            .0
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A [`SessionRequest`] that owns its token; `None` if the token is malformed.
#[derive(Debug)]
pub(crate) enum OwnedSessionRequest {
    Keep,
    Resume {
        token: Option<SessionToken>,
        received: u64,
    },
    Confirm {
        received: u64,
    },
    Join {
        namespace: Box<str>,
        credentials: Box<str>,
    },
    /// Without a name it is the main session.
    Leave {
        namespace: Option<Box<str>>,
    },
    Answer {
        frames: Box<[u8]>,
    },
    Close,
    Probe {
        frames: Box<[u8]>,
    },
    Switch,
}

impl OwnedSessionRequest {
    /// `None` if the request is done when the engine has taken its message.
    pub(crate) fn of(
        request: SessionRequest<'_>,
        is_backed: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        Some(match request {
            SessionRequest::Join {
                namespace: Namespace::Main,
                credentials,
            } if is_backed(Namespace::Main.name()) => Self::Join {
                namespace: Namespace::Main.name().into(),
                credentials: credentials.into(),
            },
            SessionRequest::Within { .. }
            | SessionRequest::Join {
                namespace: Namespace::Main,
                ..
            } => return None,
            SessionRequest::Join {
                namespace: Namespace::Named(namespace),
                credentials,
            } => Self::Join {
                namespace: namespace.into(),
                credentials: credentials.into(),
            },
            SessionRequest::Leave { namespace } => Self::Leave {
                namespace: match namespace {
                    Namespace::Main => None,
                    Namespace::Named(namespace) => Some(namespace.into()),
                },
            },
            SessionRequest::Keep => Self::Keep,
            SessionRequest::Resume { token, received } => Self::Resume {
                token: SessionToken::parse(token),
                received,
            },
            SessionRequest::Confirm { received } => Self::Confirm { received },
            SessionRequest::Answer { frames, .. } => Self::Answer {
                frames: frames.into(),
            },
            SessionRequest::Close => Self::Close,
            SessionRequest::Probe { frames } => Self::Probe {
                frames: frames.into(),
            },
            SessionRequest::Switch => Self::Switch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId {
        address: Address {
            node: 513,
            shard: 258,
        },
        index: u32::MAX,
        generation: 7,
    };

    fn key(seed: u64) -> TokenKey {
        TokenKey::new(&ClusterKey([1; 16]), seed)
    }

    #[test]
    fn a_token_is_read_as_it_was_written_and_nothing_else_is() {
        let token = key(1).token(SESSION);
        let text = token.to_string();
        assert_eq!(SessionToken::parse(&text), Some(token));
        let signed = text.replacen(|_: char| true, "+", 1);
        let (long, wide) = (format!("{text}0"), "é".repeat(26));
        for wrong in [
            "",
            "ä",
            &text[1..],
            long.as_str(),
            signed.as_str(),
            wide.as_str(),
        ] {
            assert_eq!(SessionToken::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_proves_only_its_own_session_in_its_own_run() {
        let token = key(1).token(SESSION);
        assert!(key(1).has_made(&token));
        assert!(!key(2).has_made(&token));
        assert!(!TokenKey::new(&ClusterKey([2; 16]), 1).has_made(&token));
        let others = [
            SessionId {
                index: 1,
                ..SESSION
            },
            SessionId {
                generation: 8,
                ..SESSION
            },
            SessionId {
                address: Address { node: 0, shard: 1 },
                ..SESSION
            },
        ];
        for session in others {
            let moved = SessionToken { session, ..token };
            assert!(!key(1).has_made(&moved), "{session:?}");
        }
    }

    #[test]
    fn secrets_and_keys_are_not_shown() {
        let shown = format!("{:?} {:?}", key(1), key(1).token(SESSION).secret);
        assert_eq!(shown, "TokenKey(..) SessionSecret(..)");
    }
}

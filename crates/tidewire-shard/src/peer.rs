//! Details of a peer that its request gives, before any message.

use std::net::SocketAddr;
use std::sync::Arc;

/// Details of a peer apart from its messages. The shard keeps them until the peer is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDetails {
    /// The address of the peer: the address of its socket, or the address that a trusted proxy reports.
    pub address: SocketAddr,
    /// Its request.
    pub request: RequestDetails,
    /// The headers of its request, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The certificate that the peer has presented.
    pub certificate: Option<ClientCertificate>,
}

/// The request of a peer apart from its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestDetails {
    /// Its path and query.
    pub target: Box<str>,
    /// Whether it came over TLS. A proxy in front of the server may have removed that.
    pub is_encrypted: bool,
}

/// The certificate of a client as DER. It was verified in the handshake, against the authorities of `tls.client_ca`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[u8]>);

impl PeerDetails {
    /// A peer of which only the address is known.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            request: RequestDetails::default(),
            headers: Vec::new(),
            certificate: None,
        }
    }

    /// The value of the first header of this name, which is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The token of its header `Authorization: Bearer`. A page in a browser can't set this header by itself, so the sender chose it.
    #[must_use]
    pub fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        let is_given = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
        is_given.then(|| token.trim())
    }
}

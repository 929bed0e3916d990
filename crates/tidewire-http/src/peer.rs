//! The details of a peer, from its request.

use std::net::SocketAddr;

use hyper::http::request::Parts;
use tidewire_shard::peer::{PeerDetails, RequestDetails};

/// The address, headers and certificate of a client, for authentication.
#[must_use]
pub fn peer(address: SocketAddr, parts: &Parts, is_encrypted: bool) -> PeerDetails {
    let headers = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let target = parts.uri.path_and_query();
    PeerDetails {
        request: RequestDetails {
            target: target.map_or("/", |target| target.as_str()).into(),
            is_encrypted,
        },
        address,
        headers: headers.collect(),
        certificate: parts.extensions.get().cloned(),
    }
}

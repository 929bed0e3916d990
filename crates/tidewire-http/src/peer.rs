//! The details of a peer, from its request.

use std::net::SocketAddr;

use hyper::http::request::Parts;
use tidewire_shard::peer::PeerDetails;

/// The address, headers and certificate of a client, for authentication.
#[must_use]
pub fn peer(address: SocketAddr, parts: &Parts) -> PeerDetails {
    let headers = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    PeerDetails {
        address,
        headers: headers.collect(),
        certificate: parts.extensions.get().cloned(),
    }
}

//! Finds the address of a client that connects through proxies.
//!
//! The server trusts only the proxies that the configuration names, and each of them only for the hop before it. So it reads
//! the list of addresses from its end: the first address that is not a trusted proxy is the client. The client itself may have
//! written everything before that.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName};
use tidewire_config::address_range::AddressRange;
use tidewire_config::section::ForwardedHeader;

/// The header that most proxies write.
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Trusted proxies in a row that the server follows. A longer list is not a real deployment.
const HOPS_MAX: usize = 16;

/// The proxies that the server trusts, and the header that they write.
#[derive(Clone, Debug)]
pub struct Proxies {
    /// Their addresses.
    pub trusted: Vec<AddressRange>,
    /// The header that the proxies write. The server ignores the other one, because a proxy passes on the client's value of it.
    pub header: ForwardedHeader,
}

impl Default for Proxies {
    fn default() -> Self {
        Self {
            trusted: Vec::new(),
            header: ForwardedHeader::XForwardedFor,
        }
    }
}

impl Proxies {
    /// Whether this address belongs to a trusted proxy.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }

    /// The address of the client whose request arrived from `peer`. The port is 0 if a proxy does not report it.
    #[must_use]
    pub fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.trusts(peer.ip()) {
            return peer;
        }
        let name = match self.header {
            ForwardedHeader::XForwardedFor => &X_FORWARDED_FOR,
            ForwardedHeader::Forwarded => &FORWARDED,
        };
        let mut nearest = peer;
        // Several lines of the same header form one list.
        let lines = headers.get_all(name).iter().rev();
        let elements = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        for element in elements.take(HOPS_MAX) {
            let hop = match self.header {
                ForwardedHeader::XForwardedFor => node(element.trim()),
                ForwardedHeader::Forwarded => forwarded_for(element).and_then(node),
            };
            // If a hop can't be parsed, the entries before it are not trustworthy.
            let Some(hop) = hop else { break };
            nearest = hop;
            if !self.trusts(hop.ip()) {
                break;
            }
        }
        nearest
    }
}

/// The value of `for` in one element of `Forwarded` (RFC 7239), without quotes.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    let unquoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    Some(unquoted.unwrap_or(value))
}

/// Parses an address with or without a port. An IPv6 address with a port has brackets.
fn node(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(canonical(address));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse::<IpAddr>().ok()?;
    Some(canonical(SocketAddr::new(address, 0)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use tidewire_config::value::Scalar as _;

    use super::*;

    const PROXY: &str = "10.0.0.1:7";

    fn proxies(header: ForwardedHeader) -> Proxies {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"];
        Proxies {
            trusted: trusted
                .iter()
                .map(|text| AddressRange::parse(text).expect("a range"))
                .collect(),
            header,
        }
    }

    fn check(header: ForwardedHeader, peer: &str, lines: &[(&str, &str)], expected: &str) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(
                name,
                HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            );
        }
        let found = proxies(header).client(peer.parse().expect("an address"), &headers);
        assert_eq!(found.to_string(), expected, "{peer} {lines:?}");
    }

    #[test]
    fn headers_of_other_peers_are_ignored() {
        let lines = [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ];
        for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
            check(header, "203.0.113.9:5", &lines, "203.0.113.9:5");
        }
    }

    #[test]
    fn the_list_is_read_from_its_end() {
        let check = |lines: &[&str], expected: &str| {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| ("x-forwarded-for", *line))
                .collect();
            check(ForwardedHeader::XForwardedFor, PROXY, &lines, expected);
        };
        check(&[], PROXY);
        check(&["192.0.2.1"], "192.0.2.1:0");
        check(&["192.0.2.1:4711"], "192.0.2.1:4711");
        check(&["::ffff:192.0.2.1"], "192.0.2.1:0");
        check(&["[2001:db9::1]:4711"], "[2001:db9::1]:4711");
        check(&["2001:db9::1"], "[2001:db9::1]:0");
        // The entries that the client wrote itself come before its own address.
        check(&["127.0.0.1, 192.0.2.1"], "192.0.2.1:0");
        check(&["127.0.0.1", "192.0.2.1"], "192.0.2.1:0");
        check(&["127.0.0.1, 192.0.2.1, 10.0.0.2"], "192.0.2.1:0");
        check(
            &["127.0.0.1,192.0.2.1", "2001:db8::7,10.0.0.2"],
            "192.0.2.1:0",
        );
        // If all entries are trusted proxies, the first of them is the client.
        check(&["10.0.0.3, 10.0.0.2"], "10.0.0.3:0");
        // The server trusts no entry before one that can't be parsed.
        check(&["127.0.0.1, unknown, 10.0.0.2"], "10.0.0.2:0");
        check(&["127.0.0.1,"], PROXY);
        check(&["\u{e9}"], PROXY);
        let long = vec!["10.0.0.2"; 100].join(",");
        check(&[&format!("192.0.2.1,{long}")], "10.0.0.2:0");
    }

    #[test]
    fn the_standard_header_is_read_where_it_is_asked_for() {
        let check = |value: &str, expected: &str| {
            let lines = [("x-forwarded-for", "127.0.0.1"), ("forwarded", value)];
            check(ForwardedHeader::Forwarded, PROXY, &lines, expected);
        };
        check("for=192.0.2.1", "192.0.2.1:0");
        check(
            "For=\"192.0.2.1:4711\";proto=https;by=10.0.0.1",
            "192.0.2.1:4711",
        );
        check(
            "by=10.0.0.1; for=\"[2001:db9::1]:4711\"",
            "[2001:db9::1]:4711",
        );
        check("for=\"[2001:db9::1]\"", "[2001:db9::1]:0");
        check(
            "for=127.0.0.1, for=192.0.2.1;proto=http, for=10.0.0.2",
            "192.0.2.1:0",
        );
        check("for=unknown", PROXY);
        check("for=_hidden, for=10.0.0.2", "10.0.0.2:0");
        check("proto=https", PROXY);
    }

    #[test]
    fn the_other_header_is_ignored() {
        let lines = [
            ("forwarded", "for=127.0.0.1"),
            ("x-forwarded-for", "192.0.2.1"),
        ];
        check(ForwardedHeader::XForwardedFor, PROXY, &lines, "192.0.2.1:0");
        check(ForwardedHeader::XForwardedFor, PROXY, &lines[..1], PROXY);
    }
}

//! Checks how the server finds the client address of a request. An input is one letter and its content:
//!
//! - `p` and a stream that should begin with a PROXY protocol header;
//! - `x` or `f`, the address of the peer, and below it lines of `X-Forwarded-For` or `Forwarded`.
//!
//! The models here share only one part with the product: the standard library's parser of single addresses.

use std::future::Future as _;
use std::io::Result as IoResult;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tidewire_config::address_range::AddressRange;
use tidewire_config::section::ForwardedHeader;
use tidewire_config::value::Scalar as _;
use tidewire_http::front::client_address::Proxies;
use tidewire_http::front::proxy_protocol;
use tokio::io::{AsyncRead, ReadBuf};

use super::{Reached, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "client_address",
    check_input,
    seeds,
    reachable: &[
        "head refused",
        "text: address",
        "text: unknown",
        "binary: address",
        "binary: none",
        "peer is not trusted",
        "nothing told",
        "behind one proxy",
        "behind several",
        "only proxies",
        "unreadable hop",
        "too many hops",
        "IPv6",
        "with port",
    ],
};

/// The trusted proxies.
const TRUSTED: [&str; 3] = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"];
/// The value of the header that the server must ignore.
const DISTRACTION: HeaderValue = HeaderValue::from_static("203.0.113.66");

/// Panics if the input shows a fault.
pub fn check_input(input: &[u8]) -> Reached {
    let mut reached = Reached::new();
    match input.split_first() {
        Some((b'p', stream)) => check_head(stream, &mut reached),
        Some((b'x', text)) => check_lines(ForwardedHeader::XForwardedFor, text, &mut reached),
        Some((b'f', text)) => check_lines(ForwardedHeader::Forwarded, text, &mut reached),
        _ => {}
    }
    reached
}

/// The address in a header and the length of the header in bytes; `None` if the header must be refused.
type Head = Option<(Option<SocketAddr>, usize)>;

fn check_head(stream: &[u8], reached: &mut Reached) {
    let expected = expect_head(stream);
    for piece_bytes in [usize::MAX, 1, 7] {
        assert_eq!(
            read_head(stream, piece_bytes),
            expected,
            "pieces of {piece_bytes}"
        );
    }
    let is_text = stream.starts_with(b"P");
    reached.insert(match (expected, is_text) {
        (None, _) => "head refused",
        (Some((Some(_), _)), true) => "text: address",
        (Some((None, _)), true) => "text: unknown",
        (Some((Some(_), _)), false) => "binary: address",
        (Some((None, _)), false) => "binary: none",
    });
}

fn read_head(stream: &[u8], piece_bytes: usize) -> Head {
    let mut pieces = Pieces {
        rest: stream,
        piece_bytes,
    };
    let outcome = {
        let mut reading = pin!(proxy_protocol::read(&mut pieces));
        match reading
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it waits, although the stream is complete"),
        }
    };
    outcome
        .ok()
        .map(|address| (address, stream.len() - pieces.rest.len()))
}

/// A stream that returns at most `piece_bytes` bytes per read.
struct Pieces<'a> {
    rest: &'a [u8],
    piece_bytes: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        let bytes = self.piece_bytes.min(self.rest.len()).min(into.remaining());
        let (piece, rest) = self.rest.split_at(bytes);
        into.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// Decodes a header of either version of the protocol; `None` if it is invalid.
fn expect_head(stream: &[u8]) -> Head {
    if stream.starts_with(b"PROXY ") {
        let ends = 12..=stream.len().min(107);
        let end = ends
            .into_iter()
            .find(|end| &stream[end - 2..*end] == b"\r\n")?;
        let line = str::from_utf8(&stream[6..end - 2]).ok()?;
        return Some((expect_line(line)?, end));
    }
    let start = stream.get(..16)?;
    if !start.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
        return None;
    }
    let bytes = usize::from(start[14]) * 256 + usize::from(start[15]);
    let body = stream
        .get(16..16 + bytes)
        .filter(|body| body.len() <= 2_048)?;
    let port = |at: usize| Some(u16::from(*body.get(at)?) << 8 | u16::from(*body.get(at + 1)?));
    let address = match (start[12], start[13] >> 4) {
        (0x20, _) | (0x21, 0 | 3) => None,
        (0x21, 1) => {
            let octets: [u8; 4] = body.get(..12)?[..4].try_into().ok()?;
            Some(SocketAddr::from((Ipv4Addr::from(octets), port(8)?)))
        }
        (0x21, 2) => {
            let octets: [u8; 16] = body.get(..36)?[..16].try_into().ok()?;
            Some(SocketAddr::from((
                plain(Ipv6Addr::from(octets).into()),
                port(32)?,
            )))
        }
        _ => return None,
    };
    Some((address, 16 + bytes))
}

fn expect_line(line: &str) -> Option<Option<SocketAddr>> {
    let words: Vec<&str> = line.split(' ').collect();
    if words[0] == "UNKNOWN" {
        return Some(None);
    }
    let [protocol, source, target, from, to] = words[..] else {
        return None;
    };
    let (source, target) = match protocol {
        "TCP4" => (
            IpAddr::from(source.parse::<Ipv4Addr>().ok()?),
            IpAddr::from(target.parse::<Ipv4Addr>().ok()?),
        ),
        "TCP6" => (
            source.parse::<Ipv6Addr>().ok()?.into(),
            target.parse::<Ipv6Addr>().ok()?.into(),
        ),
        _ => return None,
    };
    let _ = (target, port(to)?);
    Some(Some(SocketAddr::new(plain(source), port(from)?)))
}

/// Parses digits as a port.
fn port(text: &str) -> Option<u16> {
    let mut number = 0_u32;
    for letter in text.chars() {
        number = number * 10 + letter.to_digit(10)?;
        if number > u32::from(u16::MAX) {
            return None;
        }
    }
    (!text.is_empty()).then_some(number as u16)
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn is_trusted(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(four) => four.octets()[0] == 10 || four == Ipv4Addr::new(192, 0, 2, 7),
        IpAddr::V6(six) => six.segments()[..2] == [0x2001, 0xdb8],
    }
}

fn check_lines(header: ForwardedHeader, text: &[u8], reached: &mut Reached) {
    let mut lines = text.split(|byte| *byte == b'\n');
    let peer = lines.next().and_then(|line| str::from_utf8(line).ok());
    let Some(peer) = peer.and_then(|text| text.parse::<SocketAddr>().ok()) else {
        return;
    };
    let values: Vec<HeaderValue> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    let (name, other) = match header {
        ForwardedHeader::XForwardedFor => ("x-forwarded-for", "forwarded"),
        ForwardedHeader::Forwarded => ("forwarded", "x-forwarded-for"),
    };
    let mut headers = HeaderMap::new();
    headers.append(other, DISTRACTION);
    for value in &values {
        headers.append(name, value.clone());
    }
    let ranges = TRUSTED.map(|text| AddressRange::parse(text).expect("a range"));
    let proxies = Proxies {
        trusted: ranges.to_vec(),
        header,
    };
    let found = proxies.client(peer, &headers);
    let (expected, branch) = expect_client(header, peer, &values);
    assert_eq!(found, expected, "{header:?} {peer} {values:?}");
    reached.insert(branch);
    if found != peer {
        reached.extend(found.is_ipv6().then_some("IPv6"));
        reached.extend((found.port() != 0).then_some("with port"));
    }
}

/// The client of a request, and the rule that chose it. From the peer back, the server believes each trusted hop about the hop
/// before it; the client is the last hop that it reaches so.
fn expect_client(
    header: ForwardedHeader,
    peer: SocketAddr,
    values: &[HeaderValue],
) -> (SocketAddr, &'static str) {
    if !is_trusted(peer.ip()) {
        return (peer, "peer is not trusted");
    }
    // All lines form one list. The hops before a line that is not text can't be trusted.
    let mut hops: Vec<Option<SocketAddr>> = Vec::new();
    for value in values {
        match value.to_str() {
            Ok(line) => hops.extend(line.split(',').map(|element| expect_hop(header, element))),
            Err(_) => hops.push(None),
        }
    }
    let mut chain = vec![peer];
    while let Some(hop) = hops.pop() {
        if chain.len() > 16 {
            return (chain[16], "too many hops");
        }
        match hop {
            None => return (chain[chain.len() - 1], "unreadable hop"),
            Some(hop) if is_trusted(hop.ip()) => chain.push(hop),
            Some(hop) => {
                return (
                    hop,
                    if chain.len() == 1 {
                        "behind one proxy"
                    } else {
                        "behind several"
                    },
                );
            }
        }
    }
    let branch = if chain.len() == 1 {
        "nothing told"
    } else {
        "only proxies"
    };
    (chain[chain.len() - 1], branch)
}

fn expect_hop(header: ForwardedHeader, element: &str) -> Option<SocketAddr> {
    let mut text = element.trim();
    if header == ForwardedHeader::Forwarded {
        let named = |pair: &str| {
            let equals = pair.find('=')?;
            let name = pair[..equals].trim();
            name.eq_ignore_ascii_case("for").then_some(equals + 1)
        };
        let pair = element
            .split(';')
            .find_map(|pair| Some(&pair[named(pair)?..]))?;
        text = pair.trim();
        if text.len() >= 2 && text.starts_with('"') && text.ends_with('"') {
            text = &text[1..text.len() - 1];
        }
    }
    let address = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(Some((inner, ""))) => SocketAddr::new(inner.parse().ok()?, 0),
        Some(Some((inner, rest))) => {
            // A zone may follow the address; it is ignored.
            let (six, zone) = inner.split_once('%').unwrap_or((inner, "0"));
            let is_zone = !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit());
            zone.parse::<u32>().ok().filter(|_| is_zone)?;
            SocketAddr::new(
                six.parse::<Ipv6Addr>().ok()?.into(),
                port(rest.strip_prefix(':')?)?,
            )
        }
        Some(None) => return None,
        None => match text.parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, 0),
            Err(_) => {
                let (four, behind) = text.split_once(':')?;
                SocketAddr::new(four.parse::<Ipv4Addr>().ok()?.into(), port(behind)?)
            }
        },
    };
    Some(SocketAddr::new(plain(address.ip()), address.port()))
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for line in [
        "TCP4 192.0.2.1 10.0.0.1 4711 443",
        "TCP6 2001:db8::1 2001:db8::2 4711 443",
        "TCP6 ::ffff:192.0.2.1 ::1 4711 443",
        "UNKNOWN",
        "UNKNOWN ffff::1 ffff::2 1 2",
        "TCP4 192.0.2.1 10.0.0.1 65536 443",
        "TCP4 192.0.2.1",
        "UDP4 192.0.2.1 10.0.0.1 1 2",
    ] {
        seeds.push(format!("pPROXY {line}\r\nGET / HTTP/1.1\r\n").into_bytes());
    }
    seeds.push(format!("pPROXY UNKNOWN{}", " ".repeat(100)).into_bytes());
    seeds.push(b"pGET / HTTP/1.1\r\n\r\n".to_vec());
    let binary = |command: u8, family: u8, body: &[u8]| {
        let mut head = b"p\r\n\r\n\0\r\nQUIT\n".to_vec();
        head.extend([command, family]);
        head.extend((body.len() as u16).to_be_bytes());
        head.extend(body);
        head.extend(b"rest");
        head
    };
    let four = [192, 0, 2, 1, 10, 0, 0, 1, 18, 103, 1, 187];
    let six = [
        [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [7; 16],
    ]
    .concat();
    seeds.push(binary(0x21, 0x11, &four));
    seeds.push(binary(0x21, 0x11, &[&four[..], &[4; 20]].concat()));
    seeds.push(binary(0x21, 0x21, &[&six[..], &[18, 103, 1, 187]].concat()));
    seeds.push(binary(0x20, 0, &[]));
    seeds.push(binary(0x21, 0x31, &[0; 216]));
    seeds.push(binary(0x22, 0x11, &four));
    let long = vec!["10.0.0.2"; 20].join(",");
    let lists = [
        "x203.0.113.9:5\n192.0.2.1",
        "x10.0.0.1:7\n127.0.0.1, 192.0.2.1, 10.0.0.2",
        "x10.0.0.1:7\n192.0.2.1:4711",
        "x10.0.0.1:7\n127.0.0.1,192.0.2.1\n2001:db8::7,10.0.0.2",
        "x[2001:db8::1]:7\n[2001:db9::1]:4711",
        "x192.0.2.7:7\n10.0.0.3, 10.0.0.2",
        "x10.0.0.1:7\n127.0.0.1, unknown, 10.0.0.2",
        "x10.0.0.1:7",
        "x10.0.0.1:7\né",
        "x10.0.0.1:7\n::ffff:10.0.0.9, ::ffff:192.0.2.7",
        "x10.0.0.1:7\n[fe80::1%3]:80",
        "f10.0.0.1:7\nfor=192.0.2.1",
        "f10.0.0.1:7\nFor=\"192.0.2.1:4711\";proto=https;by=10.0.0.1",
        "f10.0.0.1:7\nby=10.0.0.1; for=\"[2001:db9::1]:4711\", for=10.0.0.2",
        "f10.0.0.1:7\nfor=_hidden, for=10.0.0.2",
        "f10.0.0.1:7\nfor=127.0.0.1, for=192.0.2.1;proto=http\nfor=\"[2001:db8::9]\"",
        "f203.0.113.9:5\nfor=10.0.0.1",
    ];
    seeds.extend(lists.iter().map(|list| list.as_bytes().to_vec()));
    seeds.push(format!("x10.0.0.1:7\n192.0.2.1,{long}").into_bytes());
    seeds
}

//! The PROXY protocol: a load balancer that forwards bytes sends the client's address before them.
//!
//! The server accepts version 1, which is a line of text, and version 2, which has a binary header. It reads not a byte more
//! than the header, because TLS or HTTP begins right after it.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const TEXT: &[u8] = b"PROXY ";
/// The longest line of version 1, including its end.
const LINE_BYTES_MAX: usize = 107;
/// Size limit of the part of a version 2 header after its length: addresses of local sockets and optional fields. Haproxy sends
/// less than 300 bytes.
const BODY_BYTES_MAX: usize = 2048;

/// The header for a health check that speaks for itself; it contains no client address.
pub const OWN: &[u8] = b"PROXY UNKNOWN\r\n";

/// Reads a header and returns the client's address; `None` if the sender speaks for itself or does not know the address.
///
/// # Errors
/// The stream ends, or it does not begin with a valid header.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<SocketAddr>> {
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        return read_binary(stream).await;
    }
    if !start.starts_with(TEXT) {
        return Err(malformed("the connection does not begin with a PROXY head"));
    }
    let mut line = start.to_vec();
    // Read byte by byte, because the bytes after the line are not part of the header. These are at most 95 reads for each
    // connection.
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_BYTES_MAX {
            return Err(malformed("the line of the PROXY head is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    let line = std::str::from_utf8(&line[TEXT.len()..line.len() - 2]);
    parse_text(line.map_err(|_| malformed("the line of the PROXY head is not UTF-8"))?)
}

async fn read_binary(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<SocketAddr>> {
    let version_and_command = stream.read_u8().await?;
    let family = stream.read_u8().await?;
    let length = usize::from(stream.read_u16().await?);
    if length > BODY_BYTES_MAX {
        return Err(malformed("the PROXY head is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    parse_binary(version_and_command, family, &body)
}

/// Parses the part of the line after `PROXY `.
fn parse_text(line: &str) -> std::io::Result<Option<SocketAddr>> {
    let mut words = line.split(' ');
    let protocol = words.next();
    if protocol == Some("UNKNOWN") {
        return Ok(None);
    }
    let source = words.next().and_then(|text| text.parse::<IpAddr>().ok());
    let target = words.next().and_then(|text| text.parse::<IpAddr>().ok());
    let ports = [words.next(), words.next()].map(|text| text.and_then(parse_port));
    match (protocol, source, target, ports, words.next()) {
        (Some("TCP4"), Some(source), Some(target), [Some(port), Some(_)], None)
            if source.is_ipv4() && target.is_ipv4() =>
        {
            Ok(Some(SocketAddr::new(source, port)))
        }
        (Some("TCP6"), Some(source), Some(target), [Some(port), Some(_)], None)
            if source.is_ipv6() && target.is_ipv6() =>
        {
            Ok(Some(SocketAddr::new(source.to_canonical(), port)))
        }
        _ => Err(malformed("the line of the PROXY head is malformed")),
    }
}

/// Parses a port in the form that the protocol allows: digits only.
fn parse_port(text: &str) -> Option<u16> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// Parses the command and address family of version 2, and the part after the length.
fn parse_binary(
    version_and_command: u8,
    family: u8,
    body: &[u8],
) -> std::io::Result<Option<SocketAddr>> {
    let short = || malformed("the PROXY head is too short for its addresses");
    match (version_and_command, family >> 4) {
        // The connection is the sender's own, or its addresses are unspecified or local (Unix sockets).
        (0x20, _) | (0x21, 0 | 3) => Ok(None),
        (0x21, 1) => {
            let (addresses, _) = body.split_first_chunk::<12>().ok_or_else(short)?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((Ipv4Addr::new(a, b, c, d), port).into()))
        }
        (0x21, 2) => {
            let (source, rest) = body.split_first_chunk::<16>().ok_or_else(short)?;
            let (ports, _) = rest
                .get(16..)
                .and_then(|rest| rest.split_first_chunk::<4>())
                .ok_or_else(short)?;
            let port = u16::from_be_bytes([ports[0], ports[1]]);
            let address = IpAddr::from(Ipv6Addr::from(*source)).to_canonical();
            Ok(Some((address, port).into()))
        }
        _ => Err(malformed(
            "the PROXY head has an unknown version, command or family",
        )),
    }
}

fn malformed(problem: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address, the text `none`, or the error; and the number of bytes that were not read.
    async fn outcome(mut input: &[u8]) -> (String, usize) {
        let text = match read(&mut input).await {
            Ok(Some(address)) => address.to_string(),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        (text, input.len())
    }

    async fn check(input: &[u8], expected: &str) {
        let behind = b"GET / HTTP/1.1\r\n\r\n";
        let (text, left) = outcome(&[input, behind].concat()).await;
        assert_eq!((text.as_str(), left), (expected, behind.len()), "{input:?}");
    }

    async fn refuse(input: &[u8], expected: &str) {
        let (text, _) = outcome(input).await;
        assert!(text.contains(expected), "{text:?} for {input:?}");
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("a short body");
        let mut head = SIGNATURE.to_vec();
        head.extend([command, family]);
        head.extend(length.to_be_bytes());
        head.extend(body);
        head
    }

    #[tokio::test]
    async fn a_line_tells_the_client() {
        check(
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n",
            "192.0.2.1:4711",
        )
        .await;
        check(
            b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n",
            "[2001:db8::1]:4711",
        )
        .await;
        check(
            b"PROXY TCP6 ::ffff:192.0.2.1 ::1 4711 443\r\n",
            "192.0.2.1:4711",
        )
        .await;
        check(OWN, "none").await;
        check(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "none").await;
        let longest = b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535";
        let mut line = longest.to_vec();
        line.resize(LINE_BYTES_MAX - 2, b' ');
        line.extend(b"\r\n");
        check(&line, "none").await;
    }

    #[tokio::test]
    async fn a_binary_head_tells_the_client() {
        let four = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 1, 187];
        check(&binary(0x21, 0x11, &four), "192.0.2.1:4711").await;
        // The bytes after the addresses are optional fields, which the server skips.
        check(
            &binary(0x21, 0x11, &[&four[..], &[4; 300]].concat()),
            "192.0.2.1:4711",
        )
        .await;
        let mut six = [0; 36];
        six[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        six[15] = 1;
        six[32..34].copy_from_slice(&4711_u16.to_be_bytes());
        check(&binary(0x21, 0x21, &six), "[2001:db8::1]:4711").await;
        check(&binary(0x20, 0, &[]), "none").await;
        check(&binary(0x20, 0x11, &four), "none").await;
        check(&binary(0x21, 0x31, &[0; 216]), "none").await;
    }

    #[tokio::test]
    async fn everything_else_is_refused() {
        refuse(b"", "eof").await;
        refuse(b"PROXY TCP4 192.0.2.1", "end of file").await;
        refuse(b"GET / HTTP/1.1\r\n\r\n", "does not begin").await;
        refuse(
            b"proxy TCP4 192.0.2.1 10.0.0.1 4711 443\r\n",
            "does not begin",
        )
        .await;
        for line in [
            "TCP4 192.0.2.1 10.0.0.1 4711",
            "TCP4 192.0.2.1 10.0.0.1 4711 443 1",
            "TCP4 192.0.2.1 10.0.0.1 65536 443",
            "TCP4 192.0.2.1 10.0.0.1 +711 443",
            "TCP4 2001:db8::1 2001:db8::2 4711 443",
            "TCP6 192.0.2.1 10.0.0.1 4711 443",
            "TCP4  192.0.2.1 10.0.0.1 4711 443",
            "UDP4 192.0.2.1 10.0.0.1 4711 443",
        ] {
            refuse(format!("PROXY {line}\r\n").as_bytes(), "is malformed").await;
        }
        refuse(
            &[b"PROXY UNKNOWN".as_slice(), &[b' '; 200]].concat(),
            "is too long",
        )
        .await;
        refuse(b"PROXY UNKNOWN \xff\r\n", "is not UTF-8").await;
        refuse(&binary(0x21, 0x11, &[0; 11]), "too short").await;
        refuse(&binary(0x21, 0x21, &[0; 35]), "too short").await;
        refuse(
            &binary(0x22, 0x11, &[0; 12]),
            "unknown version, command or family",
        )
        .await;
        refuse(
            &binary(0x11, 0x11, &[0; 12]),
            "unknown version, command or family",
        )
        .await;
        refuse(
            &binary(0x21, 0x41, &[0; 12]),
            "unknown version, command or family",
        )
        .await;
        refuse(&binary(0x21, 0x11, &[0; BODY_BYTES_MAX + 1]), "too long").await;
    }
}

//! `tidewire health`: asks the running server from inside an image that has no shell and no HTTP client.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::config::plan::Plan;
use crate::exit::{Exit, Failure};

/// A server that does not answer within this time is not well.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What is read of the answer; only its first line counts.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Asks `/health` on the first configured address.
///
/// # Errors
/// There is no answer, or another one than 200.
pub fn ask(plan: &Plan) -> Result<Exit, Failure> {
    let Some(address) = plan.addresses.first().copied().map(reachable) else {
        return Err(unwell("there is no address to ask"));
    };
    let status =
        request(address).map_err(|error| unwell(&format!("http://{address}/health: {error}")))?;
    if status.contains(" 200 ") {
        return Ok(Exit::Stopped);
    }
    Err(unwell(&format!(
        "http://{address}/health answered {status:?}"
    )))
}

fn unwell(what: &str) -> Failure {
    Failure::new(
        Exit::Unwell,
        format!("{what}; see the log of the server, or start it"),
    )
}

/// The address under which this machine reaches a listener on all addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        address.set_ip(loopback);
    }
    address
}

/// The first line of the answer.
fn request(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

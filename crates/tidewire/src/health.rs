//! `tidewire health`: requests `/health` from the running server. It also works in an image without a shell or an HTTP client.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tidewire_config::plan::Plan;
use tidewire_config::plan::Speaks;
use tidewire_http::front::proxy_protocol;
use tidewire_net::any_certificate::AnyCertificate;

use tidewire_server::exit::{Exit, Failure};

/// A server that does not answer within this time is not healthy.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes that the command reads of the answer. It uses only the first line.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Requests `/health` on the first configured address.
///
/// # Errors
/// The server does not answer, or with a status other than 200.
pub fn ask(plan: &Plan) -> Result<Exit, Failure> {
    let Some(address) = plan.addresses.first().copied().map(reachable) else {
        return Err(unwell("the configuration has no address"));
    };
    let is_encrypted = plan.speaks != Speaks::Clear;
    let scheme = if is_encrypted { "https" } else { "http" };
    let connected = connect(address).and_then(|mut stream| {
        if plan.config.network.proxy_protocol {
            stream.write_all(proxy_protocol::OWN)?;
        }
        Ok(stream)
    });
    let status = if is_encrypted {
        connected.and_then(encrypt).and_then(request)
    } else {
        connected.and_then(request)
    };
    let status =
        status.map_err(|error| unwell(&format!("{scheme}://{address}/health: {error}")))?;
    if status.contains(" 200 ") {
        return Ok(Exit::Stopped);
    }
    Err(unwell(&format!(
        "{scheme}://{address}/health answered {status:?}"
    )))
}

fn unwell(what: &str) -> Failure {
    Failure::new(
        Exit::Unwell,
        format!("{what}; see the log of the server, or start it"),
    )
}

/// The address at which this machine reaches a listener. For an unspecified address it is the loopback address.
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

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn encrypt(stream: TcpStream) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let wrong = std::io::Error::other::<rustls::Error>;
    // The certificate has the names that clients use, never this machine's loopback address.
    let verifier = AnyCertificate::new(&provider);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::from(stream.peer_addr()?.ip());
    let connection = ClientConnection::new(Arc::new(config), name).map_err(wrong)?;
    Ok(StreamOwned::new(connection, stream))
}

/// The first line of the answer.
fn request(mut stream: impl Read + Write) -> std::io::Result<String> {
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

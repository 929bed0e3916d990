//! The layer between the WebSocket frames and the socket: none, or TLS; and whether messages may come compressed.
//!
//! The generator's TLS is rustls' ordinary client. It reads a whole buffer from the socket at once and decrypts each
//! record in place, so its cost is that of the cipher; the generator's share in each result shows whether that was
//! too much.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tidewire_net::any_certificate::AnyCertificate;

use crate::failure::Failure;

/// The offer of compression.
pub(crate) const DEFLATE_OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; \
    server_no_context_takeover; client_no_context_takeover\r\n";

/// The kind of connections.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// The TLS configuration, if connections are encrypted.
    pub tls: Option<Arc<ClientConfig>>,
    /// permessage-deflate is offered.
    pub has_compression: bool,
    /// All messages of a turn may come in one WebSocket message, if the protocol supports batches.
    pub has_batches: bool,
    /// All connections log in as one user.
    pub has_one_user: bool,
}

/// A client of TLS 1.3 without resumption, so that every connection costs a full handshake. It accepts any
/// certificate, because the bench measures servers that its user names, and sends them no secrets.
///
/// # Errors
/// The provider lacks TLS 1.3.
pub fn tls_client() -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = AnyCertificate::new(&provider);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| Failure::Server(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The decryption buffers that all connections of a swarm share.
#[derive(Debug)]
pub(crate) struct Opening {
    sealed: Vec<u8>,
    plain: Vec<u8>,
    /// The read part of `plain`.
    start: usize,
}

impl Opening {
    /// Reads this many bytes from a socket at once.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            sealed: vec![0; bytes],
            plain: Vec::new(),
            start: 0,
        }
    }
}

/// The encryption of one connection.
#[derive(Debug)]
pub(crate) struct Tls(Box<ClientConnection>);

impl Tls {
    pub(crate) fn new(config: &Arc<ClientConfig>, server: SocketAddr) -> Result<Self, Failure> {
        let name = ServerName::IpAddress(server.ip().into());
        let mut connection = ClientConnection::new(Arc::clone(config), name)
            .map_err(|error| Failure::Server(error.to_string()))?;
        // Whole outboxes are sealed at once; their writers limit them.
        connection.set_buffer_limit(None);
        Ok(Self(Box::new(connection)))
    }

    /// Reads plaintext. The caller continues until the socket is empty, so that `opening` is free for the next
    /// connection.
    pub(crate) fn read(
        &mut self,
        socket: &mut TcpStream,
        opening: &mut Opening,
        into: &mut [u8],
    ) -> io::Result<usize> {
        while opening.start == opening.plain.len() {
            opening.plain.clear();
            opening.start = 0;
            let count = socket.read(&mut opening.sealed)?;
            if count == 0 {
                return Ok(0);
            }
            let mut rest = &opening.sealed[..count];
            while !rest.is_empty() {
                self.0.read_tls(&mut rest)?;
                let state = self.0.process_new_packets().map_err(io::Error::other)?;
                // Read at once, because rustls holds little and then refuses more.
                let start = opening.plain.len();
                let bytes = state.plaintext_bytes_to_read();
                opening.plain.resize(start + bytes, 0);
                self.0.reader().read_exact(&mut opening.plain[start..])?;
                if state.peer_has_closed() && opening.plain.is_empty() {
                    return Ok(0);
                }
            }
            // Steps of the handshake; the next flush sends the rest.
            self.send(socket)?;
        }
        let plain = &opening.plain[opening.start..];
        let count = plain.len().min(into.len());
        into[..count].copy_from_slice(&plain[..count]);
        opening.start += count;
        Ok(count)
    }

    /// Seals `outbox`, if everything before it was sent, and sends as much as the socket accepts.
    pub(crate) fn write(&mut self, socket: &mut TcpStream, outbox: &mut Vec<u8>) -> io::Result<()> {
        self.send(socket)?;
        if !self.0.wants_write() && !outbox.is_empty() {
            self.0.writer().write_all(outbox)?;
            outbox.clear();
            self.send(socket)?;
        }
        Ok(())
    }

    fn send(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    result?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::{Duration, Instant};

    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ServerConfig, ServerConnection, Stream};
    use tidewire_wire::frame::deflate::Deflater;
    use tidewire_wire::frame::websocket::{self, Opcode};

    use super::*;
    use crate::connection::Subscription;
    use crate::driver::{Incoming, Protocol};
    use crate::swarm::Swarm;
    use crate::target::Target;

    /// A server of the plain protocol that answers the first subscription, and a publication with `delivery`.
    fn serve(listener: &TcpListener, delivery: &[u8]) -> io::Result<()> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        let (mut socket, _) = listener.accept()?;
        let mut stream = Stream::new(&mut connection, &mut socket);
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        // The key of the generator's nonce.
        stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\n\
              sec-websocket-extensions: permessage-deflate\r\n\
              sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )?;
        // The first subscription, of no names: a header, a mask, one byte.
        stream.read_exact(&mut [0; 7])?;
        stream.write_all(b"\x81\x01+")?;
        // Another client publishes.
        stream.read_exact(&mut byte)?;
        stream.write_all(delivery)?;
        // Until the generator goes, by reset.
        while stream.read(&mut byte).is_ok_and(|count| count > 0) {}
        Ok(())
    }

    /// The payloads that arrive of `count` deliveries.
    fn received(delivery: Vec<u8>, count: usize) -> Vec<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut target = Target::local(listener.local_addr().unwrap(), std::process::id(), false);
        target.protocol = Protocol::Plain;
        target.link = Link {
            tls: Some(tls_client().unwrap()),
            has_compression: true,
            has_batches: false,
            ..Link::default()
        };
        let server = std::thread::spawn(move || serve(&listener, &delivery));
        let mut swarm = Swarm::new(&target).unwrap();
        swarm.open(1, |_| Subscription::Nothing).unwrap();
        swarm
            .send(0, |driver, out| driver.publish("name", "1", out))
            .unwrap();
        let mut payloads = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while payloads.len() < count {
            let received = swarm.receive(deadline, "a delivery", |_, incoming| {
                let Incoming::Delivery { payload, .. } = incoming else {
                    panic!("{incoming:?}");
                };
                payloads.push(payload.to_owned());
                Ok(())
            });
            received.unwrap();
        }
        assert!(swarm.bytes_received() > 0);
        drop(swarm);
        server.join().unwrap().unwrap();
        payloads
    }

    #[test]
    fn a_delivery_of_several_records_arrives_whole() {
        let payload = "1".repeat(60_000);
        let mut delivery = Vec::new();
        let text = format!("name {payload}");
        websocket::encode(Opcode::Text, text.as_bytes(), &mut delivery);
        assert_eq!(received(delivery, 1), [payload]);
    }

    #[test]
    fn compressed_and_plain_deliveries_arrive_alike() {
        let payloads = ["1".repeat(1000), "2".repeat(1000), "3".repeat(1000)];
        let mut deflater = Deflater::default();
        let mut deliveries = Vec::new();
        for payload in &payloads {
            let text = format!("name {payload}");
            let (opcode, text) = (Opcode::Text, text.as_bytes());
            assert!(deflater.encode_frame(opcode, text, &mut deliveries));
            websocket::encode(opcode, text, &mut deliveries);
        }
        let expected: Vec<_> = payloads.iter().flat_map(|payload| [payload; 2]).collect();
        assert_eq!(received(deliveries, 6).iter().collect::<Vec<_>>(), expected);
    }
}

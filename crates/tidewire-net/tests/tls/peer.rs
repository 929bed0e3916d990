//! A TLS client of rustls against the state of the server, in memory or over a socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tidewire_net::tls::{HEADROOM, TlsError, TlsState};

pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    (Arc::new(client), Arc::new(server))
}

pub fn client(config: Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap()
}

/// The client's output.
pub fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Gives ciphertext to the server and takes the plaintext.
pub fn open(server: &mut TlsState, ciphertext: &[u8]) -> Result<Vec<u8>, TlsError> {
    let mut buffer = vec![0; HEADROOM + server.kept_bytes() + ciphertext.len()];
    let from = server.load_kept(&mut buffer);
    buffer[from..].copy_from_slice(ciphertext);
    let plaintext = server.open(&mut buffer)?;
    Ok(buffer[..plaintext].to_vec())
}

pub fn seal(server: &mut TlsState, plaintext: &[u8]) -> Vec<u8> {
    let mut room = vec![0; server.room_for(plaintext.len())];
    let written = server.seal(plaintext, &mut room).unwrap();
    room.truncate(written);
    room
}

/// The client's plaintext of `ciphertext`.
pub fn received(client: &mut ClientConnection, mut ciphertext: &[u8]) -> Vec<u8> {
    let mut plaintext = Vec::new();
    while !ciphertext.is_empty() {
        client.read_tls(&mut ciphertext).unwrap();
        client.process_new_packets().unwrap();
        let mut chunk = [0; 1 << 16];
        while let Ok(count @ 1..) = client.reader().read(&mut chunk) {
            plaintext.extend_from_slice(&chunk[..count]);
        }
    }
    plaintext
}

/// Both ends with the handshake done.
pub fn established() -> (ClientConnection, Box<TlsState>) {
    let (client_config, server_config) = configs();
    let mut client = client(client_config);
    let mut server = Box::new(TlsState::new(server_config).unwrap());
    while client.is_handshaking() || !server.is_established() {
        assert_eq!(open(&mut server, &sent(&mut client)).unwrap(), b"");
        assert_eq!(received(&mut client, &server.take_outgoing()), b"");
    }
    (client, server)
}

/// The same over a socket, for the loop. The client's end blocks.
pub fn established_over(
    listener: &TcpListener,
) -> (
    rustls::StreamOwned<ClientConnection, TcpStream>,
    TcpStream,
    Box<TlsState>,
) {
    let (client, server) = established();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (rustls::StreamOwned::new(client, stream), socket, server)
}

/// Writes `bytes` unchanged to the socket below the client's TLS.
pub fn write_raw(client: &rustls::StreamOwned<ClientConnection, TcpStream>, bytes: &[u8]) {
    (&client.sock).write_all(bytes).unwrap();
}

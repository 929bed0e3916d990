//! The listener of a process, and the carrier to one peer.
//!
//! Both processes dial, because a firewall may allow only one direction. If both succeed, the connection stays that the process with the
//! lower fingerprint has dialed. The other process dials later, so that this rarely happens.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::connection::{Connection, set_options};
use super::identity::{Fingerprint, Identity};
use super::pinned::{Peers, client_config, server_config};
use crate::carrier::{Carrier, CarrierEvent};

/// Time to connect, and time for a handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Handshakes of accepted connections at a time.
const HANDSHAKES_MAX: usize = 64;
/// After a failure of the listener, for example without free descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);
const DIAL_DELAY_MIN: Duration = Duration::from_millis(20);
const DIAL_DELAY_MAX: Duration = Duration::from_millis(500);
/// The process with the higher fingerprint gives the other one this time.
const SECOND_DELAY: Duration = Duration::from_millis(100);
/// Accepted connections that the carrier has not taken yet.
const ACCEPTED_MAX: usize = 4;

type Accepted = mpsc::Sender<Connection>;

/// How a peer is reached and known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The address of its endpoint.
    pub address: SocketAddr,
    /// The fingerprint of its certificate.
    pub fingerprint: Fingerprint,
}

/// The listener of a process for the connections of its peers.
#[derive(Debug)]
pub struct Endpoint {
    identity: Arc<Identity>,
    local: SocketAddr,
    peers: Arc<Peers<Accepted>>,
    accepting: JoinHandle<()>,
}

impl Endpoint {
    /// Listens for connections of peers.
    ///
    /// # Errors
    /// The address is not available, or TLS refuses the certificate.
    pub async fn bind(address: SocketAddr, identity: Identity) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let peers = Arc::new(Peers::new());
        let config = server_config(&identity, Arc::clone(&peers)).map_err(io::Error::other)?;
        Ok(Self {
            identity: Arc::new(identity),
            local: listener.local_addr()?,
            peers: Arc::clone(&peers),
            accepting: tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), peers)),
        })
    }

    /// The address on which this endpoint listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// A carrier to a peer. Only while it exists, connections of the peer are accepted.
    ///
    /// # Errors
    /// TLS refuses the certificate of this process.
    pub fn carrier(&self, peer: PeerAddress) -> io::Result<Direct> {
        let config = client_config(&self.identity, peer.fingerprint).map_err(io::Error::other)?;
        let (sender, accepted) = mpsc::channel(ACCEPTED_MAX);
        self.peers.insert(peer.fingerprint, sender.clone());
        Ok(Direct {
            local: self.local.ip(),
            is_first: self.identity.fingerprint() < peer.fingerprint,
            peer,
            config: Arc::new(config),
            peers: Arc::clone(&self.peers),
            sender,
            accepted,
            connection: None,
            dial: None,
            dial_delay: DIAL_DELAY_MIN,
            events: VecDeque::new(),
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, peers: Arc<Peers<Accepted>>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "the listener for links failed");
                sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        let (acceptor, peers) = (acceptor.clone(), Arc::clone(&peers));
        tokio::spawn(async move {
            let _permit = permit;
            set_options(&socket);
            match timeout(CONNECT_TIMEOUT, acceptor.accept(socket)).await {
                Ok(Ok(stream)) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    let fingerprint = certificates.and_then(|chain| chain.first());
                    let peer = fingerprint.and_then(|first| peers.find(Fingerprint::of(first)));
                    if let Some(peer) = peer {
                        // A full queue has a newer connection than the carrier has seen.
                        let _ = peer.try_send(Connection::new(stream, false));
                    }
                }
                Ok(Err(error)) => tracing::info!(%error, "refused a connection for links"),
                Err(_) => tracing::info!("a handshake for links took too long"),
            }
        });
    }
}

/// A dial: first it waits, then it connects.
enum Dial {
    Waiting(Pin<Box<tokio::time::Sleep>>),
    Connecting(Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>),
}

/// The carrier to one peer.
pub struct Direct {
    /// The address of this endpoint.
    local: IpAddr,
    peer: PeerAddress,
    /// Whether the fingerprint of this process is the lower one.
    is_first: bool,
    config: Arc<ClientConfig>,
    peers: Arc<Peers<Accepted>>,
    /// To recognize the entry of this carrier among the peers.
    sender: Accepted,
    accepted: mpsc::Receiver<Connection>,
    connection: Option<Connection>,
    dial: Option<Dial>,
    dial_delay: Duration,
    events: VecDeque<CarrierEvent>,
}

impl Direct {
    /// Uses a new connection, unless the current one was dialed by the process whose connections stay. A later connection of the same
    /// process always replaces the earlier one: that process has given up the earlier one.
    fn consider(&mut self, connection: Connection) {
        let rank = |connection: &Connection| connection.is_dialed == self.is_first;
        match &self.connection {
            Some(current) if rank(current) && !rank(&connection) => return,
            Some(_) => self.events.push_back(CarrierEvent::Down),
            None => {}
        }
        if matches!(self.dial, Some(Dial::Waiting(_))) {
            self.dial = None;
        }
        self.connection = Some(connection);
        self.events.push_back(CarrierEvent::Up);
    }

    fn disconnect(&mut self) {
        if self.connection.take().is_some() {
            self.events.push_back(CarrierEvent::Down);
        }
    }

    fn poll_dial(&mut self, context: &mut Context<'_>) {
        loop {
            match &mut self.dial {
                None if self.connection.is_some() => return,
                None => {
                    let second = if self.is_first {
                        Duration::ZERO
                    } else {
                        SECOND_DELAY
                    };
                    let delay = self.dial_delay + second;
                    self.dial_delay = (self.dial_delay * 2).min(DIAL_DELAY_MAX);
                    self.dial = Some(Dial::Waiting(Box::pin(sleep(delay))));
                }
                Some(Dial::Waiting(waiting)) => {
                    if waiting.as_mut().poll(context).is_pending() {
                        return;
                    }
                    let dialing = dial(self.local, self.peer.address, Arc::clone(&self.config));
                    self.dial = Some(Dial::Connecting(Box::pin(dialing)));
                }
                Some(Dial::Connecting(connecting)) => {
                    let Poll::Ready(connected) = connecting.as_mut().poll(context) else {
                        return;
                    };
                    self.dial = None;
                    match connected {
                        Ok(connection) => self.consider(connection),
                        Err(error) => {
                            let address = self.peer.address;
                            tracing::debug!(%error, %address, "could not connect to a peer");
                        }
                    }
                }
            }
        }
    }
}

async fn dial(
    local: IpAddr,
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<Connection> {
    let connecting = async {
        let socket = connect(local, address).await?;
        set_options(&socket);
        let name = ServerName::IpAddress(address.ip().into());
        let stream = TlsConnector::from(config).connect(name, socket).await?;
        Ok(Connection::new(stream, true))
    };
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Connects from the address on which the endpoint listens, if it is a single one, so that firewalls know both ends of each link.
async fn connect(local: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let is_usable = !local.is_unspecified()
        && local.is_ipv4() == address.is_ipv4()
        && local.is_loopback() == address.ip().is_loopback();
    if !is_usable {
        return TcpStream::connect(address).await;
    }
    let socket = match local {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

impl Carrier for Direct {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<CarrierEvent> {
        loop {
            while let Poll::Ready(Some(connection)) = self.accepted.poll_recv(context) {
                self.consider(connection);
            }
            self.poll_dial(context);
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Pending;
            };
            if let Poll::Ready(Err(error)) = connection.poll_write(context) {
                tracing::debug!(%error, "a connection for links broke");
                self.disconnect();
                continue;
            }
            match connection.poll_frame(context) {
                Poll::Ready(Ok(frame)) => {
                    // In TLS 1.3 a client is connected before the server has checked its certificate, so only a frame proves success.
                    self.dial_delay = DIAL_DELAY_MIN;
                    return Poll::Ready(CarrierEvent::Frame(frame));
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "a connection for links broke");
                    self.disconnect();
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        if let Some(connection) = &mut self.connection {
            connection.send(frame);
        }
    }

    fn flush(&mut self) -> bool {
        // An event that waits, the dial and an error belong to the driver's poll, which must register its waker again too.
        let mut context = Context::from_waker(Waker::noop());
        let write = self
            .connection
            .as_mut()
            .map(|connection| connection.poll_write(&mut context));
        matches!(write, None | Some(Poll::Ready(Ok(()))))
    }

    fn reset(&mut self) {
        self.disconnect();
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let sender = &self.sender;
        self.peers
            .remove(self.peer.fingerprint, |peer| peer.same_channel(sender));
    }
}

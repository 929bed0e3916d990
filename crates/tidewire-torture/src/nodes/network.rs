//! The network of a cluster: TCP proxies between its nodes, to its store and to the broker of its links. They drop bytes in one direction or
//! in both, as a network that has lost a route. Connections stay open, so that a node learns of a cut from silence only.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::remote_url::RemoteUrl;

/// An end of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A node, by its index.
    Node(usize),
    Store,
    Broker,
}

/// The proxies. They end with the process.
#[derive(Clone, Default)]
pub(super) struct Network {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The directions that are cut.
    cut: HashSet<(Place, Place)>,
    streams: HashMap<u64, Stream>,
    stream_count: u64,
}

/// A connection through a proxy.
struct Stream {
    places: [Place; 2],
    ends: [TcpStream; 2],
    /// Whether bytes or its end were dropped, so that it can't be used after the cut.
    is_broken: bool,
}

impl Stream {
    fn shut_down(&self) {
        for end in &self.ends {
            // Fails if the connection has already ended.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// The address from which a node connects to others.
pub(super) fn own_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, 0, number(node))
}

/// The number of a node, from 1 on.
fn number(node: usize) -> u8 {
    u8::try_from(node + 1).unwrap_or(u8::MAX)
}

impl Network {
    /// Starts the proxy through which the other nodes reach a node, which listens on this port of its address. Returns the address
    /// of the proxy.
    ///
    /// # Errors
    /// The system can't provide a port or a thread.
    pub(super) fn lead_to_node(&self, node: usize, port: u16) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 77, 1, number(node)), 0))?;
        let target = SocketAddr::from((own_address(node), port));
        self.listen(listener, move |from| {
            // The links of a node begin at its own address, whose last part is its number.
            let SocketAddr::V4(address) = from else {
                return None;
            };
            let from = usize::from(address.ip().octets()[3]).checked_sub(1)?;
            Some((Place::Node(from), Place::Node(node), target))
        })
    }

    /// Starts the proxy through which a node reaches a server. Returns its address.
    ///
    /// # Errors
    /// The system can't provide a port or a thread, or the host of the server is unknown.
    pub(super) fn lead_to_server(
        &self,
        node: usize,
        server: Place,
        url: &RemoteUrl,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let target = (url.host(), url.port()).to_socket_addrs()?.next();
        let target = target.ok_or_else(|| io::Error::other("its host has no address"))?;
        self.listen(listener, move |_| Some((Place::Node(node), server, target)))
    }

    /// Drops all bytes from one place to another.
    pub(super) fn cut_one_way(&self, from: Place, to: Place) {
        self.lock().cut.insert((from, to));
    }

    /// Drops all bytes between two places.
    pub(super) fn cut(&self, one: Place, other: Place) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Delivers again. Connections that have lost bytes end.
    pub(super) fn restore(&self) {
        let mut state = self.lock();
        state.cut.clear();
        state.streams.retain(|_, stream| {
            if stream.is_broken {
                stream.shut_down();
            }
            !stream.is_broken
        });
    }

    /// Ends all connections to a place. Returns their number.
    pub(super) fn reset(&self, place: Place) -> usize {
        let mut state = self.lock();
        let before = state.streams.len();
        state.streams.retain(|_, stream| {
            let is_reset = stream.places.contains(&place);
            if is_reset {
                stream.shut_down();
            }
            !is_reset
        });
        before - state.streams.len()
    }

    /// Forwards each connection to the listener. `route` gives its ends and the address of the second one.
    fn listen(
        &self,
        listener: TcpListener,
        route: impl Fn(SocketAddr) -> Option<(Place, Place, SocketAddr)> + Send + 'static,
    ) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        let network = self.clone();
        spawn(move || {
            for near in listener.incoming().flatten() {
                let route = near.peer_addr().ok().and_then(&route);
                if let Some((from, to, target)) = route {
                    // If the target has ended, the connection is closed, as a network would.
                    let _ = network.join(near, [from, to], target);
                }
            }
        })?;
        Ok(address)
    }

    fn join(&self, near: TcpStream, places: [Place; 2], target: SocketAddr) -> io::Result<()> {
        let far = TcpStream::connect(target)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let stream = Stream {
            places,
            ends: [near.try_clone()?, far.try_clone()?],
            is_broken: false,
        };
        let id = {
            let mut state = self.lock();
            state.stream_count += 1;
            let id = state.stream_count;
            state.streams.insert(id, stream);
            id
        };
        let [from, to] = places;
        let ends = (near.try_clone()?, far.try_clone()?);
        let network = self.clone();
        spawn(move || network.carry(id, (from, to), near, far))?;
        let network = self.clone();
        spawn(move || network.carry(id, (to, from), ends.1, ends.0))
    }

    /// Forwards the bytes of one direction until the connection ends.
    fn carry(
        &self,
        id: u64,
        direction: (Place, Place),
        mut source: TcpStream,
        mut target: TcpStream,
    ) {
        let mut chunk = [0; 1 << 16];
        while let Ok(count @ 1..) = source.read(&mut chunk) {
            if self.drops(id, direction) {
                continue;
            }
            if target.write_all(&chunk[..count]).is_err() {
                break;
            }
        }
        self.end(id, direction);
    }

    /// Whether the bytes of a connection are dropped. A connection that has lost bytes delivers no later ones.
    fn drops(&self, id: u64, direction: (Place, Place)) -> bool {
        let mut state = self.lock();
        let is_cut = state.cut.contains(&direction);
        let Some(stream) = state.streams.get_mut(&id) else {
            return true;
        };
        stream.is_broken |= is_cut;
        stream.is_broken
    }

    /// One end has closed a connection. The other end learns of it unless a cut is between them.
    fn end(&self, id: u64, (from, to): (Place, Place)) {
        let mut state = self.lock();
        let is_cut = state.cut.contains(&(from, to)) || state.cut.contains(&(to, from));
        match state.streams.get_mut(&id) {
            Some(stream) if is_cut => stream.is_broken = true,
            Some(stream) => {
                stream.shut_down();
                state.streams.remove(&id);
            }
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name("network".to_owned());
    builder.spawn(work).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A connection of node 0 to the store, through a network: its two ends.
    fn connection(network: &Network) -> (TcpStream, TcpStream) {
        let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("redis://127.0.0.1:{}/0", store.local_addr().unwrap().port());
        let url = RemoteUrl::parse(&url).unwrap();
        let proxy = network.lead_to_server(0, Place::Store, &url).unwrap();
        let near = TcpStream::connect(proxy).unwrap();
        let far = store.accept().unwrap().0;
        for end in [&near, &far] {
            end.set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
        }
        (near, far)
    }

    fn passes(mut from: &TcpStream, mut to: &TcpStream) -> bool {
        let mut byte = [0];
        from.write_all(b"a").is_ok() && matches!(to.read(&mut byte), Ok(1))
    }

    #[test]
    fn a_cut_of_one_direction_leaves_the_connection_open_until_it_is_restored() {
        let network = Network::default();
        let (near, far) = connection(&network);
        assert!(passes(&near, &far) && passes(&far, &near));
        network.cut_one_way(Place::Node(0), Place::Store);
        assert!(!passes(&near, &far));
        let silence = (&far).read(&mut [0]);
        assert!(silence.is_err(), "the connection is open: {silence:?}");
        network.restore();
        assert_eq!((&near).read(&mut [0]).unwrap_or(0), 0);
        assert_eq!((&far).read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn cuts_of_other_places_and_cuts_without_bytes_change_nothing() {
        let network = Network::default();
        let (near, far) = connection(&network);
        network.cut(Place::Node(1), Place::Store);
        assert!(passes(&near, &far));
        network.cut(Place::Node(0), Place::Store);
        network.restore();
        assert!(passes(&near, &far) && passes(&far, &near));
        assert_eq!(network.reset(Place::Broker), 0);
        assert_eq!(network.reset(Place::Store), 1);
        assert_eq!((&near).read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn the_end_of_a_connection_does_not_pass_a_cut() {
        let network = Network::default();
        let (near, far) = connection(&network);
        network.cut(Place::Node(0), Place::Store);
        drop(near);
        assert!((&far).read(&mut [0]).is_err(), "the connection is open");
        network.restore();
        assert_eq!((&far).read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn links_are_known_by_the_address_at_which_they_begin() {
        let network = Network::default();
        let listener = TcpListener::bind((own_address(1), 0)).unwrap();
        let proxy = network
            .lead_to_node(1, listener.local_addr().unwrap().port())
            .unwrap();
        network.cut_one_way(Place::Node(0), Place::Node(1));
        // The test itself connects from 127.0.0.1, which has the number of the first node.
        let near = TcpStream::connect(proxy).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        near.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        assert!(!passes(&near, &far));
    }
}

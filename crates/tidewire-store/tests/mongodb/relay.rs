//! A relay before a server that speaks MongoDB's protocol: it can cut its connections, and hold one request back until long
//! after its client has gone.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes of the length that begins a message, itself included.
const LENGTH_BYTES: usize = 4;
/// How long a released request may take.
const RELEASE_DEADLINE: Duration = Duration::from_secs(20);

/// The relay. Its threads end with their connections.
pub struct Relay {
    state: Arc<State>,
    release: Sender<()>,
    answered: Receiver<()>,
}

struct State {
    server: SocketAddr,
    connections: Mutex<Vec<TcpStream>>,
    /// What the next request has in it that is held; none if none is.
    held: Mutex<Option<&'static [&'static str]>>,
    /// Lets the request go that is held.
    released: Mutex<Receiver<()>>,
    answered: Sender<()>,
}

impl Relay {
    /// A relay before the only server of an address, which then names the relay.
    pub fn before(url: &mut String) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_once('/').unwrap();
        let (user, host) = authority
            .rsplit_once('@')
            .map_or(("", authority), |(user, host)| (user, host));
        let server = host.to_socket_addrs().unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let at = if user.is_empty() { "" } else { "@" };
        let joint = if path.ends_with('?') { "" } else { "&" };
        *url = format!("{scheme}://{user}{at}{address}/{path}{joint}directConnection=true");
        let (release, released) = channel();
        let (answered_by, answered) = channel();
        let state = Arc::new(State {
            server,
            connections: Mutex::default(),
            held: Mutex::default(),
            released: Mutex::new(released),
            answered: answered_by,
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let state = Arc::clone(&accepting);
                thread::spawn(move || state.relay(client.unwrap()));
            }
        });
        Self {
            state,
            release,
            answered,
        }
    }

    /// Holds the next request that has all of `parts` in it.
    pub fn hold(&self, parts: &'static [&'static str]) {
        *self.state.held.lock().unwrap() = Some(parts);
    }

    /// Hands over what was held, and waits until the server has answered it.
    pub fn release(&self) {
        self.release.send(()).unwrap();
        let answered = self.answered.recv_timeout(RELEASE_DEADLINE);
        answered.expect("the server answers what was held");
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().unwrap().drain(..) {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn relay(&self, mut client: TcpStream) {
        let mut server = TcpStream::connect(self.server).unwrap();
        let handles = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        self.connections.lock().unwrap().extend(handles);
        let (mut from_server, mut to_client) =
            (server.try_clone().unwrap(), client.try_clone().unwrap());
        let (arrived, answers) = channel();
        thread::spawn(move || {
            while let Ok(answer) = read_message(&mut from_server) {
                // The client may have gone; that there is an answer still counts.
                let _ = to_client.write_all(&answer);
                let _ = arrived.send(());
            }
            let _ = to_client.shutdown(Shutdown::Both);
        });
        while let Ok(request) = read_message(&mut client) {
            let is_held = self.is_held(&request);
            if is_held {
                self.released.lock().unwrap().recv().unwrap();
                answers.try_iter().for_each(drop);
            }
            if server.write_all(&request).is_err() {
                break;
            }
            if is_held {
                answers.recv().unwrap();
                self.answered.send(()).unwrap();
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    fn is_held(&self, request: &[u8]) -> bool {
        let has = |part: &str| {
            request
                .windows(part.len())
                .any(|bytes| bytes == part.as_bytes())
        };
        let mut held = self.held.lock().unwrap();
        let is_held = held.is_some_and(|parts| parts.iter().copied().all(has));
        if is_held {
            *held = None;
        }
        is_held
    }
}

/// A message with its length.
fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; LENGTH_BYTES];
    stream.read_exact(&mut message)?;
    let length = u32::from_le_bytes([message[0], message[1], message[2], message[3]]);
    message.resize(usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut message[LENGTH_BYTES..])?;
    Ok(message)
}

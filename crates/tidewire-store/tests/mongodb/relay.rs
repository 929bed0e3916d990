//! A relay in front of a server with MongoDB's protocol. It can cut its connections, and hold back one request until long after
//! the client has gone.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes of the length field at the start of a message. The length includes the field.
const LENGTH_BYTES: usize = 4;
/// How long the server may take for a released request.
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
    /// The relay holds the next request that contains all of these texts; `None` if it holds no request.
    held: Mutex<Option<&'static [&'static str]>>,
    /// Receives the signal that releases the held request.
    released: Mutex<Receiver<()>>,
    answered: Sender<()>,
}

impl Relay {
    /// Starts a relay in front of the only server of an address, and changes the address to the relay's.
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

    /// Holds the next request that contains all of `parts`.
    pub fn hold(&self, parts: &'static [&'static str]) {
        *self.state.held.lock().unwrap() = Some(parts);
    }

    /// Sends the held request to the server, and waits until the server has answered it.
    pub fn release(&self) {
        self.release.send(()).unwrap();
        let answered = self.answered.recv_timeout(RELEASE_DEADLINE);
        answered.expect("the server answers the held request");
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().unwrap().drain(..) {
            // The connection may already have ended.
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
                // The client may have gone, but the relay still reports the answer.
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

/// Reads a message, including its length field.
fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; LENGTH_BYTES];
    stream.read_exact(&mut message)?;
    let length = u32::from_le_bytes([message[0], message[1], message[2], message[3]]);
    message.resize(usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut message[LENGTH_BYTES..])?;
    Ok(message)
}

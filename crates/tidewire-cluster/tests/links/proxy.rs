//! A TCP proxy that can cut its connections, stall each direction, and abandon the open ones.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::side::DEADLINE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// No connection is forwarded.
    pub is_cut: bool,
    /// Nothing is forwarded from the dialing side, and to it.
    pub is_stalled: [bool; 2],
    /// Of this many connections, the first ones, nothing is forwarded in either direction.
    pub abandoned: usize,
}

pub struct Proxy {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Connections that the proxy forwards.
    open: watch::Sender<usize>,
    /// All connections that were accepted.
    accepted: watch::Sender<usize>,
    forwarding: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (mode, modes) = watch::channel(Mode::default());
        let open = watch::Sender::new(0);
        let count = open.clone();
        let accepted = watch::Sender::new(0);
        let numbers = accepted.clone();
        let forwarding = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (modes, count) = (modes.clone(), count.clone());
                let number = *numbers.borrow();
                numbers.send_modify(|accepted| *accepted += 1);
                tokio::spawn(async move {
                    count.send_modify(|open| *open += 1);
                    forward(client, target, modes, number).await;
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self {
            address,
            mode,
            open,
            accepted,
            forwarding,
        }
    }

    /// Waits until the condition holds for the number of open connections.
    pub async fn until_open(&self, holds: impl FnMut(&usize) -> bool) -> usize {
        let mut open = self.open.subscribe();
        let found = timeout(DEADLINE, open.wait_for(holds)).await;
        *found.expect("in time").expect("the proxy runs")
    }

    /// Waits until this many connections were accepted.
    pub async fn until_accepted(&self, count: usize) {
        let mut accepted = self.accepted.subscribe();
        let found = timeout(DEADLINE, accepted.wait_for(|accepted| *accepted >= count)).await;
        found.expect("in time").expect("the proxy runs");
    }

    /// The open connections die without an error; later ones are forwarded.
    pub fn abandon(&self) {
        let accepted = *self.accepted.borrow();
        self.change(|mode| mode.abandoned = accepted);
    }

    pub fn change(&self, change: impl FnOnce(&mut Mode)) {
        self.mode.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

async fn forward(
    client: TcpStream,
    target: SocketAddr,
    mut modes: watch::Receiver<Mode>,
    number: usize,
) {
    if modes.borrow_and_update().is_cut {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = copy(from_client, to_server, modes.clone(), number, 0);
    let back = copy(from_server, to_client, modes.clone(), number, 1);
    tokio::select! {
        () = there => {}
        () = back => {}
        _ = modes.wait_for(|mode| mode.is_cut) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    number: usize,
    direction: usize,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if modes
            .wait_for(|mode| !mode.is_stalled[direction] && number >= mode.abandoned)
            .await
            .is_err()
        {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

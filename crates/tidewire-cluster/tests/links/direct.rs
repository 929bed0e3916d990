//! The direct carrier: the suite through proxies, and the refusal of strangers.

use std::net::{Ipv4Addr, SocketAddr};

use tidewire_cluster::carrier::Carrier;
use tidewire_cluster::carrier::direct::{Endpoint, Fingerprint, Identity, PeerAddress};
use tidewire_link::frame::Process;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Ground;
use crate::cases::{first_birth, start, with_cases};
use crate::proxy::Proxy;
use crate::side::{Side, config};

pub struct DirectGround {
    endpoints: [Endpoint; 2],
    fingerprints: [Fingerprint; 2],
    /// In front of each endpoint.
    proxies: [Proxy; 2],
}

pub async fn endpoint() -> (Endpoint, Fingerprint) {
    let identity = Identity::generate().expect("a certificate");
    let fingerprint = identity.fingerprint();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = Endpoint::bind(address, identity).await;
    (endpoint.expect("a free port"), fingerprint)
}

impl DirectGround {
    pub async fn new() -> Self {
        let ((first, first_print), (second, second_print)) = (endpoint().await, endpoint().await);
        Self {
            proxies: [
                Proxy::to(first.local_address()).await,
                Proxy::to(second.local_address()).await,
            ],
            endpoints: [first, second],
            fingerprints: [first_print, second_print],
        }
    }
}

impl Ground for DirectGround {
    fn carrier(&self, local: Process) -> Box<dyn Carrier> {
        let side = usize::from(local.node);
        let other = PeerAddress {
            address: self.proxies[1 - side].address,
            fingerprint: self.fingerprints[1 - side],
        };
        Box::new(self.endpoints[side].carrier(other).expect("a certificate"))
    }

    fn cut(&self) {
        for proxy in &self.proxies {
            proxy.change(|mode| mode.is_cut = true);
        }
    }

    fn stall(&self, from: usize) {
        for (side, proxy) in self.proxies.iter().enumerate() {
            // The proxy in front of a side is dialed by the other one.
            let direction = usize::from(side == from);
            proxy.change(|mode| mode.is_stalled[direction] = true);
        }
    }

    fn abandon(&self) {
        for proxy in &self.proxies {
            proxy.abandon();
        }
    }

    fn repair(&self) {
        for proxy in &self.proxies {
            proxy.change(|mode| *mode = Default::default());
        }
    }
}

/// Makes a test of each case.
macro_rules! tests {
    ($ground:expr, $($case:ident)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let ground = $ground.await;
            crate::cases::$case(&ground).await;
        }
    )+};
}
with_cases! { tests, DirectGround::new() }

/// A process whose certificate the view does not have can't connect, although it knows the certificate of the endpoint.
#[tokio::test]
async fn an_unknown_client_is_refused() {
    let ((here, print), (other, other_print)) = (endpoint().await, endpoint().await);
    let (stranger, _) = endpoint().await;
    let to = |endpoint: &Endpoint, fingerprint| PeerAddress {
        address: endpoint.local_address(),
        fingerprint,
    };
    let dialing = stranger.carrier(to(&here, print)).expect("a certificate");
    let mut strange = Side::start(config(1, 9), Box::new(dialing));
    strange
        .until("the stranger is alone", |side| side.suspicion.is_some())
        .await;
    assert_eq!(strange.linked, None);
    // The member of the view can connect.
    let carriers = [
        here.carrier(to(&other, other_print))
            .expect("a certificate"),
        other.carrier(to(&here, print)).expect("a certificate"),
    ];
    let mut birth = 0;
    let mut sides = carriers.map(|carrier| {
        birth += 1;
        Side::start(config(birth as usize - 1, birth), Box::new(carrier))
    });
    for side in &mut sides {
        side.until("linked", |side| side.linked.is_some()).await;
    }
}

/// An endpoint with another certificate than the expected one gets no frame.
#[tokio::test]
async fn an_unknown_server_is_refused() {
    let ((here, print), (impostor, _)) = (endpoint().await, endpoint().await);
    let (_, expected) = endpoint().await;
    let address = |endpoint: &Endpoint| endpoint.local_address();
    let here_to = PeerAddress {
        address: address(&impostor),
        fingerprint: expected,
    };
    let impostor_to = PeerAddress {
        // It does not dial: only its endpoint is under test.
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        fingerprint: print,
    };
    let mut side = Side::start(
        config(0, 1),
        Box::new(here.carrier(here_to).expect("a certificate")),
    );
    let carrier = impostor.carrier(impostor_to).expect("a certificate");
    let mut strange = Side::start(config(1, 2), Box::new(carrier));
    side.until("alone", |side| side.suspicion.is_some()).await;
    strange
        .until("alone", |side| side.suspicion.is_some())
        .await;
    assert_eq!((side.linked, strange.linked), (None, None));
}

/// A peer without TLS is disconnected, and is sent nothing but a TLS alert.
#[tokio::test]
async fn clear_text_is_refused() {
    let (here, _) = endpoint().await;
    let stream = TcpStream::connect(here.local_address()).await;
    let mut stream = stream.expect("the endpoint listens");
    let written = stream
        .write_all(b"\x05\x00\x00\x00hello, this is not TLS")
        .await;
    written.expect("written");
    let mut answer = Vec::new();
    // A reset is as good as an end.
    let _ = stream.read_to_end(&mut answer).await;
    const ALERT: u8 = 21;
    assert!(answer.is_empty() || answer[0] == ALERT, "{answer:02x?}");
}

/// Both processes dial before either has a connection. One of the two connections stays, at both ends the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_dials_keep_one_connection() {
    for _ in 0..10 {
        let ground = DirectGround::new().await;
        ground.stall(0);
        ground.stall(1);
        let mut sides = [0, 1].map(|side| start(&ground, side, first_birth(side)));
        for proxy in &ground.proxies {
            proxy.until_open(|open| *open > 0).await;
        }
        ground.repair();
        for side in &mut sides {
            side.until("linked", |side| side.linked.is_some()).await;
        }
        let first = usize::from(ground.fingerprints[1] < ground.fingerprints[0]);
        // The connection stays that the process with the lower fingerprint has dialed, through the proxy in front of the other one.
        ground.proxies[first].until_open(|open| *open == 0).await;
        ground.proxies[1 - first]
            .until_open(|open| *open == 1)
            .await;
        sides[0].post(b"there".to_vec());
        sides[1].post(b"back".to_vec());
        sides[1]
            .until("there", |side| side.arrived == b"there")
            .await;
        sides[0].until("back", |side| side.arrived == b"back").await;
        assert!(sides.iter().all(|side| side.lost.is_empty()));
    }
}

/// Handshakes that do not proceed delay no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshakes_delay_no_peer() {
    let ground = DirectGround::new().await;
    let mut stalled = Vec::new();
    for endpoint in &ground.endpoints {
        for _ in 0..20 {
            stalled.push(TcpStream::connect(endpoint.local_address()).await);
        }
    }
    crate::cases::entries_arrive_in_order(&ground).await;
}

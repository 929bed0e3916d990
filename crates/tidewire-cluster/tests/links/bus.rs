//! The carriers over brokers: the suite through a proxy between each side and the broker, and a broker that is killed.
//!
//! The brokers are Debian's packages, and Kafka from Maven, so these tests are ignored by default. `npm --prefix e2e run carriers` runs them.
//! `CARRIER_KILLS` is how often the broker is killed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tidewire_cluster::carrier::bus::{Bus, BusCarrier};
use tidewire_cluster::carrier::{Carrier, CarrierEvent, from_url};
use tidewire_link::frame::Process;

use crate::Ground;
use crate::broker::{Broker, Kind};
use crate::cases::{entries, first_birth, linked, posts_arrive, start, with_cases};
use crate::proxy::Proxy;
use crate::side::Side;

/// The link reports a dead broker within this time.
const SUSPECT_MAX: Duration = Duration::from_secs(5);

/// A carrier with the connection of its process, which ends with it.
pub struct Owned {
    carrier: BusCarrier,
    _bus: Bus,
}

impl Owned {
    /// The carrier of a process, whose node is 0 or 1, to the first life of the other one.
    pub fn new(url: &str, cluster: u64, local: Process) -> Self {
        let other = 1 - local.node;
        let bus = Bus::start(from_url(url).expect("a URL"), cluster, local);
        Self {
            carrier: bus.carrier(Process {
                node: other,
                birth: first_birth(usize::from(other)),
            }),
            _bus: bus,
        }
    }
}

impl Carrier for Owned {
    fn poll_event(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<CarrierEvent> {
        self.carrier.poll_event(context)
    }

    fn send(&mut self, frame: &[u8]) {
        self.carrier.send(frame);
    }

    fn flush(&mut self) -> bool {
        self.carrier.flush()
    }

    fn reset(&mut self) {
        self.carrier.reset();
    }
}

struct BusGround<'a> {
    /// For each side.
    urls: [String; 2],
    proxies: &'a [Proxy; 2],
    cluster: u64,
}

impl Ground for BusGround<'_> {
    fn carrier(&self, local: Process) -> Box<dyn Carrier> {
        let url = &self.urls[usize::from(local.node)];
        Box::new(Owned::new(url, self.cluster, local))
    }

    fn cut(&self) {
        for proxy in self.proxies {
            proxy.change(|mode| mode.is_cut = true);
        }
    }

    fn stall(&self, from: usize) {
        self.proxies[from].change(|mode| mode.is_stalled[0] = true);
    }

    fn abandon(&self) {
        for proxy in self.proxies {
            proxy.abandon();
        }
    }

    fn repair(&self) {
        for proxy in self.proxies {
            proxy.change(|mode| *mode = Default::default());
        }
    }
}

/// A broker with a proxy for each side.
struct Network {
    broker: Broker,
    proxies: [Proxy; 2],
    cases: u64,
}

impl Network {
    async fn new(kind: Kind) -> Self {
        let mut broker = Broker::new(kind);
        let [first, second, _] = broker.addresses;
        let proxies = [Proxy::to(first).await, Proxy::to(second).await];
        broker.advertise([proxies[0].address, proxies[1].address]);
        broker.start().await;
        Self {
            broker,
            proxies,
            cases: 0,
        }
    }

    /// The ground of one case. Each case has its own cluster, and so its own inboxes.
    async fn ground(&mut self, case: &str) -> BusGround<'_> {
        println!("{case}");
        self.cases += 1;
        let topic = format!("case-{}", self.cases);
        self.broker.make_topic(&topic).await;
        BusGround {
            urls: [0, 1].map(|side: usize| self.broker.url(self.proxies[side].address, &topic)),
            proxies: &self.proxies,
            cluster: self.cases,
        }
    }
}

macro_rules! run_each {
    ($network:ident, $($case:ident)+) => {$(
        let ground = $network.ground(stringify!($case)).await;
        crate::cases::$case(&ground).await;
    )+};
}

async fn suite(kind: Kind) {
    let mut network = Network::new(kind).await;
    with_cases! { run_each, network }
    killed_brokers_lose_nothing(network).await;
}

/// The broker is killed under load, many times. Between the two sides nothing is lost or doubled, and both sides notice the end.
async fn killed_brokers_lose_nothing(mut network: Network) {
    let kills: u64 = env::var("CARRIER_KILLS").map_or(3, |kills| kills.parse().expect("a number"));
    let mut sides = linked(&network.ground("killed_brokers_lose_nothing").await).await;
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        let first = round * 1_000_000;
        let mut expected = [first, first + 500_000].map(|first| entries(first..first + 3_000));
        post(&sides, &expected);
        network.broker.kill();
        let start = Instant::now();
        let more = [first, first + 500_000].map(|first| entries(first + 3_000..first + 4_000));
        post(&sides, &more);
        // In every second round the broker is back as soon as it can be.
        if round % 2 == 0 {
            for side in &mut sides {
                side.until("the end of the broker", |side| side.suspicion.is_some())
                    .await;
            }
            slowest = slowest.max(start.elapsed());
            assert!(slowest < SUSPECT_MAX, "{slowest:?}");
        }
        network.broker.start().await;
        for (to, side) in sides.iter_mut().enumerate() {
            expected[1 - to].extend_from_slice(&more[1 - to]);
            let expected = expected[1 - to].concat();
            side.until("all has arrived", |side| {
                side.arrived.len() >= expected.len()
            })
            .await;
            assert!(side.arrived == expected, "round {round}");
            side.arrived.clear();
        }
        // Only after both sides have handled all posts: a peer that handles nothing is suspect.
        for side in &mut sides {
            side.until("trusted", |side| side.suspicion.is_none()).await;
            assert!(side.lost.is_empty());
        }
    }
    let resent: u64 = sides.iter().map(|side| side.stats.resent_count).sum();
    println!(
        "{kills} kills, reported within {slowest:.1?}, {resent} frames sent again, nothing lost or doubled"
    );
}

fn post(sides: &[Side; 2], posts: &[Vec<Vec<u8>>; 2]) {
    for (side, posts) in sides.iter().zip(posts) {
        for post in posts {
            side.post(post.clone());
        }
    }
}

// One test has all cases of a broker, which starts once.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker; npm --prefix e2e run carriers"]
async fn amqp() {
    suite(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker; npm --prefix e2e run carriers"]
async fn kafka() {
    suite(Kind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker; npm --prefix e2e run carriers"]
async fn nats() {
    suite(Kind::Nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker; npm --prefix e2e run carriers"]
async fn redis() {
    suite(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker; npm --prefix e2e run carriers"]
async fn valkey() {
    suite(Kind::Valkey).await;
}

/// Where the program that `encrypted` starts finds the certificates.
const CERTIFICATES: &str = "CARRIER_CERTIFICATES";

/// The carriers check the certificate of a broker that accepts TLS only. The libraries read the trusted certificates from the file that the
/// environment names, which has to be set before the program starts.
#[test]
#[ignore = "needs brokers; npm --prefix e2e run carriers"]
fn encrypted() {
    if let Ok(folder) = env::var(CERTIFICATES) {
        return with_certificates(&PathBuf::from(folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["trusted", "unknown"] {
        let names = vec!["127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let write = |name, text: String| std::fs::write(folder.join(name), text).expect("written");
        write("certificate.pem", made.cert.pem());
        write("key.pem", made.signing_key.serialize_pem());
    }
    let child = Command::new(env::current_exe().expect("this program"))
        .args([
            "--exact",
            "--include-ignored",
            "--nocapture",
            "bus::encrypted",
        ])
        .env(
            "SSL_CERT_FILE",
            folder.path().join("trusted/certificate.pem"),
        )
        .env(CERTIFICATES, folder.path())
        .status();
    assert!(child.is_ok_and(|status| status.success()));
}

fn with_certificates(folder: &Path) {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().expect("the first provider");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for kind in [Kind::Nats, Kind::Redis, Kind::Valkey, Kind::Amqp] {
        for name in ["trusted", "unknown"] {
            println!("{kind:?}, {name} certificate");
            runtime.block_on(encrypted_with(kind, folder.join(name), name == "trusted"));
        }
    }
}

async fn encrypted_with(kind: Kind, certificate: PathBuf, is_trusted: bool) {
    let mut broker = Broker::new(kind);
    broker.encrypt(certificate);
    broker.start().await;
    let [first, second, _] = broker.addresses;
    let proxies = [Proxy::to(first).await, Proxy::to(second).await];
    let ground = BusGround {
        urls: [0, 1].map(|side: usize| broker.url(proxies[side].address, "")),
        proxies: &proxies,
        cluster: 1,
    };
    if is_trusted {
        let mut sides = linked(&ground).await;
        return posts_arrive(&mut sides, 100).await;
    }
    let mut side = start(&ground, 0, first_birth(0));
    // The carrier tries at least twice.
    proxies[0].until_accepted(2).await;
    side.until("alone", |side| side.suspicion.is_some()).await;
    assert_eq!(side.linked, None);
}

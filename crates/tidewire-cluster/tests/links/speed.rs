//! Figures of the carriers for decisions 0104 and 0106, for the first one:
//! `cargo test --release -p tidewire-cluster --test links -- --ignored --exact --nocapture speed::direct`.
//!
//! Before each figure of a broker is its own ping, the shortest round trip that its protocol has.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, ExchangeKind};
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use tidewire_cluster::carrier::Carrier;
use tidewire_cluster::carrier::direct::PeerAddress;
use tidewire_cluster::driver::{Command, DrivenLink, Handled, drive};
use tidewire_link::link::Output;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::broker::{Broker, Kind, PASSWORD, USER};
use crate::bus::Owned;
use crate::cases::first_birth;
use crate::direct::endpoint;
use crate::side::config;

const ENTRY_BYTES: usize = 200;
const CLUSTER: u64 = 1;
const TOPIC: &str = "speed";
/// Round trips before the measured ones.
const WARM_UP: usize = 100;
const PINGS: usize = 1_000;

struct Driven {
    link: Arc<DrivenLink>,
    commands: mpsc::UnboundedSender<Command>,
    delivered: std::sync::mpsc::Receiver<usize>,
}

/// Makes the carrier of a side, on the thread of its driver.
type Make = Box<dyn FnOnce() -> Box<dyn Carrier> + Send>;

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// Two links without a proxy. Side 1 returns each delivery if `echoes`. Each driver has its thread, as on two nodes.
fn driven(echoes: bool, carriers: [(Runtime, Make); 2]) -> [Driven; 2] {
    let mut drivers = Vec::new();
    for (side, (runtime, make)) in carriers.into_iter().enumerate() {
        let (commands, orders) = mpsc::unbounded_channel::<Command>();
        let (sender, delivered) = std::sync::mpsc::channel();
        let back = commands.downgrade();
        let link = Arc::new(DrivenLink::default());
        let driven = Arc::clone(&link);
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let config = config(side, first_birth(side));
                let handled = Arc::new(Mutex::new(Handled::default()));
                let known = Arc::clone(&handled);
                let known = move || *known.lock().expect("not poisoned");
                let echoed = Arc::clone(&driven);
                drive(
                    driven,
                    config,
                    make(),
                    orders,
                    known,
                    move |output, _| match output {
                        Output::Deliver {
                            birth,
                            number,
                            entries,
                        } => {
                            let _ = sender.send(entries.len());
                            *handled.lock().expect("not poisoned") = Handled { birth, number };
                            if echoes
                                && side == 1
                                && !echoed.post(birth, entries)
                                && let Some(back) = back.upgrade()
                            {
                                let _ = back.send(Command::Run);
                            }
                        }
                        Output::Linked { .. } => drop(sender.send(0)),
                        _ => {}
                    },
                )
                .await;
            });
        });
        drivers.push(Driven {
            link,
            commands,
            delivered,
        });
    }
    let drivers: [Driven; 2] = drivers.try_into().ok().expect("two");
    for driver in &drivers {
        assert_eq!(driver.delivered.recv(), Ok(0), "linked");
    }
    drivers
}

fn direct_carriers() -> [(Runtime, Make); 2] {
    let runtimes = [runtime(), runtime()];
    let made = [
        runtimes[0].block_on(endpoint()),
        runtimes[1].block_on(endpoint()),
    ];
    let peers = [1, 0].map(|other: usize| PeerAddress {
        address: made[other].0.local_address(),
        fingerprint: made[other].1,
    });
    let [first, second] = runtimes;
    let [(first_endpoint, _), (second_endpoint, _)] = made;
    let sides = [
        (first, first_endpoint, peers[0]),
        (second, second_endpoint, peers[1]),
    ];
    sides.map(|(runtime, endpoint, peer)| {
        let make = move || -> Box<dyn Carrier> {
            let carrier = endpoint.carrier(peer).expect("a certificate");
            // The listener belongs to the process, which ends with the test.
            std::mem::forget(endpoint);
            Box::new(carrier)
        };
        (runtime, Box::new(make) as Make)
    })
}

fn bus_carriers(url: &str) -> [(Runtime, Make); 2] {
    [0, 1].map(|side: usize| {
        let url = url.to_owned();
        let local = config(side, first_birth(side)).local;
        let make = move || -> Box<dyn Carrier> { Box::new(Owned::new(&url, CLUSTER, local)) };
        (runtime(), Box::new(make) as Make)
    })
}

fn post(driver: &Driven, peer: usize, bytes: usize) {
    if !driver.link.post(first_birth(peer), vec![1; bytes]) {
        let order = driver.commands.send(Command::Run);
        order.expect("the driver runs");
    }
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos() as f64 / 1e3;
    let (median, late, last) = (at(50), at(90), at(99));
    println!("{what}: median {median:.0} us, p90 {late:.0} us, p99 {last:.0} us");
}

/// One way with 200 bytes: half of a round trip.
fn latency(name: &str, rounds: usize, carriers: [(Runtime, Make); 2]) {
    let [first, _second] = driven(true, carriers);
    let times = (0..WARM_UP + rounds).map(|_| {
        let start = Instant::now();
        post(&first, 1, ENTRY_BYTES);
        first.delivered.recv().expect("an echo");
        start.elapsed() / 2
    });
    let what = format!("{name}, one way, {ENTRY_BYTES} bytes");
    print(&what, times.skip(WARM_UP).collect());
}

fn throughput(name: &str, post_bytes: usize, total: usize, carriers: [(Runtime, Make); 2]) {
    let [first, second] = driven(false, carriers);
    let start = Instant::now();
    let (mut posted, mut arrived) = (0, 0);
    while arrived < total {
        // As with credit: at most 4 MiB are on their way.
        while posted < total && posted - arrived < 4 << 20 {
            post(&first, 1, post_bytes);
            posted += post_bytes;
        }
        arrived += second.delivered.recv().expect("a delivery");
        arrived += second.delivered.try_iter().sum::<usize>();
    }
    let megabytes = arrived as f64 / 1e6 / start.elapsed().as_secs_f64();
    println!("{name}, throughput, posts of {post_bytes} bytes: {megabytes:.0} MB/s");
}

#[test]
#[ignore = "measures"]
fn direct() {
    latency("direct", 20_000, direct_carriers());
    for post_bytes in [1_000, 16_000, 256_000] {
        throughput("direct", post_bytes, 1 << 30, direct_carriers());
    }
}

/// A line of text and its answer.
fn ping_text(kind: Kind, address: SocketAddr) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).expect("the broker runs");
    stream.set_nodelay(true).expect("an option");
    if kind == Kind::Nats {
        let login = format!(
            "CONNECT {{\"verbose\":false,\"user\":\"{USER}\",\"pass\":\"{PASSWORD}\"}}\r\n"
        );
        stream.write_all(login.as_bytes()).expect("written");
    }
    let mut buffer = vec![0; 4096];
    let mut ping = || {
        let start = Instant::now();
        stream.write_all(b"PING\r\n").expect("written");
        let mut seen = Vec::new();
        while !seen.windows(6).any(|text| text == b"PONG\r\n") {
            let count = stream.read(&mut buffer).expect("an answer");
            assert!(count > 0, "the broker closes");
            seen.extend_from_slice(&buffer[..count]);
        }
        start.elapsed()
    };
    let _ = (ping(), ping());
    (0..PINGS).map(|_| ping()).collect()
}

/// The declaration of an exchange that exists.
fn ping_amqp(url: &str) -> Vec<Duration> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let connection = Connection::connect(url, ConnectionProperties::default()).await;
        let channel = connection.expect("the broker runs").create_channel().await;
        let channel = channel.expect("a channel");
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let options = ExchangeDeclareOptions {
                passive: true,
                ..Default::default()
            };
            let start = Instant::now();
            let (name, table) = ("amq.direct".into(), FieldTable::default());
            let declare = channel.exchange_declare(name, ExchangeKind::Direct, options, table);
            declare.await.expect("an answer");
            times.push(start.elapsed());
        }
        times
    })
}

/// A request for the last offset of a partition.
fn ping_kafka(address: SocketAddr) -> Vec<Duration> {
    runtime().block_on(async {
        let client = ClientBuilder::new(vec![address.to_string()]).build().await;
        let client = client.expect("the broker runs");
        let partition = client.partition_client(TOPIC, 0, UnknownTopicHandling::Error);
        let partition = partition.await.expect("a partition");
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let start = Instant::now();
            partition
                .get_offset(OffsetAt::Latest)
                .await
                .expect("an answer");
            times.push(start.elapsed());
        }
        times
    })
}

fn measure(kind: Kind, rounds: usize, total: usize) {
    let tools = runtime();
    let mut broker = Broker::new(kind);
    tools.block_on(async {
        broker.start().await;
        broker.make_topic(TOPIC).await;
    });
    let address = broker.addresses[2];
    let url = broker.url(address, TOPIC);
    let name = format!("{kind:?}");
    let pings = match kind {
        Kind::Amqp => ping_amqp(&url),
        Kind::Kafka => ping_kafka(address),
        _ => ping_text(kind, address),
    };
    print(&format!("{name}, its own ping"), pings);
    latency(&name, rounds, bus_carriers(&url));
    for post_bytes in [1_000, 256_000] {
        throughput(&name, post_bytes, total, bus_carriers(&url));
    }
}

/// Makes the measurements: how many round trips, and how many bytes for the throughput.
macro_rules! measurements {
    ($($name:ident $kind:ident $rounds:literal $total:expr;)+) => {$(
        #[test]
        #[ignore = "measures; needs a broker"]
        fn $name() {
            measure(Kind::$kind, $rounds, $total);
        }
    )+};
}
measurements! {
    amqp Amqp 5_000 256 << 20;
    kafka Kafka 1_000 256 << 20;
    nats Nats 20_000 512 << 20;
    redis Redis 20_000 512 << 20;
    valkey Valkey 20_000 512 << 20;
}

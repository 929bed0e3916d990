//! Figures of a carrier for decision 0104: `cargo test --release -p tidewire-cluster --test links -- --ignored --nocapture --test-threads 1`.

use std::time::{Duration, Instant};

use tidewire_cluster::carrier::direct::PeerAddress;
use tidewire_cluster::driver::{Command, drive};
use tidewire_link::link::Output;
use tokio::sync::mpsc;

use crate::direct::endpoint;
use crate::side::config;

const ROUNDS: usize = 20_000;
const ENTRY_BYTES: usize = 200;
const THROUGHPUT_BYTES: usize = 1 << 30;

struct Driven {
    commands: mpsc::UnboundedSender<Command>,
    delivered: std::sync::mpsc::Receiver<usize>,
}

/// Two links without a proxy. Side 1 returns each delivery if `echoes`. Each driver has its thread, as on two nodes.
fn driven(echoes: bool) -> [Driven; 2] {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let runtimes = [runtime(), runtime()];
    let made = [
        runtimes[0].block_on(endpoint()),
        runtimes[1].block_on(endpoint()),
    ];
    let peers = [1, 0].map(|other: usize| PeerAddress {
        address: made[other].0.local_address(),
        fingerprint: made[other].1,
    });
    let mut drivers = Vec::new();
    for (side, (runtime, (endpoint, _))) in runtimes.into_iter().zip(made).enumerate() {
        let (commands, orders) = mpsc::unbounded_channel::<Command>();
        let (sender, delivered) = std::sync::mpsc::channel();
        let (back, peer) = (commands.downgrade(), peers[side]);
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let carrier = endpoint.carrier(peer).expect("a certificate");
                drive(config(side, 1), carrier, orders, move |output, _| {
                    let order = |command| back.upgrade().map(|back| back.send(command));
                    match output {
                        Output::Deliver {
                            birth,
                            number,
                            entries,
                        } => {
                            let _ = sender.send(entries.len());
                            order(Command::Handled { birth, number });
                            if echoes && side == 1 {
                                order(Command::Post { birth, entries });
                            }
                        }
                        Output::Linked { .. } => drop(sender.send(0)),
                        _ => {}
                    }
                })
                .await;
            });
        });
        drivers.push(Driven {
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

#[test]
#[ignore = "measures"]
fn latency_of_the_direct_carrier() {
    let [first, _second] = driven(true);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let post = Command::Post {
                birth: 1,
                entries: vec![1; ENTRY_BYTES],
            };
            first.commands.send(post).expect("the driver runs");
            first.delivered.recv().expect("an echo");
            start.elapsed() / 2
        })
        .collect();
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos() as f64 / 1e3;
    println!(
        "one way, {ENTRY_BYTES} bytes: median {:.1} us, p90 {:.1} us, p99 {:.1} us",
        at(50),
        at(90),
        at(99)
    );
}

#[test]
#[ignore = "measures"]
fn throughput_of_the_direct_carrier() {
    for post_bytes in [1_000, 16_000, 256_000] {
        let [first, second] = driven(false);
        let start = Instant::now();
        let (mut posted, mut arrived) = (0, 0);
        while arrived < THROUGHPUT_BYTES {
            // As with credit: at most 4 MiB are on their way.
            while posted < THROUGHPUT_BYTES && posted - arrived < 4 << 20 {
                let post = Command::Post {
                    birth: 1,
                    entries: vec![1; post_bytes],
                };
                first.commands.send(post).expect("the driver runs");
                posted += post_bytes;
            }
            arrived += second.delivered.recv().expect("a delivery");
            arrived += second.delivered.try_iter().sum::<usize>();
        }
        let seconds = start.elapsed().as_secs_f64();
        let megabytes = arrived as f64 / 1e6 / seconds;
        println!("throughput, posts of {post_bytes} bytes: {megabytes:.0} MB/s");
    }
}

//! The publish/subscribe grid: S connections subscribe to one event, P of them publish it once in each round, and a
//! round is over when everybody has everything.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, first_part, unexpected};
use crate::cli::{self, Chosen};
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::process::{self, Process};
use crate::statistics::{Summary, nanos_each, per_second};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "grid",
    about: "Publish/subscribe: time of a round, server time for each delivery",
    arguments,
    is_pinned: true,
    run,
};

/// A delivery that is not here after this time is missing.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The event's name.
const EVENT: &str = "bench/grid";
/// Above this share of a processor the generator, not the server, sets the pace.
const GENERATOR_SHARE_MAX: f64 = 0.9;

/// A grid's measures.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Connections, all of which subscribe.
    pub subscribers: usize,
    /// How many of them publish.
    pub publishers: usize,
    /// Rounds before the measured ones, which fill caches and buffers.
    pub warm_up_rounds: usize,
    /// Measured rounds.
    pub rounds: usize,
    /// Chooses who publishes.
    pub seed: u64,
    /// A delivery that is not there so long after its publication is missing.
    pub patience: Duration,
}

/// What a grid gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The time of each measured round, from its first publication to its last delivery.
    pub rounds: Vec<Duration>,
    /// Deliveries in all measured rounds.
    pub deliveries: u64,
    /// The server's time on processors, where its process is known.
    pub server_cpu: Option<Duration>,
    /// The generator's time on processors.
    pub generator_cpu: Duration,
    /// What one more connection costs the server in anonymous memory, open and subscribed, before the first round.
    pub connection_bytes: Option<f64>,
}

impl Outcome {
    /// The time of all measured rounds.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.rounds.iter().sum()
    }

    /// The server's nanoseconds for each delivery.
    #[must_use]
    pub fn server_nanos(&self) -> Option<f64> {
        nanos_each(self.server_cpu?, self.deliveries)
    }

    /// Which share of one processor the generator used.
    #[must_use]
    pub fn generator_share(&self) -> f64 {
        self.generator_cpu.as_secs_f64() / self.elapsed().as_secs_f64()
    }
}

impl Grid {
    /// Opens the connections and runs all rounds.
    ///
    /// # Errors
    /// A delivery is missing, doubled or wrong, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Outcome, Failure> {
        let server = target.process.as_ref();
        let subscription = |_| Subscription::Names(vec![EVENT.to_owned()]);
        let first = first_part(self.subscribers);
        let mut swarm = Swarm::new(target)?;
        swarm.open(first, subscription)?;
        let memory_before = anonymous_bytes(server)?;
        swarm.open(self.subscribers - first, subscription)?;
        let memory_after = anonymous_bytes(server)?;
        let publishers = choose(self.publishers, self.subscribers, self.seed);
        let mut ledger = Ledger::new(self.subscribers, publishers, target.has_echo);
        for _ in 0..self.warm_up_rounds {
            round(&mut swarm, &mut ledger, EVENT, self.patience)?;
        }
        let server_before = cpu_time(server)?;
        let generator = Process::own();
        let generator_before = cpu_time(Some(&generator))?;
        let rounds = (0..self.rounds)
            .map(|_| round(&mut swarm, &mut ledger, EVENT, self.patience))
            .collect::<Result<Vec<_>, _>>()?;
        let server_after = cpu_time(server)?;
        let generator_after = cpu_time(Some(&generator))?;
        // What came twice in the last round is found in one more: each connection's messages come in order.
        round(&mut swarm, &mut ledger, EVENT, self.patience)?;
        let spent = |before: Option<Duration>, after: Option<Duration>| Some(after? - before?);
        let grown = |(before, after): (u64, u64)| after.saturating_sub(before) as f64;
        Ok(Outcome {
            deliveries: ledger.round_deliveries() * rounds.len() as u64,
            rounds,
            server_cpu: spent(server_before, server_after),
            generator_cpu: spent(generator_before, generator_after).unwrap_or_default(),
            connection_bytes: memory_before
                .zip(memory_after)
                .map(|pair| grown(pair) / (self.subscribers - first) as f64),
        })
    }
}

fn cpu_time(process: Option<&Process>) -> Result<Option<Duration>, Failure> {
    let time = process.map(Process::cpu_time).transpose();
    time.map_err(Failure::system("processor time"))
}

fn anonymous_bytes(process: Option<&Process>) -> Result<Option<u64>, Failure> {
    let memory = process.map(Process::memory).transpose();
    let memory = memory.map_err(Failure::system("memory of the server"))?;
    Ok(memory.map(|memory| memory.anonymous_bytes))
}

/// One round: each publisher publishes `event` once, and all receive all of it. The time that took.
///
/// # Errors
/// A delivery is missing, doubled or wrong, or a connection fails.
pub(super) fn round(
    swarm: &mut Swarm,
    ledger: &mut Ledger,
    event: &str,
    patience: Duration,
) -> Result<Duration, Failure> {
    ledger.begin_round();
    let start = Instant::now();
    for publisher in 0..ledger.publishers().len() {
        let payload = ledger.payload(publisher);
        swarm.send(ledger.publishers()[publisher], |driver, out| {
            driver.publish(event, &payload, out);
        })?;
    }
    while !ledger.is_complete() {
        let received =
            swarm.receive(
                start + patience,
                "deliveries",
                |receiver, incoming| match incoming {
                    Incoming::Delivery { name, payload }
                        if name.is_none_or(|name| name == event) =>
                    {
                        Ok(ledger.take(receiver, payload)?)
                    }
                    other => Err(unexpected(receiver, other)),
                },
            );
        match received {
            Err(Failure::Deadline(_)) => return Err(ledger.missing().into()),
            result => result?,
        }
    }
    Ok(start.elapsed())
}

/// `count` different ones of `0..of`, by a partial Fisher-Yates shuffle.
fn choose(count: usize, of: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut all: Vec<usize> = (0..of).collect();
    for place in 0..count.min(of) {
        let left = (of - place) as u64;
        all.swap(place, place + (split_mix(&mut state) % left) as usize);
    }
    all.truncate(count);
    all
}

/// SplitMix64: enough randomness to choose connections by.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn arguments(command: Command) -> Command {
    cli::server_arguments(command, "1")
        .arg(cli::number("subscribers", "100", "Connections"))
        .arg(cli::number("publishers", "10", "How many of them publish"))
        .arg(cli::number("rounds", "10", "Measured rounds"))
        .arg(cli::number(
            "warm-up",
            "3",
            "Rounds before the measured ones",
        ))
        .arg(cli::number("seed", "1", "Chooses who publishes"))
        .arg(cli::number(
            "patience",
            "30",
            "Seconds after which a delivery is missing",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let grid = Grid {
        subscribers: cli::take_count(matches, "subscribers", 2)?,
        publishers: cli::take_count(matches, "publishers", 1)?,
        warm_up_rounds: cli::take_count(matches, "warm-up", 0)?,
        rounds: cli::take_count(matches, "rounds", 1)?,
        seed: cli::take(matches, "seed")?,
        patience: Duration::from_secs(cli::take(matches, "patience")?),
    };
    if grid.publishers > grid.subscribers {
        let what = "there can't be more publishers than subscribers";
        return Err(Failure::Argument(what.to_owned()));
    }
    let server = Chosen::from_arguments(matches)?;
    let outcome = grid.run(server.target())?;
    println!("machine: {}", process::machine());
    print!("{}", report(&grid, &outcome));
    Ok(())
}

fn report(grid: &Grid, outcome: &Outcome) -> String {
    let mut lines = vec![format!(
        "grid: {} subscribers, {} publishers, {} rounds, nothing missing, nothing twice",
        grid.subscribers,
        grid.publishers,
        outcome.rounds.len()
    )];
    if let Some(times) = Summary::of_times_ms(&outcome.rounds) {
        lines.push(format!(
            "round: {:.3} ms median, {:.3} to {:.3}",
            times.median, times.min, times.max
        ));
    }
    let rate = per_second(outcome.deliveries, outcome.elapsed()).unwrap_or_default();
    lines.push(format!(
        "deliveries: {}, {:.2} million in a second",
        outcome.deliveries,
        rate / 1e6
    ));
    if let Some(nanos) = outcome.server_nanos() {
        lines.push(format!(
            "server: {nanos:.1} ns of processor time for a delivery, {:.2} million in a processor's second",
            1e3 / nanos
        ));
    }
    if let Some(bytes) = outcome.connection_bytes {
        lines.push(format!(
            "server: {bytes:.0} bytes of anonymous memory for a connection"
        ));
    }
    let share = outcome.generator_share();
    let remark = match share > GENERATOR_SHARE_MAX {
        true => ": it was the bottleneck, round times and deliveries in a second are its own",
        false => "",
    };
    lines.push(format!(
        "generator: {:.0} % of a processor{remark}",
        share * 100.0
    ));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_are_different_and_depend_on_the_seed() {
        let chosen = choose(50, 100, 7);
        let mut sorted = chosen.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 50);
        assert!(sorted.iter().all(|&number| number < 100));
        assert_eq!(chosen, choose(50, 100, 7));
        assert_ne!(chosen, choose(50, 100, 8));
        assert_eq!(choose(3, 3, 1).len(), 3);
    }

    fn outcome(generator_ms: u64) -> Outcome {
        Outcome {
            rounds: vec![Duration::from_millis(10), Duration::from_millis(30)],
            deliveries: 1_000,
            server_cpu: Some(Duration::from_micros(50)),
            generator_cpu: Duration::from_millis(generator_ms),
            connection_bytes: None,
        }
    }

    #[test]
    fn a_report_names_the_bottleneck() {
        let grid = Grid {
            subscribers: 5,
            publishers: 1,
            warm_up_rounds: 0,
            rounds: 2,
            seed: 1,
            patience: PATIENCE,
        };
        let text = report(&grid, &outcome(20));
        assert!(
            text.contains("20.000 ms median, 10.000 to 30.000"),
            "{text}"
        );
        assert!(text.contains("50.0 ns"), "{text}");
        assert!(!text.contains("bottleneck"), "{text}");
        assert!(report(&grid, &outcome(39)).contains("bottleneck"));
    }
}

//! Acknowledged writes compared with the disk and the databases alone, in turns in the same run: many at a time for
//! the rate, one at a time for the latency. `docs/bench.md` describes the comparison.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use tempfile::TempDir;

use super::{Scenario, unexpected};
use crate::arguments;
use crate::bare::disk::Disk;
use crate::bare::postgres::Postgres;
use crate::bare::redis::Redis;
use crate::bare::sqlite::Sqlite;
use crate::bare::{Bare, Data, Rows, Turn, name};
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::process;
use crate::server::{Server, ServerKind};
use crate::statistics::Summary;
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "store",
    about: "Acknowledged writes compared with fdatasync, bare SQLite, PostgreSQL and Redis, in turns",
    arguments,
    // A direct writer to a database also has all processors.
    is_pinned: false,
    run,
};

/// After this time without an acknowledgement, the scenario stops waiting.
const PATIENCE: Duration = Duration::from_secs(30);

fn arguments(command: Command) -> Command {
    let limit = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .default_value(default)
            .value_parser(value_parser!(f64))
            .help(help)
    };
    let url = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("URL").help(help)
    };
    command
        .arg(arguments::server_bin())
        .arg(arguments::number("rounds", "5", "Turns of each contender"))
        .arg(arguments::number("seconds", "5", "Seconds of a turn"))
        .arg(arguments::number(
            "connections",
            "100",
            "Connections that write",
        ))
        .arg(arguments::number(
            "pending",
            "16",
            "Pending writes of each connection, to different records",
        ))
        .arg(arguments::number(
            "payload-bytes",
            "100",
            "Bytes of a record",
        ))
        .arg(url(
            "postgres",
            "Measure PostgreSQL with and without Tidewire, postgresql://user@host:port/database",
        ))
        .arg(url(
            "redis",
            "Measure Redis with and without Tidewire, redis://host:port/database",
        ))
        .arg(limit(
            "share-min",
            "0.7",
            "Minimum share of bare SQLite's writes per second",
        ))
        .arg(limit(
            "postgres-share-min",
            "0.7",
            "The same for bare PostgreSQL",
        ))
        .arg(limit("redis-share-min", "0.5", "The same for bare Redis"))
        .arg(limit(
            "rows-min",
            "10",
            "Minimum average number of writes per commit, with many in flight",
        ))
        .arg(limit(
            "latency-factor",
            "2",
            "Maximum time of an ack as a multiple of an fdatasync, plus the slack",
        ))
        .arg(limit(
            "latency-slack-ms",
            "1",
            "Slack of the median; the slack of the 99th percentile is twice this",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let plan = Plan {
        rounds: arguments::take_count(matches, "rounds", 1)?,
        time: Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64),
        connections: arguments::take_count(matches, "connections", 1)?,
        pending: arguments::take_count(matches, "pending", 1)?,
        bytes: arguments::take_count(matches, "payload-bytes", 1)?,
    };
    let bounds = Bounds {
        rows_min: arguments::take(matches, "rows-min")?,
        factor: arguments::take(matches, "latency-factor")?,
        slack_ms: arguments::take(matches, "latency-slack-ms")?,
    };
    let folder = TempDir::new().map_err(Failure::system("temporary folder"))?;
    let mut disk = Disk::open(folder.path())?;
    let mut stores = vec![Pair::new(
        "SQLite",
        arguments::take(matches, "share-min")?,
        start(matches, &[])?,
        Box::new(Sqlite::open(folder.path())?),
    )];
    if let Some(url) = matches.get_one::<String>("postgres") {
        let options = ["--store-kind", "postgres", "--store-postgres-url", url];
        stores.push(Pair::new(
            "PostgreSQL",
            arguments::take(matches, "postgres-share-min")?,
            start(matches, &options)?,
            Box::new(Postgres::connect(url)?),
        ));
    }
    if let Some(url) = matches.get_one::<String>("redis") {
        let options = ["--store-kind", "redis", "--store-redis-url", url];
        stores.push(Pair::new(
            "Redis",
            arguments::take(matches, "redis-share-min")?,
            start(matches, &options)?,
            Box::new(Redis::connect(url)?),
        ));
    }
    println!("machine: {}", process::machine());
    println!("folder: {}", folder.path().display());
    let mut synced = Histogram::default();
    for _ in 0..plan.rounds {
        let turn = plan.rows().write(&mut disk, 1, plan.time)?;
        synced.merge(&turn.latencies);
        for store in &mut stores {
            store.turn(&plan)?;
        }
    }
    println!("{}: {}", disk.label(), times(&synced)?);
    for store in &stores {
        store.print(&plan)?;
    }
    let shares = stores.iter().map(|store| {
        Ok(Share {
            of: store.bare.label(),
            found: store.share()?,
            min: store.share_min,
        })
    });
    let shares: Vec<Share> = shares.collect::<Result<_, Failure>>()?;
    let sqlite = &stores[0];
    check_bounds(&bounds, &shares, sqlite.rows_each()?, &sqlite.one, &synced)
}

/// Tidewire on a store, with its default number of shards.
fn start(matches: &ArgMatches, options: &[&str]) -> Result<Server, Failure> {
    let shards = available_parallelism().map_err(Failure::system("cores"))?;
    Server::start(&ServerKind::Tidewire {
        program: arguments::take_server_bin(matches)?,
        shards: shards.get(),
        has_rules: false,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    })
}

/// The work of each round.
struct Plan {
    rounds: usize,
    time: Duration,
    connections: usize,
    pending: usize,
    bytes: usize,
}

impl Plan {
    fn rows(&self) -> Rows {
        Rows::new(self.connections * self.pending, self.bytes)
    }
}

/// The limits of the figures for SQLite.
struct Bounds {
    rows_min: f64,
    factor: f64,
    slack_ms: f64,
}

/// The part of a bare store's rate that Tidewire reaches on it, and its limit.
struct Share {
    of: &'static str,
    found: f64,
    min: f64,
}

/// A store with Tidewire and without it, and the results of its turns.
struct Pair {
    title: &'static str,
    share_min: f64,
    server: Server,
    bare: Box<dyn Bare>,
    /// Tidewire's turn and the one without it.
    many: Vec<(Turn, Turn)>,
    one: Histogram,
    bare_one: Histogram,
}

impl Pair {
    fn new(title: &'static str, share_min: f64, server: Server, bare: Box<dyn Bare>) -> Self {
        Self {
            title,
            share_min,
            server,
            bare,
            many: Vec::new(),
            one: Histogram::default(),
            bare_one: Histogram::default(),
        }
    }

    fn turn(&mut self, plan: &Plan) -> Result<(), Failure> {
        let target = self.server.target();
        let mut rows = plan.rows();
        let (one, _) = write(target, 1, 1, plan)?;
        self.one.merge(&one.latencies);
        let bare = rows.write(&mut *self.bare, 1, plan.time)?;
        self.bare_one.merge(&bare.latencies);
        let (many, order) = write(target, plan.connections, plan.pending, plan)?;
        rows.follow(order);
        // As many as Tidewire's own transactions contained.
        let each = many.rows_each().round().max(1.0) as usize;
        let bare = rows.write(&mut *self.bare, each, plan.time)?;
        self.many.push((many, bare));
        Ok(())
    }

    /// The part of the bare store's rate that Tidewire reaches: the median of all rounds.
    fn share(&self) -> Result<f64, Failure> {
        let shares: Vec<f64> = self
            .many
            .iter()
            .map(|(tidewire, bare)| tidewire.rate() / bare.rate())
            .collect();
        median(&shares)
    }

    /// Writes in a commit of Tidewire's.
    fn rows_each(&self) -> Result<f64, Failure> {
        let rows: Vec<f64> = self.many.iter().map(|(turn, _)| turn.rows_each()).collect();
        median(&rows)
    }

    fn print(&self, plan: &Plan) -> Result<(), Failure> {
        let of = |of: fn(&(Turn, Turn)) -> f64| {
            let values: Vec<f64> = self.many.iter().map(of).collect();
            median(&values)
        };
        println!(
            "{}, {} x {}: {:.0} writes/s, {:.0} per commit; {} {:.0} writes/s; share {:.2}",
            self.title,
            plan.connections,
            plan.pending,
            of(|(tidewire, _)| tidewire.rate())?,
            self.rows_each()?,
            self.bare.label(),
            of(|(_, bare)| bare.rate())?,
            self.share()?,
        );
        println!(
            "{}, one in flight: {}; {} {}",
            self.title,
            times(&self.one)?,
            self.bare.label(),
            times(&self.bare_one)?
        );
        Ok(())
    }
}

/// Writes with acknowledgement for the time of a turn, from connections with this many pending writes each, every one
/// to a separate record. Also returns the order of the written records.
fn write(
    target: &Target,
    connections: usize,
    pending: usize,
    plan: &Plan,
) -> Result<(Turn, Vec<u32>), Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(connections, |_| Subscription::Nothing)?;
    let names: Vec<String> = (0..connections * pending).map(name).collect();
    let mut sent: Vec<Option<Instant>> = vec![None; names.len()];
    let mut free: Vec<usize> = (0..names.len()).collect();
    let mut data = Data::new(plan.bytes);
    let mut turn = Turn::default();
    let mut order = Vec::new();
    // The first write of each record creates it, and may first have to load something.
    let (mut writes, mut is_warm) = (0, false);
    let mut start = Instant::now();
    let mut commits = Commits::read(target.address)?;
    loop {
        if !is_warm && writes >= 2 * names.len() as u64 && free.len() == names.len() {
            is_warm = true;
            commits = Commits::read(target.address)?;
            start = Instant::now();
        }
        let is_over = is_warm && start.elapsed() >= plan.time;
        if is_over && free.len() == names.len() {
            break;
        }
        // Between the warm-up and the measurement no write is pending.
        let waits = is_over || (!is_warm && writes >= 2 * names.len() as u64);
        if !waits {
            let now = Instant::now();
            for number in free.drain(..) {
                writes += 1;
                let value = data.of(writes);
                swarm.prepare(number / pending, |driver, out| {
                    driver.write(&names[number], value, Some(number as u64), out);
                });
                sent[number] = Some(now);
                if is_warm {
                    order.push(number as u32);
                }
            }
            // One send for all writes that the acks of one poll have made possible, like a client with several writes
            // to make.
            swarm.send_burst()?;
        }
        let deadline = Instant::now() + PATIENCE;
        // All input of one connection has the same arrival time.
        let mut arrival = None;
        swarm.receive(deadline, "write acks", |connection, incoming| {
            let Incoming::Written { name, number } = incoming else {
                return Err(unexpected(connection, incoming));
            };
            let index = number as usize;
            let since = sent.get_mut(index).and_then(Option::take);
            match since.filter(|_| names[index] == *name && index / pending == connection) {
                Some(since) => {
                    let now = match arrival {
                        Some((of, at)) if of == connection => at,
                        _ => Instant::now(),
                    };
                    arrival = Some((connection, now));
                    if is_warm {
                        turn.latencies.add(now - since);
                        turn.writes += 1;
                    }
                    free.push(index);
                    Ok(())
                }
                None => Err(unexpected(connection, Incoming::Written { name, number })),
            }
        })?;
    }
    turn.elapsed = start.elapsed();
    let after = Commits::read(target.address)?;
    turn.commits = after.commits - commits.commits;
    // If the store's figure differs from the acknowledgements, the server has acknowledged writes that are not
    // stored.
    let stored = after.writes - commits.writes;
    if stored != turn.writes {
        return Err(Failure::Server(format!(
            "{} writes were acknowledged, but {stored} were committed",
            turn.writes
        )));
    }
    Ok((turn, order))
}

/// The work of the server's store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Commits {
    commits: u64,
    writes: u64,
}

impl Commits {
    fn read(address: SocketAddr) -> Result<Self, Failure> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(
                stream,
                "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(Failure::system("metrics"))?;
        Self::parse(&answer)
            .ok_or_else(|| Failure::Server("the metrics have no commits of the store".to_owned()))
    }

    fn parse(metrics: &str) -> Option<Self> {
        let value = |name: &str| {
            let found = metrics
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            found?.trim().parse().ok()
        };
        Some(Self {
            commits: value("tidewire_store_commits_total")?,
            writes: value("tidewire_store_writes_total")?,
        })
    }
}

fn check_bounds(
    bounds: &Bounds,
    shares: &[Share],
    rows: f64,
    acks: &Histogram,
    synced: &Histogram,
) -> Result<(), Failure> {
    let mut faults = Vec::new();
    // Bare SQLite gets the same rows, so the share does not show it.
    if rows < bounds.rows_min {
        let min = bounds.rows_min;
        faults.push(format!("{rows:.1} writes per commit, less than {min}"));
    }
    for Share { of, found, min } in shares.iter().filter(|share| share.found < share.min) {
        faults.push(format!("{found:.2} of {of}'s writes/s, less than {min}"));
    }
    for (what, percent, slack) in [
        ("median", 50.0, bounds.slack_ms),
        ("p99", 99.0, 2.0 * bounds.slack_ms),
    ] {
        let (ack, sync) = (milliseconds(acks, percent)?, milliseconds(synced, percent)?);
        let max = bounds.factor * sync + slack;
        if ack > max {
            faults.push(format!(
                "the {what} of acks is {ack:.2} ms, more than {max:.2}"
            ));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::Threshold(faults.join("; "))),
    }
}

fn times(latencies: &Histogram) -> Result<String, Failure> {
    let (median, p99) = (
        milliseconds(latencies, 50.0)?,
        milliseconds(latencies, 99.0)?,
    );
    Ok(format!("median {median:.2} ms, p99 {p99:.2} ms"))
}

fn milliseconds(latencies: &Histogram, percent: f64) -> Result<f64, Failure> {
    let latency = latencies.percentile(percent);
    let latency = latency.ok_or_else(|| Failure::Server("nothing was written".to_owned()))?;
    Ok(latency.as_secs_f64() * 1e3)
}

fn median(values: &[f64]) -> Result<f64, Failure> {
    Summary::of(values)
        .map(|summary| summary.median)
        .ok_or_else(|| Failure::Server("nothing was written".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(milliseconds: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for time in milliseconds {
            histogram.add(Duration::from_millis(*time));
        }
        histogram
    }

    #[test]
    fn a_figure_beyond_its_bound_is_reported() {
        let bounds = Bounds {
            rows_min: 10.0,
            factor: 2.0,
            slack_ms: 1.0,
        };
        let check = |(share, rows), acks: &[u64], synced: &[u64], expected: &[&str]| {
            let shares = [("bare SQLite", 0.7), ("bare Redis", 0.5)].map(|(of, min)| Share {
                of,
                found: share,
                min,
            });
            let (acks, synced) = (histogram(acks), histogram(synced));
            let checked = check_bounds(&bounds, &shares, rows, &acks, &synced);
            let fault = checked.map_err(|failure| failure.to_string()).err();
            for part in expected {
                assert!(
                    fault.as_ref().is_some_and(|fault| fault.contains(part)),
                    "{fault:?}"
                );
            }
            assert_eq!(fault.is_none(), expected.is_empty(), "{fault:?}");
        };
        check((0.7, 10.0), &[20], &[10], &[]);
        check((0.7, 9.9), &[20], &[10], &["9.9 writes per commit"]);
        check((0.69, 10.0), &[20], &[10], &["0.69 of bare SQLite's"]);
        check((0.7, 10.0), &[22], &[10], &["median"]);
        check((0.7, 10.0), &[1, 1, 23], &[1, 1, 10], &["p99"]);
        let all = [
            "0.10 of bare SQLite's",
            "0.10 of bare Redis's",
            "median",
            "p99",
        ];
        check((0.1, 10.0), &[50], &[10], &all);
    }

    #[test]
    fn commits_are_read_from_metrics() {
        let metrics = "# HELP x\ntidewire_store_commits_total 7\ntidewire_store_writes_total 70\n";
        let expected = Commits {
            commits: 7,
            writes: 70,
        };
        assert_eq!(Commits::parse(metrics), Some(expected));
        assert_eq!(Commits::parse("tidewire_store_commits_total 7\n"), None);
    }
}

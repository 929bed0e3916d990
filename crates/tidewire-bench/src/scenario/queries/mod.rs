//! Live queries: from a write to the last of its notifications, the server's memory for a query, and the cost of a write that no query
//! selects.
//!
//! Servers without queries take part in two ways. With `--filter`, each client gets all writes of its collections as events and keeps
//! those of its queries itself, which costs the generator alone. A server with the plain contract gets a query as a name.

mod rivals;
mod workload;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use serde::Deserialize;
use tidewire_net::scheduling;

use self::workload::{Extent, Records, Unexpected, collection};
use super::{Scenario, first_part, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::driver::{Incoming, Protocol};
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::{Meter, Usage};
use crate::process::Memory;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "queries",
    about: "Live queries: time from a write to its last notification, memory, cost of a write without matches",
    arguments,
    is_pinned: true,
    run,
};

/// Connections that write, in turn.
const WRITERS: usize = 10;
/// The time between the last preparation and the first write.
const LEAD: Duration = Duration::from_millis(20);
/// Not measured at the start: the first writes create the records.
const WARM_UP: Duration = Duration::from_secs(1);
/// Queries that are subscribed before the first of them is complete, so that a server's queue does not grow with their number.
const SUBSCRIBING_MAX: usize = 2000;
/// Records of the writes that no query selects.
const UNMATCHED_RECORDS: usize = 1000;

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("queries", "100000", "Live queries"))
        .arg(arguments::number(
            "templates",
            "1000",
            "Templates: their queries differ in a constant",
        ))
        .arg(arguments::number("collections", "10", "Collections"))
        .arg(arguments::number(
            "connections",
            "1000",
            "Connections that have the queries",
        ))
        .arg(arguments::number("records", "20000", "Records"))
        .arg(arguments::number("writes", "5000", "Writes per second"))
        .arg(arguments::number(
            "seconds",
            "10",
            "Seconds of each measurement",
        ))
        .arg(arguments::flag(
            "filter",
            "Clients get all writes of their collections as events, and filter them",
        ))
        .arg(
            arguments::flag(
                "rivals",
                "Measure Tidewire and the rivals with the same writes, and compare; run `setup` first",
            )
            .conflicts_with_all(["url", "null", "rival", "rival-command", "filter"]),
        )
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let extent = Extent {
        queries: arguments::take_count(matches, "queries", 1)?,
        templates: arguments::take_count(matches, "templates", 1)?,
        collections: arguments::take_count(matches, "collections", 1)?,
        connections: arguments::take_count(matches, "connections", 1)?,
        records: arguments::take_count(matches, "records", 1)?,
    };
    if !extent.queries.is_multiple_of(extent.templates)
        || extent.constants() < 2
        || extent.templates < extent.collections
        || extent.connections > extent.queries
    {
        let what = "--queries must be a multiple of --templates, at least twice, and at least --connections; --templates at least --collections";
        return Err(Failure::Argument(what.to_owned()));
    }
    let queries = Queries {
        extent,
        writes_per_second: arguments::take_count(matches, "writes", 1)?,
        time: Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64),
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    if matches.get_flag("rivals") {
        return rivals::compare(&queries, matches);
    }
    let filters = matches.get_flag("filter");
    super::measure(matches, true, |target| {
        let follow = match target.protocol {
            _ if filters => Follow::Filter,
            Protocol::Plain => Follow::Name,
            _ => Follow::Query,
        };
        if follow == Follow::Query {
            super::require(target, target.protocol.abilities().queries, "queries")?;
        }
        let (mut cell, run, without) = queries.run(target, follow)?;
        if follow == Follow::Query {
            queries.compare(&mut cell, run, target, without)?;
        }
        Ok(vec![cell])
    })
}

/// How clients follow a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// By a live query.
    Query,
    /// By a subscription of its text as a name.
    Name,
    /// By the events of its collection, which the client filters.
    Filter,
}

/// The parameters of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    extent: Extent,
    writes_per_second: usize,
    time: Duration,
    patience: Duration,
    time_max: Duration,
}

/// The connections, and the notifications that they await.
struct Run {
    queries: Queries,
    follow: Follow,
    swarm: Swarm,
    /// The query of each name of notifications.
    by_name: HashMap<Box<str>, u32>,
    records: Records,
    latencies: Histogram,
    /// Writes planned before it are not measured.
    from: Instant,
    notifications: u64,
    last: Instant,
}

/// A change of a result.
#[derive(Deserialize)]
struct Change<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: Option<&'a str>,
    #[serde(borrow)]
    row: Option<Row<'a>>,
}

#[derive(Deserialize)]
struct Row<'a> {
    id: &'a str,
    data: Value,
}

/// The part of a value that tells which write it is of.
#[derive(Deserialize)]
struct Value {
    r: usize,
    n: u64,
}

impl Queries {
    /// Measures writes without queries, and the queries. Returns the connections, and the server's time of those writes.
    fn run(
        &self,
        target: &Target,
        follow: Follow,
    ) -> Result<(Cell, Run, Vec<Option<f64>>), Failure> {
        let end = Instant::now() + self.time_max;
        let mut run = Run::open(*self, target, follow)?;
        let without = match follow {
            Follow::Query => {
                // The first ones create the records.
                run.unmatched(target, WARM_UP)?;
                vec![run.unmatched(target, self.time)?]
            }
            Follow::Name | Follow::Filter => Vec::new(),
        };
        let first = first_part(self.extent.queries);
        run.subscribe(0..first)?;
        let before = memory(target)?;
        run.subscribe(first..self.extent.queries)?;
        let after = memory(target)?;
        let (usage, is_complete) = run.measure(target, end)?;
        let mut cell = Cell::new(
            "queries",
            self.label(follow),
            target.protocol.name(),
            &usage,
        );
        if !is_complete {
            cell.status = Status::OverTime;
        }
        let writes = run.latencies.count();
        cell.set_rate("writes", writes, &usage);
        cell.set(
            "server_us_per_write",
            usage.server_nanos(writes).map(|nanos| nanos / 1e3),
        );
        cell.set("notifications", run.notifications as f64);
        cell.set("busiest_node_share", usage.busiest_share());
        cell.set_latencies(&run.latencies);
        let each = |part: fn(Memory) -> u64| {
            let (before, after) = before.zip(after)?;
            let grown = part(after).saturating_sub(part(before));
            Some(grown as f64 / (self.extent.queries - first) as f64)
        };
        cell.set("query_bytes", each(|memory| memory.proportional_bytes));
        cell.set(
            "query_bytes_anonymous",
            each(|memory| memory.anonymous_bytes),
        );
        Ok((cell, run, without))
    }

    /// The cost that the queries add to writes that none of them selects.
    fn compare(
        &self,
        cell: &mut Cell,
        mut run: Run,
        target: &Target,
        mut without: Vec<Option<f64>>,
    ) -> Result<(), Failure> {
        let with = run.unmatched(target, self.time)?;
        drop(run);
        let mut run = Run::open(*self, target, Follow::Query)?;
        run.unmatched(target, WARM_UP)?;
        without.push(run.unmatched(target, self.time)?);
        let without: Option<Vec<f64>> = without.into_iter().collect();
        if let Some((with, without)) = with.zip(without) {
            let mean = without.iter().sum::<f64>() / without.len() as f64;
            cell.set("unmatched_us_with_queries", with);
            cell.set("unmatched_us_without_queries", mean);
            cell.set("unmatched_us_added", with - mean);
            cell.samples
                .insert("unmatched_us_without_queries".to_owned(), without);
        }
        Ok(())
    }

    fn label(&self, follow: Follow) -> String {
        let Extent {
            queries, templates, ..
        } = self.extent;
        let by = match follow {
            Follow::Query => "",
            Follow::Name => ", evaluated again",
            Follow::Filter => ", filtered by clients",
        };
        let rate = self.writes_per_second;
        format!("{queries} of {templates} templates at {rate}/s{by}")
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.writes_per_second as u32
    }
}

impl Run {
    /// Opens the connections, without queries.
    fn open(queries: Queries, target: &Target, follow: Follow) -> Result<Self, Failure> {
        let extent = queries.extent;
        let mut swarm = Swarm::new(target)?;
        swarm.open(extent.connections, |connection| match follow {
            Follow::Filter => {
                let of_connection = (connection..extent.queries).step_by(extent.connections);
                let mut names: Vec<String> = of_connection
                    .map(|query| extent.collection_of(query))
                    .collect();
                names.sort_unstable();
                names.dedup();
                Subscription::Names(names)
            }
            Follow::Query | Follow::Name => Subscription::Nothing,
        })?;
        swarm.open(WRITERS, |_| Subscription::Nothing)?;
        Ok(Self {
            queries,
            follow,
            swarm,
            by_name: HashMap::new(),
            records: Records::new(extent),
            latencies: Histogram::default(),
            from: Instant::now(),
            notifications: 0,
            last: Instant::now(),
        })
    }

    /// Subscribes to some of the queries.
    fn subscribe(&mut self, queries: std::ops::Range<usize>) -> Result<(), Failure> {
        let (extent, follow) = (self.queries.extent, self.follow);
        if follow == Follow::Filter {
            return Ok(());
        }
        let goal = queries.end;
        let (mut next, mut done) = (queries.start, queries.start);
        while done < goal {
            while next < goal && next - done < SUBSCRIBING_MAX {
                let (collection, query) = (extent.collection_of(next), extent.query(next));
                let name = format!("{collection}:{query}");
                self.swarm.prepare(extent.connection(next), |driver, out| {
                    if follow == Follow::Query {
                        driver.subscribe_query(&collection, &query, next as u64, out);
                    } else {
                        driver.subscribe(&[&name], out);
                    }
                });
                if follow == Follow::Name {
                    self.by_name.insert(name.into(), next as u32);
                }
                next += 1;
            }
            self.swarm.send_burst()?;
            let by_name = &mut self.by_name;
            let deadline = Instant::now() + self.queries.patience;
            self.swarm
                .receive(deadline, "results", |connection, incoming| {
                    match incoming {
                        Incoming::Snapshot {
                            number: Some(query),
                            name,
                        } if extent.connection(query as usize) == connection => {
                            by_name.insert(name.into(), query as u32);
                        }
                        Incoming::Subscribed if follow == Follow::Name => {}
                        other => return Err(unexpected(connection, other)),
                    }
                    done += 1;
                    Ok(())
                })?;
        }
        Ok(())
    }

    /// Writes at the planned times and takes the notifications. Returns the cost, and whether all of them have arrived.
    fn measure(&mut self, target: &Target, end: Instant) -> Result<(Usage, bool), Failure> {
        // As for streams: the system's threads on this processor do not count, if the system permits it.
        let _ = scheduling::realtime();
        let (start, interval) = (Instant::now() + LEAD, self.queries.interval());
        let count = |time: Duration| (time.as_secs_f64() / interval.as_secs_f64()) as u32;
        // Each record exists before the measurement.
        let warm_up = count(WARM_UP).max(self.queries.extent.records as u32);
        let all = warm_up + count(self.queries.time);
        let due = |write: u32| start + interval * write;
        self.from = due(warm_up);
        let mut meter = Meter::start(target)?;
        let mut sent = 0;
        while sent < all || self.records.pending() > 0 {
            let now = Instant::now();
            while sent < all && due(sent) <= now && self.write(due(sent))? {
                sent += 1;
                if sent == warm_up {
                    meter = Meter::start(target)?;
                    self.notifications = 0;
                }
            }
            if now >= end {
                return Ok((meter.read()?, false));
            }
            if now >= self.last.max(due(sent)) + self.queries.patience {
                let what = format!("notifications of {} writes", self.records.pending());
                return Err(Failure::Deadline(what));
            }
            let next = if sent < all && due(sent) > now {
                due(sent)
            } else {
                now + self.queries.patience
            };
            self.receive(next.min(end))?;
        }
        Ok((meter.read()?, true))
    }

    /// Sends a write, unless all records wait for notifications.
    fn write(&mut self, due: Instant) -> Result<bool, Failure> {
        let Some(write) = self.records.write(due) else {
            return Ok(false);
        };
        let writer = self.queries.extent.connections + write.record % WRITERS;
        let collection = collection(write.collection);
        let name = format!("{collection}/{}", write.record);
        let follow = self.follow;
        self.swarm.send(writer, |driver, out| match follow {
            Follow::Query => driver.write(&name, &write.value, None, out),
            Follow::Name => driver.publish(&name, &write.value, out),
            Follow::Filter => driver.publish(&collection, &write.value, out),
        })?;
        Ok(true)
    }

    fn receive(&mut self, until: Instant) -> Result<(), Failure> {
        let Self {
            queries,
            follow,
            swarm,
            by_name,
            records,
            latencies,
            from,
            notifications,
            last,
        } = self;
        let extent = queries.extent;
        swarm.receive_until(until, |connection, incoming| {
            let Incoming::Delivery { name, payload } = incoming else {
                return Err(unexpected(connection, incoming));
            };
            let wrong = |_: Unexpected| unexpected(connection, incoming);
            let malformed = |_: serde_json::Error| unexpected(connection, incoming);
            *last = Instant::now();
            *notifications += 1;
            let mut finish = |due: Option<Instant>| {
                if let Some(due) = due.filter(|due| due >= from) {
                    latencies.add(last.saturating_duration_since(due));
                }
            };
            if *follow == Follow::Filter {
                let Value { r, n } = serde_json::from_str(payload).map_err(malformed)?;
                let has = |query| extent.connection(query) == connection;
                finish(records.filtered(r, n, has).map_err(wrong)?);
                return Ok(());
            }
            let query = name.and_then(|name| by_name.get(name)).copied();
            let query = query.filter(|query| extent.connection(*query as usize) == connection);
            let query = query.ok_or(Unexpected).map_err(wrong)? as usize;
            let changes: Vec<Change<'_>> = serde_json::from_str(payload).map_err(malformed)?;
            for change in changes {
                let done = match (change.kind, change.id, change.row) {
                    ("removed", Some(id), None) => {
                        records.left(query, id.parse().unwrap_or(usize::MAX))
                    }
                    ("added", None, Some(row)) if row.id.parse() == Ok(row.data.r) => {
                        records.entered(query, row.data.r, row.data.n)
                    }
                    _ => Err(Unexpected),
                };
                finish(done.map_err(wrong)?);
            }
            Ok(())
        })
    }

    /// Writes that no query selects, at the same rate. Returns the server's microseconds for each.
    fn unmatched(&mut self, target: &Target, time: Duration) -> Result<Option<f64>, Failure> {
        let Queries {
            extent, patience, ..
        } = self.queries;
        let interval = self.queries.interval();
        let count = (time.as_secs_f64() / interval.as_secs_f64()) as usize;
        let _ = scheduling::realtime();
        let meter = Meter::start(target)?;
        let start = Instant::now();
        for write in 0..count {
            let due = start + interval * write as u32;
            while Instant::now() < due {
                self.swarm.receive_until(due, super::nothing)?;
            }
            let record = write % UNMATCHED_RECORDS;
            let name = format!(
                "{}/unmatched-{record}",
                collection(record % extent.collections)
            );
            let template = write % extent.templates;
            let value = extent.value(template, extent.constants(), record, write as u64);
            let writer = extent.connections + record % WRITERS;
            let send = |driver: &mut crate::driver::Driver, out: &mut Vec<u8>| {
                driver.write(&name, &value, None, out);
            };
            self.swarm.send(writer, send)?;
        }
        // The answers come after the work for all writes.
        for writer in extent.connections..extent.connections + WRITERS {
            let name = format!("{}/unmatched-0", collection(0));
            self.swarm
                .send(writer, |driver, out| driver.head(&name, out))?;
        }
        let mut answers = 0;
        while answers < WRITERS {
            let deadline = Instant::now() + patience;
            self.swarm.receive(
                deadline,
                "versions",
                |connection, incoming| match incoming {
                    Incoming::Version { .. } => {
                        answers += 1;
                        Ok(())
                    }
                    other => Err(unexpected(connection, other)),
                },
            )?;
        }
        let usage = meter.read()?;
        Ok(usage.server_nanos(count as u64).map(|nanos| nanos / 1e3))
    }
}

fn memory(target: &Target) -> Result<Option<Memory>, Failure> {
    let memory = target.process.as_ref().map(|process| process.memory());
    memory
        .transpose()
        .map_err(Failure::system("memory of the server"))
}

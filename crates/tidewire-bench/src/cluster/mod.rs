//! `tidewire-bench cluster`: one node against several at the same offered rate for each subscriber, in turns in the same run.
//!
//! The measure is deliveries per second of processor time of all nodes together, because a machine with two cores can't show how three
//! nodes scale in wall time. Each node of the cluster has the load of the single node.

mod nodes;
mod table;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::arguments;
use crate::cores::{self, Cores};
use crate::failure::Failure;
use crate::process;
use crate::report;
use crate::run_results::{
    Facts, Identity, MeasuredCell, MeasuredContender, Role, RunResults, Store,
};
use crate::runner::{commit, contender::Contender};
use crate::{driver, rival};
use nodes::{Nodes, Program, Redis};
use workload::{Kind, Rate, Workload};

/// The section of the report.
pub const GROUP: &str = "cluster";
/// Above this share of a processor of the busiest node, a cell is not compared with its goal.
pub const NODE_SHARE_MAX: f64 = 0.7;

/// The subcommand.
#[must_use]
pub fn command() -> Command {
    Command::new("cluster")
        .about("One node against several: rooms, records and pairs at the same rate for each subscriber")
        .arg(arguments::number("nodes", "3", "Nodes of the cluster"))
        .arg(arguments::number(
            "publications",
            "3000",
            "Publications per second to all names of the cluster together; rivals get a tenth",
        ))
        .arg(
            Arg::new("rates")
                .long("rates")
                .value_name("RATES")
                .value_delimiter(',')
                .value_parser(Rate::parse)
                .default_value("50,500,max")
                .help("Publications per second to each name, or `max`: as many as arrive, without a goal"),
        )
        .arg(arguments::number("seconds", "3", "Seconds of a turn"))
        .arg(arguments::number("turns", "3", "Turns of each contender"))
        .arg(
            Arg::new("workloads")
                .long("workloads")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(Kind::ALL.map(Kind::name))
                .help("Measure only these workloads"),
        )
        .arg(
            Arg::new("rivals")
                .long("rivals")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(rival::CLUSTER_NAMES)
                .help("Also measure these rivals, one node and several; run `setup` first"),
        )
        .arg(
            Arg::new("redis")
                .long("redis")
                .value_name("URL")
                .help("The store of Tidewire, redis://host:port [default: a redis-server of this run]"),
        )
        .arg(
            Arg::new("tolerance")
                .long("tolerance")
                .value_parser(value_parser!(f64))
                .default_value("0")
                .help("Accept this share less than the goals, on a busy machine or with a debug build"),
        )
        .arg(arguments::folder())
        .arg(arguments::server_bin())
}

/// The parameters of a run.
struct Plan {
    workloads: Vec<Workload>,
    turns: usize,
    time: Duration,
    tolerance: f64,
}

/// Measures all workloads, prints the table, and adds the cells to the report of the folder.
///
/// # Errors
/// A node of Tidewire failed, or its cluster is below a goal. Rivals may fail, which the report shows.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let plan = take_plan(matches)?;
    let default = Path::new("target/bench/full").to_owned();
    let folder = matches.get_one::<PathBuf>("folder").unwrap_or(&default);
    let store = Store::open(folder)?;
    // Both look at all cores, so they must run before this thread is pinned to one.
    let machine = process::machine();
    let cores_apart = Cores::of_this_thread().is_ok_and(|cores| cores.are_apart());
    cores::pin_generator().map_err(Failure::system("cores"))?;
    let redis = match matches.get_one::<String>("redis") {
        Some(url) => Redis::running(url)?,
        None => Redis::start()?,
    };
    let count = arguments::take_count(matches, "nodes", 2)?;
    let commit = commit();
    let programs = take_programs(matches, &commit)?;
    println!("machine: {machine}");
    let mut contenders = Vec::new();
    for program in programs {
        for count in [1, count] {
            contenders.push(Measured::start(&program, count, &redis)?);
        }
    }
    let mut cells = Vec::new();
    for workload in &plan.workloads {
        cells.push(measure(workload, &plan, &contenders));
    }
    let facts = Facts {
        machine,
        cores_apart,
        commit,
        date: rival::said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?,
        profile: GROUP.to_owned(),
        contenders: contenders.into_iter().map(|one| one.identity).collect(),
    };
    let results = join(store.results().ok(), facts, &cells);
    for cell in &cells {
        store.put(cell)?;
    }
    store.put_results(&results)?;
    report::write(&store, &results)?;
    println!("report: {}", store.file(report::FILE).display());
    print!("{}", table::text(&cells));
    table::check(&plan.workloads, &cells, plan.tolerance)
}

fn take_plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    let nodes = arguments::take_count(matches, "nodes", 2)?;
    let publications = arguments::take_count(matches, "publications", 1)?;
    let time = Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64);
    let rates: Vec<Rate> = matches
        .get_many("rates")
        .into_iter()
        .flatten()
        .copied()
        .collect();
    let wanted: Option<Vec<&String>> = matches.get_many("workloads").map(Iterator::collect);
    let kinds = Kind::ALL.into_iter().filter(|kind| {
        let is_named = |names: &Vec<&String>| names.iter().any(|name| *name == kind.name());
        wanted.as_ref().is_none_or(is_named)
    });
    let workloads = kinds.flat_map(|kind| {
        rates.iter().map(move |rate| Workload {
            kind,
            nodes,
            publications,
            rate: *rate,
            time,
        })
    });
    Ok(Plan {
        workloads: workloads.collect(),
        turns: arguments::take_count(matches, "turns", 1)?,
        time,
        tolerance: arguments::take(matches, "tolerance")?,
    })
}

fn take_programs(matches: &ArgMatches, commit: &str) -> Result<Vec<(Identity, Program)>, Failure> {
    let path = arguments::take_server_bin(matches)?;
    let tidewire = Contender::tidewire(&path, commit)?.identity;
    let mut programs = vec![(tidewire, Program::Tidewire(path))];
    for name in matches.get_many::<String>("rivals").into_iter().flatten() {
        let unknown = || Failure::Argument(format!("unknown rival {name:?}"));
        let rival = rival::named(name).ok_or_else(unknown)?;
        let identity = Contender::rival(rival.clone())?.identity;
        programs.push((identity, Program::Rival(rival)));
    }
    Ok(programs)
}

/// The nodes of a contender during the run.
struct Measured {
    identity: Identity,
    nodes: Nodes,
    count: usize,
}

impl Measured {
    fn start(
        (identity, program): &(Identity, Program),
        count: usize,
        redis: &Redis,
    ) -> Result<Self, Failure> {
        let label = match count {
            1 => "one node".to_owned(),
            count => format!("{count} nodes"),
        };
        let identity = Identity {
            name: format!("{}-{count}", identity.name),
            title: format!("{}, {label}", identity.title),
            role: match identity.role {
                Role::Rival => Role::Rival,
                _ if count == 1 => Role::Tidewire,
                _ => Role::Variant,
            },
            version: identity.version.clone(),
        };
        println!("starting {}", identity.title);
        let nodes = Nodes::start(program, count, redis)?;
        Ok(Self {
            identity,
            nodes,
            count,
        })
    }

    fn takes(&self, workload: &Workload) -> bool {
        let driver::Abilities { records, .. } = self.nodes.target().protocol.abilities();
        records || workload.kind != Kind::Records
    }
}

/// One cell: the contenders in turns, in one order and then in the opposite one.
fn measure(workload: &Workload, plan: &Plan, contenders: &[Measured]) -> MeasuredCell {
    let mut running: Vec<(&Measured, MeasuredContender)> = contenders
        .iter()
        .filter(|one| one.takes(workload))
        .map(|one| (one, MeasuredContender::new(&one.identity)))
        .collect();
    for turn in 0..plan.turns {
        let mut in_turn: Vec<_> = running.iter_mut().collect();
        if turn % 2 == 1 {
            in_turn.reverse();
        }
        for (one, measured) in in_turn
            .into_iter()
            .filter(|(_, measured)| measured.failure.is_none())
        {
            let share = workload.for_contender(one.identity.role);
            let label = format!(
                "{} {}/{} {}",
                workload.title(),
                turn + 1,
                plan.turns,
                measured.title
            );
            match share.run(one.count, one.nodes.target()) {
                Ok(cell) => {
                    println!("{label}: {}", report::brief(&cell));
                    measured.turns.push(cell);
                }
                Err(failure) => {
                    println!("{label}: {failure}");
                    measured.failure = Some(failure.to_string());
                }
            }
            one.nodes.rest();
        }
    }
    MeasuredCell {
        key: format!("{workload:?}, {} turns of {:?}", plan.turns, plan.time),
        id: workload.id(),
        group: GROUP.to_owned(),
        title: workload.title(),
        contenders: running.into_iter().map(|(_, measured)| measured).collect(),
    }
}

/// The results of an earlier run of all cells with these cells in place of their former ones.
fn join(earlier: Option<RunResults>, facts: Facts, cells: &[MeasuredCell]) -> RunResults {
    let mut results = earlier.unwrap_or_else(|| RunResults {
        facts: Facts {
            contenders: Vec::new(),
            ..facts.clone()
        },
        cells: Vec::new(),
    });
    results.cells.retain(|cell| cell.group != GROUP);
    results.cells.extend(cells.iter().cloned());
    let is_new = |known: &Identity| facts.contenders.iter().all(|one| one.name != known.name);
    results.facts.contenders.retain(is_new);
    results.facts.contenders.extend(facts.contenders.clone());
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn plan(line: &str) -> Result<Plan, Failure> {
        let words = ["cluster"].into_iter().chain(line.split_whitespace());
        take_plan(&command().get_matches_from(words))
    }

    #[test]
    fn the_table_has_each_workload_at_each_rate() {
        let titles = |line| -> Vec<String> {
            let plan = plan(line).unwrap();
            plan.workloads.iter().map(Workload::title).collect()
        };
        let all = titles("");
        assert_eq!(all.len(), 9);
        assert_eq!(
            all[..3],
            [
                "rooms, 50/s per name",
                "rooms, 500/s per name",
                "rooms, saturated"
            ]
        );
        assert_eq!(
            titles("--workloads pairs --rates 7"),
            ["pairs, 7/s per name"]
        );
        assert!(plan("--nodes 1").is_err());
    }

    #[test]
    fn cells_join_the_results_of_a_run_of_all_cells() {
        let cell = |id, group| fixture::cell(id, group, "title", &[]);
        let earlier = fixture::results(vec![cell("grid-10-1", "grid"), cell("cluster-old", GROUP)]);
        let mut facts = earlier.facts.clone();
        facts.contenders.truncate(1);
        facts.contenders[0].version = "new".to_owned();
        let joined = join(
            Some(earlier.clone()),
            facts.clone(),
            &[cell("cluster-new", GROUP)],
        );
        let ids: Vec<_> = joined.cells.iter().map(|cell| &*cell.id).collect();
        assert_eq!(ids, ["grid-10-1", "cluster-new"]);
        assert_eq!(
            joined.facts.contenders.len(),
            earlier.facts.contenders.len()
        );
        assert_eq!(joined.facts.contenders.last().unwrap().version, "new");
        let alone = join(None, facts.clone(), &[cell("cluster-new", GROUP)]);
        assert_eq!(alone.facts, facts);
    }
}

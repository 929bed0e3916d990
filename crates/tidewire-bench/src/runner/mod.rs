//! `tidewire-bench all`: measures all cells of a profile, contenders in turn inside each cell, so that noise affects
//! all equally.
//!
//! Servers live as long as their cell; each turn is a separate process that drives one of them. A contender that has
//! used up its time gets no further turns.

pub mod contender;
pub mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches};

use crate::arguments;
use crate::cores::{self, Cores};
use crate::failure::Failure;
use crate::link::{Link, tls_client};
use crate::process;
use crate::report;
use crate::result::{Cell, Results, Status};
use crate::rival::{self, Rival};
use crate::run_results::{Facts, MeasuredCell, MeasuredContender, Role, RunResults, Store};
use crate::server::Server;
use contender::{Contender, NULL, TIDEWIRE, Variant};
use plan::{Planned, Profile, Rounds, Transport};

/// The minimum length of a fast server's turn, reached by more rounds.
const TURN_TIME: Duration = Duration::from_secs(1);
/// The largest multiple of the planned rounds.
const ROUNDS_FACTOR_MAX: f64 = 50.0;
/// If a server's rounds take at most this time, an uncounted round precedes the others. The first server that moves a
/// gigabyte pays for the memory of its buffers, if the system has given it away since its last use. For longer rounds
/// that cost is small.
const WARM_UP_TIME_MAX: Duration = Duration::from_secs(4);
/// The time limit of a run for repeated turns.
const RETAKE_TIME: Duration = Duration::from_secs(180);
/// A longer turn is not repeated.
const RETAKEN_TURN_MAX: Duration = Duration::from_secs(10);
/// The largest number of repetitions of a turn: if the host is busy for minutes, waiting does not help.
const RETAKES_MAX: usize = 2;
/// A generator that has not ended this long after its cell's time hangs.
const GRACE: Duration = Duration::from_secs(60);
/// The interval of checks on it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The subcommand.
#[must_use]
pub fn command() -> clap::Command {
    clap::Command::new("all")
        .about("Measure Tidewire, the null server and all rivals in turn; write JSON and an HTML report")
        .arg(
            arguments::flag("quick", "Measure a part of the cells, in five minutes")
        )
        .arg(arguments::folder())
        .arg(list("only", "CELLS", "Measure only these cells"))
        .arg(
            list("contenders", "NAMES", "Measure only these contenders")
                .value_parser(contender::names()),
        )
        .arg(
            arguments::flag("fresh", "Measure all cells again, also those with results of an earlier run")
        )
        .arg(
            Arg::new("rival-command")
                .long("rival-command")
                .value_name("LINE")
                .help("Add a rival, started on {port}; docs/bench.md describes the contract"),
        )
        .arg(
            Arg::new("rival-echo")
                .long("rival-echo")
                .requires("rival-command")
                .action(ArgAction::SetTrue)
                .help("The server returns publishers their own messages"),
        )
        .arg(arguments::server_bin())
}

fn list(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .value_delimiter(',')
        .help(help)
}

/// Measures the missing cells and writes the report.
///
/// # Errors
/// A contender is not set up, or Tidewire or the null server failed in a cell; rivals may fail, which the report
/// shows.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let profile = match matches.get_flag("quick") {
        true => Profile::Quick,
        false => Profile::Full,
    };
    let name = match profile {
        Profile::Full => "full",
        Profile::Quick => "quick",
    };
    let default = Path::new("target/bench").join(name);
    let folder = matches.get_one::<PathBuf>("folder").unwrap_or(&default);
    let store = Store::open(folder)?;
    let cells = take_cells(matches, profile)?;
    // Both look at all cores, so they must run before this thread is pinned to one.
    let machine = process::machine();
    let cores_apart = Cores::of_this_thread().is_ok_and(|cores| cores.are_apart());
    cores::pin_generator().map_err(Failure::system("cores"))?;
    let commit = commit();
    let contenders = take_contenders(matches, &commit)?;
    let facts = Facts {
        machine,
        cores_apart,
        commit,
        date: rival::said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?,
        profile: name.to_owned(),
        contenders: contenders.iter().map(|one| one.identity.clone()).collect(),
    };
    let start = Instant::now();
    let mut retakes = Retakes { left: RETAKE_TIME };
    let mut results = RunResults {
        facts,
        cells: Vec::new(),
    };
    for cell in &cells {
        let key = key(cell, &results.facts, &contenders);
        let kept = match matches.get_flag("fresh") {
            true => None,
            false => store.kept(&cell.id, &key),
        };
        let is_kept = kept.is_some();
        let measured = kept.map_or_else(|| measure(cell, key, &contenders, &mut retakes), Ok)?;
        store.put(&measured)?;
        results.cells.push(measured);
        // After each cell, so that an interrupted run leaves a report too.
        store.put_results(&results)?;
        report::write(&store, &results)?;
        let remark = if is_kept { ", kept" } else { "" };
        println!(
            "== {} at {:.0} s{remark}",
            cell.id,
            start.elapsed().as_secs_f64()
        );
    }
    println!("report: {}", store.file(report::FILE).display());
    print!("{}", report::checklist(&results));
    match failures(&results) {
        failures if failures.is_empty() => Ok(()),
        failures => Err(Failure::Threshold(failures.join("; "))),
    }
}

fn take_cells(matches: &ArgMatches, profile: Profile) -> Result<Vec<Planned>, Failure> {
    let mut cells = plan::cells(profile);
    if let Some(only) = matches.get_many::<String>("only") {
        let only: Vec<&String> = only.collect();
        if let Some(unknown) = only
            .iter()
            .find(|id| cells.iter().all(|cell| &cell.id != **id))
        {
            let known: Vec<&str> = cells.iter().map(|cell| &*cell.id).collect();
            return Err(Failure::Argument(format!(
                "unknown cell {unknown:?}; the cells are: {}",
                known.join(", ")
            )));
        }
        cells.retain(|cell| only.contains(&&cell.id));
    }
    Ok(cells)
}

fn take_contenders(matches: &ArgMatches, commit: &str) -> Result<Vec<Contender>, Failure> {
    let names: Vec<String> = match matches.get_many::<String>("contenders") {
        Some(names) => names.cloned().collect(),
        None => contender::names().into_iter().map(str::to_owned).collect(),
    };
    let mut contenders = Vec::new();
    for name in names {
        let variant = Variant::ALL.into_iter().find(|one| one.name() == name);
        if let Some(variant) = variant {
            let program = arguments::take_server_bin(matches)?;
            contenders.push(Contender::variant(variant, &program, commit)?);
            continue;
        }
        contenders.push(match name.as_str() {
            TIDEWIRE => Contender::tidewire(&arguments::take_server_bin(matches)?, commit)?,
            NULL => Contender::null()?,
            name => {
                let unknown = || Failure::Argument(format!("unknown rival {name:?}"));
                Contender::rival(rival::named(name).ok_or_else(unknown)?)?
            }
        });
    }
    if let Some(line) = matches.get_one::<String>("rival-command") {
        let rival = Rival::from_command(line, matches.get_flag("rival-echo"))?;
        contenders.push(Contender::rival(rival)?);
    }
    Ok(contenders)
}

/// The commit of the working tree from which this program was built.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let folder = env!("CARGO_MANIFEST_DIR");
        let output = Command::new("git")
            .args(["-C", folder])
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + "-dirty",
    }
}

/// The key that decides whether an earlier measurement of a cell is still valid.
fn key(cell: &Planned, facts: &Facts, contenders: &[Contender]) -> String {
    let mut parts = vec![
        facts.machine.clone(),
        cell.arguments.join(" "),
        cell.arguments_for(Role::Null).join(" "),
        cell.arguments_for(Role::Rival).join(" "),
        cell.arguments_for(Role::Variant).join(" "),
        format!(
            "{:?}, {} turns, {} s",
            cell.rounds, cell.turns, cell.seconds
        ),
        format!("{:?} own turns", cell.own_turns),
        format!("{} shards, rooms {}", cell.shards, cell.null_has_rooms),
    ];
    for contender in contenders.iter().filter(|one| cell.takes(one)) {
        let (identity, transport) = (&contender.identity, cell.transport_of(contender));
        let (name, version) = (&identity.name, &identity.version);
        parts.push(format!("{name}, {transport:?}: {version}"));
    }
    parts.join(" | ")
}

/// A contender while its cell is measured.
struct Running<'a> {
    contender: &'a Contender,
    server: Option<Server>,
    measured: MeasuredContender,
    used: Duration,
    /// Its longest turn; a shorter time is not enough for another one.
    longest: Duration,
}

/// Repeats turns that the machine's host has disturbed, for every contender and every result, while there is time.
struct Retakes {
    left: Duration,
}

impl Retakes {
    /// Whether a turn of this length is repeated after `often` repetitions.
    fn take(&mut self, turn: &Cell, time: Duration, often: usize) -> bool {
        let is_taken = turn.is_disturbed()
            && turn.status == Status::Complete
            && often < RETAKES_MAX
            && time <= RETAKEN_TURN_MAX.min(self.left);
        if is_taken {
            self.left -= time;
        }
        is_taken
    }
}

fn measure(
    cell: &Planned,
    key: String,
    contenders: &[Contender],
    retakes: &mut Retakes,
) -> Result<MeasuredCell, Failure> {
    let mut running: Vec<Running<'_>> = contenders
        .iter()
        .filter(|contender| cell.takes(contender))
        .map(|contender| Running {
            contender,
            server: None,
            measured: MeasuredContender::new(&contender.identity),
            used: Duration::ZERO,
            longest: Duration::from_secs(1),
        })
        .collect();
    let turns_of = |one: &Running<'_>| cell.turns_of(one.contender.identity.role);
    for turn in 0..running.iter().map(turns_of).max().unwrap_or_default() {
        let mut in_turn: Vec<_> = running.iter_mut().collect();
        // A contender after a slow one finds the machine's caches and memory cold, so the order must vary.
        if turn % 2 == 1 {
            in_turn.reverse();
        }
        for one in in_turn.into_iter().filter(|one| turn < turns_of(one)) {
            one.turn(cell, turn, retakes)?;
        }
    }
    Ok(MeasuredCell {
        key,
        id: cell.id.clone(),
        group: cell.group.to_owned(),
        title: cell.title.clone(),
        contenders: running.into_iter().map(|one| one.measured).collect(),
    })
}

impl Running<'_> {
    /// One turn, if there is time left. A failure of the server is a result; a failure of the runner is an error.
    fn turn(&mut self, cell: &Planned, turn: usize, retakes: &mut Retakes) -> Result<(), Failure> {
        let is_over = self
            .measured
            .turns
            .last()
            .is_some_and(|turn| turn.status == Status::OverTime);
        if is_over || self.measured.failure.is_some() || self.left(cell) < self.longest {
            return Ok(());
        }
        let title = &self.measured.title;
        let turns = cell.turns_of(self.contender.identity.role);
        let label = format!("{} {}/{turns} {title}", cell.id, turn + 1);
        if self.server.is_none() {
            let kind = self.contender.kind(cell.shards, cell.null_has_rooms);
            match Server::start_with(&kind, link(cell.transport_of(self.contender))?) {
                Ok(server) => self.server = Some(server),
                Err(failure) => {
                    println!("{label}: {failure}");
                    self.measured.failure = Some(failure.to_string());
                    return Ok(());
                }
            }
        }
        let Some(server) = &self.server else {
            return Ok(());
        };
        let (result, time) = self.take(cell, server, turn, &label, retakes)?;
        self.used += time;
        self.longest = self.longest.max(time);
        match result {
            Ok(turn) => {
                println!("{label}: {}", report::brief(&turn));
                match turn.status {
                    Status::Complete => server.rest(),
                    // It has no further turn, and its remaining work would take the others' processor for minutes.
                    Status::OverTime => self.server = None,
                }
                self.measured.turns.push(turn);
            }
            Err(why) => {
                println!("{label}: {why}");
                self.measured.failure = Some(why);
                self.server = None;
            }
        }
        Ok(())
    }

    /// Its remaining time in the cell.
    fn left(&self, cell: &Planned) -> Duration {
        Duration::from_secs(cell.seconds).saturating_sub(self.used)
    }

    /// Measures a turn, again if it was disturbed, and returns the duration of the counted one.
    fn take(
        &self,
        cell: &Planned,
        server: &Server,
        turn: usize,
        label: &str,
        retakes: &mut Retakes,
    ) -> Result<(Result<Cell, String>, Duration), Failure> {
        let left = self.left(cell);
        let rounds = cell
            .rounds
            .map(|rounds| more_rounds(rounds, &self.measured.turns));
        let mut often = 0;
        loop {
            let start = Instant::now();
            let result = drive(cell, self.contender, server, turn, rounds, left)?;
            let time = start.elapsed();
            match &result {
                Ok(turn) if retakes.take(turn, time, often) => {
                    println!("{label}: {}; repeated", report::brief(turn));
                    server.rest();
                    often += 1;
                }
                _ => return Ok((result, time)),
            }
        }
    }
}

/// The kind of connections.
fn link(transport: Transport) -> Result<Link, Failure> {
    Ok(Link {
        tls: transport.has_tls().then(tls_client).transpose()?,
        has_compression: transport.has_compression(),
        has_batches: transport.has_batches(),
        ..Link::default()
    })
}

/// Enough rounds for a turn of the minimum length, by the times of the turn before.
fn more_rounds(planned: Rounds, turns: &[Cell]) -> Rounds {
    let median_ms = turns
        .last()
        .and_then(|turn| turn.figures.get("round_ms_median"));
    let Some(&median_ms) = median_ms else {
        return planned;
    };
    let wanted = TURN_TIME.as_secs_f64() * 1e3 / median_ms.max(1e-3);
    let least = planned.measured as f64;
    let warms_up = median_ms <= WARM_UP_TIME_MAX.as_secs_f64() * 1e3;
    Rounds {
        measured: wanted.clamp(least, least * ROUNDS_FACTOR_MAX) as usize,
        warm_up: planned.warm_up.max(warms_up.into()),
    }
}

/// Runs the generator on a server. The inner failure is the generator's.
fn drive(
    cell: &Planned,
    contender: &Contender,
    server: &Server,
    turn: usize,
    rounds: Option<Rounds>,
    left: Duration,
) -> Result<Result<Cell, String>, Failure> {
    let own = std::env::current_exe().map_err(Failure::system("own program"))?;
    let folder = tempfile::tempdir().map_err(Failure::system("temporary folder"))?;
    let json = folder.path().join("cell.json");
    let errors = folder.path().join("errors");
    let target = server.target();
    let transport = cell.transport_of(contender);
    let scheme = if transport.has_tls() { "wss" } else { "ws" };
    let mut generator = Command::new(own);
    generator
        .args(cell.arguments_for(contender.identity.role))
        .args(["--url", &format!("{scheme}://{}", target.address)])
        .args(["--server-pid", &server.pid().to_string()])
        .args(["--protocol", contender.protocol.name()])
        .args(["--cell-seconds", &left.as_secs().to_string()])
        .arg("--json")
        .arg(&json);
    if transport.has_compression() {
        generator.arg("--compression");
    }
    if transport.has_batches() {
        generator.arg("--batches");
    }
    if contender.has_echo() {
        generator.arg("--echo");
    }
    if let Some(Rounds { measured, warm_up }) = rounds {
        generator.args(["--rounds", &measured.to_string()]);
        generator.args(["--warm-up", &warm_up.to_string()]);
        generator.args(["--seed", &turn.to_string()]);
    }
    let output = fs::File::create(&errors).map_err(Failure::system("output file"))?;
    let child = generator
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .map_err(Failure::system("generator"))?;
    if !wait(child, left + GRACE)? {
        let said = fs::read_to_string(&errors).unwrap_or_default();
        return Ok(Err(match said.trim() {
            "" => "the generator did not end in time".to_owned(),
            said => said.to_owned(),
        }));
    }
    let text = fs::read_to_string(&json).map_err(Failure::system("results of a turn"))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|error| Failure::Server(format!("results of a turn: {error}")))?;
    // A mode with two measurements runs for one of them; the other one is its warm-up.
    let cell = results.cells.into_iter().next_back();
    Ok(cell.ok_or_else(|| "the generator measured nothing".to_owned()))
}

/// Waits for the end and returns whether it succeeded. Kills a late process.
fn wait(mut child: Child, timeout: Duration) -> Result<bool, Failure> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait().map_err(Failure::system("generator"))? {
            return Ok(status.success());
        }
        if Instant::now() > deadline {
            // Fails only if it has just exited by itself.
            let _ = child.kill();
            child.wait().map_err(Failure::system("generator"))?;
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The failures of servers that must not fail.
fn failures(results: &RunResults) -> Vec<String> {
    let mut failures = BTreeMap::new();
    for cell in &results.cells {
        for contender in &cell.contenders {
            if let (true, Some(why)) = (contender.role != Role::Rival, &contender.failure) {
                failures.insert((&cell.id, &contender.name), why);
            }
        }
    }
    failures
        .into_iter()
        .map(|((cell, name), why)| format!("{cell}, {name}: {why}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Usage;

    #[test]
    fn fast_servers_do_more_rounds_and_one_before_them() {
        let planned = Rounds {
            measured: 2,
            warm_up: 0,
        };
        let check = |round_ms: u64, measured: usize, warm_up: usize| {
            let mut cell = Cell::new("grid", "10/1", "plain", &Usage::default());
            cell.set_times("round", &[Duration::from_millis(round_ms)]);
            let expected = Rounds { measured, warm_up };
            assert_eq!(more_rounds(planned, &[cell]), expected, "{round_ms} ms");
        };
        assert_eq!(more_rounds(planned, &[]), planned);
        check(4001, 2, 0);
        check(4000, 2, 1);
        check(100, 10, 1);
        check(1, 100, 1);
    }

    #[test]
    fn disturbed_turns_are_taken_again_while_there_is_time() {
        let turn = |stolen_ms| {
            let usage = Usage {
                elapsed: Duration::from_secs(3),
                stolen: Duration::from_millis(stolen_ms),
                ..Usage::default()
            };
            Cell::new("pairs", "250", "plain", &usage)
        };
        let mut retakes = Retakes {
            left: Duration::from_secs(12),
        };
        let mut check = |turn: Cell, secs, often, expected| {
            let time = Duration::from_secs(secs);
            assert_eq!(retakes.take(&turn, time, often), expected, "{secs} s");
        };
        check(turn(40), 3, 0, false);
        check(turn(50), 11, 0, false);
        check(turn(50), 3, RETAKES_MAX, false);
        let mut cut = turn(50);
        cut.status = Status::OverTime;
        check(cut, 3, 0, false);
        check(turn(50), 9, 1, true);
        check(turn(50), 4, 0, false);
        check(turn(50), 3, 0, true);
    }

    #[test]
    fn unknown_cells_are_refused() {
        let take = |only: &str| {
            let matches = command().get_matches_from(["all", "--only", only]);
            take_cells(&matches, Profile::Quick).map(|cells| cells.len())
        };
        assert_eq!(take("grid-10-1,idle").unwrap(), 2);
        assert_eq!(take("grid-11-1").unwrap_err().exit_code(), 2);
    }
}

//! The `tidewire` command: runs each invocation and returns its exit code.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::umask;
use tidewire_auth::jwt::mint::{TokenRequest, mint};
use tidewire_auth::{AuthChain, jwt, keys, password, random_id};
use tidewire_config::layer::{Loaded, Problem, Sources, load};
use tidewire_config::machine::{Machine, connections_allowed, raise_descriptor_limit};
use tidewire_config::plan::{Plan, plan};
use tidewire_config::print;
use tidewire_config::value::Rules;
use tidewire_http::admin;
use tidewire_http::front::tls::{Tls, install_provider};
use tidewire_http::permission;
use tidewire_net::allocator::give_back_large_blocks;

use crate::cli::{self, ImportCommand, Invocation, RulesCommand};
use crate::cluster;
use crate::crash::{self, Rejoin};
use crate::first_screen::{Screen, first_screen};
use crate::health;
use crate::log::{self, LogHandle};
use crate::rules;
use crate::schema;
use crate::service_manager::ServiceManager;
use crate::store_command;
use crate::terminal::{print_out, read_password};
use crate::user;
use tidewire_migrate::migrate;
use tidewire_server::exit::{Exit, Failure, end_on_panic};
use tidewire_server::node::{Node, Signals, Stopped, StoreWrapper};
use tidewire_torture::broken_store::{self, Break};

/// How often the command checks whether a shard has ended.
const SHARD_INTERVAL: Duration = Duration::from_secs(1);

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    end_on_panic();
    give_back_large_blocks();
    match run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("tidewire: {failure}");
            failure.exit.into()
        }
    }
}

fn run() -> Result<Exit, Failure> {
    install_provider().map_err(|reason| Failure::new(Exit::Bug, reason))?;
    // Options have names and values of UTF-8 text, so other variables are ignored.
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let ports = environment.remove(crash::PORTS);
    let rejoin = Rejoin::parse(environment.remove(crash::REJOIN).as_deref());
    match cli::parse(std::env::args_os(), environment)? {
        Invocation::Text(text) => print_out(&text),
        Invocation::ManualPages(folder) => cli::write_pages(&folder).map(|()| Exit::Stopped),
        Invocation::ConfigPrint {
            is_effective: false,
            ..
        } => print_out(&print::defaults()),
        Invocation::ConfigPrint { sources, .. } => {
            let loaded = load(&sources).map_err(first_problem)?;
            print_out(&print::effective(&loaded))
        }
        Invocation::ConfigCheck(sources) => check(&sources),
        Invocation::Cluster(command, sources) => cluster::run(&planned(&sources)?.1, &command),
        Invocation::Health(sources) => health::ask(&planned(&sources)?.1),
        Invocation::Hash => hash(),
        Invocation::Key { id, user, lifetime } => key(&id, user.as_deref(), lifetime),
        Invocation::Token { order, sources } => token(&sources, &order),
        Invocation::Store(command, store, sources) => {
            store_command::run(&planned(&sources)?.1, store.as_deref(), &command)
        }
        Invocation::Schema(command, sources) => schema::run(&command, || Ok(planned(&sources)?.1)),
        Invocation::Import(
            ImportCommand::Configuration {
                folder,
                into,
                is_dry,
            },
            _,
        ) => migrate(&folder, &into, is_dry)
            .map_err(|line| Failure::new(Exit::Configuration, line))
            .and_then(|report| print_out(&report)),
        Invocation::Import(ImportCommand::Records(command), sources) => {
            store_command::deepstream::run(&planned(&sources)?.1, command)
        }
        Invocation::User(command, sources) => user::run(&planned(&sources)?.1, command),
        Invocation::Rules(RulesCommand::Init(path)) => rules::init(&path),
        Invocation::Rules(RulesCommand::Explain(sources, case)) => rules::explain(
            &load(&sources).map_err(first_problem)?.config.permissions,
            *case,
        ),
        Invocation::Rules(RulesCommand::Test(sources, path)) => rules::test(
            &load(&sources).map_err(first_problem)?.config.permissions,
            &path,
        ),
        Invocation::Start(sources) => start_as_member(sources, None, ports.as_deref(), rejoin),
        Invocation::Torture(settings) => {
            let (verdict, exit) = tidewire_torture::run(&settings)?;
            print_out(&verdict)?;
            Ok(exit)
        }
        Invocation::TortureNode { broken, sources } => {
            prepare_torture_node(&sources)?;
            start_as_member(sources, broken, ports.as_deref(), rejoin)
        }
    }
}

/// Starts the server. A process that replaces a member of a cluster has its ports, and tries again if it can't join yet.
fn start_as_member(
    sources: Sources,
    broken: Option<Break>,
    ports: Option<&str>,
    rejoin: Rejoin,
) -> Result<Exit, Failure> {
    std::thread::sleep(rejoin.pause);
    let sources = crash::on_ports(sources, ports);
    let started = start(&sources, broken, rejoin.evictions);
    let again = started.as_ref().err();
    match again.and_then(|failure| rejoin.again(failure.exit)) {
        Some(again) => {
            if let Err(failure) = &started {
                let pause = again.pause;
                tracing::error!(%failure, ?pause, "the node could not join again; it tries again");
            }
            Err(crash::retry(again))
        }
        None => started,
    }
}

fn planned(sources: &Sources) -> Result<(Loaded, Plan), Failure> {
    let loaded = load(sources).map_err(first_problem)?;
    let plan = plan(&loaded, &Machine::read()).map_err(first_problem)?;
    Ok((loaded, plan))
}

/// The first problem as the one line for the exit code.
fn first_problem(problems: Vec<Problem>) -> Failure {
    let more = match problems.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more; run `tidewire config check`)", count - 1),
    };
    let first = problems
        .first()
        .map_or_else(String::new, ToString::to_string);
    Failure::new(Exit::Configuration, format!("{first}{more}"))
}

fn check(sources: &Sources) -> Result<Exit, Failure> {
    let checked = load(sources).and_then(|loaded| {
        let plan = plan(&loaded, &Machine::read())?;
        AuthChain::new(&plan, plan.hashing_max).map_err(|problem| vec![problem])?;
        Tls::open(&plan).map_err(|problem| vec![problem])?;
        if let Rules::File(path) = &plan.config.permissions {
            permission::load(path)?;
        }
        admin::Key::read(&plan.config.admin).map_err(|problem| vec![problem])?;
        Ok(loaded)
    });
    match checked {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                eprintln!("tidewire: {warning}");
            }
            let file = loaded.file.map_or_else(
                || "defaults, environment and flags; no file was read".to_owned(),
                |path| path.display().to_string(),
            );
            print_out(&format!("the configuration is valid ({file})\n"))
        }
        Err(problems) => {
            for problem in &problems {
                eprintln!("tidewire: {problem}");
            }
            Ok(Exit::Configuration)
        }
    }
}

fn hash() -> Result<Exit, Failure> {
    let password = read_password("hash")?;
    let hash = password::hash(&password).map_err(|error| Failure::new(Exit::Bug, error))?;
    print_out(&format!("{hash}\n"))
}

/// Prints the entry of a key on standard output, for the file, and the key itself on standard error, so that the file never contains it.
fn key(id: &str, user: Option<&str>, lifetime: Option<Duration>) -> Result<Exit, Failure> {
    let (entry, text) = keys::make(id, user, lifetime)
        .map_err(|reason| Failure::new(Exit::Configuration, reason))?;
    print_out(&entry)?;
    eprintln!("the key for the back end, which is not stored and is shown only now: {text}");
    Ok(Exit::Stopped)
}

/// Prints a token. It loads the configuration, but does not check its other parts.
fn token(sources: &Sources, order: &TokenRequest) -> Result<Exit, Failure> {
    let loaded = load(sources).map_err(first_problem)?;
    let id = random_id().map_err(|error| Failure::new(Exit::Bug, error))?;
    let token = mint(&loaded.config.auth.jwt, order, jwt::now(), &id)
        .map_err(|reason| Failure::new(Exit::Configuration, reason))?;
    print_out(&format!("{token}\n"))
}

/// Prepares one of the servers of the torture test, which ends when the torture test ends.
fn prepare_torture_node(sources: &Sources) -> Result<(), Failure> {
    broken_store::refuse_other_folders(&planned(sources)?.1.config.store.path)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::new(Exit::Bug, format!("can't end with parent: {error}")))
}

fn start(sources: &Sources, broken: Option<Break>, evictions: u32) -> Result<Exit, Failure> {
    // Only the server's user may read the files that the server writes.
    umask(Mode::from_raw_mode(0o077));
    let (loaded, plan) = planned(sources)?;
    let log = log::install(&plan.config.log);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if let Err(error) = raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
    let wrapper = broken.as_ref().map(|broken| broken as &dyn StoreWrapper);
    let (node, signals) = Node::start_after(&plan, wrapper, evictions)?;
    let promises: Vec<&str> = node
        .promises()
        .map(|promise| promise.text.as_str())
        .collect();
    let screen = first_screen(&Screen {
        plan: &plan,
        file: loaded.file.as_deref(),
        addresses: node.addresses(),
        tls_addresses: node.tls_addresses(),
        descriptors: connections_allowed(plan.shards),
        promises: &promises,
        admin_key: node.made_key(),
        send_paths: node.send_paths(),
    });
    print_out(&screen)?;
    tracing::info!(addresses = ?node.addresses(), tls_addresses = ?node.tls_addresses(), "ready");
    let manager = ServiceManager::of_process();
    manager.ready(screen.lines().last().unwrap_or_default());
    let signs = manager
        .clone()
        .give_signs_of_life(Arc::clone(&node.front().status));
    node.runtime().spawn(signs);
    serve(node, signals, sources, &loaded, &log, &manager)
}

/// An event that wakes the main thread of a running server.
enum Wake {
    Stop,
    Reload,
    Crash,
    Rejoin(Rejoin),
    ShardLost,
    RulesUnusable(String),
}

fn serve(
    mut node: Node,
    mut signals: Signals,
    sources: &Sources,
    loaded: &Loaded,
    log: &LogHandle,
    manager: &ServiceManager,
) -> Result<Exit, Failure> {
    let mut current = loaded.clone();
    loop {
        match wait(&node, &mut signals) {
            Wake::Stop => break,
            Wake::Reload => {
                manager.reloading();
                manager.ready(&reload(&mut node, sources, &mut current, log));
            }
            Wake::Crash => return Err(crash::start_again(&node, &current.config)),
            Wake::Rejoin(rejoin) => return Err(crash::rejoin(&node, &current.config, rejoin)),
            Wake::RulesUnusable(line) => return Err(Failure::new(Exit::DataFolder, line)),
            Wake::ShardLost => {
                let line =
                    "a shard has ended unexpectedly; report this bug and start the server again";
                return Err(Failure::new(Exit::Bug, line));
            }
        }
    }
    manager.stopping();
    node.runtime().spawn(async move {
        signals.stop.received().await;
        eprintln!(
            "tidewire: ended at once by a second signal; writes that were not acknowledged may be lost"
        );
        std::process::exit(i32::from(Exit::CutOff.code()));
    });
    let stopped = node.stop();
    if stopped.is_clean() {
        tracing::info!("stopped");
        return Ok(Exit::Stopped);
    }
    Err(Failure::new(Exit::CutOff, cut_off(&stopped)))
}

fn wait(node: &Node, signals: &mut Signals) -> Wake {
    node.runtime().block_on(async {
        loop {
            tokio::select! {
                () = signals.stop.received() => return Wake::Stop,
                _ = signals.reload.recv() => return Wake::Reload,
                () = node.front().crash.notified() => return Wake::Crash,
                () = tokio::time::sleep(SHARD_INTERVAL) => {}
            }
            if let Some((pause, evictions)) = node.has_to_rejoin() {
                return Wake::Rejoin(Rejoin { evictions, pause });
            }
            if let Some(line) = node.unusable_rules() {
                return Wake::RulesUnusable(line);
            }
            if node.has_lost_a_shard() {
                return Wake::ShardLost;
            }
        }
    })
}

/// Reads and applies the configuration again. A wrong configuration changes nothing. Returns a line about the result.
fn reload(node: &mut Node, sources: &Sources, current: &mut Loaded, log: &LogHandle) -> String {
    let (loaded, plan) = match planned(sources) {
        Ok(planned) => planned,
        Err(failure) => {
            let line = format!(
                "not reloaded, the server continues with its earlier configuration: {failure}"
            );
            tracing::error!("{line}");
            return line;
        }
    };
    let waiting = print::changed_without_reload(current, &loaded);
    if !waiting.is_empty() {
        tracing::warn!(
            options = waiting.join(", "),
            "these options have changed and need a restart"
        );
    }
    log.set_level(plan.config.log.level);
    node.reload(&plan);
    *current = loaded;
    tracing::info!("reloaded");
    "reloaded".to_owned()
}

fn cut_off(stopped: &Stopped) -> String {
    let unclean = if stopped.has_unclean_store {
        ", the store was not closed cleanly"
    } else {
        ""
    };
    format!(
        "stopped at the deadline: {} connections cut off, {} calls without an answer, {} records not on disk{unclean}; \
         raise drain_timeout",
        stopped.cut_connections, stopped.unanswered_calls, stopped.uncommitted_records
    )
}

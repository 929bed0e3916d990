//! `tidewire torture`: kills, stops, cuts off and restarts real servers under load, and checks after each start that no
//! acknowledged write is lost, on one node or on a cluster. See `docs/torture.md`.

pub mod broken_store;
pub mod command;
mod direct;
mod disk;
mod events;
mod fault_injector;
mod keyed;
mod load;
mod nodes;
mod observer;
mod operation_history;
mod proxy;
mod pulse;
mod random;
mod run_report;
mod server;
mod site;
mod syncs;
mod test_client;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

pub use broken_store::Break;
use disk::{Disk, SmallDisk, Volume};
use fault_injector::InjectedFault;
use load::Work;
pub use nodes::{ClusterSettings, RemoteUrl};
use proxy::Proxy;
use random::Random;
use run_report::{Fault, RunReport, Tally};
use server::Launch;
use site::Site;
use syncs::Syncs;
use tidewire_server::exit::{Exit, Failure};

/// How often one pass injects each fault. A run makes one shuffled pass after another, so that it soon injects every fault.
const FAULT_COUNTS: [(InjectedFault, usize); 6] = [
    (InjectedFault::Kill, 7),
    (InjectedFault::KillStopped, 2),
    (InjectedFault::PowerCut, 6),
    (InjectedFault::Drain, 2),
    (InjectedFault::FailSyncs, 2),
    (InjectedFault::FillDisk, 1),
];

/// Even a short run continues until it has injected each fault, unless that takes longer than this.
const FIRST_PASS_MAX: Duration = Duration::from_secs(120);

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long the run injects faults; `None` if a number of faults ends it.
    pub time: Option<Duration>,
    /// The seed that determines the order of faults; random if `None`.
    pub seed: Option<u64>,
    /// The planted fault of the servers, if they are broken on purpose.
    pub broken: Option<Break>,
    /// The cluster; `None` for a run on one node with a store in its data folder.
    pub cluster: Option<ClusterSettings>,
}

/// Runs the torture test. Returns the verdict as text, and its exit code.
///
/// # Errors
/// The test can't begin.
pub fn run(settings: &Settings) -> Result<(String, Exit), Failure> {
    let seed = match settings.seed {
        Some(seed) => seed,
        None => getrandom::u32()
            .map_err(|error| {
                let line = format!("can't start the torture test: no random seed: {error}");
                Failure::new(Exit::Unproven, line)
            })?
            .into(),
    };
    match &settings.cluster {
        Some(cluster) => nodes::run(settings, cluster, seed),
        None => run_one(settings, seed),
    }
}

/// Runs the torture test on one node.
fn run_one(settings: &Settings, seed: u64) -> Result<(String, Exit), Failure> {
    // Replaces the process, so it comes before the first thread and before the first file that needs a cleanup.
    let mounts = disk::own_mounts();
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Unproven,
            format!("can't start the torture test: {what}: {error}"),
        )
    };
    let program =
        std::env::current_exe().map_err(|error| failed("no path of its program", &error))?;
    let folder = WorkFolder::make(seed).map_err(|error| failed("no work folder", &error))?;
    let proxy = Proxy::start().map_err(|error| failed("no proxy", &error))?;
    let is_interrupted = watch_signals().map_err(|error| failed("no signal handler", &error))?;
    let planned = settings.time.unwrap_or_default();
    println!(
        "tidewire torture: seed {seed}, {} s, in {}",
        planned.as_secs(),
        folder.path.display()
    );
    let launch = Launch {
        program,
        launcher: Vec::new(),
        data: folder.path.join("data"),
        log: folder.path.join("server.log"),
        broken: settings.broken,
        options: Vec::new(),
    };
    let (mut sites, skipped) = Sites::make(&launch, &folder.path, mounts, seed)
        .map_err(|error| failed("no data folder", &error))?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut random = Random::new(seed, 0);
    let mut loss = None;
    let is_over = |has_met_all: bool| {
        let time = start.elapsed();
        let has_time = time < planned || (!has_met_all && time < FIRST_PASS_MAX);
        !has_time || is_interrupted.load(Ordering::Relaxed)
    };
    let mut faults = shuffled_faults(&mut random, &skipped);
    let mut has_met_all = false;
    while loss.is_none() && !is_over(has_met_all) {
        match faults.pop() {
            Some(fault) => loss = sites.of(fault).round(fault, &proxy, &mut tally).err(),
            None => {
                faults = shuffled_faults(&mut random, &skipped);
                has_met_all = true;
            }
        }
    }
    let loss = loss.or_else(|| sites.verify().err());
    let cut_short = is_interrupted
        .load(Ordering::Relaxed)
        .then(|| "a signal stopped it".to_owned());
    let verdict = RunReport {
        seed,
        time: start.elapsed(),
        broken: settings.broken,
        tally,
        work: sites.work(),
        loss,
        skipped,
        cut_short,
    };
    let mut text = verdict.to_string();
    match verdict.loss {
        Some(_) => text.push_str(&format!("kept for inspection: {}\n", folder.path.display())),
        None => folder.remove(),
    }
    Ok((text, verdict.exit()))
}

/// The data folders of a run.
struct Sites {
    /// The site of all faults except full disks.
    main: Site,
    /// The site whose disk can be filled.
    small: Option<Site>,
}

impl Sites {
    /// Makes the sites. If the system can't provide a disk or failing syncs, returns the fault that the run can't inject, with the
    /// reason.
    fn make(
        launch: &Launch,
        folder: &Path,
        mounts: Result<(), String>,
        seed: u64,
    ) -> Result<(Self, Vec<(Fault, String)>), String> {
        let mut skipped = Vec::new();
        let mut with = |fault, reason| skipped.push((fault, reason));
        let volume = mounts.clone().and_then(|()| Volume::make(folder));
        let (disk, data) = match volume {
            Ok(volume) => {
                let data = volume.path().join("data");
                (Disk::Volume(volume), data)
            }
            Err(reason) => {
                with(Fault::PowerCut, reason);
                (Disk::Own, launch.data.clone())
            }
        };
        let syncs = Syncs::make(folder)
            .map_err(|reason| with(Fault::FailedSync, reason))
            .ok();
        let launch = |data| Launch {
            data,
            ..launch.clone()
        };
        let main = Site::make(launch(data), disk, syncs, seed)?;
        let small = match mounts.and_then(|()| SmallDisk::make(folder)) {
            Ok(disk) => {
                let data = disk.path().join("data");
                Some(Site::make(launch(data), Disk::Small(disk), None, seed)?)
            }
            Err(reason) => {
                with(Fault::FullDisk, reason);
                None
            }
        };
        Ok((Self { main, small }, skipped))
    }

    /// The site on which a fault is injected.
    fn of(&mut self, fault: InjectedFault) -> &mut Site {
        match (&mut self.small, fault) {
            (Some(small), InjectedFault::FillDisk) => small,
            _ => &mut self.main,
        }
    }

    fn verify(&mut self) -> Result<(), String> {
        self.main.verify()?;
        self.small.as_mut().map_or(Ok(()), Site::verify)
    }

    fn work(&self) -> Work {
        let small = self.small.as_ref().map(|site| site.load.work);
        self.main.load.work + small.unwrap_or_default()
    }
}

/// The faults of one pass that the system can inject, shuffled.
fn shuffled_faults(random: &mut Random, skipped: &[(Fault, String)]) -> Vec<InjectedFault> {
    let is_possible = |fault| {
        let needed = match fault {
            InjectedFault::PowerCut => Fault::PowerCut,
            InjectedFault::FailSyncs => Fault::FailedSync,
            InjectedFault::FillDisk => Fault::FullDisk,
            InjectedFault::Kill | InjectedFault::KillStopped | InjectedFault::Drain => return true,
        };
        skipped.iter().all(|(fault, _)| *fault != needed)
    };
    let mut faults: Vec<InjectedFault> = FAULT_COUNTS
        .into_iter()
        .filter(|(fault, _)| is_possible(*fault))
        .flat_map(|(fault, count)| std::iter::repeat_n(fault, count))
        .collect();
    random.shuffle(&mut faults);
    faults
}

/// The folder of all files of a run.
struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    fn make(seed: u64) -> std::io::Result<Self> {
        let name = format!("tidewire-torture-{seed}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self { path })
    }

    fn remove(&self) {
        remove(&self.path);
    }
}

/// Removes a folder. Files that can't be removed stay in the temporary folder, which the system cleans up.
fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
}

/// Sets the returned flag when SIGINT or SIGTERM requests an early end.
fn watch_signals() -> std::io::Result<Arc<AtomicBool>> {
    let is_interrupted = Arc::<AtomicBool>::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let noted = Arc::clone(&is_interrupted);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            noted.store(true, Ordering::Relaxed);
        })?;
    Ok(is_interrupted)
}

//! `tidewire torture`: real servers under load are killed, stopped, cut off and started again, and all that they have
//! acknowledged is looked for afterwards. See `docs/torture.md`.

mod book;
pub(crate) mod command;
mod dice;
mod direct;
mod keyed;
mod load;
mod observer;
mod peer;
mod proxy;
mod pulse;
pub(crate) mod sabotage;
mod server;
mod site;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use dice::Dice;
use proxy::Proxy;
pub use sabotage::Break;
use server::Launch;
use site::{Card, Site};
use verdict::{Fault, Tally, Verdict};

/// How often each card lies in the deck; a run goes through deck after deck.
const DECK: [(Card, usize); 3] = [(Card::Kill, 8), (Card::KillStopped, 3), (Card::Drain, 3)];

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// How long.
    pub time: Duration,
    /// What decides which faults come in which order; a random one if none is given.
    pub seed: Option<u64>,
    /// What the servers do wrong.
    pub broken: Option<Break>,
}

/// Tortures servers and prints the verdict.
///
/// # Errors
/// It can't even begin.
pub fn run(order: &Order) -> Result<Exit, Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Unproven,
            format!("torture can't begin: {what}: {error}"),
        )
    };
    let seed = match order.seed {
        Some(seed) => seed,
        None => getrandom::u32()
            .map_err(|error| failed("no random seed", &error))?
            .into(),
    };
    let program = std::env::current_exe().map_err(|error| failed("its own program", &error))?;
    let folder = WorkFolder::make(seed).map_err(|error| failed("its folder", &error))?;
    let proxy = Proxy::start().map_err(|error| failed("its proxy", &error))?;
    let is_interrupted = watch_signals().map_err(|error| failed("its signals", &error))?;
    println!(
        "tidewire torture: seed {seed}, {} s, in {}",
        order.time.as_secs(),
        folder.path.display()
    );
    let launch = Launch {
        program,
        launcher: Vec::new(),
        data: folder.path.join("data"),
        log: folder.path.join("server.log"),
        broken: order.broken,
    };
    let mut site = Site::make(launch, seed).map_err(|error| failed("its data folder", &error))?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut dice = Dice::new(seed, 0);
    let mut loss = None;
    let mut cards = Vec::new();
    while loss.is_none() && start.elapsed() < order.time && !is_interrupted.load(Ordering::Relaxed)
    {
        let card = cards.pop().unwrap_or_else(|| {
            cards = deck(&mut dice);
            cards.pop().unwrap_or(Card::Kill)
        });
        loss = site.round(card, &proxy, &mut tally).err();
    }
    let loss = loss.or_else(|| site.verify().err());
    let cut_short = is_interrupted
        .load(Ordering::Relaxed)
        .then(|| "it was asked to stop".to_owned());
    let verdict = Verdict {
        seed,
        time: start.elapsed(),
        broken: order.broken,
        tally,
        work: site.load.work,
        loss,
        left_out: [Fault::PowerCut, Fault::FailedSync, Fault::FullDisk]
            .map(|fault| (fault, "it is not injected yet".to_owned()))
            .to_vec(),
        cut_short,
    };
    let mut text = verdict.to_string();
    match verdict.loss {
        Some(_) => text.push_str(&format!("kept for a look: {}\n", folder.path.display())),
        None => folder.remove(),
    }
    crate::command::print_out(&text)?;
    Ok(verdict.exit())
}

/// All cards in some order.
fn deck(dice: &mut Dice) -> Vec<Card> {
    let mut cards: Vec<Card> = DECK
        .into_iter()
        .flat_map(|(card, count)| std::iter::repeat_n(card, count))
        .collect();
    dice.shuffle(&mut cards);
    cards
}

/// Where everything lies.
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

/// Removes a folder. What can't be removed is left in the temporary folder, where somebody else removes it.
fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
}

/// Notes the signals that ask for an early end.
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

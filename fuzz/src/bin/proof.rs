//! Proves that the fuzz targets find planted faults, and find none without them. Needs `cargo-fuzz`. Exits with code 1 if a proof fails.
//!
//! `proof faults SECONDS TARGET/FAULT...` plants each fault in turn and runs its target, in the copy of the tree that has the faults
//! (`e2e/faults/list.ts` names them). The inputs that would reveal the fault at once are removed first. The run starts from the target's own
//! seeds, if it has any, and otherwise from the committed corpus, because a corpus that grew without the fault leads away from it.
//!
//! `proof clean SECONDS TARGET...` fuzzes each of these targets for that time. `proof build TARGET...` only builds them.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use tidewire_fuzz::{PLANTED_FAULT, SEEDS_FOLDER, WITHOUT_SERVER, corpus};

/// The longest input: covers every length class of a frame except the last one, which takes too much time here.
const INPUT_BYTES_MAX: u32 = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match words[..] {
        ["faults", seconds, ref faults @ ..] if !faults.is_empty() => {
            prove_faults(faults, seconds.parse()?)?
        }
        ["clean", seconds, ref targets @ ..] if !targets.is_empty() => {
            prove_clean(targets, seconds.parse()?)?
        }
        ["build", ref targets @ ..] if !targets.is_empty() => {
            for target in targets {
                Fuzzer::build(target, None)?;
            }
            true
        }
        _ => {
            return Err(
                "usage: proof faults SECONDS TARGET/FAULT... | proof clean SECONDS TARGET... | proof build TARGET..."
                    .into(),
            );
        }
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether each planted fault is found in time.
fn prove_faults(faults: &[&str], seconds: u64) -> Result<bool> {
    let mut all_found = true;
    for word in faults {
        let (target, fault) = word.split_once('/').ok_or("a fault is TARGET/FAULT")?;
        let fuzzer = Fuzzer::build(target, Some(fault))?;
        let folder = Folder::empty(fault)?;
        let kept = fuzzer.copy_passing(&folder)?;
        let run = fuzzer.run(&folder, seconds)?;
        let found = run.finding.is_some();
        match run.finding {
            Some(what) => println!(
                "{fault}: {kept}; found after {} s: {what}",
                run.took.as_secs()
            ),
            None => println!("{fault}: {kept}; not found in {seconds} s"),
        }
        all_found &= found;
    }
    Ok(all_found)
}

/// Whether fuzzing the targets finds nothing.
fn prove_clean(targets: &[&str], seconds: u64) -> Result<bool> {
    let mut all_clean = true;
    for target in targets {
        let fuzzer = Fuzzer::build(target, None)?;
        let folder = Folder::empty(&format!("clean-{target}"))?;
        unpack(target, &folder.corpus)?;
        let run = fuzzer.run(&folder, seconds)?;
        all_clean &= run.finding.is_none();
        match run.finding {
            Some(what) => println!(
                "{target}: found after {} s: {what}; see {}",
                run.took.as_secs(),
                folder.artifacts.display()
            ),
            None => println!("{target}: no finding in {seconds} s, {} inputs", run.inputs),
        }
    }
    Ok(all_clean)
}

/// Writes the committed inputs of a target to a folder.
fn unpack(target: &str, folder: &Path) -> Result<()> {
    for (name, input) in corpus::read(target)? {
        fs::write(folder.join(name), input)?;
    }
    Ok(())
}

/// The paths of all files in a folder, sorted.
fn paths_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// The files of one run. It has its own copy of the corpus, because the fuzzer adds to it.
struct Folder {
    corpus: PathBuf,
    /// The inputs to choose from: the committed ones, or the target's own seeds.
    seeds: PathBuf,
    artifacts: PathBuf,
    /// For inputs that reveal the fault and are removed.
    scratch: PathBuf,
    log: PathBuf,
}

impl Folder {
    fn empty(name: &str) -> Result<Self> {
        let root = fuzz_folder().join("target/proof").join(name);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let folder = Self {
            corpus: root.join("corpus"),
            seeds: root.join("seeds"),
            artifacts: root.join("artifacts"),
            scratch: root.join("scratch"),
            log: root.join("log"),
        };
        for path in [
            &folder.corpus,
            &folder.seeds,
            &folder.artifacts,
            &folder.scratch,
        ] {
            fs::create_dir_all(path)?;
        }
        Ok(folder)
    }
}

struct Run {
    /// The fuzzer's message about a finding.
    finding: Option<String>,
    took: Duration,
    inputs: String,
}

/// A target that has been built, possibly with a planted fault.
struct Fuzzer<'a> {
    target: &'a str,
    fault: Option<&'a str>,
}

impl<'a> Fuzzer<'a> {
    /// Builds the target; the build does not count as fuzzing time.
    fn build(target: &'a str, fault: Option<&'a str>) -> Result<Self> {
        let fuzzer = Self { target, fault };
        let built = fuzzer.cargo("build").output()?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into());
        }
        Ok(fuzzer)
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new("cargo");
        // The sanitizer is unstable; this lets the installed stable compiler use it.
        cargo
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(fuzz_folder())
            .args(["fuzz", command]);
        if WITHOUT_SERVER.contains(&self.target) {
            cargo.arg("--no-default-features");
        }
        if let Some(fault) = self.fault {
            cargo.env(PLANTED_FAULT, fault);
        }
        cargo.arg(self.target);
        cargo
    }

    /// Copies the initial inputs that do not reveal the fault; returns their number in words.
    fn copy_passing(&self, folder: &Folder) -> Result<String> {
        let (mut passing, what) = match WITHOUT_SERVER.contains(&self.target) {
            true => {
                unpack(self.target, &folder.seeds)?;
                (paths_in(&folder.seeds)?, "inputs")
            }
            false => (self.seeds(folder)?, "seeds"),
        };
        let mut dropped = 0;
        // The fuzzer stops at the first input that reveals the fault, and reports its name.
        while let Some(shown) = self.first_shown(&passing, folder)? {
            passing.retain(|input| *input != shown);
            dropped += 1;
        }
        for input in &passing {
            let name = input.file_name().ok_or("an input has a name")?;
            fs::copy(input, folder.corpus.join(name))?;
        }
        Ok(format!("{} {what} kept, {dropped} removed", passing.len()))
    }

    /// The seeds that a target of the server writes itself.
    fn seeds(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        let output = self
            .cargo("run")
            .env(SEEDS_FOLDER, &folder.seeds)
            .output()?;
        let paths = paths_in(&folder.seeds)?;
        if !output.status.success() || paths.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(paths)
    }

    fn first_shown(&self, inputs: &[PathBuf], folder: &Folder) -> Result<Option<PathBuf>> {
        let output = self
            .cargo("run")
            .args(inputs)
            .arg("--")
            .arg(format!("-artifact_prefix={}/", folder.scratch.display()))
            .output()?;
        if output.status.success() {
            return Ok(None);
        }
        let log = String::from_utf8_lossy(&output.stderr);
        let last = log
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("Running: "));
        let shown = last.map(PathBuf::from).ok_or(log.as_ref())?;
        Ok(Some(shown))
    }

    fn run(&self, folder: &Folder, seconds: u64) -> Result<Run> {
        let start = Instant::now();
        let status = self
            .cargo("run")
            .arg(&folder.corpus)
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-artifact_prefix={}/", folder.artifacts.display()))
            .arg("-print_final_stats=1")
            .stderr(File::create(&folder.log)?)
            .stdout(File::create(folder.log.with_extension("stdout"))?)
            .status()?;
        let log = String::from_utf8_lossy(&fs::read(&folder.log)?).into_owned();
        let artifact = fs::read_dir(&folder.artifacts)?.next().is_some();
        if status.success() == artifact {
            return Err(format!(
                "the fuzzer ended with {status}, see {}",
                folder.log.display()
            )
            .into());
        }
        Ok(Run {
            finding: artifact.then(|| finding(&log)),
            took: start.elapsed(),
            inputs: inputs(&log),
        })
    }
}

/// The panic's message in a log of the fuzzer: the line after its location.
fn finding(log: &str) -> String {
    let mut lines = log
        .lines()
        .skip_while(|line| !line.contains("panicked at"))
        .skip(1);
    lines.next().unwrap_or("no panic, see the log").to_owned()
}

fn inputs(log: &str) -> String {
    let stat = "stat::number_of_executed_units:";
    let count = log.lines().find_map(|line| line.strip_prefix(stat));
    count.map_or("an unknown number of".into(), |count| {
        count.trim().to_owned()
    })
}

fn fuzz_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

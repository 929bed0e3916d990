//! Proves that the target `decode` finds what is wrong, and that nothing is. Usage: `proof faults [SECONDS]` plants
//! each fault and lets the fuzzer look for it, from the committed corpus without the inputs that would show it at
//! once; `proof clean [SECONDS]` fuzzes the codecs as they are, `proof rules [SECONDS]` the rules of permission. Needs
//! `cargo-fuzz`. Exit code 1 if one fails.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const FAULTS: [&str; 4] = [
    "planted-fault-length",
    "planted-fault-slice",
    "planted-fault-allocation",
    "planted-fault-inflate",
];

/// Time in which the fuzzer must find a planted fault.
const FAULT_TIMEOUT_S: u64 = 300;

/// Time in which it must find nothing.
const CLEAN_S: u64 = 3600;

/// Longest inputs: every length class of a frame but the last, which costs too much time here.
const INPUT_BYTES_MAX: u32 = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let mut arguments = env::args().skip(1);
    let what = arguments.next();
    let seconds = arguments
        .next()
        .map(|seconds| seconds.parse())
        .transpose()?;
    let passed = match what.as_deref() {
        Some("faults") => prove_faults(seconds.unwrap_or(FAULT_TIMEOUT_S))?,
        Some("clean") => prove_clean("decode", seconds.unwrap_or(CLEAN_S))?,
        Some("rules") => prove_clean("rules", seconds.unwrap_or(CLEAN_S))?,
        _ => return Err("usage: proof faults|clean|rules [SECONDS]".into()),
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether each planted fault is found in time.
fn prove_faults(seconds: u64) -> Result<bool> {
    let mut all_found = true;
    for fault in FAULTS {
        let folder = Folder::empty(fault)?;
        let kept = keep_passing(fault, &folder.corpus)?;
        let run = fuzz(&folder, "decode", Some(fault), seconds)?;
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

/// Whether a target as it is shows nothing.
fn prove_clean(target: &str, seconds: u64) -> Result<bool> {
    let folder = Folder::empty(&format!("clean-{target}"))?;
    for entry in fs::read_dir(fuzz_folder().join("corpus").join(target))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.corpus.join(entry.file_name()))?;
    }
    let run = fuzz(&folder, target, None, seconds)?;
    let clean = run.finding.is_none();
    match run.finding {
        Some(what) => println!(
            "found after {} s: {what}; see {}",
            run.took.as_secs(),
            folder.artifacts.display()
        ),
        None => println!(
            "no finding in {} s, {} inputs",
            run.took.as_secs(),
            run.inputs
        ),
    }
    Ok(clean)
}

/// Where one run works: its own copy of the corpus, because the fuzzer adds to it.
struct Folder {
    corpus: PathBuf,
    artifacts: PathBuf,
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
            artifacts: root.join("artifacts"),
            log: root.join("log"),
        };
        fs::create_dir_all(&folder.corpus)?;
        fs::create_dir_all(&folder.artifacts)?;
        Ok(folder)
    }
}

struct Run {
    /// What the fuzzer said about what it found.
    finding: Option<String>,
    took: Duration,
    inputs: String,
}

/// Copies the inputs that do not show the fault; returns how many they are, in words.
fn keep_passing(fault: &str, to: &Path) -> Result<String> {
    let output = Command::new("cargo")
        .args([
            "run",
            "--quiet",
            "--bin",
            "keep_passing",
            "--features",
            fault,
            "--",
            "corpus/decode",
        ])
        .arg(to)
        .current_dir(fuzz_folder())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds the target and runs it. The build is not part of the time.
fn fuzz(folder: &Folder, target: &str, feature: Option<&str>, seconds: u64) -> Result<Run> {
    let cargo_fuzz = |command: &str| {
        let mut cargo = Command::new("cargo");
        // The sanitizer is unstable; this lets the installed stable compiler use it.
        cargo
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(fuzz_folder())
            .args(["fuzz", command, target]);
        cargo.args(feature.iter().flat_map(|feature| ["--features", feature]));
        cargo
    };
    let built = cargo_fuzz("build").output()?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into());
    }
    let start = Instant::now();
    let status = cargo_fuzz("run")
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

/// The panic's message in a log of the fuzzer: the line below the one that says where.
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

fn fuzz_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

//! Compares results with Node: a script of `e2e` reads cases as lines of JSON, and answers with a line for each disagreement and a summary.
//! The parity tests of several crates include this file.

use std::io::{BufRead, BufReader, BufWriter};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;

use serde_json::Value;

/// The answers of Node.
#[derive(Default)]
pub struct Report {
    pub disagreements: Vec<Value>,
    pub summary: Value,
}

/// Runs `e2e/SCRIPT` on the cases that `write` writes, and returns the result of `write` as well. If Node ends early, `write` fails, and the
/// caller notices the missing summary.
pub fn compare<T: Send + 'static>(
    script: &str,
    write: impl FnOnce(&mut BufWriter<ChildStdin>) -> T + Send + 'static,
) -> (Report, T) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e");
    let mut node = Command::new("node")
        // `tsx` runs the scripts in TypeScript.
        .args(
            script
                .ends_with(".ts")
                .then_some(["--import", "tsx"])
                .iter()
                .flatten(),
        )
        .arg(folder.join(script))
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("needs Node 18 or later: apt-get install nodejs");
    let stdin = node.stdin.take().expect("stdin is piped");
    let writer = thread::spawn(move || write(&mut BufWriter::new(stdin)));
    let mut report = Report::default();
    for line in BufReader::new(node.stdout.take().expect("stdout is piped")).lines() {
        let mut answer: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        match answer.get_mut("summary") {
            Some(summary) => report.summary = summary.take(),
            None => report.disagreements.push(answer),
        }
    }
    let status = node.wait().expect("node was started");
    let written = writer.join().expect("the generator does not panic");
    assert!(status.success(), "node ended with {status}");
    (report, written)
}

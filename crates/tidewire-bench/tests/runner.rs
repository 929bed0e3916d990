//! The runner as a person calls it: against the null server alone, which is all that `cargo test` has.

use std::path::Path;
use std::process::Command;

fn all(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidewire-bench"))
        .args(["all", "--quick", "--only", "grid-10-1", "--folder"])
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_run_goes_on_where_it_was_stopped_and_leaves_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let (is_good, text) = all(folder.path(), &["--contenders", "null"]);
    assert!(is_good, "{text}");
    assert!(
        text.contains("grid-10-1 3/3 Null server") && !text.contains("kept"),
        "{text}"
    );
    let report = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(
        report.contains("<th scope=\"row\">Null server</th>"),
        "{report}"
    );
    // Nothing changed, so nothing is measured again.
    let (is_good, text) = all(folder.path(), &["--contenders", "null"]);
    assert!(
        is_good && text.contains("kept") && !text.contains("1/3"),
        "{text}"
    );
    let (is_good, text) = all(folder.path(), &["--contenders", "null", "--fresh"]);
    assert!(is_good && text.contains("1/3"), "{text}");
    std::fs::remove_file(folder.path().join("report.html")).unwrap();
    let mut again = Command::new(env!("CARGO_BIN_EXE_tidewire-bench"));
    again.args(["report", "--folder"]).arg(folder.path());
    assert!(again.status().unwrap().success());
    assert!(folder.path().join("report.html").is_file());
}

#[test]
fn a_failing_rival_is_a_result_and_a_failing_tidewire_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let rival = ["--contenders", "null", "--rival-command", "false {port}"];
    let (is_good, text) = all(folder.path(), &rival);
    assert!(
        is_good && text.contains("ended with exit status: 1"),
        "{text}"
    );
    let report = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(report.contains("<td>failed</td>"), "{report}");
    // `sort` does not know Tidewire's arguments.
    let ours = ["--contenders", "tidewire", "--server-bin", "/usr/bin/sort"];
    let (is_good, text) = all(folder.path(), &ours);
    assert!(!is_good && text.contains("grid-10-1, tidewire: "), "{text}");
}

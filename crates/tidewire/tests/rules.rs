//! Rules in the real program: `tidewire rules`, the start with a file of rules, and the log of denials.

mod client;
mod process;

use std::fs;
use std::path::Path;

use process::{Server, run};

const RULES: &str = r#"record:
  "*": { read: true, write: "user.isAuthenticated" }
  "own/$id": { write: "user.id === $id" }
  "gate/$id": { write: "_('lock/' + $id).open" }
event:
  "*": { publish: "data.n > 0" }
rpc:
  "*": {}
presence:
  "*": { allow: "action === 2" }
"#;

fn folder_with(rules: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("permissions.yml"), rules).expect("written");
    folder
}

#[track_caller]
fn explains(folder: &Path, arguments: &str, expected: &[&str]) {
    let arguments: Vec<&str> = ["rules", "explain"]
        .into_iter()
        .chain(arguments.split(' '))
        .collect();
    let (code, out, error) = run(folder, &arguments);
    assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{arguments:?}");
}

#[test]
fn explain_names_the_rule_that_decides() {
    let folder = folder_with(RULES);
    let path = folder.path();
    let own = "permissions.yml:3:23 \"own/$id\" write: user.id === $id";
    let any = "permissions.yml:2:29 \"*\" write: user.isAuthenticated";
    explains(
        path,
        "record.write own/bob --user ann",
        &[
            &format!("denied by {own}"),
            &format!("  it would be allowed by {any}"),
        ],
    );
    explains(
        path,
        "record.write own/ann --user ann",
        &[
            &format!("allowed by {own}"),
            &format!("  it would be allowed by {any}"),
        ],
    );
    explains(path, "record.write x", &[&format!("denied by {any}")]);
    explains(
        path,
        "record.delete x --user ann",
        &["denied: no path of permissions.yml that takes the name has this rule"],
    );
    let gate = "permissions.yml:4:24 \"gate/$id\" write: _('lock/' + $id).open";
    explains(
        path,
        "record.write gate/1 --user ann --other lock/1={\"open\":1}",
        &[
            &format!("allowed by {gate}"),
            "  reads \"lock/1\" (as given)",
            &format!("  it would be allowed by {any}"),
        ],
    );
    explains(
        path,
        "record.write gate/1",
        &[
            &format!("denied, because the rule fails, by {gate}"),
            "  reads \"lock/1\" (not given, so null)",
            &format!("  it would be denied by {any}"),
        ],
    );
    let publish = "permissions.yml:6:19 \"*\" publish: data.n > 0";
    explains(
        path,
        "event.publish x --payload {\"n\":1}",
        &[&format!("allowed by {publish}")],
    );
    explains(
        path,
        "event.publish x --payload {\"n\":0}",
        &[&format!("denied by {publish}")],
    );
    let presence = "permissions.yml:10:17 \"*\" allow: action === 2";
    explains(
        path,
        "presence.allow --action QUERY_ALL",
        &[&format!("allowed by {presence}")],
    );
    explains(
        path,
        "presence.allow bob --action QUERY",
        &[&format!("denied by {presence}")],
    );
}

#[test]
fn mistakes_are_named() {
    let folder = folder_with("record:\n  \"*\": { read: \"user.name(1)\" }\n");
    let (code, _, line) = run(
        folder.path(),
        &["config", "check", "--permissions", "permissions.yml"],
    );
    assert_eq!(code, 2);
    assert!(
        line.contains("permissions.yml:2:22: function `name` is not supported"),
        "{line}"
    );
    assert!(
        line.contains("permissions.yml:1:1: the section `presence` is missing"),
        "{line}"
    );
    let (code, _, line) = run(
        folder.path(),
        &["--port", "0", "--permissions", "permissions.yml"],
    );
    assert_eq!(code, 2);
    assert!(line.contains("permissions.yml:1:1"), "{line}");
    let folder = folder_with(RULES);
    for (arguments, part) in [
        (
            &["rules", "explain", "record.reed", "x"][..],
            "is unknown; use one of record.create",
        ),
        (
            &["rules", "explain", "record.read", "x", "--action", "GO"],
            "is unknown; use one of READ",
        ),
        (
            &["rules", "explain", "record.read", "x", "--payload", "{"],
            "--payload is not valid JSON",
        ),
        (
            &["rules", "explain", "record.read", "x", "--other", "a"],
            "is not NAME=JSON",
        ),
        (&["rules", "test", "missing.yml"], "missing.yml"),
        (&["rules", "init", "permissions.yml"], "permissions.yml"),
    ] {
        let (code, _, line) = run(folder.path(), arguments);
        assert_eq!(code, 2, "{arguments:?}: {line}");
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
}

#[test]
fn a_table_of_cases_is_run() {
    let folder = folder_with(RULES);
    let test = |text: &str| {
        fs::write(folder.path().join("cases.yml"), text).expect("written");
        run(folder.path(), &["rules", "test", "cases.yml"])
    };
    let (code, out, error) = test(
        "permissions: permissions.yml\ncases:\n  - { allow: record.write, name: own/ann, user: ann, line: 3 }\n  \
         - { deny: record.write, name: own/bob, user: ann }\n  - { fail: event.publish, name: x, user: ann }\n  \
         - { allow: event.publish, name: x, data: { n: 1 } }\n  \
         - { allow: record.write, name: gate/1, user: ann, records: { lock/1: { open: true } } }\n  \
         - { deny: presence.allow, name: bob, action: QUERY }\n",
    );
    assert_eq!(
        (code, out.as_str(), error.as_str()),
        (0, "6 of 6 cases decided as expected\n", "")
    );
    let (code, out, _) = test(
        "cases:\n  - { allow: record.write, name: own/bob, user: ann }\n  - { deny: record.write, name: x, line: 3 }\n",
    );
    assert_eq!(code, 1);
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("cases.yml:2: denied by permissions.yml:3:23"),
        "{out}"
    );
    assert!(
        lines[1].starts_with("cases.yml:3: denied by permissions.yml:2:29"),
        "{out}"
    );
    assert_eq!(lines[2], "0 of 2 cases decided as expected");
    for (text, part) in [
        ("cases: [{ alow: record.read }]", "cases.yml:1:"),
        (
            "cases: [{ allow: record.read, deny: record.read }]",
            "one of `allow`, `deny` and `fail`",
        ),
        ("cases: [{ allow: read }]", "is unknown; use one of"),
    ] {
        let (code, _, line) = test(text);
        assert_eq!(code, 2, "{text}");
        assert!(line.contains(part), "{text}: {line}");
    }
}

#[test]
fn the_file_to_begin_with_is_right() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (code, out, _) = run(folder.path(), &["rules", "init"]);
    assert_eq!(code, 0, "{out}");
    explains(
        folder.path(),
        "record.write user/ann --user ann",
        &[
            "allowed by permissions.yml:16:12 \"user/$id\" write: user.id === $id",
            "  it would be denied by permissions.yml:9:12 \"*\" write: false",
        ],
    );
    let (code, ..) = run(
        folder.path(),
        &["config", "check", "--permissions", "permissions.yml"],
    );
    assert_eq!(code, 0);
}

#[test]
fn a_server_reports_its_active_rules() {
    let folder = folder_with(RULES);
    let path = folder.path().join("permissions.yml").display().to_string();
    let server = Server::start_in(folder, &["--permissions", &path]);
    assert!(server.screen.contains(&path), "{}", server.screen);
}

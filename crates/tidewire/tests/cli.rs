//! The program as a child process: its commands, exit codes, log and reload.

mod client;
mod process;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;

use process::{Server, run, tidewire};
use rustix::process::Signal;
use tidewire_core::store::{
    Expected, Incarnation, Store, StoreChange, StoreWrite, StoredRecord, Version,
};
use tidewire_core::text::{Name, Payload};
use tidewire_store::folder::DataFolder;
use tidewire_store::sqlite::{self, SqliteOptions, SqliteStore};

/// Runs a command that must fail with this code and one line on standard error. The line must contain all `parts`.
#[track_caller]
fn fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (found, out, line) = run(folder.path(), arguments);
    assert_eq!(found, code, "{arguments:?}: {line}");
    assert_eq!(out, "", "{arguments:?}");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert!(!line.contains("(os error"), "{arguments:?}: {line}");
    for part in parts {
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
}

#[test]
fn texts_are_printed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let version = concat!("tidewire ", env!("CARGO_PKG_VERSION"), "\n");
    for arguments in [["version"], ["--version"]] {
        assert_eq!(
            run(folder.path(), &arguments),
            (0, version.to_owned(), String::new())
        );
    }
    let text = |arguments: &[&str]| {
        let (code, text, error) = run(folder.path(), arguments);
        assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
        text
    };
    let help = text(&["--help"]);
    for part in ["start", "config", "health", "--port", "--data", "--set"] {
        assert!(help.contains(part), "{part} in {help}");
    }
    assert!(!help.contains("--limits-calls-max"), "{help}");
    assert!(help.lines().count() <= 40, "one screen: {help}");
    for other in [&["-h"][..], &["help"]] {
        assert_eq!(text(other), help, "{other:?}");
    }
    for word in ["start", "store"] {
        assert_eq!(text(&["help", word]), text(&[word, "--help"]), "{word}");
    }
    let options = text(&["help", "options"]);
    for row in tidewire_config::layer::rows() {
        let flag = format!("\n  --{} <", row.flag());
        assert!(options.contains(&flag), "{flag} in {options}");
        assert!(options.contains(&format!("\n      {}: ", row.name)));
    }
    fails(&["help", "strat"], 2, &["\"strat\" is not a command"]);
    fails(
        &["help", "store", "copy"],
        2,
        &["\"store copy\" is not a command"],
    );
}

#[test]
fn any_option_can_be_set_by_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = [
        "config",
        "print",
        "--effective",
        "--set",
        "limits.calls_max=7",
        "--set",
        "network.origins=https://a.example,https://b.example",
    ];
    let (code, text, _) = run(folder.path(), &arguments);
    assert_eq!(code, 0);
    let values: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().split_once(" #"))
        .map(|(value, _)| value.trim())
        .collect();
    for expected in [
        "calls_max: 7",
        "origins: [\"https://a.example\", \"https://b.example\"]",
    ] {
        assert!(values.contains(&expected), "{expected} in {text}");
    }
    let check = |arguments: &[&str], parts: &[&str]| {
        fails(&[&["config", "check"], arguments].concat(), 2, parts);
    };
    check(
        &["--set", "network.prot=1"],
        &["\"network.prot\"", "\"network.port\""],
    );
    check(
        &["--set", "colour=red"],
        &["\"colour\"", "tidewire help options"],
    );
    check(&["--set", "network.port"], &["has no value", "NAME=VALUE"]);
    check(&["--set", "network.port=high"], &["network.port", "high"]);
    check(
        &["--set", "network.port=1", "--port", "2"],
        &["network.port twice"],
    );
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = run(folder.path(), &["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        assert!(
            script.contains("backup") && script.contains("log-level"),
            "{shell}"
        );
        assert!(script.len() < 400_000, "{shell}: {} bytes", script.len());
    }
    fails(&["completions", "csh"], 2, &["csh"]);
    let (code, page, _) = run(folder.path(), &["man"]);
    assert_eq!(code, 0);
    assert!(page.contains(".TH tidewire 1"), "{page}");
    assert_eq!(run(folder.path(), &["man", "pages"]).0, 0);
    let page = fs::read_to_string(folder.path().join("pages/tidewire-store-backup.1"));
    assert!(page.expect("a page").contains("Folder to create"));
    fs::write(folder.path().join("file"), "").expect("written");
    let (code, _, line) = run(folder.path(), &["man", "file"]);
    assert_eq!((code, line.lines().count()), (2, 1), "{line}");
}

#[test]
fn wrong_configurations_end_with_2() {
    fails(&["--prot", "1"], 2, &["--prot", "--port"]);
    fails(&["strat"], 2, &["strat", "start"]);
    fails(&["--port", "high"], 2, &["--port: network.port", "high"]);
    fails(
        &[
            "config",
            "check",
            "--auth-chain",
            "file",
            "--auth-file-path",
            "missing.yml",
            "--permissions",
            "allow_all",
        ],
        2,
        &["missing.yml", "can't be read"],
    );
    fails(
        &["--config", "missing.yml"],
        2,
        &["missing.yml", "--config"],
    );
    fails(
        &["--host", "0.0.0.0"],
        2,
        &["network.host (--host)", "auth.open_on_public_address"],
    );
    fails(
        &["--auth-chain", "file"],
        2,
        &["auth.chain", "auth.file.path"],
    );
    fails(
        &["--auth-chain", "file", "--auth-file-path", "users.yml"],
        2,
        &[
            "permissions (default): users may log in, but there are no permission rules; set `permissions` to a file of rules, or to allow_all to allow everything",
        ],
    );
    fails(
        &["--port", "0", "--permissions", "missing.yml"],
        2,
        &["missing.yml", "can't be read", "tidewire rules init"],
    );
    fails(
        &[
            "--port",
            "0",
            "--auth-chain",
            "file",
            "--auth-file-path",
            "missing.yml",
            "--permissions",
            "allow_all",
        ],
        2,
        &["missing.yml", "can't be read"],
    );
}

#[test]
fn a_wrong_file_is_named_with_its_position() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(
        folder.path().join("tidewire.yml"),
        "network:\n  prot: 1\nlog:\n  level: loud\n",
    )
    .expect("written");
    let first = "tidewire: tidewire.yml:2:3: unknown key \"prot\", did you mean \"port\"?";
    let (code, _, text) = run(folder.path(), &["start"]);
    assert_eq!(
        (code, text),
        (
            2,
            format!("{first} (and 1 more; run `tidewire config check`)\n")
        )
    );
    let (code, _, text) = run(folder.path(), &["config", "check"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len(), lines[0]), (2, 2, first));
    assert!(
        lines[1].starts_with("tidewire: tidewire.yml:4:10: log.level: \"loud\""),
        "{text}"
    );
    fs::write(folder.path().join("tidewire.yml"), "network:\n  port: 1\n").expect("written");
    let right = "the configuration is valid (tidewire.yml)\n".to_owned();
    assert_eq!(
        run(folder.path(), &["config", "check"]),
        (0, right, String::new())
    );
}

#[test]
fn configurations_are_printed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (code, defaults, _) = run(folder.path(), &["config", "print"]);
    assert_eq!((code, defaults), (0, tidewire_config::print::defaults()));
    let mut command = tidewire(
        folder.path(),
        &["config", "print", "--effective", "--shards", "7"],
    );
    let output = command
        .env("TIDEWIRE_STORE__PATH", "/d")
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for expected in [
        "shards: 7 # --shards",
        "path: /d # TIDEWIRE_STORE__PATH",
        "dev: auto # default",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} in {text}"
        );
    }
}

#[test]
fn unusable_addresses_end_with_3() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    fails(
        &["--host", "127.0.0.1", "--port", &port],
        3,
        &[
            &port,
            &format!("(process {})", std::process::id()),
            "--port",
        ],
    );
    let elsewhere = [
        "--host",
        "192.0.2.1",
        "--auth-open-on-public-address",
        "true",
    ];
    fails(&elsewhere, 3, &["192.0.2.1", "--host"]);
}

#[test]
fn unusable_data_folders_end_with_4() {
    let server = Server::start(&[]);
    let data = server.folder.path().join("tidewire-data");
    let data = data.to_str().expect("text");
    fails(
        &["--port", "0", "--data", data],
        4,
        &["in use by process", "--data"],
    );
    let file = server.folder.path().join("file");
    fs::write(&file, "").expect("written");
    fails(
        &["--port", "0", "--data", file.to_str().expect("text")],
        4,
        &["--data"],
    );
    fails(&["store", "check", "--data", data], 4, &["in use"]);
    fails(&["store", "check", "--data", "missing"], 4, &["missing"]);
}

#[test]
fn store_check_names_damaged_records() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let data = directory.path().join("data");
    let write = |name| StoreWrite {
        writer: None,
        name: Name::from(name),
        expected: Expected::Missing,
        change: StoreChange::Put(StoredRecord {
            incarnation: Incarnation(1),
            version: Version(1),
            data: Payload::from_checked("[]"),
            write_keys: None,
        }),
    };
    let folder = DataFolder::open(&data).expect("an empty folder");
    let (mut store, opened) = SqliteStore::open(&folder, SqliteOptions::default()).expect("opened");
    let writes = [write("a"), write("b")];
    store
        .commit(opened.view(), opened.member(), &writes)
        .expect("committed");
    store.close().expect("closed");
    drop(folder);

    let check = || run(directory.path(), &["store", "check", "--data", "data"]);
    let sound = "2 sound, 0 corrupt, 0 quarantined\n".to_owned();
    assert_eq!(check(), (0, sound, String::new()));
    let database = rusqlite::Connection::open(data.join(sqlite::FILE)).expect("opened");
    let damage = "UPDATE records SET version = 9 WHERE name = 'b'";
    assert_eq!(database.execute(damage, []), Ok(1));
    drop(database);
    let (code, out, line) = check();
    assert_eq!((code, line.lines().count()), (1, 1), "{line}");
    assert_eq!(
        out,
        "1 sound, 1 corrupt, 1 quarantined\ncorrupt record \"b\"\n"
    );
    assert!(line.contains("restore the store from a backup"), "{line}");
}

#[test]
fn health_asks_the_running_server() {
    let server = Server::start(&[]);
    let port = server.address.port().to_string();
    let asked = ["health", "--host", "127.0.0.1", "--port", &port];
    assert_eq!(
        run(server.folder.path(), &asked),
        (0, String::new(), String::new())
    );
    drop(server);
    fails(&asked, 1, &[&port, "/health"]);
}

#[test]
fn hash_makes_a_password_for_the_users_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hash = |password: &str| {
        let mut command = tidewire(folder.path(), &["hash"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(password.as_bytes())
            .expect("written");
        let output = child.wait_with_output().expect("it ends");
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
        )
    };
    let (code, text) = hash("tide\n");
    assert_eq!(code, Some(0));
    let stored = tidewire_auth::password::StoredPassword::parse(text.trim(), &Default::default());
    assert!(stored.expect("argon2id").matches("tide"));
    assert_eq!(hash("").0, Some(2));
}

#[test]
fn the_first_screen_and_the_log_say_what_runs() {
    let server = Server::start(&[]);
    let address = server.address;
    for part in [
        format!("ws://{address}/deepstream"),
        format!("http://{address}/ready"),
        "./tidewire-data".into(),
        "open: every login succeeds".into(),
        "shards        3".into(),
        "by the limit of open files".into(),
        "development".into(),
    ] {
        assert!(server.screen.contains(&part), "{part} in {}", server.screen);
    }
    let line = server.expect_log("ready");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON away from a terminal");
    assert_eq!(line["level"], "INFO");
    assert!(
        line["timestamp"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "UTC: {line}"
    );
}

#[test]
fn both_loopback_addresses_have_the_same_port() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let command = tidewire(folder.path(), &["--port", "0"]);
    let server = Server::start_command(folder, command);
    let port = server.address.port();
    assert_eq!(server.get("/ready").map(|(status, _)| status), Some(200));
    let shown = server
        .screen
        .contains(&format!("ws://[::1]:{port}/deepstream"));
    let has_address = TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(shown, has_address, "{}", server.screen);
    if has_address {
        std::net::TcpStream::connect(("::1", port)).expect("accepted");
    }
}

#[test]
fn development_mode_and_store_can_be_seen() {
    let check = |arguments: &[&str], development: bool, store: &str| {
        let server = Server::start(arguments);
        let (_, body) = server.get("/ready").expect("an answer");
        let ready: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(ready["development"], development, "{body}");
        assert_eq!(ready["store"], store, "{body}");
        assert_eq!(
            server.metric("tidewire_development_mode"),
            Some(development.into())
        );
        assert_eq!(
            server.screen.contains("development"),
            development,
            "{}",
            server.screen
        );
    };
    check(&[], true, "sqlite");
    check(&["--store-kind", "memory"], true, "memory");
    check(&["--auth-chain", "open"], false, "sqlite");
    check(&["--auth-chain", "open", "--dev"], true, "sqlite");
}

#[test]
fn a_hangup_reloads_what_can_be_and_names_the_rest() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tidewire.yml");
    fs::write(&file, "log: {level: info}\n").expect("written");
    let server = Server::start_in(folder, &[]);
    server.expect_log("ready");
    let page = || {
        let headers = "host: localhost\r\norigin: https://app.example\r\nconnection: close\r\n";
        let mut stream = std::net::TcpStream::connect(server.address).expect("accepted");
        stream
            .write_all(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes())
            .expect("sent");
        process::status_of(&std::io::read_to_string(stream).expect("an answer"))
    };
    assert_eq!(page(), 403);
    assert!(
        server
            .expect_log("network.origins")
            .contains("https://app.example")
    );
    let text = "network: {origins: [\"https://app.example\"]}\nrpc: {accept_timeout: 2s}\nlog: {level: debug}\n";
    fs::write(&file, text).expect("written");
    server.signal(Signal::HUP);
    assert!(
        server
            .expect_log("need a restart")
            .contains("rpc.accept_timeout")
    );
    server.expect_log("reloaded");
    assert_eq!(page(), 200);
    fs::write(&file, "log: [").expect("written");
    server.signal(Signal::HUP);
    server.expect_log("the server continues with its earlier configuration");
    assert_eq!(page(), 200);
}

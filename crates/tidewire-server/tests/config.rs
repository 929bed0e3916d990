//! What is said about configurations: places, nearest names, precedence, and generated files that are fresh.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidewire_server::config::print;
use tidewire_server::config::{Config, Loaded, Origin, Problem, Sources, load};

/// Loads `text` as a file, with an environment and flags.
fn loaded(
    text: &str,
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Loaded, Vec<Problem>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tidewire.yml");
    fs::write(&file, text).expect("the file is written");
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let result = load(&Sources {
        file: Some(file),
        environment: environment.iter().map(owned).collect(),
        flags: flags.iter().map(owned).collect(),
    });
    result.map_err(|problems| {
        let folder = format!("{}/", folder.path().display());
        let short =
            |problem: Problem| Problem::new(problem.origin.replace(&folder, ""), problem.reason);
        problems.into_iter().map(short).collect()
    })
}

#[test]
fn wrong_files_are_refused_with_place_and_nearest_name() {
    let check = |text: &str, expected: &[&str]| {
        let problems = loaded(text, &[], &[]).expect_err(text);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected, "{text}");
    };
    check("prot: 1\n", &["tidewire.yml:1:1: unknown key \"prot\""]);
    check(
        "network:\n  prot: 1\n",
        &["tidewire.yml:2:3: unknown key \"prot\", did you mean \"port\"?"],
    );
    check(
        "port: 1\n",
        &["tidewire.yml:1:1: unknown key \"port\", did you mean \"network.port\"?"],
    );
    check(
        "netwrok:\n  port: 1\n",
        &["tidewire.yml:1:1: unknown key \"netwrok\", did you mean \"network\"?"],
    );
    check(
        "network:\n  port: high\n",
        &["tidewire.yml:2:9: network.port: \"high\" is no number from 0 to 65535"],
    );
    check(
        "network:\n  port: 65536\n",
        &["tidewire.yml:2:9: network.port: \"65536\" is no number from 0 to 65535"],
    );
    check(
        "limits: {message_bytes_max: 1 MegaByte}\n",
        &[
            "tidewire.yml:1:29: limits.message_bytes_max: \"1 MegaByte\" is no size; write bytes as `65536`, `64KiB` or \
            `1MB`",
        ],
    );
    check(
        "drain_timeout: 20\n",
        &[
            "tidewire.yml:1:16: drain_timeout: \"20\" is no time; write it with its unit as `500ms`, `30s` or `2m`",
        ],
    );
    check(
        "store:\n  kind: sqlit\n",
        &[
            "tidewire.yml:2:9: store.kind: \"sqlit\" is none of sqlite, memory, mongodb, postgres, redis; did you mean \"sqlite\"?",
        ],
    );
    check(
        "auth:\n  chain:\n    - open\n    - fil\n",
        &[
            "tidewire.yml:4:7: auth.chain: \"fil\" is none of open, file, jwt, webhook, store, tls, keys; did you mean \"file\"?",
        ],
    );
    check(
        "store: sqlite\n",
        &["tidewire.yml:1:8: \"store\" is a section; write its options below it, indented"],
    );
    check(
        "store:\n  path:\n",
        &["tidewire.yml:2:7: store.path has no value"],
    );
    check(
        "store:\n  path: {a: b}\n",
        &["tidewire.yml:2:9: store.path is an option, not a section"],
    );
    check(
        "store:\n  path: [a]\n",
        &["tidewire.yml:2:9: store.path: a list is given; a path is needed"],
    );
    check(
        "dev: yes\n",
        &["tidewire.yml:1:6: dev: \"yes\" is neither `true` nor `false`, or `auto`"],
    );
    check(
        "store:\n  path: ${NOT_SET}/data\n",
        &["tidewire.yml:2:9: environment variable \"NOT_SET\" is not set"],
    );
    check(
        "sharts: 1\nlog:\n  levle: info\n",
        &[
            "tidewire.yml:1:1: unknown key \"sharts\", did you mean \"shards\"?",
            "tidewire.yml:3:3: unknown key \"levle\", did you mean \"level\"?",
        ],
    );
}

#[test]
fn wrong_variables_and_flags_are_refused_by_name() {
    let check = |environment: &[(&str, &str)], flags: &[(&str, &str)], expected: &str| {
        let problems = loaded("", environment, flags).expect_err(expected);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(lines, [expected]);
    };
    check(
        &[("TIDEWIRE_STORE__PAHT", "/d")],
        &[],
        "TIDEWIRE_STORE__PAHT: no option has this variable, did you mean TIDEWIRE_STORE__PATH?",
    );
    check(
        &[("TIDEWIRE_NETWORK__PORT", "x")],
        &[],
        "TIDEWIRE_NETWORK__PORT: network.port: \"x\" is no number from 0 to 65535",
    );
    check(
        &[],
        &[("network.port", "x")],
        "--port: network.port: \"x\" is no number from 0 to 65535",
    );
}

#[test]
fn variables_that_others_set_are_ignored_with_a_warning() {
    let environment = [
        ("TIDEWIRE_PORT", "tcp://10.0.0.1:6020"),
        ("TIDEWIRE_SHARD", "2"),
    ];
    let loaded = loaded("", &environment, &[]).expect("not refused");
    assert_eq!(loaded.config, Config::default());
    let expected = [
        "environment variable TIDEWIRE_PORT is no option and is ignored",
        "environment variable TIDEWIRE_SHARD is no option and is ignored, did you mean TIDEWIRE_SHARDS?",
    ];
    assert_eq!(loaded.warnings, expected);
}

#[test]
fn flags_win_over_the_environment_over_the_file() {
    let text = "network:\n  port: 1\n  paths: [/a, /b]\nlog:\n  level: warn\nshards: 5\n";
    let environment = [
        ("TIDEWIRE_NETWORK__PORT", "2"),
        ("TIDEWIRE_LOG__LEVEL", "debug"),
    ];
    let loaded = loaded(text, &environment, &[("network.port", "3")]).expect("all are right");
    let shown = print::effective(&loaded);
    let values: Vec<String> = shown
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .collect();
    for expected in ["port: 3", "level: debug", "shards: 5", "paths: [/a, /b]"] {
        assert!(
            values.iter().any(|value| value == expected),
            "{expected} in {shown}"
        );
    }
    assert_eq!(loaded.origin("network.port"), &Origin::Flag("port".into()));
    assert_eq!(
        loaded.origin("log.level"),
        &Origin::Variable("TIDEWIRE_LOG__LEVEL".into())
    );
    assert!(
        matches!(loaded.origin("shards"), Origin::File(_, place) if place.line == 6 && place.column == 9)
    );
    assert_eq!(loaded.origin("dev"), &Origin::Default);
}

#[test]
fn a_variable_in_the_file_is_one_value_whatever_it_holds() {
    let environment = [("DATA", "/data: [x]"), ("PORT", "7000")];
    let text = "store:\n  path: ${DATA}/tide\nnetwork: {port: \"${PORT}\"}\n";
    let loaded = loaded(text, &environment, &[]).expect("both are set");
    assert_eq!(loaded.config.store.path, PathBuf::from("/data: [x]/tide"));
    assert_eq!(loaded.config.network.port, 7000);
}

#[test]
fn json_is_a_configuration_too() {
    let text = r#"{"auth": {"chain": ["file"], "file": {"path": "users.yml", "hash": "md5"}}, "dev": true}"#;
    let loaded = loaded(text, &[], &[]).expect("JSON is YAML");
    assert_eq!(loaded.config.auth.chain.len(), 1);
}

#[test]
fn a_missing_file_is_an_error_only_when_it_was_named() {
    let missing = Some(PathBuf::from("/no/such/file.yml"));
    let by_flag = Sources {
        file: missing.clone(),
        ..Sources::default()
    };
    let by_variable = Sources {
        environment: BTreeMap::from([(
            "TIDEWIRE_CONFIG".to_owned(),
            "/no/such/file.yml".to_owned(),
        )]),
        ..Sources::default()
    };
    for sources in [by_flag, by_variable] {
        let problems = load(&sources).expect_err("the file is missing");
        assert!(
            problems[0]
                .to_string()
                .starts_with("/no/such/file.yml: can't be read"),
            "{problems:?}"
        );
    }
    assert_eq!(
        load(&Sources::default()).expect("no file is needed").config,
        Config::default()
    );
}

/// Compares a generated file, or writes it anew when `TIDEWIRE_WRITE` is set.
fn check_generated(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os("TIDEWIRE_WRITE").is_some() {
        fs::write(&path, expected).expect("the file is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not fresh; run TIDEWIRE_WRITE=1 cargo test -p tidewire-server --test config",
        path.display()
    );
}

#[test]
fn the_annotated_defaults_are_fresh_and_mean_the_defaults() {
    check_generated("tidewire.yml", &print::defaults());
    let loaded = loaded(&print::defaults(), &[], &[]).expect("the defaults are right");
    assert_eq!(loaded.config, Config::default());
}

#[test]
fn the_reference_page_is_fresh() {
    check_generated("docs/configuration.md", &print::reference());
}

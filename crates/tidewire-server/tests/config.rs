//! Problems of configurations with their positions and suggested names, precedence of sources, and fresh generated files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidewire_config::layer::load_text;
use tidewire_config::machine::Machine;
use tidewire_config::plan::plan;
use tidewire_config::print;
use tidewire_config::section::StoreKind;
use tidewire_config::{Config, Loaded, Origin, Problem, Sources, load};

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
fn wrong_files_are_refused_with_position_and_nearest_name() {
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
        &["tidewire.yml:2:9: network.port: \"high\" is not a number from 0 to 65535"],
    );
    check(
        "network:\n  port: 65536\n",
        &["tidewire.yml:2:9: network.port: \"65536\" is not a number from 0 to 65535"],
    );
    check(
        "limits: {message_bytes_max: 1 MegaByte}\n",
        &[
            "tidewire.yml:1:29: limits.message_bytes_max: \"1 MegaByte\" is not a size; write it as `65536`, `64KiB` or \
            `1MB`",
        ],
    );
    check(
        "drain_timeout: 20\n",
        &[
            "tidewire.yml:1:16: drain_timeout: \"20\" is not a time; write it with a unit, as `500ms`, `30s` or `2m`",
        ],
    );
    check(
        "store:\n  kind: sqlit\n",
        &[
            "tidewire.yml:2:9: store.kind: \"sqlit\" is not one of sqlite, memory, mongodb, postgres, redis; did you mean \"sqlite\"?",
        ],
    );
    check(
        "auth:\n  chain:\n    - open\n    - fil\n",
        &[
            "tidewire.yml:4:7: auth.chain: \"fil\" is not one of open, file, jwt, webhook, store, tls, keys; did you mean \"file\"?",
        ],
    );
    check(
        "store: sqlite\n",
        &["tidewire.yml:1:8: \"store\" is a section; write its options below it, indented"],
    );
    check(
        "store:\n  path:\n",
        &["tidewire.yml:2:7: store.path has no value; write one, or remove the line"],
    );
    check(
        "store:\n  path: {a: b}\n",
        &["tidewire.yml:2:9: store.path is an option, not a section"],
    );
    check(
        "store:\n  path: [a]\n",
        &["tidewire.yml:2:9: store.path: a list is given; write a path instead"],
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
        "TIDEWIRE_NETWORK__PORT: network.port: \"x\" is not a number from 0 to 65535",
    );
    check(
        &[],
        &[("network.port", "x")],
        "--port: network.port: \"x\" is not a number from 0 to 65535",
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
        "environment variable TIDEWIRE_PORT is not an option and is ignored",
        "environment variable TIDEWIRE_SHARD is not an option and is ignored, did you mean TIDEWIRE_SHARDS?",
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
        matches!(loaded.origin("shards"), Origin::File(_, position) if position.line == 6 && position.column == 9)
    );
    assert_eq!(loaded.origin("dev"), &Origin::Default);
}

#[test]
fn a_variable_in_the_file_is_one_value_regardless_of_its_content() {
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

/// Compares a generated file with its expected content. Writes it first if `TIDEWIRE_WRITE` is set.
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

/// The problems of `text` that loading and planning find.
fn stores_refused(text: &str) -> Vec<String> {
    let machine = Machine {
        processors: 2,
        memory_bytes: 4 << 30,
    };
    let problems = match load_text(text, Path::new("tidewire.yml"), &BTreeMap::new()) {
        Err(problems) => problems,
        Ok(loaded) => plan(&loaded, &machine).err().unwrap_or_default(),
    };
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn further_stores_have_their_own_prefixes_and_locations() {
    let text = "store: {path: /data}\n\
        stores:\n\
        \x20 logs:\n\
        \x20   kind: redis\n\
        \x20   prefixes: [logs/, audit/]\n\
        \x20   redis: {url: \"redis://db:6379/0\"}\n\
        \x20 other:\n\
        \x20   prefixes: [logs/other/]\n";
    let environment = [("TIDEWIRE_STORES__LOGS__REDIS__PASSWORD", "hunter2")];
    let loaded = loaded(text, &environment, &[]).expect("all is right");
    let stores: Vec<_> = loaded.config.stores.iter().collect();
    let [("logs", logs), ("other", other)] = stores[..] else {
        panic!("two stores are expected: {stores:?}");
    };
    assert_eq!(logs.store.kind, StoreKind::Redis);
    assert_eq!(logs.store.redis.password.0, "hunter2");
    assert_eq!(other.store.kind, StoreKind::Sqlite);
    assert_eq!(other.store.path, Path::new("/data/stores/other"));
    let routes = loaded.config.stores.routes();
    for (name, store) in [("a", 0), ("logs/a", 1), ("audit/a", 1), ("logs/other/a", 2)] {
        assert_eq!(routes.find(name).index(), store, "{name}");
    }
    let shown = print::effective(&loaded);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(
        shown.contains("  other:\n    prefixes: [logs/other/]"),
        "{shown}"
    );
    assert!(!shown.contains("    cache:"), "{shown}");
    // The shown configuration can be loaded again.
    let again = load_shown(&shown.replace("\"********\"", "hunter2"));
    assert_eq!(again.config.stores, loaded.config.stores);
    assert_eq!(print::changed_without_reload(&again, &loaded), [""; 0]);
    let changed = load_shown(&shown.replace("logs/other/", "else/"));
    let names = print::changed_without_reload(&changed, &loaded);
    assert!(
        names.contains(&"stores.other.prefixes".to_owned()),
        "{names:?}"
    );
}

fn load_shown(text: &str) -> Loaded {
    loaded(text, &[], &[]).expect("what is shown can be read")
}

#[test]
fn wrong_stores_are_refused_with_line_and_column() {
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(stores_refused(text), expected, "{text}");
    };
    let memory = "kind: memory, prefixes";
    check(
        &format!("stores:\n  a: {{{memory}: [a/]}}\n  b: {{{memory}: [b/]}}\n"),
        &[],
    );
    check(
        "stores:\n  Logs: {prefixes: [a/]}\n",
        &[
            "tidewire.yml:2:3: \"Logs\" is not a valid name of a store; write at most 32 lowercase letters, digits and _, a letter first",
        ],
    );
    check(
        "stores:\n  default: {prefixes: [a/]}\n",
        &["tidewire.yml:2:3: \"default\" is the name of the store of `store`; choose another name"],
    );
    check(
        "stores:\n  logs: {prefixs: [a/]}\n",
        &["tidewire.yml:2:10: unknown key \"prefixs\", did you mean \"prefixes\"?"],
    );
    check(
        "stores:\n  logs: {prefixes: [a/], cache: 1MiB}\n",
        &["tidewire.yml:2:26: unknown key \"cache\", did you mean \"store.cache\"?"],
    );
    check(
        "stores:\n  logs:\n",
        &[
            "stores.logs.prefixes (default): a store without prefixes keeps no records; set at least one, as [logs/]",
        ],
    );
    check(
        &format!("stores:\n  a: {{{memory}: [a/, b/]}}\n  b: {{{memory}: [c/, b/]}}\n"),
        &[
            "stores.b.prefixes (tidewire.yml:3:36): \"b/\" is already in stores.a.prefixes (tidewire.yml:2:36); remove one of the two",
        ],
    );
    check(
        &format!("stores:\n  a: {{{memory}: [a/, a/]}}\n"),
        &[
            "stores.a.prefixes (tidewire.yml:2:36): \"a/\" is already in stores.a.prefixes (tidewire.yml:2:32); remove one of the two",
        ],
    );
    check(
        &format!("stores:\n  a: {{{memory}: [a/, a/b/]}}\n"),
        &[
            "stores.a.prefixes (tidewire.yml:2:36): \"a/b/\" begins with \"a/\", which leads to the same store; remove it",
        ],
    );
    // The longer prefix is needed if a prefix of another store is between the two.
    check(
        &format!("stores:\n  a: {{{memory}: [a/, a/b/c/]}}\n  b: {{{memory}: [a/b/]}}\n"),
        &[],
    );
    check(
        &format!("stores:\n  a: {{{memory}: [\"\"]}}\n"),
        &[
            "stores.a.prefixes (tidewire.yml:2:32): an empty prefix matches every name; remove it, because `store` already keeps the records that no prefix matches",
        ],
    );
    check(
        &format!("stores:\n  a: {{{memory}: [\"\\u0001u\"]}}\n"),
        &[
            "stores.a.prefixes (tidewire.yml:2:32): names that begin with U+0001 belong to the server, which keeps them in `store`; choose another prefix",
        ],
    );
    check(
        &format!(
            "record: {{memory_only_prefixes: [tmp/]}}\nstores:\n  a: {{{memory}: [tmp/a/]}}\n"
        ),
        &[
            "stores.a.prefixes (tidewire.yml:3:32): \"tmp/a/\" is never stored, because record.memory_only_prefixes has \"tmp/\"; remove one of the two",
        ],
    );
    check(
        "store: {kind: sqlite, path: d}\nstores:\n  a: {path: d, prefixes: [a/]}\n",
        &[
            "stores.a.path (tidewire.yml:3:13): store is in the same place; choose another one for this store",
        ],
    );
    check(
        "stores:\n  a: {kind: redis, prefixes: [a/]}\n",
        &[
            "stores.a.redis.url (default): the address of the server is missing; set it, as redis://host:6379/0",
        ],
    );
    check(
        "stores:\n  a: {kind: redis, timeout: 0s, redis: {url: \"redis://b\"}, prefixes: [a/]}\n",
        &["stores.a.timeout (tidewire.yml:2:29): 0 is not allowed; set a time above 0"],
    );
    let many: String = (0..16)
        .map(|n| format!("  s{n}: {{{memory}: [{n}/]}}\n"))
        .collect();
    check(
        &format!("stores:\n{many}"),
        &["tidewire.yml:17:3: more than 15 stores in addition to the default one; remove some"],
    );
}

#[test]
fn a_variable_of_a_store_that_the_file_does_not_name_is_refused() {
    let variable = ("TIDEWIRE_STORES__LOGS__KIND", "memory");
    let problems = loaded("{}", &[variable], &[]).expect_err("the file does not name it");
    assert!(problems[0].to_string().contains(variable.0), "{problems:?}");
}

#[test]
fn names_of_a_collection_share_a_slot_if_their_prefix_selects_it() {
    let text = "collections:\n\
        \x20 orders: {slot_by: prefix}\n\
        \x20 Chat-rooms:\n\
        \x20 users: {slot_by: name}\n";
    let environment = [("TIDEWIRE_COLLECTIONS__USERS__SLOT_BY", "prefix")];
    let loaded = loaded(text, &environment, &[]).expect("all is right");
    let tags = loaded.config.collections.tags();
    for (name, tag) in [
        ("orders/17/items/3", "orders/17"),
        ("users/ann/tasks/1", "users/ann"),
        ("Chat-rooms/1/members", "Chat-rooms/1/members"),
    ] {
        assert_eq!(tags.tag(name), tag);
    }
    let shown = print::effective(&loaded);
    assert_eq!(
        load_shown(&shown).config.collections,
        loaded.config.collections
    );
    let changed = load_shown(&shown.replacen("slot_by: prefix", "slot_by: name", 1));
    assert_eq!(
        print::changed_without_reload(&changed, &loaded),
        ["collections.orders.slot_by"]
    );
}

#[test]
fn the_indexes_of_a_collection_are_paths_and_lists_of_paths() {
    let text = "collections:\n\
        \x20 cards: {indexes: [board, [board, author.name], \"due date\"]}\n\
        \x20 notes: {}\n";
    let environment = [("TIDEWIRE_COLLECTIONS__NOTES__INDEXES", "a, b+c")];
    let loaded = loaded(text, &environment, &[]).expect("all is right");
    let indexes = loaded.config.collections.indexes();
    let definitions = |prefix: &str| {
        let of = indexes.find(prefix).expect("declared");
        of.definitions
            .iter()
            .map(|text| text.replace('\n', " "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        definitions("cards/"),
        ["cards board", "cards board author.name", "cards due date"]
    );
    assert_eq!(definitions("notes/"), ["notes a", "notes b c"]);
    let shown = print::effective(&loaded);
    assert_eq!(
        load_shown(&shown).config.collections,
        loaded.config.collections
    );
}

#[test]
fn wrong_indexes_are_refused_with_line_and_column() {
    let check = |indexes: &str, place: &str, expected: &str| {
        let text = format!("collections:\n  cards: {{indexes: {indexes}}}\n");
        let problems = loaded(&text, &[], &[]).expect_err(&text);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(
            problems.len() == 1 && problems[0].contains(expected),
            "{problems:?}"
        );
        assert!(
            problems[0].starts_with(&format!("tidewire.yml:2:{place}: ")),
            "{problems:?}"
        );
    };
    check("[board, _id]", "28", "the id orders equal values anyway");
    check("[[board, board]]", "21", "\"board\" occurs twice");
    check("[[a, b, c, d, e]]", "21", "5 paths; use 1 to 4");
    check("[a..b]", "21", "has an empty segment");
    check(
        "[[a, [b]]]",
        "20",
        "an entry of the list is not a single value",
    );
}

#[test]
fn indexes_that_no_store_would_keep_are_refused() {
    let check = |others: &str, expected: &[&str]| {
        let text = format!("collections:\n  logs: {{indexes: [board]}}\n{others}");
        let problems = stores_refused(&text);
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, part) in std::iter::zip(&problems, expected) {
            assert!(
                problem.starts_with("collections.logs.indexes (tidewire.yml:2:"),
                "{problem}"
            );
            assert!(problem.contains(part), "{problem}");
        }
    };
    check("", &[]);
    check(
        "store: {kind: memory}\n",
        &["store.kind memory, which keeps no indexes"],
    );
    check(
        "store: {kind: memory}\nstores:\n  logs: {kind: sqlite, prefixes: [logs/]}\n",
        &[],
    );
    check(
        "stores:\n  parts: {kind: memory, prefixes: [logs/a]}\n",
        &["stores.parts.kind memory, which keeps no indexes"],
    );
    check(
        "record: {memory_only_prefixes: [logs/]}\n",
        &["record.memory_only_prefixes has \"logs/\""],
    );
}

#[test]
fn wrong_collections_are_refused_with_line_and_column() {
    let check = |text: &str, expected: &str| {
        let problems = loaded(text, &[], &[]).expect_err(text);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, [expected], "{text}");
    };
    let name = "is not a valid name of a collection; write the part of the names before the first slash, at most 64 letters, digits, _ and -, a letter first";
    for wrong in ["orders/", "a/b", "1st", "a b"] {
        check(
            &format!("collections:\n  \"{wrong}\": {{slot_by: prefix}}\n"),
            &format!("tidewire.yml:2:3: {wrong:?} {name}"),
        );
    }
    check(
        "collections:\n  orders: {slot_by: id}\n",
        "tidewire.yml:2:21: collections.orders.slot_by: \"id\" is not one of name, prefix",
    );
    check(
        "collections:\n  orders: {slotby: prefix}\n",
        "tidewire.yml:2:12: unknown key \"slotby\", did you mean \"slot_by\"?",
    );
    check(
        "collections:\n  orders: {slot_by: prefix}\n  Orders: {slot_by: prefix}\n",
        "tidewire.yml:3:3: \"Orders\" and \"orders\" differ in case only, so their options would have the same variables; remove one of the two",
    );
    let many: String = (0..257).map(|n| format!("  c{n}: {{}}\n")).collect();
    check(
        &format!("collections:\n{many}"),
        "tidewire.yml:258:3: more than 256 collections; remove those with default options, because they have no effect",
    );
}

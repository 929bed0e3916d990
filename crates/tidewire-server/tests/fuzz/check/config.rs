//! Checks the configuration parser with any text. It never panics, every problem names its place in the file, and an accepted file
//! keeps its meaning after it is written and read again. A JSON object is also YAML, and its keys must be options.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tidewire_config::layer::{Loaded, Problem, load_text, rows};
use tidewire_config::print::{defaults, effective};

use super::{Reached, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "config",
    check_input,
    seeds,
    reachable: &[
        "accepted",
        "options set",
        "variable",
        "broken YAML",
        "unknown key",
        "did you mean",
        "wrong value",
        "wrong entry of a list",
        "no value",
        "a section",
        "not a section",
        "variable not set",
        "JSON accepted",
        "JSON refused",
    ],
};

const FILE: &str = "f.yml";
/// Longer texts cost time and find nothing new.
const TEXT_BYTES_MAX: usize = 8_192;

/// Panics if the input shows a fault.
pub fn check_input(input: &[u8]) -> Reached {
    let mut reached = Reached::new();
    let Some(text) = str::from_utf8(input)
        .ok()
        .filter(|text| text.len() <= TEXT_BYTES_MAX)
    else {
        return reached;
    };
    let json = serde_json::from_str::<Value>(text)
        .ok()
        .filter(Value::is_object);
    match load(text) {
        Ok(loaded) => {
            check_accepted(&loaded, text, &mut reached);
            if let Some(json) = &json {
                check_keys(json, "");
                reached.insert("JSON accepted");
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason: {text:?}");
            for problem in &problems {
                check_position(problem, text);
                reached.insert(kind(&problem.reason));
                reached.extend(
                    problem
                        .reason
                        .contains("did you mean")
                        .then_some("did you mean"),
                );
            }
            reached.extend(json.map(|_| "JSON refused"));
        }
    }
    reached
}

fn load(text: &str) -> Result<Loaded, Vec<Problem>> {
    let environment = [("HOME", "/home/tide"), ("PORT", "7000"), ("TRICK", "a: [b")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    load_text(text, Path::new(FILE), &BTreeMap::from(environment))
}

fn kind(reason: &str) -> &'static str {
    let kinds = [
        ("unknown key", "unknown key"),
        ("is a section; write", "a section"),
        ("is an option, not a section", "not a section"),
        ("has no value", "no value"),
        ("is not set", "variable not set"),
        ("is not one of", "wrong entry of a list"),
        (": ", "wrong value"),
    ];
    let found = kinds.into_iter().find(|(part, _)| reason.contains(part));
    found.map_or("broken YAML", |(_, kind)| kind)
}

fn check_accepted(loaded: &Loaded, text: &str, reached: &mut Reached) {
    reached.insert("accepted");
    reached.extend((!loaded.origins.is_empty()).then_some("options set"));
    reached.extend((text.contains("${") && !text.contains("$${")).then_some("variable"));
    let written = values(loaded);
    // The written file has a mask in place of each secret, which the parser accepts as a secret.
    let again = load(&written).unwrap_or_else(|problems| panic!("{problems:?}: {written}"));
    assert_eq!(values(&again), written, "{text:?}");
}

/// All options and their values, without their origins.
fn values(loaded: &Loaded) -> String {
    let mut bare = loaded.clone();
    bare.origins.clear();
    effective(&bare)
}

/// Panics if the JSON has a key that is not a section or an option.
fn check_keys(json: &Value, section: &str) {
    let Value::Object(entries) = json else { return };
    for (key, value) in entries {
        let name = if section.is_empty() {
            key.clone()
        } else {
            format!("{section}.{key}")
        };
        let inside = format!("{name}.");
        let is_section = rows().iter().any(|row| row.name.starts_with(&inside));
        let is_option = rows().iter().any(|row| row.name == name);
        assert!(is_section || is_option, "{name:?} is accepted");
        check_keys(value, &name);
    }
}

/// Panics if a problem does not name a place of the text.
fn check_position(problem: &Problem, text: &str) {
    assert!(
        !problem.reason.is_empty() && !problem.reason.contains('\n'),
        "{problem}"
    );
    let position = problem
        .origin
        .strip_prefix(FILE)
        .expect("the file is named");
    if position.is_empty() {
        // Only problems of the YAML parser may have no place.
        assert_eq!(kind(&problem.reason), "broken YAML", "{problem}");
        return;
    }
    let numbers: Vec<usize> = position[1..]
        .split(':')
        .map(|part| part.parse().expect("a number"))
        .collect();
    let [line, column] = numbers[..] else {
        panic!("{problem}")
    };
    // YAML ends lines at carriage returns too. The parser reports a missing token after the last line.
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    assert!((1..=lines.len() + 1).contains(&line), "{problem}: {text:?}");
    let longest = lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    assert!((1..=longest + 2).contains(&column), "{problem}: {text:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "# only a comment\n",
        "prot: 1\n",
        "network:\n  prot: 1\n",
        "network:\n  port: 1\n",
        "network:\n  port: high\n",
        "limits: {message_bytes_max: 1 MegaByte}\n",
        "limits: {message_bytes_max: 1MB, nesting_max: 7}\n",
        "drain_timeout: 20\n",
        "drain_timeout: 20s\n",
        "store:\n  kind: sqlit\n",
        "auth:\n  chain:\n    - open\n    - file\n  file: {path: users.yml}\n",
        "auth:\n  chain:\n    - fil\n    - open\n",
        "auth: {chain: [open, fil]}\n",
        "store: sqlite\n",
        "store:\n  path:\n",
        "store:\n  path: {a: b}\n",
        "store:\n  path: [a]\n",
        "dev: yes\n",
        "dev: true\n",
        "store:\n  path: ${NOT_SET}/data\n",
        "store:\n  path: ${HOME}/data\n",
        "store:\n  path: $${HOME}\n",
        "network: {port: \"${PORT}\"}\n",
        "a: 1\na: 2\n",
        "a: [1, 2\n",
        "a: \"open\n",
        "- a\n",
        "7\n",
        "&a [*a]\n",
        "a: &x 1\nb: *x\n",
        "<<: {a: 1}\n",
        "--- a\n---\nb\n",
        "? [a]\n: b\n",
        "!!binary aGk=\n",
        "network: {trusted_proxies: [10.0.0.0/8, \"::1\"], origins: [\"https://a.example\"]}\n",
        "{\"network\":{\"port\":6020,\"paths\":[\"/a\"]}}",
        "{\"dev\":false}",
        "{\"nope\":1}",
        "rates:\n  user:\n    publish: 10/s\n",
        "auth:\n  jwt:\n    secret: 0123456789abcdef0123456789abcdef\n",
        "log: {level: debug}\r\nshards: 2\r\n",
        "permissions: allow_all\n",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    // Each section of the annotated file is one seed.
    let annotated = defaults();
    let lines = annotated
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    let mut section = String::new();
    for line in lines {
        if !line.starts_with(' ') && !section.is_empty() {
            seeds.push(std::mem::take(&mut section).into_bytes());
        }
        section.push_str(line);
        section.push('\n');
    }
    seeds.push(section.into_bytes());
    seeds
}

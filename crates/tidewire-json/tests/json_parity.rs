//! Compares patches with JavaScript: Node checks 100,000 random documents and patches.
//!
//! The generator has a seed, so a run can be repeated. `e2e/json-parity/parity.mjs` computes the expected results. Planted faults
//! prove that the comparison can fail.

mod node;

use std::io::Write;

use node::Report;
use serde_json::{Value, json};
use tidewire_json::{
    JsonLimits, PatchError, PatchListError, Path, PathError, Token, check, lookup, parse_patches,
    patch_many, string,
};

const LIMITS: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: 64,
    bytes_max: 1 << 20,
};

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn patching_agrees_with_node() {
    let report = compare(0x7469_6465, 100_000, None);
    assert_eq!(report.disagreements, Vec::<Value>::new());
    let summary = &report.summary;
    println!("{summary}");
    assert_eq!(summary["cases"], 100_000);
    for (outcome, at_least) in [
        ("changed", 50_000),
        ("unchanged", 5_000),
        ("Empty", 500),
        ("Forbidden", 500),
        ("Index", 500),
        ("NotContainer", 500),
        ("ArrayLength", 200),
    ] {
        let count = summary["outcomes"][outcome].as_u64();
        assert!(
            count >= Some(at_least),
            "too few cases of {outcome}: {summary}"
        );
    }
}

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn planted_faults_are_found() {
    for fault in [
        Fault::DeletionsForgotten,
        Fault::KeysComparedAsSpelled,
        Fault::IndicesTakenAsKeys,
    ] {
        let report = compare(0x7769_7265, 5_000, Some(fault));
        let count = report.disagreements.len();
        assert!(
            (10..4_000).contains(&count),
            "{fault:?} disagrees {count} times"
        );
    }
}

/// A planted mistake in the results that the test sends to Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    DeletionsForgotten,
    KeysComparedAsSpelled,
    IndicesTakenAsKeys,
}

/// Sends `count` cases of `seed` to Node and collects its answers.
fn compare(seed: u64, count: usize, fault: Option<Fault>) -> Report {
    let (report, _) = node::compare("json-parity/parity.mjs", move |out| {
        let mut random = Random(seed);
        (0..count).try_for_each(|_| writeln!(out, "{}", case(&mut random, fault)))
    });
    report
}

/// One case as a line of JSON: the input and our result.
fn case(random: &mut Random, fault: Option<Fault>) -> Value {
    let tree = if random.one_in(40) {
        Tree::scalar(random)
    } else {
        Tree::container(random, 4)
    };
    let mut document = String::new();
    tree.write(random, &mut document);
    let patches = write_patches(random, &tree);
    let ours = outcome(&document, &patches, fault);
    let found = ours["document"].as_str().and_then(|patched| {
        let patches = parse_patches(&patches).ok()?;
        lookup(patched, &patches.last()?.0).map(str::to_owned)
    });
    let text = mutated(random, &document);
    let accepted = check(&text, LIMITS).is_ok();
    json!({
        "document": document, "patches": patches, "ours": ours, "found": found,
        "text": text, "accepted": accepted,
    })
}

/// Our result for a case.
fn outcome(document: &str, patches: &str, fault: Option<Fault>) -> Value {
    assert!(check(document, LIMITS).is_ok(), "generated {document}");
    assert!(check(patches, LIMITS).is_ok(), "generated {patches}");
    let result = parse_patches(patches).map_err(|error| match error {
        PatchListError::Path(PathError::Empty) => "Empty",
        PatchListError::Path(PathError::Forbidden) => "Forbidden",
        PatchListError::Path(PathError::Index) => "Index",
        other => panic!("{other}: {patches}"),
    });
    let result = result.and_then(|patches| {
        apply(document, &patches, fault).map_err(|error| match error {
            PatchError::NotContainer => "NotContainer",
            PatchError::ArrayLength => "ArrayLength",
            PatchError::TooLarge => "TooLarge",
            other => panic!("{other}: {document} {patches:?}"),
        })
    });
    match result {
        Ok(patched) => {
            let checked = check(&patched, LIMITS);
            assert!(
                checked.is_ok(),
                "{checked:?}: {document} {patches} {patched}"
            );
            json!({ "document": patched })
        }
        Err(refused) => json!({ "refused": refused }),
    }
}

type Patches<'a> = Vec<(Path<'a>, Option<&'a str>)>;

/// The patched document. With a fault, a result that is plausible and wrong.
fn apply(
    document: &str,
    patches: &Patches<'_>,
    fault: Option<Fault>,
) -> Result<String, PatchError> {
    match fault {
        None => patch_many(document, patches, LIMITS),
        Some(Fault::DeletionsForgotten) => {
            let mut kept = patches.clone();
            kept.retain(|(_, value)| value.is_some());
            patch_many(document, &kept, LIMITS)
        }
        Some(Fault::KeysComparedAsSpelled) => {
            // With its backslash doubled, an escape is compared by its spelling.
            let hide = |text: &str| text.replace(r"\u", r"\\u");
            let values: Vec<_> = patches.iter().map(|(_, value)| value.map(hide)).collect();
            let paths = patches.iter().map(|(path, _)| path.clone());
            let hidden: Patches<'_> = paths.zip(values.iter().map(Option::as_deref)).collect();
            let patched = patch_many(&hide(document), &hidden, LIMITS)?;
            Ok(patched.replace(r"\\u", r"\u"))
        }
        Some(Fault::IndicesTakenAsKeys) => {
            let keys = |token: &Token<'_>| match token {
                Token::Key(key) => format!("{key}."),
                Token::Index(index) => format!("{index}."),
            };
            let paths: Vec<String> = patches
                .iter()
                .map(|(path, _)| path.tokens().iter().map(keys).collect())
                .collect();
            let parsed = paths.iter().zip(patches);
            let wrong: Patches<'_> = parsed
                .filter_map(|(path, (_, value))| Some((Path::parse(path).ok()?, *value)))
                .collect();
            patch_many(document, &wrong, LIMITS)
        }
    }
}

/// A small random number generator (splitmix64). The same seed gives the same cases on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Frequent keys: equal keys, keys that need escapes, and keys with a meaning for arrays or JavaScript.
const KEYS: [&str; 20] = [
    "a",
    "a",
    "b",
    "c",
    "0",
    "1",
    "2",
    "01",
    "length",
    "é",
    "😀",
    "a b",
    "",
    "q\"\\",
    "\u{1}\n",
    "x/y",
    "toString",
    "undefined",
    "NaN",
    "\u{2028}",
];

/// Keys that a path can't contain.
const ODD_KEYS: [&str; 4] = ["__proto__", "k.l", "k[1]", " a "];

/// Numbers as text: some that a double holds exactly, some that it rounds, and some that it can't hold.
const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "1",
    "2",
    "3",
    "-1",
    "4.0",
    "5e0",
    "1E+2",
    "0.1",
    "1.5e-7",
    "9007199254740993",
    "1e400",
    "-1e400",
    "1e-400",
    "123456789012345678901234567890",
];

/// Pieces of texts that are difficult for a scanner.
const PIECES: [&str; 12] = [
    "",
    "x",
    "}",
    "]",
    "\"",
    "\\",
    "{\"a\":1}",
    ",",
    "é",
    "😀",
    "\u{0}",
    "plain text",
];

/// Paths that the parser must refuse.
const BAD_PATHS: [&str; 9] = [
    "",
    " . ",
    "a.__proto__",
    "constructor",
    " prototype ",
    "prototype[0].a",
    "a[x]",
    "a[-1].b",
    "[NaN]",
];

/// A value to write as text. The keys of an object may repeat.
enum Tree {
    Text(String),
    Number(String),
    Word(&'static str),
    Object(Vec<(Key, Tree)>),
    Array(Vec<Tree>),
}

/// The key of a member: a text, or an escape that has no equivalent in UTF-8.
enum Key {
    Text(&'static str),
    LoneSurrogate,
}

impl Tree {
    fn scalar(random: &mut Random) -> Self {
        match random.below(8) {
            0..3 => Self::Number(random.pick(&NUMBERS).to_owned()),
            3 => Self::Number(format!("{}", random.next() as i32)),
            4 => Self::Number(format!("{:e}", f64::from(random.next() as i32) / 1024.0)),
            5 => Self::Word(random.pick(&["true", "false", "null", "null"])),
            _ => Self::Text((0..random.below(4)).map(|_| random.pick(&PIECES)).collect()),
        }
    }

    fn container(random: &mut Random, depth: usize) -> Self {
        let count = random.below(5);
        if random.one_in(3) {
            return Self::Array((0..count).map(|_| Self::any(random, depth)).collect());
        }
        let mut member = || {
            let key = match random.below(30) {
                0 => Key::LoneSurrogate,
                1 => Key::Text(random.pick(&ODD_KEYS)),
                _ => Key::Text(random.pick(&KEYS)),
            };
            (key, Self::any(random, depth))
        };
        Self::Object((0..count).map(|_| member()).collect())
    }

    fn any(random: &mut Random, depth: usize) -> Self {
        if depth > 1 && random.below(5) < 2 {
            Self::container(random, depth - 1)
        } else {
            Self::scalar(random)
        }
    }

    /// Appends the value as JSON text, with random spelling.
    fn write(&self, random: &mut Random, out: &mut String) {
        write_space(random, out);
        match self {
            Self::Number(text) => out.push_str(text),
            Self::Word(text) => out.push_str(text),
            Self::Text(text) if text.is_empty() && random.one_in(2) => {
                out.push_str(r#""\uDE00\ud83dx""#);
            }
            Self::Text(text) => write_string(random, text, out),
            Self::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    out.push(if index > 0 { ',' } else { '[' });
                    element.write(random, out);
                }
                out.push_str(if elements.is_empty() { "[ ]" } else { "]" });
            }
            Self::Object(members) => {
                for (index, (key, value)) in members.iter().enumerate() {
                    out.push(if index > 0 { ',' } else { '{' });
                    write_space(random, out);
                    match key {
                        Key::Text(text) => write_string(random, text, out),
                        Key::LoneSurrogate => out.push_str(r#""\ud83D""#),
                    }
                    write_space(random, out);
                    out.push(':');
                    value.write(random, out);
                }
                out.push_str(if members.is_empty() { "{}" } else { "}" });
            }
        }
        write_space(random, out);
    }
}

fn write_space(random: &mut Random, out: &mut String) {
    if random.one_in(12) {
        out.push_str(random.pick(&[" ", "\n", "\t ", "\r\n"]));
    }
}

/// Appends a string literal. In one of three cases, it may contain `\u` escapes.
fn write_string(random: &mut Random, text: &str, out: &mut String) {
    if !random.one_in(3) {
        return string(text, out);
    }
    out.push('"');
    for character in text.chars() {
        if random.one_in(2) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&if random.one_in(2) {
                    format!("\\u{unit:04x}")
                } else {
                    format!("\\u{unit:04X}")
                });
            }
        } else {
            let mut literal = String::new();
            string(character.encode_utf8(&mut [0; 4]), &mut literal);
            out.push_str(&literal[1..literal.len() - 1]);
        }
    }
    out.push('"');
}

/// The data of a PATCH_MULTI message with one to four patches for a document like `tree`.
fn write_patches(random: &mut Random, tree: &Tree) -> String {
    let count = if random.one_in(4) {
        2 + random.below(3)
    } else {
        1
    };
    let mut out = String::from("[");
    for index in 0..count {
        out.push_str(if index > 0 { ",{" } else { "{" });
        if random.one_in(10) {
            out.push_str(r#""path":"overruled","pat\u0068" :"#);
        } else {
            out.push_str(r#""path":"#);
        }
        let path = path(random, tree);
        write_string(random, &path, &mut out);
        if !random.one_in(3) {
            out.push_str(r#","data":"#);
            let is_length = path.contains("length") && !random.one_in(4);
            let value = match random.below(4) {
                _ if is_length => Tree::Number(random.below(6).to_string()),
                0 => Tree::container(random, 2),
                _ => Tree::scalar(random),
            };
            value.write(random, &mut out);
        }
        out.push('}');
    }
    out.push(']');
    out
}

/// A random path that follows `tree` at first and may then leave it.
fn path(random: &mut Random, tree: &Tree) -> String {
    if random.one_in(30) {
        return random.pick(&BAD_PATHS).to_owned();
    }
    let mut path = String::new();
    let mut here = Some(tree);
    for _ in 0..1 + random.below(4) {
        match here {
            Some(Tree::Object(members)) if !members.is_empty() && !random.one_in(4) => {
                let (key, value) = &members[random.below(members.len())];
                match key {
                    Key::Text("__proto__") | Key::LoneSurrogate => {
                        push_key(random, "\u{fffd}", &mut path)
                    }
                    Key::Text(text) => push_key(random, text, &mut path),
                }
                here = Some(value);
            }
            Some(Tree::Array(elements)) if !random.one_in(6) => {
                let index = random.below(elements.len() + 3);
                push_index(random, index, &mut path);
                here = elements.get(index);
            }
            _ => {
                if random.one_in(3) {
                    let index = random.below(4);
                    push_index(random, index, &mut path);
                } else {
                    let key = random.pick(&KEYS);
                    push_key(random, key, &mut path);
                }
                here = None;
            }
        }
    }
    path
}

fn push_key(random: &mut Random, key: &str, path: &mut String) {
    if !path.is_empty() {
        path.push('.');
    }
    if random.one_in(10) {
        path.push_str(random.pick(&[" ", ".", "\u{feff}", "\u{a0}", "\u{85}"]));
    }
    path.push_str(key);
}

fn push_index(random: &mut Random, index: usize, path: &mut String) {
    let text = match random.below(12) {
        0..4 => return push_key(random, &index.to_string(), path),
        4 => format!("[0x{index:x}]"),
        5 => format!("[ +{index}]"),
        6 => format!("[{index}e0"),
        7 => format!("[][{index}]"),
        _ => format!("[{index}]"),
    };
    path.push_str(&text);
}

/// `document` with one character removed, doubled or replaced, so that it is rarely valid JSON.
fn mutated(random: &mut Random, document: &str) -> String {
    let mut characters: Vec<char> = document.chars().collect();
    let index = random.below(characters.len());
    match random.below(3) {
        0 => drop(characters.remove(index)),
        1 => characters.insert(index, characters[index]),
        _ => {
            let replacements = b"\"\\{}[],:0-e.u \n\0\xa0";
            characters[index] = random.pick(replacements).into();
        }
    }
    characters.into_iter().collect()
}

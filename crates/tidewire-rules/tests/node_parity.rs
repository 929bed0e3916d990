//! The evaluator against Node: random rules over random documents, each rule also run by `new Function`, and the values
//! compared with their types. The generator is seeded, so a run can be repeated; `RULE_PAIRS` says how many pairs it makes.
//!
//! Planted faults (our side runs a slightly different rule) show that the comparison finds what it is for.

mod generator;
#[path = "../../tidewire-json/tests/node/mod.rs"]
mod node;

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::{Document, Records, Rule, Scope, User};
use tidewire_rules::tree::Tree;

use generator::{Counts, Random, Scene};
use node::Report;

/// Pairs of a run of the tests; the proof makes a million.
const PAIRS: usize = 8_000;
/// Rules that are tried on the same documents.
const RULES_PER_SCENE: usize = 5;
/// How often a rule is generated again if its outcome is not the one that the balance requires.
const TRIES: usize = 12;

/// A deliberate mistake: what our side reads instead of what Node reads.
type Fault = (&'static str, &'static str);
const FAULTS: [Fault; 6] = [
    ("===", "=="),
    ("<=", "<"),
    (" ?? ", " || "),
    (".startsWith(", ".includes("),
    ("(-0)", "(0)"),
    (" + ", " - "),
];

struct Known<'v>(&'v [(String, String)]);

impl<'v> Records<'v> for Known<'v> {
    fn find(&self, name: &str) -> Option<Document<'v>> {
        let found = self.0.iter().find(|(known, _)| known == name);
        Some(found.map_or(Document::Null, |(_, text)| Document::Text(text)))
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// What our side makes of a rule. Every other scene is held in trees.
fn ours(rule: &str, scene: &Scene, fault: Option<Fault>) -> String {
    let limits = RuleLimits::default();
    let variables = ["$id".to_owned(), "$room".to_owned()];
    let text = match fault {
        Some((from, to)) => rule.replace(from, to),
        None => rule.to_owned(),
    };
    let parsed = match Rule::parse(&text, &variables, &limits) {
        Ok(parsed) => parsed,
        // A fault may make `a ?? b || c` of a rule; that is a disagreement, too.
        Err(error) if fault.is_some() => return format!("refused: {error}"),
        Err(error) => panic!("{rule}: {error}"),
    };
    let trees =
        [&scene.data, &scene.old_data].map(|text| text.as_ref().map(|text| Tree::parse(text, 100)));
    let data = match (&scene.data, &trees[0]) {
        (Some(_), Some(tree)) if scene.is_held => Document::Held(tree),
        (text, _) => Document::or_undefined(text.as_deref()),
    };
    let old_data = match (&scene.old_data, &trees[1]) {
        (Some(_), Some(tree)) if scene.is_held => Document::Held(tree),
        (text, _) => Document::or_null(text.as_deref()),
    };
    let names: Vec<&str> = scene.variables.iter().map(String::as_str).collect();
    let scope = Scope {
        user: User {
            id: &scene.user_id,
            data: Document::or_null(scene.user_data.as_deref()),
        },
        data,
        old_data,
        now: scene.now,
        action: scene.action,
        name: Some(&scene.name),
        variables: &names,
    };
    parsed
        .show(&scope, &Known(&scene.records), &limits)
        .unwrap_or_else(|| "throws".to_owned())
}

/// How an outcome counts for the balance.
fn class(shown: &str) -> usize {
    match shown {
        "throws" => 2,
        "null"
        | "undefined undefined"
        | "boolean false"
        | "number 0"
        | "number -0"
        | "number NaN"
        | "string " => 1,
        _ => 0,
    }
}

/// One line for Node: a scene, and rules with our results.
fn line(
    random: &mut Random,
    counts: &mut Counts,
    outcomes: &mut [usize; 3],
    fault: Option<Fault>,
) -> Value {
    let scene = Scene::new(random);
    let mut rules = Vec::new();
    for _ in 0..RULES_PER_SCENE {
        let wanted = random.below(3);
        let mut rule = generator::rule(random, &scene);
        let mut shown = ours(&rule.text, &scene, None);
        for _ in 0..TRIES {
            if class(&shown) == wanted {
                break;
            }
            rule = generator::rule(random, &scene);
            shown = ours(&rule.text, &scene, None);
        }
        counts.add(&rule);
        outcomes[class(&shown)] += 1;
        if fault.is_some() {
            shown = ours(&rule.text, &scene, fault);
        }
        rules.push(json!([rule.text, shown]));
    }
    scene.line(&rules)
}

/// Sends this many pairs of `seed` to Node and collects its answers.
fn compare(seed: u64, pairs: usize, fault: Option<Fault>) -> (Report, Counts, [usize; 3]) {
    let (report, (counts, outcomes)) = node::compare("rule-parity/parity.mjs", move |out| {
        let mut random = Random::new(seed);
        let (mut counts, mut outcomes) = (Counts::default(), [0; 3]);
        let _ = (0..pairs / RULES_PER_SCENE).try_for_each(|_| {
            let line = line(&mut random, &mut counts, &mut outcomes, fault);
            writeln!(out, "{line}")
        });
        (counts, outcomes)
    });
    (report, counts, outcomes)
}

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn rules_mean_what_they_mean_in_node() {
    let pairs = std::env::var("RULE_PAIRS")
        .map_or(PAIRS, |text| text.parse().expect("RULE_PAIRS is a number"));
    let (report, counts, outcomes) = compare(1, pairs, None);
    let few: Vec<String> = report
        .disagreements
        .iter()
        .take(10)
        .map(|one| format!("{one:#}"))
        .collect();
    assert!(
        report.disagreements.is_empty(),
        "{} disagreements:\n{}",
        report.disagreements.len(),
        few.join("\n")
    );
    assert_eq!(report.summary["pairs"], json!(pairs));
    println!(
        "{pairs} pairs of rule and document agree with Node: {} true, {} false, {} throw",
        outcomes[0], outcomes[1], outcomes[2]
    );
    assert!(
        outcomes.iter().all(|count| *count >= pairs / 5),
        "{outcomes:?}"
    );
    // Every thing that a rule can be made of, a thousand times in a million.
    for (kind, minimum) in counts.minimums() {
        println!(
            "{kind}: {}, the rarest is {} with {}",
            minimum.kinds, minimum.rarest, minimum.count
        );
        assert_eq!(minimum.kinds, minimum.expected, "{kind}");
        // The operators between all pairs of types are 14 times as many cases, so fewer of each are required.
        let least = if kind == generator::OPERATOR_PAIRS {
            1
        } else {
            pairs / 1000
        };
        assert!(
            minimum.count >= least,
            "{kind}: {} only {}",
            minimum.rarest,
            minimum.count
        );
    }
    let depths: BTreeMap<usize, usize> = counts.depths();
    println!("nesting: {depths:?}");
    assert!(depths.keys().all(|depth| *depth >= 4));
}

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn planted_faults_are_found() {
    for fault in FAULTS {
        let (report, ..) = compare(2, 2_000, Some(fault));
        assert!(!report.disagreements.is_empty(), "{fault:?} was not found");
        println!(
            "{fault:?}: {} disagreements in 2000 pairs",
            report.disagreements.len()
        );
    }
}

//! The cost of a decision: `cargo bench -p tidewire-rules --bench decide`. Prints decisions per second of one core,
//! the median and the fastest of many short rounds; the rounds of all rows take turns.

use std::hint::black_box;
use std::time::Instant;

use tidewire_core::message::RecordAction;
use tidewire_core::permission::{Access, Decision, Permission, Question, RequestedAction};
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load;
use tidewire_rules::rule::{Document, Outcome, Records, Rule, Scope, User};
use tidewire_rules::tree::Tree;

/// The rule that evaluators are compared by.
const REFERENCE: &str =
    "user.id === $id && data.price > oldData.price && _('users/' + user.id).admin";
const PUBLISH: &str =
    "user.data.role !== 'guest' && data.text.length < 500 && $room.startsWith('open-')";
const ROUNDS: usize = 200;
const CALLS: u32 = 500;

struct TreeDocument<'v>(&'v Tree);

impl<'v> Records<'v> for TreeDocument<'v> {
    fn find(&self, name: &str) -> Option<Document<'v>> {
        (name == "users/ann").then_some(Document::Held(self.0))
    }

    fn count(&self) -> usize {
        1
    }
}

/// About 1 KB: 24 members, the price among them.
fn document(price: u32) -> String {
    let members: Vec<String> = (0..23)
        .map(|n| format!(r#""member{n}":{{"title":"Item number {n}","sold":{n}}}"#))
        .collect();
    format!(r#"{{{},"price":{price}}}"#, members.join(","))
}

fn measure(name: &str, times: &mut Vec<f64>, decide: &dyn Fn() -> bool) {
    assert!(decide(), "{name}");
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(decide());
    }
    times.push(start.elapsed().as_secs_f64() / f64::from(CALLS));
}

const USER: &str = r#"{"admin":true,"role":"writer"}"#;

fn scope<'v>(data: Document<'v>, old_data: Document<'v>) -> Scope<'v> {
    Scope {
        user: User {
            id: "ann",
            data: Document::Text(USER),
        },
        data,
        old_data,
        now: 0,
        action: 18,
        name: Some("offers/ann"),
        variables: &["ann"],
    }
}

fn main() {
    let limits = RuleLimits::default();
    let (data, old) = (document(2), document(1));
    let rule = Rule::parse(REFERENCE, &["$id".into()], &limits).expect("the rule is right");
    let trees = [&data, &old].map(|text| Tree::parse(text, 64));
    let admin = Tree::parse(USER, 64);
    let held = || {
        let scope = scope(Document::Held(&trees[0]), Document::Held(&trees[1]));
        rule.decide(black_box(&scope), &TreeDocument(&admin), &limits) == Outcome::True
    };
    let parsed = || {
        let trees = [&data, &old].map(|text| Tree::parse(black_box(text), 64));
        let scope = scope(Document::Held(&trees[0]), Document::Held(&trees[1]));
        rule.decide(&scope, &TreeDocument(&admin), &limits) == Outcome::True
    };
    let read = || {
        let scope = scope(
            Document::Text(black_box(&data)),
            Document::Text(black_box(&old)),
        );
        rule.decide(&scope, &TreeDocument(&admin), &limits) == Outcome::True
    };

    let others: String = (0..11)
        .map(|n| format!("  \"some/{n}/$id\": {{ publish: false, subscribe: true }}\n"))
        .collect();
    let file = format!(
        "record:\n  \"*\": {{ read: true }}\n  \"offers/$id\": {{ write: \"{REFERENCE}\" }}\nevent:\n  \"*\": {{ publish: false }}\n  \
         \"chat/$room\": {{ publish: \"{PUBLISH}\" }}\n{others}rpc:\n  \"*\": {{ request: true }}\npresence:\n  \"*\": {{ allow: true }}\n"
    );
    let rules = load::parse(&file, "bench", &limits).expect("the rules are right");
    let principal =
        Principal::new(Name::from("ann")).with_data(Some(Payload::from_checked(USER)), None);
    let values = [(Name::from("users/ann"), Some(Payload::from_checked(USER)))];
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(189));
    let question = |access, name, data, old_data| Question {
        principal: &principal,
        access,
        by: RequestedAction::Record(RecordAction::Update),
        name: Some(name),
        data: Some(data),
        old_data,
        now: WallTime(0),
        values: &values,
    };
    let write = || {
        let question = question(Access::RecordWrite, "offers/ann", &data, Some(&old));
        rules.decide(black_box(&question)) == Decision::Allow
    };
    let publish = || {
        let question = question(Access::EventPublish, "chat/open-7", &text, None);
        rules.decide(black_box(&question)) == Decision::Allow
    };

    type Measurement<'a> = (&'a str, &'a dyn Fn() -> bool);
    let rows: [Measurement<'_>; 5] = [
        ("reference rule, values held", &held),
        ("reference rule, both documents parsed for it", &parsed),
        ("reference rule, both documents read as text", &read),
        ("the same as a question to a set of rules", &write),
        ("publish rule, 200 bytes, among 13 paths", &publish),
    ];
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for ((name, decide), times) in rows.iter().zip(&mut times) {
            measure(name, times, decide);
        }
    }
    println!("documents of {} and {} bytes", data.len(), old.len());
    for ((name, _), times) in rows.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (median, best) = (times[times.len() / 2], times[0]);
        println!(
            "{:>12.0} decisions/s, at best {:>12.0}: {name}",
            1.0 / median,
            1.0 / best
        );
    }
}

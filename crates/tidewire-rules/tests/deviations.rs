//! Differences of rules from deepstream 10: one case for each row of the list in `docs/permissions.md`, in its order.
//! For the engine's part `e2e/suites/permissions.test.ts` uses the real client.

use tidewire_core::message::{PresenceAction, RecordAction};
use tidewire_core::permission::{Access, Decision, Permission, Question, RequestedAction};
use tidewire_core::principal::Principal;
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load;

/// The decision of the rule `write` of a path about a name, or why the file is refused.
fn decide(path: &str, rule: &str, name: &str) -> Result<Decision, String> {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let file = format!(
        "record: {{\"*\": {{}}, {}: {{write: {}}}}}\nevent: {{\"*\": {{}}}}\nrpc: {{\"*\": {{}}}}\npresence: {{\"*\": {{}}}}\n",
        quote(path),
        quote(rule)
    );
    let rules = load::parse(&file, "f", &RuleLimits::default())
        .map_err(|errors| errors[0].reason.clone())?;
    let principal = Principal::new(Name::from("ann"));
    Ok(rules.decide(&Question {
        principal: &principal,
        access: Access::RecordWrite,
        by: RequestedAction::Record(RecordAction::CreateAndPatch),
        name: Some(name),
        data: Some(r#"{"n":1,"s":"ab"}"#),
        old_data: Some(r#"{"n":0}"#),
        now: WallTime(0),
        values: &[],
    }))
}

fn allows(rule: &str) {
    assert_eq!(decide("a/*", rule, "a/1"), Ok(Decision::Allow), "{rule}");
}

fn refuses(rule: &str) {
    assert!(decide("a/*", rule, "a/1").is_err(), "{rule}");
}

#[test]
fn every_row_of_the_list() {
    for falsy in ["undefined", "0", "''", "null", "NaN", "data.missing"] {
        assert_eq!(decide("a/*", falsy, "a/1"), Ok(Decision::Deny), "{falsy}");
    }
    for own in ["constructor", "toString", "__proto__", "hasOwnProperty"] {
        allows(&format!(
            "data.{own} === undefined && data['{own}'] === undefined && !('{own}' in data)"
        ));
    }
    for pattern in [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        r"(a)\1",
        r"(?<n>a)\k<n>",
    ] {
        refuses(&format!("data.s.match(/{pattern}/)"));
    }
    for pattern in [
        "/a/m",
        "/a/u",
        "/a/v",
        "/a/y",
        "/a/d",
        r"/\u{61}/",
        r"/\B/",
        r"/\p{L}/",
        "/{/",
        "/}/",
        "/]/",
    ] {
        refuses(&format!("data.s.match({pattern})"));
    }
    refuses("data.s.match(data.s)");
    allows("data.s.match(/(?:(a)|b)*/)[1] === 'a'");
    allows(
        "data.s.match(/a/).index === undefined && data.s.match(/a/).input === undefined && data.s.match(/(?<n>a)/).groups === undefined",
    );
    refuses("Math");
    refuses("$nothing === 1");
    for syntax in [
        "2 ** 2",
        "1 & 1",
        "1 | 1",
        "1 ^ 1",
        "~1",
        "1 << 1",
        "1 >>> 1",
        "data instanceof data",
        "void 0",
        "`a`",
        "[...data.s]",
        "data.n = 2",
        "data.n += 2",
        "true; true",
    ] {
        refuses(syntax);
    }
    refuses("{__proto__: data}.n === 1");
    refuses("{'__proto__': data}.n === 1");
    allows("'new parse(1) =>' !== data.s && typeof (data.s) === 'string'");
    allows("data.n && oldData");
    allows("\n\ntrue");
    for path in [
        "a(", "a)", "a[", "a]", "a{", "a}", "a|b", "^a", "a\\d", "a+", "a?",
    ] {
        assert!(decide(path, "true", "a").is_err(), "{path}");
    }
    assert!(decide("$a/$a", "true", "a/a").is_err());
    assert_eq!(
        decide("a/$id", "$id === 'x\\ny'", "a/x\ny"),
        Ok(Decision::Allow)
    );
    allows("action === 19 && data.n === 1 && data.s === 'ab'");
    allows("oldData.n === 0 && data.n > oldData.n");
    for member in ["user.ID !== 'guest'", "name.lenght > 500", "user['role']"] {
        refuses(member);
    }
    let everyone = |path: &str| {
        let presence = format!("{{\"*\": {{allow: false}}, \"{path}\": {{allow: true}}}}");
        let file = format!(
            "record: {{\"*\": {{}}}}\nevent: {{\"*\": {{}}}}\nrpc: {{\"*\": {{}}}}\npresence: {presence}\n"
        );
        let rules = load::parse(&file, "f", &RuleLimits::default()).expect("valid");
        rules.decide(&Question {
            principal: &Principal::new(Name::from("ann")),
            access: Access::Presence,
            by: RequestedAction::Presence(PresenceAction::QueryAll),
            name: None,
            data: None,
            old_data: None,
            now: WallTime(0),
            values: &[],
        })
    };
    assert_eq!(everyone("$user"), Decision::Deny);
    assert_eq!(everyone("undefined"), Decision::Deny);
}

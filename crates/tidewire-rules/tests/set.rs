//! Rules files: accepted and refused ones with the position of the error, and the deciding rule.

use tidewire_core::message::{PresenceAction, RecordAction, RecordBulk};
use tidewire_core::permission::{
    Access, Decision, Permission, Question, ReadRight, RequestedAction, Unknown,
};
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load;
use tidewire_rules::rule::Rule;
use tidewire_rules::set::{RULE_KINDS, RuleSet};

/// deepstream's example, with every section.
const EXAMPLE: &str = r#"# a comment
record:
  "*":            { create: true, read: true, write: "user.isAuthenticated", delete: false, listen: true, notify: false }
  "profile/$id":  { write: "user.id === $id", create: "user.id === $id" }
  "bid/$item":    { write: "data.price > oldData.price && _('item/' + $item).open === true" }
event:
  "*":            { publish: true, subscribe: true, listen: true }
  "chat/$room":   { publish: "data.text.length < 500 && $room.startsWith('open-')" }
rpc:
  "*":            { provide: "user.data.role === 'backend'", request: true }
presence:
  "*":            { allow: true }
"#;

fn parse(text: &str) -> Result<RuleSet, Vec<String>> {
    load::parse(text, "permissions.yml", &RuleLimits::default())
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn question<'a>(principal: &'a Principal, access: Access, name: &'a str) -> Question<'a> {
    Question {
        principal,
        access,
        by: RequestedAction::Plainly,
        name: Some(name),
        data: None,
        old_data: None,
        now: WallTime(1),
        values: &[],
    }
}

#[test]
fn deepstreams_example_loads_and_decides() {
    let rules = parse(EXAMPLE).expect("valid");
    let ann = Principal::new(Name::from("ann"));
    let backend = Principal::new(Name::from("b"))
        .with_data(Some(Payload::from_checked(r#"{"role":"backend"}"#)), None);
    let ask = |who, access, name, data, old_data| {
        rules.decide(&Question {
            data,
            old_data,
            ..question(who, access, name)
        })
    };
    let allowed = |who, access, name| ask(who, access, name, None, None) == Decision::Allow;
    assert!(allowed(&ann, Access::RecordWrite, "any"));
    assert!(allowed(&ann, Access::RecordWrite, "profile/ann"));
    assert!(!allowed(&ann, Access::RecordWrite, "profile/bob"));
    // The path has no rule for reading, so a shorter one decides.
    assert!(allowed(&ann, Access::RecordRead, "profile/bob"));
    assert!(!allowed(&ann, Access::RecordDelete, "any"));
    assert_eq!(
        ask(&ann, Access::RpcProvide, "any", None, None),
        Decision::Failed
    );
    assert!(allowed(&backend, Access::RpcProvide, "any"));
    let chat = |name, data| ask(&ann, Access::EventPublish, name, Some(data), None);
    assert_eq!(chat("chat/open-1", r#"{"text":"hi"}"#), Decision::Allow);
    assert_eq!(chat("chat/closed", r#"{"text":"hi"}"#), Decision::Deny);
    assert_eq!(chat("chat/open-1", "{}"), Decision::Failed);
    let bid = |values: &[(Name, Option<Payload>)]| {
        rules.decide(&Question {
            data: Some(r#"{"price":2}"#),
            old_data: Some(r#"{"price":1}"#),
            values,
            ..question(&ann, Access::RecordWrite, "bid/7")
        })
    };
    let item = Name::from("item/7");
    assert_eq!(bid(&[]), Decision::Need(item.clone()));
    let open = Payload::from_checked(r#"{"open":true}"#);
    assert_eq!(bid(&[(item.clone(), Some(open))]), Decision::Allow);
    assert_eq!(bid(&[(item, None)]), Decision::Failed);
}

/// `conf/permissions.yml` as deepstream 10 ships it.
const SHIPPED: &str = r#"presence:
  "*":
    allow: true
record:
  "*":
    create: true
    write: true
    read: true
    delete: true
    listen: true
    notify: true
event:
  "*":
    publish: true
    subscribe: true
    listen: true
rpc:
  "*":
    provide: true
    request: true
"#;

#[test]
fn the_file_that_deepstream_ships_allows_everything() {
    let rules = parse(SHIPPED).expect("valid");
    let ann = Principal::new(Name::from("ann"));
    for kind in RULE_KINDS {
        let asked = question(&ann, kind.access, "a/b");
        // deepstream has no scopes, and a server that has them denies what no rule allows.
        let is_of_scopes = matches!(
            kind.access,
            Access::PresenceJoin | Access::PresenceSubscribe
        );
        let expected = match is_of_scopes {
            true => Decision::Deny,
            false => Decision::Allow,
        };
        assert_eq!(rules.decide(&asked), expected, "{kind:?}");
    }
}

/// What `tidewire-bench grid --rules` measures: nothing but these rules and the publications of `--chat`.
#[test]
fn the_rules_of_the_bench_have_24_patterns_and_allow_its_chat() {
    let text = include_str!("../../tidewire-bench/rules/chat.yml");
    let paths = text.lines().filter(|line| line.starts_with("  \"")).count();
    assert_eq!(paths, 24);
    let rules = parse(text).expect("valid");
    let user = |role: &str| {
        let data = Payload::from(format!(r#"{{"role":"{role}"}}"#));
        Principal::new(Name::from("user-7")).with_data(Some(data), None)
    };
    let publish = |role: &str, name: &str, data: &str| {
        let who = user(role);
        rules.decide(&Question {
            data: Some(data),
            ..question(&who, Access::EventPublish, name)
        })
    };
    let said = r#"{"id":1000007,"text":"the quick brown fox"}"#;
    assert_eq!(publish("member", "chat/open-1", said), Decision::Allow);
    assert_eq!(publish("guest", "chat/open-1", said), Decision::Deny);
    assert_eq!(publish("member", "chat/1", said), Decision::Deny);
    assert_eq!(publish("member", "bench/grid", said), Decision::Deny);
    let member = user("member");
    let subscribe = question(&member, Access::EventSubscribe, "chat/open-1");
    assert_eq!(rules.decide(&subscribe), Decision::Allow);
}

#[test]
fn a_decision_is_explained_by_line() {
    let rules = parse(EXAMPLE).expect("valid");
    let ann = Principal::new(Name::from("ann"));
    let lines = |access, name| -> Vec<u64> {
        rules
            .candidates(&question(&ann, access, name))
            .filter_map(|explanation| explanation.rule.map(|rule| rule.position.line))
            .collect()
    };
    assert_eq!(lines(Access::RecordWrite, "profile/ann"), [4, 3]);
    assert_eq!(lines(Access::RecordRead, "profile/ann"), [3]);
    let explanation = rules.explain(&question(&ann, Access::RecordWrite, "profile/ann"));
    let rule = explanation.rule.expect("a rule decides");
    assert_eq!(
        (rule.text(), rule.position.line, rule.position.column),
        ("user.id === $id", 4, 28)
    );
}

#[test]
fn the_longest_path_decides_and_of_equal_ones_the_later() {
    let rules = parse(
        r#"{"record": {"*": {"read": false}, "a/*": {"read": true}, "*/b": {"read": false}, "a/b/c*": {"write": true}},
            "event": {"*": {}}, "rpc": {"*": {}}, "presence": {"*": {"allow": "name === undefined"}}}"#,
    )
    .expect("JSON is YAML");
    let ann = Principal::new(Name::from("ann"));
    let decide = |access, name| rules.decide(&question(&ann, access, name));
    assert_eq!(decide(Access::RecordRead, "a/x"), Decision::Allow);
    assert_eq!(decide(Access::RecordRead, "a/b"), Decision::Deny);
    assert_eq!(decide(Access::RecordRead, "a/b/c"), Decision::Allow);
    // Nothing allows it.
    assert_eq!(decide(Access::EventPublish, "x"), Decision::Deny);
    let all = Question {
        name: None,
        ..question(&ann, Access::Presence, "")
    };
    assert_eq!(rules.decide(&all), Decision::Allow);
    assert_eq!(decide(Access::Presence, "bob"), Decision::Deny);
}

/// The decision of a rule set about the presence of all users, and whether it distinguishes users.
fn everyone(presence: &str, user: &str) -> (Decision, bool) {
    let file = format!(
        r#"{{"record": {{"*": {{}}}}, "event": {{"*": {{}}}}, "rpc": {{"*": {{}}}}, "presence": {presence}}}"#
    );
    let rules = parse(&file).expect("JSON is YAML");
    let user = Principal::new(Name::from(user));
    let all = Question {
        name: None,
        ..question(&user, Access::Presence, "")
    };
    (rules.decide(&all), rules.tells_users_apart())
}

#[test]
fn everyone_is_no_user_that_a_path_could_name() {
    let own = r#"{"*": {"allow": false}, "$user": {"allow": "$user === user.id"}}"#;
    for user in ["ann", "undefined", "null", ""] {
        assert_eq!(everyone(own, user), (Decision::Deny, true), "{user}");
    }
    for path in ["undefined", "un*", "$user*", "........."] {
        let file = format!(r#"{{"*": {{"allow": false}}, "{path}": {{"allow": true}}}}"#);
        assert_eq!(everyone(&file, "ann"), (Decision::Deny, false), "{path}");
        let file = format!(r#"{{"*": {{"allow": true}}, "{path}": {{"allow": false}}}}"#);
        assert_eq!(everyone(&file, "ann"), (Decision::Allow, true), "{path}");
    }
    // Without a rule of that path nothing allows it.
    let file = r#"{"*": {}, "$user": {"allow": true}}"#;
    assert_eq!(everyone(file, "ann").0, Decision::Deny);
}

#[test]
fn rules_that_decide_alike_about_all_users_do_not_tell_them_apart() {
    for (rule, tells) in [
        ("true", false),
        ("false", false),
        ("\"user.isAuthenticated && _('on').open\"", false),
        ("\"name !== 'boss'\"", true),
        ("\"action === 2\"", true),
    ] {
        let file = format!(r#"{{"*": {{"allow": {rule}}}}}"#);
        assert_eq!(everyone(&file, "ann").1, tells, "{rule}");
    }
}

/// The decision of a rule about a write before some documents are known.
fn without(rule: &str, user: &str, unknown: Unknown) -> Option<Decision> {
    let file = format!(
        "record: {{\"*\": {{write: {rule}}}}}\nevent: {{\"*\": {{}}}}\nrpc: {{\"*\": {{}}}}\npresence: {{\"*\": {{}}}}\n"
    );
    let rules = parse(&file).expect("valid");
    let user = Principal::new(Name::from(user));
    rules.decide_without(&question(&user, Access::RecordWrite, "a"), unknown)
}

#[test]
fn rules_that_do_not_depend_on_a_document_are_decided_without_it() {
    let both = Unknown::BOTH;
    let data = Unknown {
        data: true,
        old_data: false,
    };
    let (allow, deny) = (Some(Decision::Allow), Some(Decision::Deny));
    let need = Some(Decision::Need(Name::from("gate")));
    for (rule, unknown, expected) in [
        ("true", both, allow.clone()),
        ("false", both, deny.clone()),
        ("user.id === 'ann'", both, allow.clone()),
        ("user.id === 'bob' && data.n > 1", both, deny.clone()),
        ("user.id === 'ann' && data.n > 1", both, None),
        ("user.id === 'ann' || data.n > 1", both, allow.clone()),
        ("typeof data === 'object'", both, None),
        ("oldData?.n === 1", both, None),
        // There is no record, and that is known.
        ("oldData === null", data, allow),
        ("data === 1", data, None),
        ("[1, data].length === 2", data, None),
        ("user.data.role === 'x'", both, Some(Decision::Failed)),
        ("_('gate').open && data.n", both, need.clone()),
        ("data.n && _('gate').open", both, None),
        ("_('gate-' + oldData.n).open", both, None),
    ] {
        assert_eq!(
            without(&format!("\"{rule}\""), "ann", unknown),
            expected,
            "{rule}"
        );
    }
}

#[test]
fn unknown_members_are_refused_with_the_nearest_name() {
    for (rule, reason) in [
        (
            "user.ID !== 'guest'",
            "`user` has no member `ID`, did you mean `id`?",
        ),
        ("user.isAuthenticatd", "did you mean `isAuthenticated`?"),
        (
            "user.dat.role === 'x'",
            "`user` has no member `dat`, did you mean `data`?",
        ),
        ("user?.Data", "did you mean `data`?"),
        ("user['ID'] === 'x'", "did you mean `id`?"),
        ("'ID' in user", "did you mean `id`?"),
        ("user.serverData", "It has `id`, `isAuthenticated`, `data`"),
        ("user[0]", "`user` has no member `0`"),
        ("(user).role", "`user` has no member `role`"),
        (
            "name.lenght > 5",
            "a text has no member `lenght`, did you mean `length`?",
        ),
        ("user.id.size", "a text has no member `size`"),
        ("(user.id + '/').size", "a text has no member `size`"),
        ("'a'.trim().first", "a text has no member `first`"),
        (
            "name.trim === 'a'",
            "`trim` is a method, it must be called: `trim()`",
        ),
        ("['a', 'b'].size === 2", "an array has no member `size`"),
        (
            "{open: true}.opne",
            "the object has no member `opne`, did you mean `open`?",
        ),
        ("now.day", "a number has no members, so not `day`"),
        (
            "user.isAuthenticated.id",
            "true or false has no members, so not `id`",
        ),
        (
            "/a/.source",
            "a regular expression has no members, so not `source`",
        ),
    ] {
        let limits = RuleLimits::default();
        let error = Rule::parse(rule, &[], &limits).expect_err(rule);
        assert!(error.reason.contains(reason), "{rule}: {}", error.reason);
    }
    for rule in [
        "user.id === user['id'] && user.data.anything.at.all === 1",
        "user.isAuthenticated && 'id' in user",
        "data.ID === oldData.constructor && _('a').b === 1",
        "name.length > 1 && name[0] === 'a' && name['1'] === 'b'",
        "[1, 2][1] === 2 && ['a'].length === 1 && {a: 1}.a === 1 && {'b c': 1}['b c'] === 1",
        "name.match(/a/)[0] === 'a' && name.match(/a/).index === undefined",
        "user[name] === 1 && (user.isAuthenticated ? user : data).ID === 1",
    ] {
        assert!(
            Rule::parse(rule, &[], &RuleLimits::default()).is_ok(),
            "{rule}"
        );
    }
    // The place is that of the member.
    let file = "record:\n  \"*\": { read: \"user.ID !== 'guest'\" }\nevent: {\"*\": {}}\nrpc: {\"*\": {}}\npresence: {\"*\": {}}\n";
    let errors = parse(file).expect_err("refused");
    assert!(
        errors[0].starts_with("permissions.yml:2:22: "),
        "{errors:?}"
    );
}

#[test]
fn actions_have_deepstreams_numbers() {
    let ann = Principal::new(Name::from("ann"));
    let bulk = |action| RequestedAction::Record(RecordAction::Bulk(action));
    for (access, by, number) in [
        (Access::EventPublish, RequestedAction::Plainly, 2),
        (Access::EventSubscribe, RequestedAction::Plainly, 3),
        (Access::EventListen, RequestedAction::Plainly, 5),
        (Access::RpcProvide, RequestedAction::Plainly, 8),
        (Access::RpcRequest, RequestedAction::Plainly, 2),
        (
            Access::RecordCreate,
            RequestedAction::Record(RecordAction::CreateAndPatch),
            15,
        ),
        (
            Access::RecordRead,
            RequestedAction::Record(RecordAction::Read),
            3,
        ),
        (
            Access::RecordRead,
            RequestedAction::Record(RecordAction::Head),
            5,
        ),
        (
            Access::RecordRead,
            bulk(RecordBulk::SubscribeCreateAndRead),
            3,
        ),
        (Access::RecordRead, bulk(RecordBulk::SubscribeAndHead), 21),
        (Access::RecordRead, bulk(RecordBulk::SubscribeAndRead), 22),
        (Access::RecordRead, bulk(RecordBulk::Subscribe), 25),
        (
            Access::RecordWrite,
            RequestedAction::Record(RecordAction::CreateAndUpdate),
            18,
        ),
        (
            Access::RecordWrite,
            RequestedAction::Record(RecordAction::CreateAndPatch),
            19,
        ),
        (
            Access::RecordWrite,
            RequestedAction::Record(RecordAction::PatchMulti),
            35,
        ),
        (
            Access::RecordDelete,
            RequestedAction::Record(RecordAction::Erase),
            20,
        ),
        (
            Access::RecordDelete,
            RequestedAction::Record(RecordAction::Delete),
            9,
        ),
        (Access::RecordListen, RequestedAction::Plainly, 27),
        (Access::RecordNotify, bulk(RecordBulk::Notify), 2),
        (
            Access::Presence,
            RequestedAction::Presence(PresenceAction::QueryAll),
            2,
        ),
        (
            Access::Presence,
            RequestedAction::Presence(PresenceAction::Query),
            4,
        ),
        (
            Access::Presence,
            RequestedAction::Presence(PresenceAction::Subscribe),
            10,
        ),
        (
            Access::Presence,
            RequestedAction::Presence(PresenceAction::SubscribeAll),
            12,
        ),
    ] {
        let kind = tidewire_rules::set::RULE_KINDS
            .iter()
            .find(|kind| kind.access == access)
            .expect("a kind");
        let sections = ["record", "event", "rpc", "presence"].map(|section| {
            let rule = if section == kind.section {
                format!("{}: action === {number}", kind.name)
            } else {
                String::new()
            };
            format!("{section}: {{\"*\": {{{rule}}}}}\n")
        });
        let rules = parse(&sections.concat()).expect("valid");
        let asked = Question {
            by,
            ..question(&ann, access, "x")
        };
        assert_eq!(rules.decide(&asked), Decision::Allow, "{access:?} {by:?}");
    }
}

#[test]
fn every_error_is_reported_with_its_position() {
    let errors = parse(
        r#"record:
  "*": { read: "user.id  === $x", create: "data.a", write: 5 }
  "/a": { read: true }
  "b": { reed: true, listen: "oldData" }
  "c":
    write: >
      user.id === 'a' &&
      parse(1)
  "d": { read: "'\x41' === nothing" }
  "e": true
event:
  "x": {}
rpc: []
extra: {}
"#,
    )
    .expect_err("refused");
    let expected = [
        "1:1: the section `presence` is missing",
        "2:30: the path has no variable `$x`",
        "2:44: rule `create` of `record` does not support `data`",
        "2:60: a rule must be true, false or an expression",
        "3:4: a path can't start with `/`",
        "4:10: `record` has no rule \"reed\"",
        "4:31: rule `listen` of `record` does not support `oldData`",
        "8:7: function `parse` is not supported",
        "9:16: unknown name `nothing`",
        "10:8: path \"e\" must contain rules",
        "11:1: `event` has no rules for the path \"*\"",
        "13:6: `rpc` must contain paths",
        "14:1: unknown section \"extra\"",
    ];
    let expected: Vec<String> = expected
        .iter()
        .map(|error| format!("permissions.yml:{error}"))
        .collect();
    assert_eq!(errors, expected);
}

#[test]
fn an_invalid_rules_file_is_refused() {
    for text in ["", "[]", "a: [", "record: 1\nrecord: 2", "5", "\u{0}"] {
        let errors = parse(text).expect_err(text);
        assert!(
            !errors.is_empty() && errors[0].starts_with("permissions.yml:"),
            "{errors:?}"
        );
    }
    let limits = RuleLimits {
        file_bytes_max: 10,
        ..RuleLimits::default()
    };
    assert!(load::parse(EXAMPLE, "x", &limits).is_err());
    let limits = RuleLimits {
        paths_max: 3,
        ..RuleLimits::default()
    };
    assert!(load::parse(EXAMPLE, "x", &limits).is_err());
}

#[test]
fn a_set_knows_on_what_the_right_to_read_depends() {
    let rules = parse(
        r#"
record:
  "*":       { create: true, read: "name !== user.id", write: "oldData.a === 1 && _('b').c && now > 1", delete: true, listen: true, notify: true }
  "always":  { read: true }
  "never":   { read: false }
  "old/$id": { read: "oldData.owner === user.id || _('acl/' + $id).open" }
  "acl/$id": { read: "_('acl/' + $id).open" }
  "now":     { read: "now < 2000" }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
presence: { "*": { allow: true } }
"#,
    )
    .expect("valid");
    let ann = Principal::new(Name::from("ann"));
    for (name, expected) in [
        ("other", ReadRight::Fixed),
        ("always", ReadRight::Fixed),
        ("never", ReadRight::Fixed),
        ("old/7", ReadRight::ByRecord),
        ("acl/7", ReadRight::ByOthers),
        ("now", ReadRight::ByOthers),
    ] {
        assert_eq!(rules.read_right(&ann, name), expected, "{name}");
    }
}

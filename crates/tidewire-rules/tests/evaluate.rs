//! What single expressions decide, with the outcome that Node has for the same text. The proof against Node itself is
//! `node_parity`; these cases are the ones a person wants to read.

use tidewire_core::text::Name;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::{Document, Outcome, Records, Rule, Scope, User};
use tidewire_rules::tree::Tree;

struct Known<'v>(Vec<(&'v str, Document<'v>)>);

impl<'v> Records<'v> for Known<'v> {
    fn find(&self, name: &str) -> Option<Document<'v>> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

const DATA: &str = r#"{"n":5,"t":"Tide","e":"","z":null,"yes":true,"list":[1,"two",null,[3]],"o":{"a":{"b":1}},
    "neg":-0,"big":9007199254740993,"inf":1e400,"smile":"a😀","half":"\ud83d","a":1,"a":2,"toString":1,"es\u0063":7}"#;
const OLD: &str = r#"{"n":3,"o":{}}"#;

fn run(text: &str, records: &Known<'_>, held: bool) -> Outcome {
    let limits = RuleLimits::default();
    let rule = Rule::parse(text, &["$id".into(), "$room".into()], &limits)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let trees = [DATA, OLD].map(|document| Tree::parse(document, 64));
    let documents = if held {
        [Document::Held(&trees[0]), Document::Held(&trees[1])]
    } else {
        [Document::Text(DATA), Document::Text(OLD)]
    };
    let scope = Scope {
        user: User {
            id: "ann",
            data: Document::Text(r#"{"role":"admin"}"#),
        },
        data: documents[0],
        old_data: documents[1],
        now: 1_700_000_000_000,
        action: 18,
        name: Some("room/ann/7"),
        variables: &["ann", "open-7"],
    };
    rule.decide(&scope, records, &limits)
}

fn check(cases: &[&str], expected: &Outcome) {
    let records = Known(vec![
        ("gate", Document::Text(r#"{"open":true,"next":"hall"}"#)),
        ("none", Document::Null),
    ]);
    for text in cases {
        for held in [false, true] {
            assert_eq!(
                run(text, &records, held),
                *expected,
                "{text} (held: {held})"
            );
        }
    }
}

#[test]
fn true_expressions() {
    check(
        &[
            "true",
            "user.id === $id && data.n > oldData.n && _('gate').open",
            "user.isAuthenticated && user.data.role === 'admin'",
            "user.data.role !== 'guest' && data.t.length < 500 && $room.startsWith('open-')",
            "action === 18 && now > 1e12 && name.endsWith('/7')",
            "data.t.toLowerCase() === 'tide' && data.t.toUpperCase() === 'TIDE' && ' x '.trim() === 'x'",
            "data.list[1] === 'two' && data.list.length === 4 && data.list['1'] === data.list[1]",
            "data.list.includes(1) && data.list.indexOf('two') === 1 && data.list.indexOf('2') === -1",
            "data.o === data.o && data.o !== oldData.o && data.list[3] === data.list[3]",
            "data.missing === undefined && typeof data.missing === 'undefined'",
            "typeof data.z === 'object' && data.z == undefined && data.z !== undefined",
            "'n' in data && !('m' in data) && 0 in data.list && 'length' in data.list",
            "data['n'] + data['t'] === '5Tide' && data.n + 1 === 6 && data.n - '2' === 3",
            "'' + data.list === '1,two,,3' && '' + [undefined, null, 1] === ',,1'",
            "'' + data.o === '[object Object]' && data.o != 1",
            "[] == '' && [5] == 5 && null == undefined && null != 0 && '1' == 1 && true == 1",
            "data.neg === 0 && 1 / data.neg === -Infinity && data.inf === Infinity && NaN !== NaN",
            "data.big === 9007199254740992",
            "data.smile.length === 3 && data.smile[1] === data.half && data.half + '\\ude00' === '😀'",
            "data.a === 2 && data.esc === 7",
            "'b' > 'a' && '10' < '9' && 10 > 9 && '10' > 9 && undefined + 1 !== NaN",
            "data.t.match(/^t.d/i)[0] === 'Tid' && data.t.match('x') === null && 'aXbX'.match(/x/gi).length === 2",
            "(data.n > 3 ? 'a' : 'b') === 'a'",
            "data?.o?.q?.r === undefined && data.z?.x === undefined && (data.zz ?? 'd') === 'd'",
            "_('none') === null && _('none') == undefined",
            "{a: 1}.a === 1 && [1, 2][1] === 2 && {'x y': 2}['x y'] === 2",
            "-data.n === -5 && +'7' === 7 && !data.e && -7 % 3 === -1 && 7 / 2 === 3.5",
            "/a/ + '' === '/a/' && typeof /a/ === 'object'",
            "data.t === 'Tide'; // as deepstream's files have it",
            "/* one */ true",
            "'Tide'.startsWith('i', 1) && 'Tide'.endsWith('id', 3) && 'Tide'.includes('') && 'aa'.indexOf('a', 1) === 1",
            "data.constructor === undefined && !('toString' in oldData)",
        ],
        &Outcome::True,
    );
}

#[test]
fn false_expressions() {
    check(
        &[
            "false",
            "0",
            "''",
            "null",
            "undefined",
            "NaN",
            "-0",
            "data.missing",
            "user.id === $room",
            "data.n < NaN || data.n >= undefined",
            "[] == []",
            "{} == {}",
            "data.list == [1]",
            "'a' < 1",
        ],
        &Outcome::False,
    );
}

#[test]
fn failing_expressions() {
    check(
        &[
            "data.missing.deeper",
            "data.z.x",
            "undefined[data.n]",
            "data.n.trim()",
            "data.missing.trim()",
            "data.o.trim()",
            "data.list.startsWith('a')",
            "'a' in data.t",
            "'a' in undefined",
            "data + ''",
            "data == 1",
            "'x'.startsWith(/x/)",
            "_(5)",
            "_(null)",
            "(data?.z).x",
            "name.match(/z/)[0]",
        ],
        &Outcome::Error,
    );
}

#[test]
fn asks_for_records_until_it_has_them() {
    let need = |text, known: &[(&'static str, Document<'static>)], expected: Option<&str>| {
        let outcome = run(text, &Known(known.to_vec()), false);
        match expected {
            Some(name) => assert_eq!(outcome, Outcome::Need(Name::from(name)), "{text}"),
            None => assert_ne!(
                outcome,
                Outcome::Need(Name::from("")),
                "{text}: {outcome:?}"
            ),
        }
        outcome
    };
    let gate = ("gate", Document::Text(r#"{"next":"hall"}"#));
    let hall = ("hall", Document::Text(r#"{"open":true,"next":"yard"}"#));
    need("_(_('gate').next).open", &[], Some("gate"));
    need("_(_('gate').next).open", &[gate], Some("hall"));
    assert_eq!(
        need("_(_('gate').next).open", &[gate, hall], None),
        Outcome::True
    );
    need("_('x' + 1) === null", &[], Some("x1"));
    // A name that stems from an unfinished reference is not read.
    assert_eq!(
        run("_('a/' + undefined) === undefined", &Known(vec![]), false),
        Outcome::True
    );
    assert_eq!(
        run("_(undefined) === undefined", &Known(vec![]), false),
        Outcome::True
    );
}

#[test]
fn rounds_are_limited_and_records_are_not() {
    let yard = Document::Text(r#"{"open":true,"next":"last"}"#);
    let chain = Known(vec![
        ("gate", Document::Text(r#"{"next":"hall"}"#)),
        ("hall", Document::Text(r#"{"next":"yard"}"#)),
        ("yard", yard),
    ]);
    // Two deep is three runs; three deep would be four.
    assert_eq!(run("_(_('gate').next).next", &chain, false), Outcome::True);
    assert_eq!(
        run("_(_(_('gate').next).next).open", &chain, false),
        Outcome::Error
    );
    // Records that one run asks for together cost one run.
    let four = Known(vec![("a", yard), ("b", yard), ("c", yard), ("d", yard)]);
    assert_eq!(
        run(
            "[_('a'), _('b'), _('c'), _('d')].length === 4",
            &four,
            false
        ),
        Outcome::True
    );
    assert_eq!(
        run("_('a').open && _('b').open && _('c').open", &four, false),
        Outcome::Error
    );
}

#[test]
fn invalid_expressions_are_refused_with_offset_and_reason() {
    for (text, offset, reason) in [
        ("", 0, "empty"),
        ("a", 0, "unknown name `a`"),
        ("data = 1", 5, "a rule can't change a value"),
        ("data.n++", 6, "a rule can't change a value"),
        ("new Date()", 0, "`new` is not allowed"),
        ("function () {}", 0, "`function` is not allowed"),
        ("() => 1", 1, "unexpected `)`"),
        ("data => 1", 5, "functions are not allowed"),
        ("data.filter('a')", 5, "function `filter` is not supported"),
        ("parse('a')", 0, "function `parse` is not supported"),
        ("user('a')", 0, "function `user` is not supported"),
        ("data.t['trim']()", 14, "only a named method"),
        ("_", 1, "must be called"),
        ("_()", 3, "one record"),
        ("$other", 0, "no variable `$other`"),
        ("1 +", 3, "unexpected end"),
        ("(1", 2, "`)` expected"),
        ("1 2", 2, "unexpected number"),
        ("'open", 0, "unclosed text"),
        ("1 & 2", 2, "`&` is not supported"),
        ("2 ** 3", 2, "`**` is not supported"),
        ("`a`", 0, "not supported"),
        ("data instanceof user", 5, "`instanceof` is not allowed"),
        ("this", 0, "`this` is not allowed"),
        ("a ?? b", 0, "unknown name"),
        ("1 ?? 2 || 3", 11, "needs brackets"),
        ("name.match(data)", 11, "a text literal"),
        ("name.match(/(?=a)/)", 14, "look-around"),
        ("name.match(/(a)\\1/)", 16, "back-references"),
        ("name.match(/a/u)", 13, "flag `u`"),
        ("/a", 0, "unclosed regular expression"),
        ("{__proto__: 1}", 1, "__proto__"),
        ("{data}", 5, "`:` expected"),
        ("[...data]", 1, "`...` is not supported"),
        ("010", 0, "starts with 0"),
        ("1n", 0, "followed by a name"),
        ("1; 2", 3, "unexpected number"),
        ("/* open", 0, "unclosed comment"),
    ] {
        let error = Rule::parse(text, &["$id".into()], &RuleLimits::default()).expect_err(text);
        assert!(error.reason.contains(reason), "{text}: {}", error.reason);
        assert_eq!(error.offset, offset, "{text}: {}", error.reason);
    }
}

#[test]
fn every_limit_is_a_refusal_or_a_failure() {
    let limits = RuleLimits::default();
    let refuse = |text: &str| Rule::parse(text, &[], &limits).expect_err("refused").reason;
    assert!(refuse(&"(".repeat(1000)).contains("nests deeper"));
    assert!(refuse(&"!".repeat(1000)).contains("nests deeper"));
    assert!(refuse(&"[".repeat(1000)).contains("nests deeper"));
    assert!(refuse(&format!("1{}", " + 1".repeat(300))).contains("operators"));
    assert!(refuse(&format!("data{}", ".a".repeat(300))).contains("operators"));
    assert!(refuse(&" ".repeat(20_000)).contains("bytes"));
    assert!(Rule::parse(&format!("1{}", " && 1".repeat(1000)), &[], &limits).is_ok());
    assert!(refuse("name.match(/((a{100}){100}){100}/)").contains("takes more than"));

    let small = RuleLimits {
        steps_max: 20,
        ..limits
    };
    let rule = Rule::parse(
        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21]",
        &[],
        &small,
    )
    .expect("valid");
    let scope = Scope {
        user: User {
            id: "a",
            data: Document::Null,
        },
        data: Document::Undefined,
        old_data: Document::Null,
        now: 0,
        action: 0,
        name: None,
        variables: &[],
    };
    assert_eq!(rule.decide(&scope, &Known(vec![]), &small), Outcome::Error);
    assert_eq!(rule.decide(&scope, &Known(vec![]), &limits), Outcome::True);

    let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
    let scope = Scope {
        data: Document::Text(&deep),
        ..scope
    };
    let rule = Rule::parse("'' + data", &[], &limits).expect("valid");
    assert_eq!(rule.decide(&scope, &Known(vec![]), &limits), Outcome::Error);
}

//! The auth suite: the guarantees of each authenticator, alone and in a chain.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidewire_auth::jwt::mint::{TokenRequest, mint};
use tidewire_auth::{AuthChain, jwt, keys, password};
use tidewire_config::machine::Machine;
use tidewire_config::plan::plan;
use tidewire_config::section::AuthJwt;
use tidewire_config::value::Secret;
use tidewire_config::{Problem, Sources, load};
use tidewire_core::effect::AuthOutcome;
use tidewire_core::principal::Credential;
use tidewire_core::text::Payload;
use tidewire_shard::peer::{ClientCertificate, PeerDetails};
use tokio::runtime::Runtime;

/// The test vector of deepstream: password `password`.
const VECTOR: &str = "rCOSZxJrgze2AZdVQh12c6ErDMOG0M+Rx5Yu7S5d91c=GS4SbTQYmoaGwjm2shEobg==";

/// An authentication chain with a users file.
struct Suite {
    folder: TempDir,
    chain: AuthChain,
    runtime: Runtime,
}

/// A chain with this users file and these flags.
fn chain(folder: &TempDir, users: &str, flags: &[(&str, &str)]) -> Result<AuthChain, Problem> {
    let path = folder.path().join("users.yml");
    fs::write(&path, users).expect("the file is written");
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let mut all: Vec<(String, String)> = flags.iter().map(owned).collect();
    all.push(("auth.file.path".into(), path.display().to_string()));
    all.push(("permissions".into(), "allow_all".into()));
    let loaded = load(&Sources {
        flags: all,
        ..Sources::default()
    });
    let machine = Machine {
        processors: 1,
        memory_bytes: 1 << 30,
    };
    AuthChain::new(
        &plan(&loaded.expect("the flags are right"), &machine).expect("a plan"),
        1,
    )
}

impl Suite {
    fn new(users: &str, flags: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let chain = chain(&folder, users, flags).expect("the users are right");
        let runtime = Runtime::new().expect("a runtime");
        Self {
            folder,
            chain,
            runtime,
        }
    }

    fn login(&self, data: &str) -> AuthOutcome {
        self.login_from(data, Vec::new(), None)
    }

    /// Logs in over a connection whose request has these headers and whose client has presented this certificate.
    fn login_from(
        &self,
        data: &str,
        headers: Vec<(String, String)>,
        certificate: Option<ClientCertificate>,
    ) -> AuthOutcome {
        let peer = Arc::new(PeerDetails {
            headers,
            certificate,
            ..PeerDetails::at((Ipv4Addr::LOCALHOST, 1).into())
        });
        let data = Payload::from_checked(data);
        self.runtime.block_on(self.chain.authenticate(&data, peer))
    }

    /// Logs in and expects `user` with its server data and client data.
    fn accepts(
        &self,
        data: &str,
        user: &str,
        server_data: Option<&str>,
        client_data: Option<&str>,
    ) {
        let AuthOutcome::Accepted(principal) = self.login(data) else {
            panic!("{data} is let in")
        };
        assert_eq!(principal.user_id.as_str(), user, "{data}");
        assert_eq!(
            principal.server_data().map(Payload::as_str),
            server_data,
            "{data}"
        );
        assert_eq!(
            principal.client_data().map(Payload::as_str),
            client_data,
            "{data}"
        );
    }

    /// Logs in and expects a refusal with this data.
    fn refuses(&self, data: &str, expected: Option<&str>) {
        let client_data = expected.map(Payload::from_checked);
        assert_eq!(
            self.login(data),
            AuthOutcome::Refused { client_data },
            "{data}"
        );
    }
}

const MISSING: &str = r#"{"error":"missing authentication parameter: username or/and password"}"#;

#[test]
fn open_accepts_every_login_under_the_given_name() {
    let suite = Suite::new("", &[]);
    suite.accepts("{}", "open", None, None);
    suite.accepts("[]", "open", None, None);
    suite.accepts(r#"{"username":"alice"}"#, "alice", None, None);
    suite.accepts(
        r#"{"username":"alice","password":"x"}"#,
        "alice",
        None,
        None,
    );
    suite.accepts(r#"{"username":7}"#, "7", None, None);
    suite.accepts(r#"{"username":true}"#, "true", None, None);
    for nameless in [
        r#"{"username":""}"#,
        r#"{"username":null}"#,
        r#"{"username":0}"#,
        r#"{"username":false}"#,
    ] {
        suite.accepts(nameless, "open", None, None);
    }
}

#[test]
fn names_beyond_the_limit_are_refused() {
    let suite = Suite::new("", &[("limits.name_bytes_max", "5")]);
    suite.accepts(r#"{"username":"12345"}"#, "12345", None, None);
    suite.refuses(
        r#"{"username":"123456"}"#,
        Some(r#"{"explanation":"the user id is longer than limits.name_bytes_max"}"#),
    );
}

#[test]
fn files_of_deepstream_are_read_as_they_are() {
    let users = format!(
        "# users\nalice:\n  password: \"{VECTOR}\"\n  serverData: {{ role: admin }}\n  clientData: {{ favourite: red }}\n\
         bob:\n  password: \"{VECTOR}\"\n"
    );
    let suite = Suite::new(&users, &[("auth.chain", "file"), ("auth.file.hash", "md5")]);
    let right = |name: &str| format!(r#"{{"username":"{name}","password":"password"}}"#);
    suite.accepts(
        &right("alice"),
        "alice",
        Some(r#"{"role":"admin"}"#),
        Some(r#"{"favourite":"red"}"#),
    );
    suite.accepts(&right("bob"), "bob", Some("null"), Some("null"));
    suite.refuses(r#"{"username":"alice","password":"Password"}"#, None);
    suite.refuses(&right("carol"), None);
    for incomplete in [
        "{}",
        "[]",
        r#"{"username":"alice"}"#,
        r#"{"password":"password"}"#,
        r#"{"username":"","password":"password"}"#,
        r#"{"username":"alice","password":""}"#,
        r#"{"username":["alice"],"password":"password"}"#,
    ] {
        suite.refuses(incomplete, Some(MISSING));
    }
    // JSON can't represent this number, so it is not a user name.
    suite.refuses(r#"{"username":1e999}"#, Some(MISSING));
}

#[test]
fn argon2id_and_plain_passwords_work_in_one_file() {
    let hash = password::hash("tide").expect("randomness");
    let users = format!(r#"{{"alice": {{"password": "{hash}"}}, "bob": {{"password": "1234"}}}}"#);
    let suite = Suite::new(&users, &[("auth.chain", "file")]);
    suite.accepts(
        r#"{"username":"alice","password":"tide"}"#,
        "alice",
        Some("null"),
        Some("null"),
    );
    suite.accepts(
        r#"{"username":"bob","password":"1234"}"#,
        "bob",
        Some("null"),
        Some("null"),
    );
    suite.refuses(r#"{"username":"alice","password":"1234"}"#, None);
    suite.refuses(
        &format!(r#"{{"username":"alice","password":"{hash}"}}"#),
        None,
    );
    suite.refuses(r#"{"username":"carol","password":""}"#, Some(MISSING));
}

#[test]
fn a_wrong_password_costs_the_same_for_every_user() {
    // The first user in the file has the cheapest hash: a decoy made from it would reveal unknown names.
    let costly = password::hash("tide").expect("randomness");
    let users = format!("anna: {{password: '{VECTOR}'}}\nbob: {{password: '{costly}'}}\n");
    let new_suite = || Suite::new(&users, &[("auth.chain", "file"), ("auth.file.hash", "md5")]);
    let mut times = [std::time::Duration::MAX; 3];
    // A chain delays guesses after some refusals, so each chain serves only five rounds.
    for _ in 0..4 {
        let suite = new_suite();
        for _ in 0..5 {
            // The rounds interleave the names, so that other load on the machine slows all of them equally.
            for (least, name) in times.iter_mut().zip(["anna", "bob", "nobody"]) {
                let began = std::time::Instant::now();
                suite.refuses(&format!(r#"{{"username":"{name}","password":"x"}}"#), None);
                *least = (*least).min(began.elapsed());
            }
        }
    }
    let (least, most) = (times.iter().min(), times.iter().max());
    let (least, most) = (least.expect("three"), most.expect("three"));
    assert!(*most < *least * 3 / 2, "{times:?}");
    // The measurement works: a correct password with a cheap hash is fast.
    let suite = new_suite();
    let began = std::time::Instant::now();
    suite.accepts(
        r#"{"username":"anna","password":"password"}"#,
        "anna",
        Some("null"),
        Some("null"),
    );
    assert!(began.elapsed() * 2 < *least, "{times:?}");
}

#[test]
fn development_mode_explains_refusals() {
    let flags = [
        ("auth.chain", "file,jwt"),
        ("auth.file.hash", "none"),
        (
            "auth.jwt.secret",
            "a secret that is long enough for an HMAC key",
        ),
    ];
    let logins = [
        (
            r#"{"username":"anna","password":"wrong"}"#,
            None,
            r#"the password of user \"anna\" is wrong"#,
        ),
        (
            r#"{"username":"bert","password":"right"}"#,
            None,
            r#"the file of users has no user \"bert\""#,
        ),
        (
            r#"{"token":"none"}"#,
            Some("INVALID_TOKEN"),
            "the token can't be read",
        ),
    ];
    for is_development in [true, false] {
        let dev = [("dev", if is_development { "true" } else { "false" })];
        let suite = Suite::new("anna: {password: right}\n", &[&flags[..], &dev].concat());
        for (login, error, explanation) in logins {
            let error = error.map(|error| format!(r#""error":"{error}""#));
            let explanation = is_development.then(|| format!(r#""explanation":"{explanation}""#));
            let fields: Vec<String> = error.into_iter().chain(explanation).collect();
            let expected = (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")));
            suite.refuses(login, expected.as_deref());
        }
    }
}

#[test]
fn guesses_are_delayed_and_a_known_user_can_still_log_in() {
    let suite = Suite::new(
        "anna: {password: right}\n",
        &[("auth.chain", "file"), ("auth.file.hash", "none")],
    );
    let guess = r#"{"username":"anna","password":"wrong"}"#;
    let right = r#"{"username":"anna","password":"right"}"#;
    for _ in 0..10 {
        suite.refuses(guess, None);
    }
    // The next attempt waits for a second, and the one after it is not evaluated.
    let began = std::time::Instant::now();
    suite.refuses(guess, None);
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(suite.login(guess), AuthOutcome::Unavailable);
    assert_eq!(suite.login(right), AuthOutcome::Unavailable);
    assert_eq!(suite.chain.counts().refused.get(), 11);
    assert_eq!(suite.chain.counts().guess_limiter.held_off.get(), 2);
    // From another address, the user logs in at once.
    let peer = Arc::new(PeerDetails::at((Ipv4Addr::new(192, 0, 2, 1), 1).into()));
    let right = Payload::from_checked(right);
    let login = suite.chain.authenticate(&right, peer);
    let began = std::time::Instant::now();
    assert!(matches!(
        suite.runtime.block_on(login),
        AuthOutcome::Accepted(_)
    ));
    assert!(began.elapsed() < Duration::from_millis(900));
}

#[test]
fn in_a_chain_the_next_one_is_asked() {
    let users = format!("alice:\n  password: \"{VECTOR}\"\n");
    let both = [("auth.chain", "file,open"), ("auth.file.hash", "md5")];
    let suite = Suite::new(&users, &both);
    suite.accepts(
        r#"{"username":"alice","password":"password"}"#,
        "alice",
        Some("null"),
        Some("null"),
    );
    suite.accepts("{}", "open", None, None);
    suite.accepts(
        r#"{"username":"carol","password":"x"}"#,
        "carol",
        None,
        None,
    );
    let strict = [
        &both[..],
        &[("auth.file.report_invalid_parameters", "true")],
    ]
    .concat();
    let suite = Suite::new(&users, &strict);
    suite.refuses("{}", Some(MISSING));
    suite.refuses(r#"{"username":"alice","password":"x"}"#, None);
    suite.accepts(
        r#"{"username":"carol","password":"x"}"#,
        "carol",
        None,
        None,
    );
}

#[test]
fn wrong_files_are_refused_with_the_user() {
    let check = |users: &str, part: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = [("auth.chain", "file"), ("auth.file.hash", "sha512")];
        let Err(problem) = chain(&folder, users, &flags) else {
            panic!("{users:?} is refused")
        };
        assert!(problem.origin.contains("users.yml"), "{problem}");
        assert!(problem.to_string().contains(part), "{users:?}: {problem}");
    };
    check("", "no users");
    check("{}", "no users");
    check("alice: {}\n", "user \"alice\" has no password");
    check(
        "alice:\n  password: \"\"\n",
        "user \"alice\" has no password",
    );
    check("alice:\n  password: short\n", "auth.file.key_length");
    check("alice: [\n", "users.yml:1:");
    check("- alice\n", "users.yml:1:");
}

#[test]
fn a_reload_takes_new_users_and_keeps_the_old_on_errors() {
    let suite = Suite::new("alice: {password: one}\n", &[("auth.chain", "file")]);
    let path = suite.folder.path().join("users.yml");
    fs::write(&path, "alice: [").expect("the file is written");
    assert_eq!(suite.chain.reload().len(), 1);
    suite.accepts(
        r#"{"username":"alice","password":"one"}"#,
        "alice",
        Some("null"),
        Some("null"),
    );
    fs::write(&path, "alice: {password: two}\n").expect("the file is written");
    assert_eq!(suite.chain.reload(), []);
    suite.refuses(r#"{"username":"alice","password":"one"}"#, None);
    suite.accepts(
        r#"{"username":"alice","password":"two"}"#,
        "alice",
        Some("null"),
        Some("null"),
    );
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A token signed with this secret, made as `tidewire token` makes it.
fn token(secret: &str, user: &str) -> String {
    let options = AuthJwt {
        secret: Secret(secret.to_owned()),
        ..AuthJwt::default()
    };
    let order = TokenRequest {
        user: user.to_owned(),
        lifetime: Duration::from_secs(60),
        claims: vec!["role=admin".into()],
        signing_key: None,
    };
    mint(&options, &order, jwt::now(), "id-1").expect("minted")
}

fn login_with(token: &str) -> String {
    format!(r#"{{"token":"{token}"}}"#)
}

#[test]
fn a_token_says_who_it_is_and_until_when() {
    let suite = Suite::new("", &[("auth.chain", "jwt"), ("auth.jwt.secret", SECRET)]);
    let login = login_with(&token(SECRET, "alice"));
    suite.accepts(&login, "alice", Some(r#"{"role":"admin"}"#), None);
    let AuthOutcome::Accepted(principal) = suite.login(&login) else {
        panic!("the token is right")
    };
    assert_eq!(
        principal.credential(),
        Some(&Credential::Token("id-1".into()))
    );
    let ends_in = principal.expires_at().expect("an end").0 - jwt::now().0;
    assert!(
        (80_000..=90_000).contains(&ends_in),
        "a minute and the leeway: {ends_in}"
    );
    let refusals = [
        ("{}".to_owned(), "MISSING_TOKEN"),
        (r#"{"token":7}"#.to_owned(), "MISSING_TOKEN"),
        (login_with("x"), "INVALID_TOKEN"),
        (
            login_with(&token(&SECRET.replace('0', "1"), "alice")),
            "INVALID_TOKEN",
        ),
        (login_with(&token(SECRET, "")), "INVALID_TOKEN"),
    ];
    for (data, code) in refusals {
        suite.refuses(&data, Some(&format!(r#"{{"error":"{code}"}}"#)));
    }
}

#[test]
fn a_user_that_one_member_declines_is_passed_to_the_next() {
    let users = format!("alice:\n  password: \"{VECTOR}\"\n");
    let flags = [
        ("auth.chain", "jwt,file"),
        ("auth.jwt.secret", SECRET),
        ("auth.file.hash", "md5"),
    ];
    let suite = Suite::new(&users, &flags);
    suite.accepts(
        &login_with(&token(SECRET, "bob")),
        "bob",
        Some(r#"{"role":"admin"}"#),
        None,
    );
    let password = r#"{"username":"alice","password":"password"}"#;
    suite.accepts(password, "alice", Some("null"), Some("null"));
    suite.refuses(&login_with("x"), Some(r#"{"error":"INVALID_TOKEN"}"#));
}

#[test]
fn the_connection_may_bring_the_token_as_a_header() {
    let suite = Suite::new("", &[("auth.chain", "jwt"), ("auth.jwt.secret", SECRET)]);
    let token = token(SECRET, "alice");
    let check = |header: String, is_accepted: bool| {
        let outcome = suite.login_from("{}", vec![("authorization".into(), header.clone())], None);
        assert_eq!(
            matches!(outcome, AuthOutcome::Accepted(_)),
            is_accepted,
            "{header}"
        );
    };
    check(format!("Bearer {token}"), true);
    check(format!("bearer {token}"), true);
    check(format!("Basic {token}"), false);
    check(token.clone(), false);
    check("Bearer ".into(), false);
}

#[test]
fn logins_are_postponed_while_the_issuer_is_down() {
    // No process listens on a port that was given back.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
    drop(listener);
    let flags = [
        ("auth.chain", "jwt"),
        ("auth.jwt.jwks_url", url.as_str()),
        ("auth.jwt.audience", "*"),
        ("auth.jwt.secret", SECRET),
    ];
    let suite = Suite::new("", &flags);
    suite.accepts(
        &login_with(&token(SECRET, "alice")),
        "alice",
        Some(r#"{"role":"admin"}"#),
        None,
    );
    let other = login_with(&token(&SECRET.replace('0', "1"), "alice"));
    assert_eq!(suite.login(&other), AuthOutcome::Unavailable);
    let troubles = suite.chain.troubles();
    assert!(
        troubles[0].is_blocking && troubles[0].code == "jwt_keys",
        "{troubles:?}"
    );
    assert!(
        !troubles[0].text.contains(&url),
        "addresses may be secret: {troubles:?}"
    );
}

#[test]
fn options_of_tokens_that_make_no_sense_are_refused() {
    let check = |flags: &[(&str, &str)], part: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let all = [&[("auth.chain", "jwt")], flags].concat();
        let problem = chain(&folder, "", &all).err().expect(part);
        assert!(problem.to_string().contains(part), "{problem}");
    };
    check(&[], "no key is configured");
    check(&[("auth.jwt.secret", "short")], "32 bytes");
    check(&[("auth.jwt.discover", "true")], "set auth.jwt.issuer");
    check(
        &[
            ("auth.jwt.jwks_url", "http://id.example/keys"),
            ("auth.jwt.audience", "a"),
        ],
        "not encrypted",
    );
    check(
        &[("auth.jwt.jwks_url", "https://id.example/keys")],
        "auth.jwt.audience",
    );
    check(&[("auth.jwt.key_file", "/nowhere")], "auth.jwt.key_file");
}

#[test]
fn a_back_end_logs_in_with_its_key() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys.yml");
    let (entry, key) = keys::make("billing", Some("service"), None).expect("made");
    let (over, old) = keys::make("old", None, Some(Duration::ZERO)).expect("made");
    let data = "  serverData: { role: service }\n";
    fs::write(&path, format!("{entry}{data}{over}")).expect("written");
    let path = path.display().to_string();
    let suite = Suite::new("", &[("auth.chain", "keys"), ("auth.keys.path", &path)]);
    let login = |key: &str| format!(r#"{{"key":"{key}"}}"#);
    suite.accepts(
        &login(&key),
        "service",
        Some(r#"{"role":"service"}"#),
        Some("null"),
    );
    let bearer = vec![("authorization".to_owned(), format!("Bearer {key}"))];
    let AuthOutcome::Accepted(principal) = suite.login_from("{}", bearer, None) else {
        panic!("the header is right")
    };
    assert_eq!(
        principal.credential(),
        Some(&Credential::Key("billing".into()))
    );
    suite.refuses(&login(&old), Some(r#"{"error":"KEY_EXPIRED"}"#));
    let (_, secret) = key.split_once('.').expect("two parts");
    let wrong = [
        String::new(),
        "billing".into(),
        "billing.".into(),
        format!("{key}x"),
        key[..key.len() - 1].to_owned(),
        format!("other.{secret}"),
        format!(".{secret}"),
    ];
    for wrong in wrong {
        suite.refuses(&login(&wrong), Some(r#"{"error":"INVALID_KEY"}"#));
    }
    suite.refuses("{}", Some(r#"{"error":"INVALID_KEY"}"#));
    // A key that was removed from the file is no longer valid.
    fs::write(&path, "").expect("written");
    assert!(suite.chain.reload().is_empty());
    suite.refuses(&login(&key), Some(r#"{"error":"INVALID_KEY"}"#));
}

#[test]
fn options_of_the_webhook_that_make_no_sense_are_refused() {
    let check = |flags: &[(&str, &str)], part: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let all = [&[("auth.chain", "webhook")], flags].concat();
        let problem = chain(&folder, "", &all).err().expect(part);
        assert!(problem.to_string().contains(part), "{problem}");
    };
    check(&[], "auth.webhook.url");
    check(
        &[("auth.webhook.url", "http://id.example/")],
        "not encrypted",
    );
    let url = ("auth.webhook.url", "http://127.0.0.1:1/");
    check(
        &[url, ("auth.webhook.promote_to_header", "a b")],
        "not a valid header name",
    );
}

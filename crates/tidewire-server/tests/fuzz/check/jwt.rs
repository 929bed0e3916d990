//! Checks tokens and keys. An input is one letter and its content:
//!
//! - `t` and a token as it is: the server may accept it only if it is in `tokens.json`, whose private keys were deleted.
//! - `s`, a byte of settings, a header, a line end and claims: the check signs them, and an independent model computes the
//!   expected result.
//! - `k` and keys, as a file or an issuer provides them.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tidewire_auth::jwt::key::{self, KEYS_MAX, KeySet, Source};
use tidewire_auth::jwt::token::{Checks, LEEWAY_MS, TokenError, Verified, parse};
use tidewire_config::value::Auto;
use tidewire_core::time::WallTime;

use super::{Reached, Target, check_by_letter};

/// The target.
pub const TARGET: Target = Target {
    name: "jwt",
    check_input,
    seeds,
    reachable: &[
        "TooLarge",
        "Malformed",
        "Algorithm",
        "Critical",
        "UnknownKey",
        "Signature",
        "NoExpiry",
        "Expired",
        "NotYetValid",
        "Issuer",
        "Audience",
        "accepted as built",
        "accepted as signed",
        "accepted with given keys",
        "HS256",
        "RS256",
        "PS256",
        "ES256",
        "ES384",
        "EdDSA",
        "keys in a file",
        "keys of an issuer",
        "keys refused",
    ],
};

const NOW: WallTime = WallTime(1_700_000_000_000);
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const BYTES_MAX: usize = 2_048;
const ISSUER: &str = "iss";
const AUDIENCE: &str = "aud";

/// Bits of the settings of a signed input.
const IS_ISSUER_CHECKED: u8 = 1;
const IS_AUDIENCE_CHECKED: u8 = 2;
const IS_SIGNATURE_CUT: u8 = 4;

#[derive(Deserialize)]
struct Fixture {
    jwks: Value,
    pem: String,
    tokens: Vec<String>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    serde_json::from_str(include_str!("tokens.json")).expect("the fixture is JSON")
});
static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    key::parse(&FIXTURE.jwks.to_string(), Auto::Auto).expect("the fixture has keys")
});

/// Panics if the input shows a fault.
pub fn check_input(input: &[u8]) -> Reached {
    check_by_letter(input, |letter, rest, reached| match letter {
        b't' => check_token(rest, reached),
        b's' => check_signed(rest, reached),
        b'k' => check_keys(rest, reached),
        _ => {}
    })
}

fn verify(text: &str, keys: &KeySet, checks: &Checks) -> Result<Verified, TokenError> {
    parse(text, BYTES_MAX)?.verify(keys, checks, NOW)
}

fn name(error: TokenError) -> &'static str {
    match error {
        TokenError::TooLarge => "TooLarge",
        TokenError::Malformed => "Malformed",
        TokenError::Algorithm => "Algorithm",
        TokenError::Critical => "Critical",
        TokenError::UnknownKey => "UnknownKey",
        TokenError::Signature => "Signature",
        TokenError::NoExpiry => "NoExpiry",
        TokenError::Expired => "Expired",
        TokenError::NotYetValid => "NotYetValid",
        TokenError::Issuer => "Issuer",
        TokenError::Audience => "Audience",
    }
}

fn is_ours(token: &str) -> bool {
    FIXTURE.tokens.iter().any(|ours| ours == token)
}

fn check_token(token: &str, reached: &mut Reached) {
    match verify(token, &KEYS, &Checks::default()) {
        Ok(verified) => {
            assert!(is_ours(token), "forged: {token}");
            assert_eq!(verified.expires_at, WallTime(NOW.0 + 60_000 + LEEWAY_MS));
            reached.insert("accepted as built");
        }
        Err(error) => {
            assert!(!is_ours(token), "{error}: {token}");
            reached.insert(name(error));
        }
    }
}

fn check_signed(rest: &str, reached: &mut Reached) {
    let Some(settings) = rest.bytes().next().filter(u8::is_ascii) else {
        return;
    };
    let Some((header, claims)) = rest[1..].split_once('\n') else {
        return;
    };
    let mut token = signed(header, claims);
    if settings & IS_SIGNATURE_CUT != 0 {
        token.truncate(token.rfind('.').map_or(0, |dot| dot + 1));
    }
    let checks = Checks {
        issuer: (settings & IS_ISSUER_CHECKED != 0).then(|| ISSUER.to_owned()),
        audiences: match settings & IS_AUDIENCE_CHECKED {
            0 => Vec::new(),
            _ => vec!["other".to_owned(), AUDIENCE.to_owned()],
        },
    };
    let found = verify(&token, &KEYS, &checks).map(|verified| verified.expires_at.0);
    let expected = expect(token.len(), settings, header, claims);
    assert_eq!(found, expected, "{header} {claims}");
    reached.insert(match found {
        Ok(_) => "accepted as signed",
        Err(error) => name(error),
    });
}

/// The token in compact form, signed with HMAC as in RFC 2104.
fn signed(header: &str, claims: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encode(header), encode(claims));
    let padded = |byte: u8| {
        let mut block = [byte; 64];
        block
            .iter_mut()
            .zip(SECRET)
            .for_each(|(pad, key)| *pad ^= key);
        block
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(&message)
        .finalize();
    let outer = Sha256::new()
        .chain_update(padded(0x5C))
        .chain_update(inner)
        .finalize();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(outer))
}

/// The expected result for a token signed with the secret: its expiry in milliseconds, or the reason to refuse it.
fn expect(token_bytes: usize, settings: u8, header: &str, claims: &str) -> Result<u64, TokenError> {
    if token_bytes > BYTES_MAX {
        return Err(TokenError::TooLarge);
    }
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let header = object(header).ok_or(TokenError::Malformed)?;
    if header.keys().any(|key| key == "crit") {
        return Err(TokenError::Critical);
    }
    let is_text = |key: &str| header.get(key).is_some_and(Value::is_string);
    if !is_text("alg") || header.contains_key("kid") && !is_text("kid") {
        return Err(TokenError::Malformed);
    }
    expect_key(
        header["alg"].as_str().unwrap_or_default(),
        header.get("kid").and_then(Value::as_str),
    )?;
    if settings & IS_SIGNATURE_CUT != 0 {
        return Err(TokenError::Signature);
    }
    expect_claims(settings, &object(claims).ok_or(TokenError::Malformed)?)
}

/// Whether the header selects the secret, which is the only key without an id and is valid for HS256 only.
fn expect_key(algorithm: &str, id: Option<&str>) -> Result<(), TokenError> {
    let known = [
        ("rsa", "RS256"),
        ("pss", "PS256"),
        ("ec", "ES256"),
        ("ec384", "ES384"),
        ("ed", "EdDSA"),
    ];
    let unused = ["HS384", "HS512", "RS384", "RS512", "PS384", "PS512"];
    let is_known = |name: &str| known.iter().any(|(_, algorithm)| *algorithm == name);
    match (algorithm, id) {
        ("HS256", id) if !known.iter().any(|(key, _)| id == Some(*key)) => Ok(()),
        // The header selects a key of another kind, for which the signature is wrong.
        (name, None) if is_known(name) => Err(TokenError::Signature),
        (name, Some(id)) if known.contains(&(id, name)) => Err(TokenError::Signature),
        (name, _) if name == "HS256" || is_known(name) || unused.contains(&name) => {
            Err(TokenError::UnknownKey)
        }
        _ => Err(TokenError::Algorithm),
    }
}

fn expect_claims(settings: u8, claims: &Map<String, Value>) -> Result<u64, TokenError> {
    // Converts seconds since 1970 to milliseconds, for integers and fractions.
    let time = |key: &str| match claims.get(key) {
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => whole.checked_mul(1_000),
            (None, Some(broken)) if (0.0..9.0e12).contains(&broken) => {
                Some((broken * 1_000.0).trunc() as u64)
            }
            _ => None,
        },
        _ => None,
    };
    let end = time("exp")
        .ok_or(TokenError::NoExpiry)?
        .saturating_add(LEEWAY_MS);
    if end <= NOW.0 {
        return Err(TokenError::Expired);
    }
    if claims.contains_key("nbf") && time("nbf").is_none_or(|start| start > NOW.0 + LEEWAY_MS) {
        return Err(TokenError::NotYetValid);
    }
    if settings & IS_ISSUER_CHECKED != 0 && claims.get("iss") != Some(&json!(ISSUER)) {
        return Err(TokenError::Issuer);
    }
    let names = [json!("other"), json!(AUDIENCE)];
    let is_meant = match claims.get("aud") {
        Some(Value::Array(list)) => list.iter().any(|name| names.contains(name)),
        name => name.is_some_and(|name| names.contains(name)),
    };
    if settings & IS_AUDIENCE_CHECKED != 0 && !is_meant {
        return Err(TokenError::Audience);
    }
    Ok(end)
}

fn check_keys(text: &str, reached: &mut Reached) {
    let published = serde_json::from_str::<Value>(text).ok();
    let published = published.and_then(|value| key::set(&value, Source::Server).ok());
    if let Some(keys) = &published {
        for key in &keys.0 {
            let is_secret = format!("{:?}", key.algorithm).starts_with("HS");
            assert!(!is_secret, "a published secret is taken: {text}");
        }
        reached.insert("keys of an issuer");
    }
    let file = key::parse(text, Auto::Auto);
    match &file {
        Ok(_) => reached.insert("keys in a file"),
        Err(reason) => {
            assert!(!reason.is_empty());
            reached.insert("keys refused")
        }
    };
    for keys in [published, file.ok()].into_iter().flatten() {
        assert!(keys.0.len() <= KEYS_MAX, "{} keys", keys.0.len());
        for key in &keys.0 {
            let algorithm = format!("{:?}", key.algorithm);
            let listed = TARGET.reachable.iter().find(|branch| **branch == algorithm);
            reached.extend(listed);
        }
        for token in &FIXTURE.tokens {
            if verify(token, &keys, &Checks::default()).is_ok() {
                let parts = FIXTURE.jwks["keys"].as_array().into_iter().flatten();
                let mut parts =
                    parts.flat_map(|key| ["n", "x", "k"].map(|part| key[part].as_str()));
                let is_given = parts.any(|part| part.is_some_and(|part| text.contains(part)));
                assert!(
                    is_given || text.contains("PUBLIC KEY"),
                    "{token} with {text}"
                );
                reached.insert("accepted with given keys");
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = FIXTURE
        .tokens
        .iter()
        .map(|token| format!("t{token}").into_bytes())
        .collect();
    seeds.push(format!("t{}", "a".repeat(BYTES_MAX + 1)).into_bytes());
    let hs256 = r#"{"alg":"HS256"}"#;
    let valid = r#"{"exp":1700000060}"#;
    let signed = [
        ("0", hs256, valid),
        (
            "3",
            hs256,
            r#"{"exp":1700000060,"iss":"iss","aud":["x","aud"],"sub":"a"}"#,
        ),
        ("2", hs256, r#"{"exp":1700000060,"aud":"aud"}"#),
        ("2", hs256, r#"{"exp":1700000060,"aud":"x"}"#),
        ("1", hs256, r#"{"exp":1700000060,"iss":"x"}"#),
        ("4", hs256, valid),
        ("0", hs256, r#"{"exp":1699999970}"#),
        ("0", hs256, r#"{"exp":1699999970.001,"nbf":1700000030}"#),
        ("0", hs256, r#"{"exp":1700000060,"nbf":1700000031}"#),
        ("0", hs256, r#"{"exp":1,"nbf":1}"#),
        ("0", hs256, r#"{"exp":-1}"#),
        ("0", hs256, r#"{"exp":1e300}"#),
        ("0", hs256, "{}"),
        ("0", hs256, "[]"),
        ("0", r#"{"alg":"HS256","kid":"new"}"#, valid),
        ("0", r#"{"alg":"HS256","kid":"rsa"}"#, valid),
        ("0", r#"{"alg":"HS256","kid":7}"#, valid),
        ("0", r#"{"alg":"HS384"}"#, valid),
        ("0", r#"{"alg":"RS256"}"#, valid),
        ("0", r#"{"alg":"ES384","kid":"ec384"}"#, valid),
        ("0", r#"{"alg":"none"}"#, valid),
        ("0", r#"{"alg":"HS256","crit":[]}"#, valid),
        (
            "0",
            r#"{"alg":"HS256","jku":"https://a.example","jwk":{}}"#,
            valid,
        ),
        ("0", "{", valid),
    ];
    seeds.extend(
        signed.map(|(settings, header, claims)| format!("s{settings}{header}\n{claims}").into()),
    );
    seeds.push(format!("k{}", FIXTURE.jwks).into());
    seeds.push(format!("k# ours\n{}", FIXTURE.pem).into());
    let keys = FIXTURE.jwks["keys"].as_array().cloned().unwrap_or_default();
    seeds.extend(keys.iter().map(|key| format!("k{key}").into_bytes()));
    seeds.extend(
        keys.iter()
            .map(|key| format!("k{}", json!({ "keys": [key] })).into_bytes()),
    );
    seeds.push(
        b"k{\"keys\":[{\"kty\":\"RSA\",\"use\":\"enc\"},{\"kty\":\"EC\",\"crv\":\"P-521\"},7]}"
            .to_vec(),
    );
    seeds.push(b"k-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec());
    seeds
}

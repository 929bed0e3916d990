//! One token: its form (RFC 7515, compact), its signature, and its claims about time and audience (RFC 7519).
//!
//! Of the header, only `alg`, `kid` and `crit` count. A token must never choose its own key, so the location of a key (`jku`,
//! `x5u`) and an embedded key (`jwk`, `x5c`) are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tidewire_core::hex::hex;
use tidewire_core::time::WallTime;

use super::key::KeySet;

/// Maximum difference between the clocks of issuer and server, in milliseconds.
pub const LEEWAY_MS: u64 = 30_000;
/// Maximum length of a token id in bytes; a longer one is replaced by a hash, like a missing one.
const ID_BYTES_MAX: usize = 256;
/// Maximum length of a signature in characters: enough for RSA with 8,192 bits, the largest key that is verified.
const SIGNATURE_CHARACTERS_MAX: usize = 1_366;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is longer than `auth.jwt.token_bytes_max`.
    #[error("the token is too large")]
    TooLarge,
    /// It is not a signed token in compact form.
    #[error("the token can't be read")]
    Malformed,
    /// The algorithm is `none` or unknown.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// It requires extensions (`crit`).
    #[error("the token requires unknown extensions")]
    Critical,
    /// No key has its id and algorithm.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the token and the key.
    #[error("the token's signature is wrong")]
    Signature,
    /// It has no `exp`, or its `exp` is not a number.
    #[error("the token has no expiry")]
    NoExpiry,
    /// Its `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` has not been reached.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Its `iss` differs from `auth.jwt.issuer`.
    #[error("the token comes from another issuer")]
    Issuer,
    /// Its `aud` contains none of `auth.jwt.audience`.
    #[error("the token is for another audience")]
    Audience,
}

/// The values that claims are compared with.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The required `iss`, if any.
    pub issuer: Option<String>,
    /// `aud` must contain one of them. If the list is empty, `aud` is not checked.
    pub audiences: Vec<String>,
}

/// A token whose signature has not been verified.
#[derive(Debug)]
pub struct Unverified<'a> {
    /// The algorithm that the header claims.
    pub algorithm: Algorithm,
    /// The key id that the header claims, if any.
    pub key_id: Option<String>,
    /// Header and claims as they were signed.
    signed: &'a str,
    signature: &'a str,
}

/// A token that was signed by a known key and is valid now.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Its claims.
    pub claims: Map<String, Value>,
    /// The time at which it expires, including the leeway.
    pub expires_at: WallTime,
    /// The id for revocation: its `jti`, or a hash of the signed part. The hash excludes the signature, because for some
    /// algorithms an attacker can derive a second valid signature.
    pub id: String,
}

/// Decodes base64url without padding (RFC 7515).
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn object(text: &str) -> Result<Map<String, Value>, TokenError> {
    let bytes = decode(text).ok_or(TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

/// Splits a token into its parts.
///
/// # Errors
/// The token is too large, has another form, or names an algorithm that is never accepted.
pub fn parse(text: &str, bytes_max: usize) -> Result<Unverified<'_>, TokenError> {
    if text.len() > bytes_max {
        return Err(TokenError::TooLarge);
    }
    let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    if claims.contains('.') || signature.len() > SIGNATURE_CHARACTERS_MAX {
        return Err(TokenError::Malformed);
    }
    let header = object(header)?;
    if header.contains_key("crit") {
        return Err(TokenError::Critical);
    }
    let Some(Value::String(algorithm)) = header.get("alg") else {
        return Err(TokenError::Malformed);
    };
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err(TokenError::Malformed),
    };
    Ok(Unverified {
        // This family does not contain `none`.
        algorithm: algorithm.parse().map_err(|_| TokenError::Algorithm)?,
        key_id,
        signed,
        signature,
    })
}

impl Unverified<'_> {
    /// Verifies signature and claims.
    ///
    /// # Errors
    /// The first check that fails. Claims are checked only after the signature.
    pub fn verify(
        &self,
        keys: &KeySet,
        checks: &Checks,
        now: WallTime,
    ) -> Result<Verified, TokenError> {
        let mut outcome = Err(TokenError::UnknownKey);
        for key in keys.candidates(self.algorithm, self.key_id.as_deref()) {
            let verified = jsonwebtoken::crypto::verify(
                self.signature,
                self.signed.as_bytes(),
                &key.decoding,
                key.algorithm,
            );
            if verified.is_ok_and(|is_right| is_right) {
                outcome = Ok(());
                break;
            }
            outcome = Err(TokenError::Signature);
        }
        outcome?;
        let (_, claims) = self.signed.split_once('.').ok_or(TokenError::Malformed)?;
        let claims = object(claims)?;
        let expires_at = check(&claims, checks, now)?;
        let id = match claims.get("jti") {
            Some(Value::String(id)) if !id.is_empty() && id.len() <= ID_BYTES_MAX => id.clone(),
            _ => hash(self.signed),
        };
        Ok(Verified {
            claims,
            expires_at,
            id,
        })
    }
}

fn hash(signed: &str) -> String {
    format!("sha256:{}", hex(&Sha256::digest(signed.as_bytes())))
}

/// Checks the registered claims and returns the expiry of the token.
fn check(
    claims: &Map<String, Value>,
    checks: &Checks,
    now: WallTime,
) -> Result<WallTime, TokenError> {
    let expires_at = match claims.get("exp") {
        Some(value) => milliseconds(value)
            .ok_or(TokenError::NoExpiry)?
            .saturating_add(LEEWAY_MS),
        None => return Err(TokenError::NoExpiry),
    };
    if now.0 >= expires_at {
        return Err(TokenError::Expired);
    }
    if let Some(not_before) = claims.get("nbf") {
        let not_before = milliseconds(not_before).ok_or(TokenError::NotYetValid)?;
        if now.0.saturating_add(LEEWAY_MS) < not_before {
            return Err(TokenError::NotYetValid);
        }
    }
    if let Some(issuer) = &checks.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(TokenError::Issuer);
    }
    if !checks.audiences.is_empty() {
        let is_meant = |value: &Value| {
            value
                .as_str()
                .is_some_and(|name| checks.audiences.iter().any(|known| known == name))
        };
        let has_audience = match claims.get("aud") {
            Some(Value::Array(names)) => names.iter().any(is_meant),
            Some(name) => is_meant(name),
            None => false,
        };
        if !has_audience {
            return Err(TokenError::Audience);
        }
    }
    Ok(WallTime(expires_at))
}

/// Parses a NumericDate, which may have a fraction, into milliseconds. Rejects negative dates and dates that no clock will reach.
fn milliseconds(value: &Value) -> Option<u64> {
    if let Some(seconds) = value.as_u64() {
        return seconds.checked_mul(1_000);
    }
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    let milliseconds = seconds * 1_000.0;
    // Above 2^53, a double can't represent single milliseconds.
    (milliseconds < 9.0e15).then_some(milliseconds as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm,
    };
    use serde_json::json;
    use tidewire_config::section::{AuthJwt, JwtAlgorithm};
    use tidewire_config::value::{Auto, Secret};

    use super::*;
    use crate::jwt::key;

    const NOW: WallTime = WallTime(1_700_000_000_000);
    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const BYTES_MAX: usize = 16 << 10;

    fn secrets() -> KeySet {
        KeySet(vec![key::secret(SECRET, Auto::Auto).expect("long enough")])
    }

    fn seconds(offset: i64) -> i64 {
        1_700_000_000 + offset
    }

    fn signed(claims: &Value) -> String {
        let key = EncodingKey::from_secret(SECRET);
        encode(&Header::new(Algorithm::HS256), claims, &key).expect("signed")
    }

    /// A token with any header, signed with HMAC and any key.
    fn forged(header: &Value, claims: &Value, secret: &[u8]) -> String {
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", text(header), text(claims));
        let key = EncodingKey::from_secret(secret);
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
        format!("{message}.{}", signature.expect("signed"))
    }

    fn verify(text: &str, keys: &KeySet, checks: &Checks) -> Result<Verified, TokenError> {
        parse(text, BYTES_MAX)?.verify(keys, checks, NOW)
    }

    fn outcome(text: &str, checks: &Checks) -> Result<(), TokenError> {
        verify(text, &secrets(), checks).map(|_| ())
    }

    #[test]
    fn time_is_checked_with_a_leeway_of_half_a_minute() {
        let check = |claims: Value, expected: Result<(), TokenError>| {
            assert_eq!(
                outcome(&signed(&claims), &Checks::default()),
                expected,
                "{claims}"
            );
        };
        check(json!({ "exp": seconds(60) }), Ok(()));
        check(json!({ "exp": seconds(-29) }), Ok(()));
        check(json!({ "exp": seconds(-30) }), Err(TokenError::Expired));
        check(json!({ "exp": 1_700_000_060.5 }), Ok(()));
        check(json!({ "exp": 0 }), Err(TokenError::Expired));
        check(json!({}), Err(TokenError::NoExpiry));
        check(json!({ "exp": "1700000060" }), Err(TokenError::NoExpiry));
        check(json!({ "exp": -1 }), Err(TokenError::NoExpiry));
        check(json!({ "exp": 1e300 }), Err(TokenError::NoExpiry));
        check(json!({ "exp": u64::MAX }), Err(TokenError::NoExpiry));
        check(json!({ "exp": null }), Err(TokenError::NoExpiry));
        check(json!({ "exp": seconds(60), "nbf": seconds(30) }), Ok(()));
        let early = json!({ "exp": seconds(60), "nbf": seconds(31) });
        check(early, Err(TokenError::NotYetValid));
        let wrong = json!({ "exp": seconds(60), "nbf": "soon" });
        check(wrong, Err(TokenError::NotYetValid));
    }

    #[test]
    fn the_end_has_the_leeway_in_it() {
        let token = signed(&json!({ "exp": seconds(60) }));
        let token = verify(&token, &secrets(), &Checks::default()).expect("valid");
        assert_eq!(token.expires_at, WallTime(NOW.0 + 90_000));
    }

    #[test]
    fn issuer_and_audience_are_compared_where_they_are_configured() {
        let checks = Checks {
            issuer: Some("https://id.example".into()),
            audiences: vec!["tide".into(), "app".into()],
        };
        let check = |issuer: Value, audience: Value, expected: Result<(), TokenError>| {
            let claims = json!({ "exp": seconds(60), "iss": issuer, "aud": audience });
            let token = signed(&claims);
            assert_eq!(outcome(&token, &checks), expected, "{claims}");
            assert_eq!(outcome(&token, &Checks::default()), Ok(()), "{claims}");
        };
        let right = || json!("https://id.example");
        check(right(), json!("tide"), Ok(()));
        check(right(), json!(["other", "app"]), Ok(()));
        check(right(), json!(["other"]), Err(TokenError::Audience));
        check(right(), json!([]), Err(TokenError::Audience));
        check(right(), json!(null), Err(TokenError::Audience));
        check(right(), json!({ "tide": 1 }), Err(TokenError::Audience));
        check(
            json!("https://id.example/"),
            json!("tide"),
            Err(TokenError::Issuer),
        );
        check(
            json!(["https://id.example"]),
            json!("tide"),
            Err(TokenError::Issuer),
        );
        check(json!(null), json!("tide"), Err(TokenError::Issuer));
    }

    #[test]
    fn every_algorithm_is_verified_with_its_own_key_only() {
        let pair = |kind: &'static SignatureAlgorithm| KeyPair::generate_for(kind).expect("a key");
        let kinds: [(&'static SignatureAlgorithm, Algorithm); 3] = [
            (&PKCS_RSA_SHA256, Algorithm::RS256),
            (&PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
            (&PKCS_ED25519, Algorithm::EdDSA),
        ];
        let pairs = kinds.map(|(kind, algorithm)| (pair(kind), algorithm));
        let tokens = pairs.each_ref().map(|(pair, algorithm)| {
            let pem = pair.serialize_pem();
            let key = EncodingKey::from_rsa_pem(pem.as_bytes())
                .or_else(|_| EncodingKey::from_ec_pem(pem.as_bytes()))
                .or_else(|_| EncodingKey::from_ed_pem(pem.as_bytes()));
            let claims = json!({ "exp": seconds(60) });
            encode(
                &Header::new(*algorithm),
                &claims,
                &key.expect("a private key"),
            )
            .expect("signed")
        });
        for (pair, algorithm) in &pairs {
            let keys = key::parse(&pair.public_key_pem(), Auto::Auto).expect("a public key");
            for (token, (_, signed_with)) in tokens.iter().zip(&pairs) {
                let is_accepted = verify(token, &keys, &Checks::default()).is_ok();
                assert_eq!(
                    is_accepted,
                    algorithm == signed_with,
                    "{algorithm:?} {signed_with:?}"
                );
            }
        }
    }

    #[test]
    fn a_public_key_is_never_taken_for_a_secret() {
        let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
        let pem = pair.public_key_pem();
        let keys = key::parse(&pem, Auto::Auto).expect("a public key");
        let claims = json!({ "exp": seconds(60) });
        for secret in [pem.as_bytes(), pem.trim().as_bytes(), pair.public_key_raw()] {
            let token = forged(&json!({ "alg": "HS256" }), &claims, secret);
            let outcome = verify(&token, &keys, &Checks::default()).map(|_| ());
            assert_eq!(outcome, Err(TokenError::UnknownKey));
            let token = forged(&json!({ "alg": "RS256" }), &claims, secret);
            let outcome = verify(&token, &keys, &Checks::default()).map(|_| ());
            assert_eq!(outcome, Err(TokenError::Signature));
        }
    }

    #[test]
    fn no_signature_and_unknown_algorithms_are_refused() {
        let claims = json!({ "exp": seconds(60) });
        let check = |header: Value, expected: TokenError| {
            let token = forged(&header, &claims, SECRET);
            assert_eq!(
                outcome(&token, &Checks::default()),
                Err(expected),
                "{header}"
            );
            let (unsigned, _) = token.rsplit_once('.').expect("a signature");
            let unsigned = format!("{unsigned}.");
            assert!(outcome(&unsigned, &Checks::default()).is_err(), "{header}");
        };
        for none in ["none", "None", "NONE", "nOnE", "", "HS1", "hs256", "ES512"] {
            check(json!({ "alg": none }), TokenError::Algorithm);
        }
        check(json!({}), TokenError::Malformed);
        check(json!({ "alg": null }), TokenError::Malformed);
        check(json!({ "alg": ["HS256"] }), TokenError::Malformed);
        check(json!({ "alg": "HS256", "kid": 7 }), TokenError::Malformed);
        check(
            json!({ "alg": "HS256", "crit": ["exp"] }),
            TokenError::Critical,
        );
        check(json!({ "alg": "HS384" }), TokenError::UnknownKey);
    }

    #[test]
    fn a_key_inside_the_token_is_ignored() {
        let other = b"ffffffffffffffffffffffffffffffff";
        let claims = json!({ "exp": seconds(60) });
        let jwk = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(other), "alg": "HS256" });
        for header in [
            json!({ "alg": "HS256", "jwk": jwk }),
            json!({ "alg": "HS256", "jku": "https://evil.example/keys" }),
            json!({ "alg": "HS256", "x5u": "https://evil.example/cert", "x5c": ["AAAA"] }),
        ] {
            let token = forged(&header, &claims, other);
            assert_eq!(
                outcome(&token, &Checks::default()),
                Err(TokenError::Signature)
            );
            let right = forged(&header, &claims, SECRET);
            assert_eq!(
                outcome(&right, &Checks::default()),
                Ok(()),
                "and does no harm"
            );
        }
    }

    #[test]
    fn the_key_id_selects_the_key() {
        let jwk = |id: &str, byte: u8| json!({ "kty": "oct", "kid": id, "alg": "HS256", "k": URL_SAFE_NO_PAD.encode([byte; 32]) });
        let text = json!({ "keys": [jwk("one", 1), jwk("two", 2)] }).to_string();
        let keys = key::parse(&text, Auto::Auto).expect("a set");
        let check = |header: Value, byte: u8, expected: Result<(), TokenError>| {
            let token = forged(&header, &json!({ "exp": seconds(60) }), &[byte; 32]);
            let outcome = verify(&token, &keys, &Checks::default()).map(|_| ());
            assert_eq!(outcome, expected, "{header} {byte}");
        };
        check(json!({ "alg": "HS256", "kid": "one" }), 1, Ok(()));
        check(json!({ "alg": "HS256", "kid": "two" }), 2, Ok(()));
        let swapped = Err(TokenError::Signature);
        check(json!({ "alg": "HS256", "kid": "two" }), 1, swapped);
        let unknown = Err(TokenError::UnknownKey);
        check(json!({ "alg": "HS256", "kid": "three" }), 1, unknown);
        check(json!({ "alg": "HS256" }), 2, Ok(()));
        check(json!({ "alg": "HS256" }), 3, Err(TokenError::Signature));
    }

    #[test]
    fn a_token_is_identified_by_its_id_or_by_its_signed_part() {
        let named = signed(&json!({ "exp": seconds(60), "jti": "t-1" }));
        let named = verify(&named, &secrets(), &Checks::default()).expect("valid");
        assert_eq!(named.id, "t-1");
        let nameless = |claims: Value| {
            let token = signed(&claims);
            verify(&token, &secrets(), &Checks::default())
                .expect("valid")
                .id
        };
        let first = nameless(json!({ "exp": seconds(60) }));
        assert!(first.starts_with("sha256:") && first.len() == 71, "{first}");
        assert_eq!(first, nameless(json!({ "exp": seconds(60) })));
        assert_ne!(first, nameless(json!({ "exp": seconds(61) })));
        let long = nameless(json!({ "exp": seconds(60), "jti": "x".repeat(257) }));
        assert!(long.starts_with("sha256:"), "{long}");
    }

    #[test]
    fn garbage_and_what_is_too_large_is_refused() {
        let check = |text: &str, expected: TokenError| {
            assert_eq!(
                outcome(text, &Checks::default()),
                Err(expected),
                "{text:.80}"
            );
        };
        for text in [
            "",
            ".",
            "..",
            "...",
            "a.b",
            "a.b.c",
            "e30.e30.",
            "e30.e30.e30.e30",
            "\u{1f30a}.\u{1f30a}.a",
        ] {
            check(text, TokenError::Malformed);
        }
        let right = signed(&json!({ "exp": seconds(60) }));
        check(&format!("{right} "), TokenError::Signature);
        check(&format!("{right}=="), TokenError::Signature);
        check(&right.replacen('.', "..", 1), TokenError::Malformed);
        check(&"x".repeat(BYTES_MAX + 1), TokenError::TooLarge);
        let huge = signed(&json!({ "exp": seconds(60), "filler": "x".repeat(BYTES_MAX) }));
        check(&huge, TokenError::TooLarge);
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        let deep = format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(deep));
        check(&deep, TokenError::Malformed);
    }

    #[test]
    fn a_minted_token_is_accepted() {
        use crate::jwt::mint::{TokenRequest, mint};
        let options = AuthJwt {
            secret: Secret("0123456789abcdef0123456789abcdef".into()),
            algorithm: Auto::Set(JwtAlgorithm::Hs512),
            issuer: "here".into(),
            ..AuthJwt::default()
        };
        let order = TokenRequest {
            user: "alice".into(),
            lifetime: Duration::from_secs(60),
            claims: vec!["role=admin".into(), "level=7".into()],
            signing_key: None,
        };
        let text = mint(&options, &order, NOW, "id-1").expect("minted");
        let key = key::secret(options.secret.0.as_bytes(), options.algorithm).expect("a secret");
        let token = verify(&text, &KeySet(vec![key]), &Checks::default()).expect("accepted");
        let expected = json!({
            "iat": seconds(0), "exp": seconds(60), "jti": "id-1", "iss": "here", "sub": "alice", "role": "admin", "level": 7,
        });
        assert_eq!(Value::Object(token.claims), expected);
    }

    mod anything {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            #[test]
            fn is_never_accepted_and_never_ends_the_process(text in ".{0,200}", parts in proptest::collection::vec("[A-Za-z0-9_-]{0,40}", 0..5)) {
                prop_assert!(outcome(&text, &Checks::default()).is_err());
                prop_assert!(outcome(&parts.join("."), &Checks::default()).is_err());
                let _ = key::parse(&text, Auto::Auto);
            }

            #[test]
            fn that_was_changed_by_a_byte_says_nothing_else(index in any::<proptest::sample::Index>(), byte in "[ -~]") {
                let claims = json!({ "exp": seconds(60), "sub": "alice", "jti": "t" });
                let right = signed(&claims);
                let at = index.index(right.len());
                let changed = format!("{}{byte}{}", &right[..at], &right[at + 1..]);
                // Base64 has spare bits only at its end; an accepted token must contain the claims that were signed.
                if let Ok(token) = verify(&changed, &secrets(), &Checks::default()) {
                    prop_assert_eq!(Value::Object(token.claims), claims);
                    prop_assert!(changed == right, "the signature is decoded strictly");
                }
            }

            #[test]
            fn with_any_header_and_claims_is_evaluated_without_a_panic(header in "\\PC{0,80}", claims in "\\PC{0,80}") {
                let text = |text: &str| URL_SAFE_NO_PAD.encode(text);
                let token = format!("{}.{}.AAAA", text(&header), text(&claims));
                prop_assert!(outcome(&token, &Checks::default()).is_err());
            }
        }
    }
}

//! Keys that verify tokens: secrets, public keys as PEM, and JSON Web Keys (RFC 7517).
//!
//! Each key has exactly one algorithm. It is decided when the key is read, never by a token. So a token can't make the server use
//! a public key as a secret.

use std::path::Path;

use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};
use tidewire_config::section::JwtAlgorithm;
use tidewire_config::value::Auto;

/// Maximum number of keys in one set. A token without a key id is tried with all keys of its algorithm, so its cost grows with
/// their number.
pub const KEYS_MAX: usize = 64;
/// Minimum length of a secret in bytes; a shorter one can be guessed. RFC 7518 section 3.2 requires the size of the digest.
const SECRET_BYTES_MIN: usize = 32;
/// Minimum length of an RSA modulus in bytes: 2,048 bits.
const RSA_BYTES_MIN: usize = 256;

/// A key that verifies tokens.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its `kid`, if it has one.
    pub id: Option<String>,
    /// The only algorithm that it may be used with.
    pub algorithm: Algorithm,
    /// The key itself.
    pub decoding: DecodingKey,
}

/// The keys of one source.
#[derive(Clone, Debug, Default)]
pub struct KeySet(pub Vec<Key>);

/// The source of keys, which decides the kinds that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A local file, which may contain secrets.
    File,
    /// A server, which publishes its keys: a secret from there would not be secret.
    Server,
}

impl KeySet {
    /// The keys that may verify a token with this algorithm and key id. If the token has an id: the keys with that id, or else the
    /// keys without an id. If the token has no id: all keys with the algorithm.
    pub fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Key> {
        let is_named = id.is_some_and(|id| self.has(id));
        self.0.iter().filter(move |key| {
            let is_meant = match id {
                Some(id) if is_named => key.id.as_deref() == Some(id),
                Some(_) => key.id.is_none(),
                None => true,
            };
            key.algorithm == algorithm && is_meant
        })
    }

    /// Whether a key has this id.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(id))
    }
}

/// The algorithm of an option.
#[must_use]
pub fn algorithm(option: JwtAlgorithm) -> Algorithm {
    match option {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Hs384 => Algorithm::HS384,
        JwtAlgorithm::Hs512 => Algorithm::HS512,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

/// A secret for HMAC.
///
/// # Errors
/// The secret is too short, or the algorithm is not an HMAC algorithm. The text does not contain the secret.
pub fn secret(secret: &[u8], option: Auto<JwtAlgorithm>) -> Result<Key, String> {
    let algorithm = algorithm(option.or_else(|| JwtAlgorithm::Hs256));
    if !is_hmac(algorithm) {
        return Err(format!(
            "a secret can't be used with {algorithm:?}; configure a public key, or set auth.jwt.algorithm to HS256"
        ));
    }
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "the secret has fewer than {SECRET_BYTES_MIN} bytes; generate one with `openssl rand -hex 32`"
        ));
    }
    Ok(Key {
        id: None,
        algorithm,
        decoding: DecodingKey::from_secret(secret),
    })
}

fn is_hmac(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512
    )
}

/// The content of a key file.
///
/// # Errors
/// The file can't be read.
pub fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))
}

/// Parses the content of a key file: a JSON Web Key, a set of them, or public keys as PEM.
///
/// # Errors
/// The content is invalid. The text does not contain key material.
pub fn parse(text: &str, option: Auto<JwtAlgorithm>) -> Result<KeySet, String> {
    let keys = if text.trim_start().starts_with('{') {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))?;
        match value.get("keys") {
            Some(_) => set(&value, Source::File)?.0,
            None => vec![jwk(&value, Source::File).map_err(str::to_owned)?],
        }
    } else {
        pem_blocks(text)
            .map(|block| pem(block, option))
            .collect::<Result<_, _>>()?
    };
    if keys.is_empty() {
        return Err("has no key; it must be PEM with `-----BEGIN PUBLIC KEY-----`, or JWK".into());
    }
    if keys.len() > KEYS_MAX {
        return Err(format!("has more than {KEYS_MAX} keys"));
    }
    Ok(KeySet(keys))
}

/// The keys of a JSON Web Key Set. Unusable keys are skipped, because a server may publish kinds of keys that are unknown here.
///
/// # Errors
/// The value is not a set, or the set has more than [`KEYS_MAX`] keys.
pub fn set(value: &Value, source: Source) -> Result<KeySet, String> {
    let Some(Value::Array(entries)) = value.get("keys") else {
        return Err("is not a set of keys: it has no list `keys`".into());
    };
    if entries.len() > KEYS_MAX {
        return Err(format!("has more than {KEYS_MAX} keys"));
    }
    let usable = entries.iter().filter_map(|entry| jwk(entry, source).ok());
    Ok(KeySet(usable.collect()))
}

/// Parses one JSON Web Key.
fn jwk(value: &Value, source: Source) -> Result<Key, &'static str> {
    let Value::Object(jwk) = value else {
        return Err("a key is not an object");
    };
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    if text("use").is_some_and(|usage| usage != "sig") {
        return Err("a key is not for signatures");
    }
    if let Some(Value::Array(operations)) = jwk.get("key_ops")
        && !operations.iter().any(|operation| operation == "verify")
    {
        return Err("a key is not for verification");
    }
    let (fitting, decoding) = material(jwk, source)?;
    let algorithm = match jwk.get("alg") {
        None => *fitting.first().ok_or("a key supports no algorithm")?,
        Some(name) => {
            let named = |algorithm: &&Algorithm| name.as_str() == Some(&format!("{algorithm:?}"));
            *fitting
                .iter()
                .find(named)
                .ok_or("a key has an `alg` that its kind does not support")?
        }
    };
    Ok(Key {
        id: text("kid").map(str::to_owned),
        algorithm,
        decoding,
    })
}

/// The key and the algorithms that its kind supports, the default first.
fn material(
    jwk: &Map<String, Value>,
    source: Source,
) -> Result<(&'static [Algorithm], DecodingKey), &'static str> {
    use Algorithm::{
        ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512,
    };
    let text = |name: &str| jwk.get(name).and_then(Value::as_str).unwrap_or_default();
    let part = |name: &str| super::token::decode(text(name)).ok_or("a key is not valid base64url");
    match (text("kty"), text("crv")) {
        ("RSA", _) => {
            let (modulus, exponent) = (part("n")?, part("e")?);
            if modulus.len() < RSA_BYTES_MIN {
                return Err("an RSA key has fewer than 2,048 bits");
            }
            let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
            Ok((&[RS256, RS384, RS512, PS256, PS384, PS512], key))
        }
        ("EC", curve @ ("P-256" | "P-384")) => {
            let (x, y) = (part("x")?, part("y")?);
            let fitting: &[Algorithm] = if curve == "P-256" { &[ES256] } else { &[ES384] };
            let coordinate_bytes = if curve == "P-256" { 32 } else { 48 };
            if x.len() != coordinate_bytes || y.len() != coordinate_bytes {
                return Err("a key is not a point of its curve");
            }
            // The uncompressed form of SEC 1 section 2.3.3.
            let point = [&[4], &x[..], &y[..]].concat();
            Ok((fitting, DecodingKey::from_ec_der(&point)))
        }
        ("OKP", "Ed25519") => Ok((&[EdDSA], DecodingKey::from_ed_der(&part("x")?))),
        ("oct", _) if source == Source::Server => Err("a published secret is not accepted"),
        ("oct", _) => {
            let bytes = part("k")?;
            if bytes.len() < SECRET_BYTES_MIN {
                return Err("a secret has fewer than 32 bytes");
            }
            Ok((&[HS256, HS384, HS512], DecodingKey::from_secret(&bytes)))
        }
        _ => Err("a key is of an unknown kind"),
    }
}

/// The blocks of a PEM file, each from its first to its last line.
fn pem_blocks(text: &str) -> impl Iterator<Item = &str> {
    const END: &str = "-----END ";
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find("-----BEGIN ")?;
        let end = start + rest[start..].find(END)?;
        let line_end = rest[end..].find('\n').map_or(rest.len(), |at| end + at);
        let block = &rest[start..line_end];
        rest = &rest[line_end..];
        Some(block)
    })
}

fn pem(block: &str, option: Auto<JwtAlgorithm>) -> Result<Key, String> {
    let title = block.lines().next().unwrap_or_default();
    if title.contains("PRIVATE KEY") {
        return Err("has a private key; use its public key (`openssl pkey -pubout`)".into());
    }
    if !title.contains("PUBLIC KEY") {
        return Err(format!("has {title:?}, which is not a public key"));
    }
    let bytes = block.as_bytes();
    let (fitting, decoding): (&[Algorithm], DecodingKey) =
        if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
            use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
            (&[RS256, RS384, RS512, PS256, PS384, PS512], key)
        } else if let Ok(key) = DecodingKey::from_ec_pem(bytes) {
            // The length of the point identifies the curve.
            match key.try_get_as_bytes().map(<[u8]>::len) {
                Ok(65) => (&[Algorithm::ES256], key),
                Ok(97) => (&[Algorithm::ES384], key),
                _ => return Err("has an elliptic key of a curve other than P-256 and P-384".into()),
            }
        } else if let Ok(key) = DecodingKey::from_ed_pem(bytes) {
            (&[Algorithm::EdDSA], key)
        } else {
            return Err(
                "has a public key of an unsupported kind; use RSA, P-256, P-384 or Ed25519".into(),
            );
        };
    let wanted = match option {
        Auto::Auto => fitting[0],
        Auto::Set(option) => algorithm(option),
    };
    if !fitting.contains(&wanted) {
        return Err(format!("has a key that can't be used with {wanted:?}"));
    }
    Ok(Key {
        id: None,
        algorithm: wanted,
        decoding,
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
    use serde_json::json;

    use super::*;

    fn octets(count: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![7; count])
    }

    #[test]
    fn a_published_set_gives_what_is_for_verifying_and_strong_enough() {
        let rsa = |extra: Value| {
            let mut key = json!({ "kty": "RSA", "n": octets(256), "e": "AQAB" });
            for (name, value) in extra.as_object().expect("an object") {
                key[name] = value.clone();
            }
            key
        };
        let check = |jwk: Value, expected: Option<Algorithm>| {
            let set = set(&json!({ "keys": [jwk] }), Source::Server).expect("a set");
            let found = set.0.first().map(|key| key.algorithm);
            assert_eq!(found, expected, "{jwk}");
        };
        check(rsa(json!({})), Some(Algorithm::RS256));
        check(
            rsa(json!({ "alg": "PS384", "use": "sig" })),
            Some(Algorithm::PS384),
        );
        check(rsa(json!({ "alg": "HS256" })), None);
        check(rsa(json!({ "alg": "RSA-OAEP" })), None);
        check(rsa(json!({ "alg": 7 })), None);
        check(rsa(json!({ "use": "enc" })), None);
        check(rsa(json!({ "key_ops": ["encrypt"] })), None);
        check(
            rsa(json!({ "key_ops": ["verify"] })),
            Some(Algorithm::RS256),
        );
        check(rsa(json!({ "n": octets(128) })), None);
        check(rsa(json!({ "n": "not base64!" })), None);
        let point = |curve: &str, bytes: usize| json!({ "kty": "EC", "crv": curve, "x": octets(bytes), "y": octets(bytes) });
        check(point("P-256", 32), Some(Algorithm::ES256));
        check(point("P-384", 48), Some(Algorithm::ES384));
        check(point("P-256", 48), None);
        check(point("P-521", 66), None);
        check(
            json!({ "kty": "OKP", "crv": "Ed25519", "x": octets(32) }),
            Some(Algorithm::EdDSA),
        );
        check(json!({ "kty": "oct", "k": octets(64) }), None);
        check(json!({ "kty": "new" }), None);
        check(json!("text"), None);
    }

    #[test]
    fn sets_are_bounded() {
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "x": octets(32) });
        let of = |count: usize| json!({ "keys": vec![key.clone(); count] });
        assert_eq!(
            set(&of(KEYS_MAX), Source::Server).expect("a set").0.len(),
            KEYS_MAX
        );
        set(&of(KEYS_MAX + 1), Source::Server).expect_err("too many");
        set(&json!({}), Source::Server).expect_err("no set");
        set(&json!({ "keys": {} }), Source::Server).expect_err("no set");
    }

    #[test]
    fn files_with_several_keys_are_read_and_wrong_ones_are_explained() {
        let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
        let elliptic = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key");
        let both = format!(
            "# ours\n{}\n{}",
            rsa.public_key_pem(),
            elliptic.public_key_pem()
        );
        let keys = parse(&both, Auto::Auto).expect("two keys");
        let algorithms: Vec<Algorithm> = keys.0.iter().map(|key| key.algorithm).collect();
        assert_eq!(algorithms, [Algorithm::RS256, Algorithm::ES384]);
        let check = |text: &str, option: Auto<JwtAlgorithm>, part: &str| {
            let reason = parse(text, option).expect_err(part);
            assert!(reason.contains(part), "{reason}");
            assert!(!reason.contains("MI"), "no key material: {reason}");
        };
        check("", Auto::Auto, "no key");
        check("hello", Auto::Auto, "no key");
        check("{", Auto::Auto, "not valid JSON");
        check("{\"keys\":[]}", Auto::Auto, "no key");
        check(&rsa.serialize_pem(), Auto::Auto, "private key");
        check(
            &rsa.public_key_pem(),
            Auto::Set(JwtAlgorithm::Es256),
            "can't be used with ES256",
        );
        check(
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
            Auto::Auto,
            "unsupported kind",
        );
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            Auto::Auto,
            "not a public key",
        );
    }

    #[test]
    fn short_secrets_are_refused_without_showing_them() {
        let reason = secret(b"hunter2", Auto::Auto).expect_err("short");
        assert!(
            reason.contains("32 bytes") && !reason.contains("hunter2"),
            "{reason}"
        );
        secret(&[7; 32], Auto::Set(JwtAlgorithm::Rs256)).expect_err("no secret is for RSA");
        let weak = json!({ "kty": "oct", "k": octets(16) }).to_string();
        parse(&weak, Auto::Auto).expect_err("short");
    }
}

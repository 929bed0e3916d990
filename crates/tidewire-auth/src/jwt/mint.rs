//! `tidewire token`: makes tokens for development and tests that a server with the same configuration accepts.
//!
//! In production, the issuer makes tokens; a server that accepts tokens need not be able to make them.

use std::path::Path;
use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Map, Value};
use tidewire_config::section::{AuthJwt, JwtAlgorithm};
use tidewire_core::time::WallTime;

use super::key::algorithm;
use super::{ANY_AUDIENCE, secret};

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// The user.
    pub user: String,
    /// The lifetime.
    pub lifetime: Duration,
    /// Further claims, each `name=value`. A value that is valid JSON becomes that JSON value; any other value becomes text.
    pub claims: Vec<String>,
    /// A private key as PEM (PKCS #8), instead of the secret of the configuration.
    pub signing_key: Option<std::path::PathBuf>,
}

/// Makes a token.
///
/// # Errors
/// There is no key to sign with, or a claim has no value.
pub fn mint(
    options: &AuthJwt,
    order: &TokenRequest,
    now: WallTime,
    id: &str,
) -> Result<String, String> {
    let (algorithm, key) = match &order.signing_key {
        Some(path) => private_key(path, options)?,
        None => shared_secret(options)?,
    };
    let now = now.0 / 1_000;
    let mut claims = Map::new();
    claims.insert("iat".into(), now.into());
    claims.insert(
        "exp".into(),
        now.saturating_add(order.lifetime.as_secs()).into(),
    );
    claims.insert("jti".into(), id.into());
    if !options.issuer.is_empty() {
        claims.insert("iss".into(), options.issuer.as_str().into());
    }
    match options.audience.first() {
        Some(audience) if audience != ANY_AUDIENCE => {
            claims.insert("aud".into(), audience.as_str().into());
        }
        _ => {}
    }
    claims.insert(options.user_claim.clone(), order.user.as_str().into());
    for claim in &order.claims {
        let (name, text) = claim
            .split_once('=')
            .ok_or_else(|| format!("{claim:?} is not a claim; write it as name=value"))?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        claims.insert(name.to_owned(), value);
    }
    jsonwebtoken::encode(&Header::new(algorithm), &claims, &key)
        .map_err(|error| format!("the token can't be signed: {error}"))
}

fn shared_secret(options: &AuthJwt) -> Result<(Algorithm, EncodingKey), String> {
    let secret = secret(options).map_err(|problem| problem.to_string())?;
    let secret = secret.ok_or(
        "there is no key to sign with; set auth.jwt.secret or auth.jwt.secret_file, or pass --signing-key",
    )?;
    let key = super::key::secret(&secret, options.algorithm)?;
    Ok((key.algorithm, EncodingKey::from_secret(&secret)))
}

fn private_key(path: &Path, options: &AuthJwt) -> Result<(Algorithm, EncodingKey), String> {
    let text = std::fs::read(path)
        .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
    let rsa = || algorithm(options.algorithm.or_else(|| JwtAlgorithm::Rs256));
    let elliptic = || algorithm(options.algorithm.or_else(|| JwtAlgorithm::Es256));
    if let Ok(key) = EncodingKey::from_rsa_pem(&text) {
        Ok((rsa(), key))
    } else if let Ok(key) = EncodingKey::from_ec_pem(&text) {
        Ok((elliptic(), key))
    } else if let Ok(key) = EncodingKey::from_ed_pem(&text) {
        Ok((Algorithm::EdDSA, key))
    } else {
        Err(format!(
            "{} has no private key as PEM; generate one with `openssl genpkey -algorithm ed25519`",
            path.display()
        ))
    }
}

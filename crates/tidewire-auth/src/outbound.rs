//! Outbound requests of the auth chain: allowed addresses, timeouts and size limits.
//!
//! Requests are encrypted unless they stay on this machine. Errors never contain the address, because its query may be a secret.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::tls::Certificate;
use reqwest::{Client, Response, Url};
use serde_json::Value;
use tidewire_config::outbound_url::outbound_url;

/// Maximum bytes of an answer; a set of 64 keys has about 64 KiB.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Creates an HTTP client with these limits.
///
/// # Errors
/// The file `ca` has no certificates, or this machine has no trusted certificates.
pub fn client(
    timeout: Duration,
    ca: Option<&Path>,
    redirects_max: usize,
) -> Result<Client, String> {
    // The program has already done this; tests need it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut builder = Client::builder()
        .timeout(timeout)
        .redirect(encrypted_redirects(redirects_max))
        .no_proxy();
    if let Some(path) = ca {
        let text = std::fs::read(path)
            .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        let certificates = Certificate::from_pem_bundle(&text)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| format!("{} has no certificate as PEM", path.display()))?;
        builder = builder.tls_certs_only(certificates);
    }
    builder.build().map_err(|error| {
        format!("this machine has no trusted certificates ({error}); install them or set auth.ca")
    })
}

/// A redirect must lead to an address that [`outbound_url`] allows.
fn encrypted_redirects(count_max: usize) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > count_max {
            attempt.stop()
        } else if outbound_url(attempt.url().as_str()).is_err() {
            attempt.error("a redirect leads to an unencrypted address")
        } else {
            attempt.follow()
        }
    })
}

/// Reads the body of an answer.
///
/// # Errors
/// The body is longer than `bytes_max`, or the connection ended.
pub async fn body(mut answer: Response, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(describe)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(format!("the answer has more than {bytes_max} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Fetches a JSON document.
///
/// # Errors
/// The server does not answer, its status is not 200, or the body is not valid JSON.
pub async fn json(client: &Client, url: Url) -> Result<Value, String> {
    let answer = client.get(url).send().await.map_err(describe)?;
    let status = answer.status().as_u16();
    if status != 200 {
        return Err(format!("the server answered with status {status}"));
    }
    let body = body(answer, ANSWER_BYTES_MAX).await?;
    serde_json::from_slice(&body).map_err(|error| format!("the answer is not valid JSON: {error}"))
}

/// An error and its causes, without the address.
pub fn describe(error: reqwest::Error) -> String {
    use std::error::Error as _;
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}

//! Addresses of other servers to which this server sends requests: encrypted, or on this machine.

use std::net::IpAddr;

use url::Url;

/// Reads the address of a server to which this server may send requests.
///
/// # Errors
/// The text is not an address, or the connection would be neither encrypted nor within this machine.
pub fn outbound_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not an address: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" if !host.is_empty() => Ok(url),
        "http" if is_loopback_name(host.trim_matches(['[', ']'])) => Ok(url),
        _ => Err(format!(
            "{text:?} is not encrypted; write https://, or http:// for a server on this machine"
        )),
    }
}

/// Whether a name always is the name of this machine. Browsers never look up names below `localhost` (RFC 6761).
#[must_use]
pub fn is_loopback_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_addresses_and_this_machine_are_asked() {
        let check = |text: &str, is_allowed: bool| {
            assert_eq!(outbound_url(text).is_ok(), is_allowed, "{text}");
        };
        check("https://id.example/keys", true);
        check("http://127.0.0.1:8080/keys", true);
        check("http://localhost/keys", true);
        check("http://[::1]:9/keys", true);
        check("http://id.example/keys", false);
        check("http://127.0.0.1.example/keys", false);
        check("http://localhost.example/keys", false);
        check("file:///etc/passwd", false);
        check("id.example/keys", false);
        check("", false);
    }
}

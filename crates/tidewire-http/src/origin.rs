//! Checks which web pages may use the server, and under which names the server answers.
//!
//! A request with an `Origin` comes from a browser, and a browser would let any page that its user visits connect. The check of
//! `Host` is against DNS rebinding: an attacker can point a domain name at the address of this server.

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};
use tidewire_config::outbound_url::is_loopback_name;

/// The checks that the configuration requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginCheck {
    /// Development mode: pages with loopback names are allowed, and only loopback names and `hosts` are served.
    pub is_development: bool,
    /// Outside development mode too, only loopback names and `hosts` are served. This is set if every user of this machine may
    /// log in and the server listens on loopback addresses only. A page that reaches such a server under its own name (DNS
    /// rebinding) would need no credentials.
    pub is_open_loopback: bool,
    /// Allowed origins.
    pub origins: Vec<String>,
    /// Host names that are served in addition to loopback names. If neither flag above is set, an empty list means all names.
    pub hosts: Vec<String>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A `Host` or `Origin` is unreadable or occurs more than once, or `Host` is missing.
    Malformed(&'static str),
    /// The server does not allow the page; the operator can add it to `network.origins`.
    Origin(String),
    /// The server does not answer under this name; the operator can add it to `network.hosts`.
    Host(String),
}

/// A request that passed the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The origin to allow in the answer, if the request comes from a web page.
    pub origin: Option<String>,
}

impl OriginCheck {
    /// Checks the `Host` and `Origin` of a request.
    ///
    /// # Errors
    /// The server must not serve the request.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Admitted, Refusal> {
        let host = single(headers, &HOST, "a request must have exactly one Host")?;
        let origin = single(headers, &ORIGIN, "a request must have at most one Origin")?;
        let Some(host) = host else {
            return Err(Refusal::Malformed("a request must have exactly one Host"));
        };
        if !self.serves(host) {
            return Err(Refusal::Host(host.to_owned()));
        }
        match origin {
            Some(origin) if !self.allows(origin, host) => Err(Refusal::Origin(origin.to_owned())),
            _ => Ok(Admitted {
                origin: origin.map(str::to_owned),
            }),
        }
    }

    /// Whether the server answers under this name.
    #[must_use]
    pub fn serves(&self, host: &str) -> bool {
        let needs_listing = self.is_development || self.is_open_loopback;
        let is_any = !needs_listing && self.hosts.is_empty();
        let name = host_name(host);
        let is_listed =
            |known: &String| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host);
        is_any || is_loopback_name(name) || self.hosts.iter().any(is_listed)
    }

    fn allows(&self, origin: &str, host: &str) -> bool {
        let is_listed = |known: &String| known == "*" || known.eq_ignore_ascii_case(origin);
        if self.origins.iter().any(is_listed) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else {
            return false;
        };
        if !matches!(scheme, "http" | "https") {
            return false;
        }
        let is_loopback_page = self.is_development && is_loopback_name(host_name(authority));
        is_loopback_page || is_same_authority(scheme, authority, host)
    }
}

/// Whether the request comes from a page of this same origin, or from no page. Pages of other ports and names do not count,
/// whatever the lists allow.
#[must_use]
pub fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = headers.get("sec-fetch-site");
    let is_own_site = site.is_none_or(|site| site == "same-origin" || site == "none");
    let is_own_origin = match (headers.contains_key(ORIGIN), text(&ORIGIN), text(&HOST)) {
        (false, _, _) => true,
        (true, Some(origin), Some(host)) => origin
            .split_once("://")
            .is_some_and(|(scheme, authority)| is_same_authority(scheme, authority, host)),
        _ => false,
    };
    is_own_site && is_own_origin
}

fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    problem: &'static str,
) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    match (values.next(), first.to_str()) {
        (None, Ok(text)) => Ok(Some(text)),
        _ => Err(Refusal::Malformed(problem)),
    }
}

/// The name in `name:port`, without the brackets of an IPv6 address.
#[must_use]
pub fn host_name(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    authority.split(':').next().unwrap_or_default()
}

/// The port in `name:port`.
fn host_port(authority: &str) -> Option<&str> {
    let behind_name = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.1,
        None => &authority[authority.find(':')?..],
    };
    behind_name.strip_prefix(':')
}

/// A proxy may end TLS, so the page's scheme may differ from the server's. The default port of the page's scheme applies to
/// both sides.
fn is_same_authority(scheme: &str, authority: &str, host: &str) -> bool {
    let default_port = if scheme == "https" { "443" } else { "80" };
    let page_port = host_port(authority).unwrap_or(default_port);
    let own_port = host_port(host).unwrap_or(default_port);
    host_name(authority).eq_ignore_ascii_case(host_name(host)) && page_port == own_port
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).expect("a header value"));
        if let Some(origin) = origin {
            headers.insert(
                ORIGIN,
                HeaderValue::from_str(origin).expect("a header value"),
            );
        }
        headers
    }

    fn check(
        origin_check: &OriginCheck,
        host: &str,
        origin: Option<&str>,
        expected: Result<(), Refusal>,
    ) {
        let found = origin_check.admit(&headers(host, origin));
        let expected = expected.map(|()| Admitted {
            origin: origin.map(str::to_owned),
        });
        assert_eq!(found, expected, "{origin_check:?} {host} {origin:?}");
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn development_mode_lets_loopback_pages_in() {
        let origin_check = OriginCheck {
            is_development: true,
            ..OriginCheck::default()
        };
        let refused = |origin: &str| Err(Refusal::Origin(origin.to_owned()));
        for host in [
            "localhost:6020",
            "127.0.0.1:6020",
            "[::1]:6020",
            "LOCALHOST",
            "127.9.9.9",
        ] {
            check(&origin_check, host, None, Ok(()));
            check(&origin_check, host, Some("http://localhost:5173"), Ok(()));
            check(&origin_check, host, Some("https://127.0.0.1"), Ok(()));
            check(&origin_check, host, Some("http://[::1]:8080"), Ok(()));
            check(
                &origin_check,
                host,
                Some("http://app.localhost:5173"),
                Ok(()),
            );
            for origin in [
                "http://evil.example",
                "http://localhost.evil.example",
                "http://evillocalhost",
                "http://127.0.0.1.evil.example:80",
                "http://10.0.0.7",
                "null",
                "file://",
                "chrome-extension://localhost",
                "",
            ] {
                check(&origin_check, host, Some(origin), refused(origin));
            }
        }
    }

    #[test]
    fn development_mode_serves_loopback_names_only() {
        let mut origin_check = OriginCheck {
            is_development: true,
            ..OriginCheck::default()
        };
        for host in [
            "evil.example:6020",
            "localhost.evil.example",
            "192.168.1.7:6020",
            "",
        ] {
            check(
                &origin_check,
                host,
                None,
                Err(Refusal::Host(host.to_owned())),
            );
            let page = format!("http://{host}");
            check(
                &origin_check,
                host,
                Some(&page),
                Err(Refusal::Host(host.to_owned())),
            );
        }
        origin_check.hosts = words(&["dev.example", "192.168.1.7:6020"]);
        check(
            &origin_check,
            "dev.example:6020",
            Some("http://dev.example:6020"),
            Ok(()),
        );
        check(&origin_check, "192.168.1.7:6020", None, Ok(()));
        check(
            &origin_check,
            "192.168.1.7:7000",
            None,
            Err(Refusal::Host("192.168.1.7:7000".into())),
        );
    }

    #[test]
    fn an_open_loopback_server_serves_loopback_and_listed_names_only() {
        let mut origin_check = OriginCheck {
            is_open_loopback: true,
            ..OriginCheck::default()
        };
        check(&origin_check, "127.0.0.1:6020", None, Ok(()));
        check(
            &origin_check,
            "[::1]:6020",
            Some("http://[::1]:6020"),
            Ok(()),
        );
        let refused = |host: &str| Err(Refusal::Host(host.to_owned()));
        for host in ["rebound.example:6020", "10.0.0.7:6020", "localhost.example"] {
            check(&origin_check, host, None, refused(host));
            let page = format!("http://{host}");
            check(&origin_check, host, Some(&page), refused(host));
        }
        // Pages of other origins are refused, as they are outside development mode.
        let other = "http://localhost:5173";
        let outcome = Err(Refusal::Origin(other.to_owned()));
        check(&origin_check, "localhost:6020", Some(other), outcome);
        origin_check.hosts = words(&["app.example"]);
        check(
            &origin_check,
            "app.example",
            Some("https://app.example"),
            Ok(()),
        );
        check(&origin_check, "b.example", None, refused("b.example"));
    }

    #[test]
    fn elsewhere_the_same_origin_and_the_list_are_let_in() {
        let mut origin_check = OriginCheck::default();
        let refused = |origin: &str| Err(Refusal::Origin(origin.to_owned()));
        check(&origin_check, "app.example", None, Ok(()));
        check(
            &origin_check,
            "app.example",
            Some("https://app.example"),
            Ok(()),
        );
        check(
            &origin_check,
            "app.example",
            Some("https://app.example:443"),
            Ok(()),
        );
        check(
            &origin_check,
            "app.example:6020",
            Some("http://app.example:6020"),
            Ok(()),
        );
        check(
            &origin_check,
            "APP.example:6020",
            Some("http://app.example:6020"),
            Ok(()),
        );
        for origin in [
            "http://app.example",
            "https://app.example:444",
            "https://other.example",
            "https://sub.app.example",
            "http://localhost:5173",
            "null",
        ] {
            check(
                &origin_check,
                "app.example:6020",
                Some(origin),
                refused(origin),
            );
        }
        origin_check.origins = words(&["https://other.example"]);
        check(
            &origin_check,
            "app.example",
            Some("https://other.example"),
            Ok(()),
        );
        check(
            &origin_check,
            "app.example",
            Some("http://other.example"),
            refused("http://other.example"),
        );
        origin_check.origins = words(&["*"]);
        check(&origin_check, "app.example", Some("null"), Ok(()));
        origin_check.hosts = words(&["app.example"]);
        check(
            &origin_check,
            "rebound.example",
            None,
            Err(Refusal::Host("rebound.example".into())),
        );
    }

    #[test]
    fn doubled_and_unreadable_headers_are_refused() {
        let origin_check = OriginCheck::default();
        let mut doubled = headers("a.example", Some("https://a.example"));
        doubled.append(ORIGIN, HeaderValue::from_static("https://b.example"));
        assert!(matches!(
            origin_check.admit(&doubled),
            Err(Refusal::Malformed(_))
        ));
        let mut doubled = headers("a.example", None);
        doubled.append(HOST, HeaderValue::from_static("b.example"));
        assert!(matches!(
            origin_check.admit(&doubled),
            Err(Refusal::Malformed(_))
        ));
        let mut unreadable = headers("a.example", None);
        unreadable.insert(
            HOST,
            HeaderValue::from_bytes(b"\xff").expect("bytes are allowed"),
        );
        assert!(matches!(
            origin_check.admit(&unreadable),
            Err(Refusal::Malformed(_))
        ));
        assert!(matches!(
            origin_check.admit(&HeaderMap::new()),
            Err(Refusal::Malformed(_))
        ));
    }
}

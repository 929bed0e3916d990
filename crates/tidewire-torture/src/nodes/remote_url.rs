//! The URL of a server to which the nodes of a test connect through proxies.

/// The URL, with its host and port apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    scheme: String,
    /// The user with `@`, or nothing.
    user: String,
    host: String,
    port: u16,
    /// All that comes after the port.
    rest: String,
}

/// The schemes and their ports.
const PORTS: [(&str, u16); 6] = [
    ("postgres", 5432),
    ("postgresql", 5432),
    ("redis", 6379),
    ("nats", 4222),
    ("amqp", 5672),
    ("kafka", 9092),
];

impl RemoteUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// The test can't put a proxy between the nodes and this server.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let usual = PORTS.iter().find(|(known, _)| *known == scheme);
        let Some((_, usual)) = usual else {
            let known: Vec<&str> = PORTS.iter().map(|(known, _)| *known).collect();
            // A proxy has another name than the certificate of the server, so URLs with TLS are refused.
            return Err(format!(
                "the URL must begin with one of {}://, without TLS",
                known.join("://, ")
            ));
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (format!("{user}@"), address),
            None => (String::new(), authority),
        };
        // The port comes after the brackets of an IPv6 address.
        let colon = address
            .rfind(':')
            .filter(|colon| !address[*colon..].contains(']'));
        let (host, port) = match colon {
            Some(colon) => (&address[..colon], address[colon + 1..].parse().ok()),
            None => (address, Some(*usual)),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Some(port) = port.filter(|_| !host.is_empty() && !host.contains(',')) else {
            return Err("the URL must have one host, and its port must be a number".to_owned());
        };
        Ok(Self {
            text: url.to_owned(),
            scheme: scheme.to_owned(),
            user,
            host: host.to_owned(),
            port,
            rest: rest.to_owned(),
        })
    }

    /// The whole URL.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the same server behind a proxy.
    pub(crate) fn through(&self, proxy: std::net::SocketAddr) -> String {
        format!("{}://{}{proxy}{}", self.scheme, self.user, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_takes_the_place_of_host_and_port() {
        let proxy = "127.0.0.1:9".parse().unwrap();
        let check = |url: &str, host: &str, port: u16, expected: &str| {
            let parsed = RemoteUrl::parse(url).unwrap();
            assert_eq!((parsed.host(), parsed.port()), (host, port), "{url}");
            assert_eq!(parsed.through(proxy), expected, "{url}");
        };
        check(
            "postgresql://tidewire@db/tidewire?x=1",
            "db",
            5432,
            "postgresql://tidewire@127.0.0.1:9/tidewire?x=1",
        );
        check(
            "redis://127.0.0.1:7000/3",
            "127.0.0.1",
            7000,
            "redis://127.0.0.1:9/3",
        );
        check("nats://[::1]", "::1", 4222, "nats://127.0.0.1:9");
        check(
            "amqp://a:b@[::1]:5/%2f",
            "::1",
            5,
            "amqp://a:b@127.0.0.1:9/%2f",
        );
    }

    #[test]
    fn servers_that_can_not_be_behind_a_proxy_are_refused() {
        for url in [
            "rediss://h/0",
            "tls://h",
            "sqlite",
            "postgres://a,b/x",
            "redis://h:x/0",
            "redis:///0",
        ] {
            assert!(RemoteUrl::parse(url).is_err(), "{url}");
        }
    }
}

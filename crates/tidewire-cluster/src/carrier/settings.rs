//! The broker of the links, from a URL.

use std::fmt;

use thiserror::Error;

#[cfg(feature = "amqp")]
use super::amqp::Amqp;
#[cfg(feature = "kafka")]
use super::kafka::Kafka;
#[cfg(feature = "nats")]
use super::nats::Nats;
#[cfg(feature = "redis")]
use super::redis::Redis;

/// A broker that carries the links. `Debug` shows only the kind, because the URL may have a password.
#[derive(Clone)]
#[non_exhaustive]
pub enum Settings {
    /// An AMQP 0.9.1 broker.
    #[cfg(feature = "amqp")]
    Amqp(Amqp),
    /// Kafka.
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
    /// NATS.
    #[cfg(feature = "nats")]
    Nats(Nats),
    /// Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(Redis),
}

/// The schemes of the URLs that this build knows.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "amqp")]
    "amqp",
    #[cfg(feature = "amqp")]
    "amqps",
    #[cfg(feature = "kafka")]
    "kafka",
    #[cfg(feature = "nats")]
    "nats",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "nats")]
    "tls",
];

/// Why a URL names no broker. The text never has the URL, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The URL has no scheme that this build knows.
    #[error("the URL must begin with one of {}", SCHEMES.join("://, ") + "://")]
    Scheme,
    /// The client library or the carrier refuses the URL.
    #[error("{0}")]
    Refused(String),
}

/// The broker that a URL names. Its scheme is the kind: `amqp`, `amqps`, `kafka`, `nats`, `tls` (NATS with TLS), `redis` or `rediss`.
///
/// # Errors
/// The scheme is unknown, or the rest is not an address of such a broker.
pub fn from_url(url: &str) -> Result<Settings, UrlError> {
    match url.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "amqp")]
        Some("amqp" | "amqps") => Amqp::from_url(url).map(Settings::Amqp),
        #[cfg(feature = "kafka")]
        Some("kafka") => Kafka::from_url(url).map(Settings::Kafka),
        #[cfg(feature = "nats")]
        Some("nats" | "tls") => Nats::from_url(url).map(Settings::Nats),
        #[cfg(feature = "redis")]
        Some("redis" | "rediss") => Redis::from_url(url).map(Settings::Redis),
        _ => Err(UrlError::Scheme),
    }
}

impl Settings {
    /// The name of the kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match *self {
            #[cfg(feature = "amqp")]
            Self::Amqp(_) => "amqp",
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => "kafka",
            #[cfg(feature = "nats")]
            Self::Nats(_) => "nats",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(
        feature = "amqp",
        feature = "kafka",
        feature = "nats",
        feature = "redis"
    ))]
    #[test]
    fn the_scheme_of_a_url_is_the_kind_of_broker() {
        for (url, kind) in [
            ("amqp://user:secret@host:5672/%2f", "amqp"),
            ("amqps://host", "amqp"),
            ("kafka://one:9092,two:9092/topic", "kafka"),
            ("nats://user:secret@host:4222", "nats"),
            ("nats://one:4222,two:4222", "nats"),
            ("tls://host", "nats"),
            ("redis://:secret@host:6379/0", "redis"),
            ("rediss://host", "redis"),
        ] {
            let settings = from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(format!("{settings:?}"), kind, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_without_their_secrets() {
        for url in [
            "",
            "host:4222",
            "http://user:secret@host",
            "redis://:secret@",
            "nats://user:secret@host:port",
            "amqp://user:secret@host:port",
            "kafka://user:secret@host:9092",
            "kafka://",
            "kafka://host:secret",
            "kafka://host:9092/a/secret",
            "kafka://,",
        ] {
            let error = from_url(url).map(|_| ()).expect_err(url);
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}

//! What the stores on servers of their own share: where the server is, how it is reached, and how long it may take.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;
use tidewire_core::store::{Opened, Store, StoreError, Written};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

/// How long a server that can't be reached yet is waited for at the start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const START_PAUSE: Duration = Duration::from_millis(500);

/// Where a server is and what is expected of it.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Its address, without a password.
    pub url: String,
    /// Empty if it wants none. Wiped when the store is closed.
    pub password: Zeroizing<String>,
    /// A file with the certificates (PEM) of the authorities that are trusted, instead of the system's.
    pub ca: Option<PathBuf>,
    /// Time for one request; afterwards the connection is given up.
    pub timeout: Duration,
    /// Whether a server is taken that does not sync what it acknowledges, or does not say whether it does.
    pub is_relaxed: bool,
    /// Where its input and output is driven.
    pub runtime: Handle,
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .field("is_relaxed", &self.is_relaxed)
            .finish_non_exhaustive()
    }
}

/// A store that is open.
pub struct OpenStore {
    /// The store.
    pub store: Box<dyn Store>,
    /// Its epoch and opening.
    pub opened: Opened,
    /// What an acknowledged write means with it.
    pub promise: Promise,
}

/// What an acknowledged write means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// For people, as `on disk: fsync=on, synchronous_commit=on`.
    pub text: String,
    /// Why it is less than on disk and synced, which somebody has asked for; none if it is not.
    pub weakness: Option<String>,
}

impl Promise {
    /// On disk and synced, as `found` shows.
    #[must_use]
    pub fn synced(found: &str) -> Self {
        Self {
            text: format!("on disk, synced: {found}"),
            weakness: None,
        }
    }

    /// What `weakness` leaves of it.
    #[must_use]
    pub fn relaxed(weakness: String) -> Self {
        Self {
            text: format!("not known to be on disk: {weakness}"),
            weakness: Some(weakness),
        }
    }

    /// The promise of a server of which `weaknesses` were found, each with the setting to change.
    ///
    /// # Errors
    /// There are some, and nobody has asked for less than synced.
    pub fn of_server(
        weaknesses: &[String],
        found: &str,
        is_relaxed: bool,
    ) -> Result<Self, RemoteError> {
        match (weaknesses, is_relaxed) {
            ([], _) => Ok(Self::synced(found)),
            (some, true) => Ok(Self::relaxed(some.join("; "))),
            (some, false) => Err(RemoteError::Weak(some.join("; "))),
        }
    }
}

/// Why a server can't be the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It can't be reached or does not answer. Trying again may help.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// It refuses for good, or what was given can't be right.
    #[error("can't be used: {0}")]
    Refused(String),
    /// It does not sync what it acknowledges, or does not say so.
    #[error("may lose acknowledged writes: {0}; or set store.durability to relaxed")]
    Weak(String),
    /// A newer version of Tidewire has written there.
    #[error(
        "holds format {found}, and this version knows up to {known}; start a newer version, or move the records with `tidewire store export` of the newer version and `tidewire store import` of this one"
    )]
    NewerFormat {
        /// Its format.
        found: i64,
        /// The newest that this version reads.
        known: i64,
    },
}

impl From<RemoteError> for StoreError {
    fn from(error: RemoteError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl RemoteOptions {
    /// Waits for `work` on this thread, as long as a request may take.
    ///
    /// # Errors
    /// It takes longer.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreError> {
        let limited = async { tokio::time::timeout(self.timeout, work).await };
        self.runtime
            .block_on(limited)
            .map_err(|_| StoreError::unavailable(format!("no answer within {:?}", self.timeout)))
    }
}

/// Opens a server's store with `open`, again and again while the server can't be reached, for it may start at the same time.
///
/// # Errors
/// It can't be reached for half a minute, or can't be used.
pub fn open_patiently(
    kind: &str,
    mut open: impl FnMut() -> Result<OpenStore, RemoteError>,
) -> Result<OpenStore, RemoteError> {
    let start = std::time::Instant::now();
    let mut has_told = false;
    loop {
        match open() {
            Err(RemoteError::Unreachable(cause)) if start.elapsed() < START_TIMEOUT => {
                if !has_told {
                    has_told = true;
                    tracing::warn!(
                        cause,
                        "{kind} can't be reached; waiting up to {START_TIMEOUT:?} for it"
                    );
                }
                std::thread::sleep(START_PAUSE);
            }
            ended => return ended,
        }
    }
}

/// Looks at the format that was found where a store should be.
///
/// # Errors
/// There is none, or a newer one than `known`.
pub fn refuse_format(found: Option<i64>, known: i64) -> Result<(), RemoteError> {
    match found {
        None => Err(RemoteError::Refused("it holds no store".to_owned())),
        Some(found) if found > known => Err(RemoteError::NewerFormat { found, known }),
        Some(_) => Ok(()),
    }
}

/// What to tell of a server whose certificate is not accepted, if an error is about that; it stays so until somebody changes
/// something.
#[must_use]
pub fn certificate_fault(error: &(dyn Error + 'static)) -> Option<String> {
    // What stands in between: an I/O error does not name what it holds as its source, nor does a shared one.
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        return certificate_fault(&**shared);
    }
    if let Some(held) = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        return certificate_fault(held);
    }
    let Some(rustls::Error::InvalidCertificate(fault)) = error.downcast_ref() else {
        return error.source().and_then(certificate_fault);
    };
    let advice = match fault {
        CertificateError::UnknownIssuer => {
            "; name the file with the certificate of its authority as `ca` of the store"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "; use a name of its certificate in the address"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "; renew it",
        _ => "",
    };
    Some(format!("its certificate is not accepted: {fault}{advice}"))
}

/// Whether an address is of this machine, so that what goes there needs no TLS.
#[must_use]
pub fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.is_empty()
        || host.starts_with('/')
        || host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// What became of `count` writes of which those with these numbers, from 1, were refused.
pub fn outcomes<N: TryInto<usize>>(
    count: usize,
    refused: impl IntoIterator<Item = N>,
) -> Vec<Written> {
    let mut outcomes = vec![Written::Done; count];
    for number in refused {
        let place = number.try_into().ok().and_then(|at| at.checked_sub(1));
        if let Some(outcome) = place.and_then(|place| outcomes.get_mut(place)) {
            *outcome = Written::Refused;
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_writes_are_counted_from_one() {
        use Written::{Done, Refused};
        assert_eq!(outcomes(3, [1_u64, 3]), [Refused, Done, Refused]);
        // What no server says.
        assert_eq!(outcomes(2, [0_i64, -1, 3]), [Done, Done]);
    }

    #[test]
    fn a_weakness_refuses_unless_less_was_asked_for() {
        let weak = ["fsync is off; set it to on".to_owned()];
        let found = "fsync=off";
        assert_eq!(
            Promise::of_server(&weak, found, false).map_err(|error| error.to_string()),
            Err(
                "may lose acknowledged writes: fsync is off; set it to on; or set store.durability to relaxed"
                    .to_owned()
            )
        );
        let relaxed = Promise::of_server(&weak, found, true).map(|promise| promise.weakness);
        assert_eq!(relaxed, Ok(Some("fsync is off; set it to on".to_owned())));
        // Whoever asks for less and gets more is told so.
        let synced = Promise::of_server(&[], "fsync=on", true);
        assert_eq!(synced, Ok(Promise::synced("fsync=on")));
    }

    #[test]
    fn a_certificate_that_is_not_accepted_is_found_behind_other_errors() {
        let refused = |fault| rustls::Error::InvalidCertificate(fault);
        let behind: [Box<dyn Error>; 3] = [
            Box::new(refused(CertificateError::UnknownIssuer)),
            Box::new(io::Error::other(refused(CertificateError::UnknownIssuer))),
            Box::new(Arc::<dyn Error + Send + Sync>::from(Box::from(
                io::Error::other(refused(CertificateError::UnknownIssuer)),
            ))),
        ];
        for error in behind {
            let told = certificate_fault(&*error).unwrap_or_default();
            assert!(told.contains("as `ca` of the store"), "{told}");
        }
        let renewed = certificate_fault(&refused(CertificateError::Expired));
        assert!(renewed.is_some_and(|told| told.ends_with("renew it")));
        for other in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut] {
            assert_eq!(certificate_fault(&io::Error::from(other)), None);
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("[::1]", true),
            ("::ffff:127.0.0.1", true),
            ("localhost", true),
            ("/run/postgresql", true),
            ("", true),
            ("10.0.0.1", false),
            ("localhost.example.com", false),
            ("db", false),
        ] {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }
}

//! Shared code of the stores that are separate servers: address, certificates, timeouts, retries at the start and durability.

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

/// How long a start waits for a store's server that can't be reached yet.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const START_PAUSE: Duration = Duration::from_millis(500);

/// The connection settings of a store's server.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Its address, without a password.
    pub url: String,
    /// The password; empty if the server requires none. Wiped when the store is closed.
    pub password: Zeroizing<String>,
    /// A file with the certificates (PEM) of the trusted authorities. It replaces the system's authorities.
    pub ca: Option<PathBuf>,
    /// Timeout of one request. When it passes, the connection is replaced.
    pub timeout: Duration,
    /// Whether to accept a server that acknowledges writes before they are synced, or does not report whether it syncs them.
    pub is_relaxed: bool,
    /// How this process takes part in the writing of the store.
    pub membership: Membership,
    /// The runtime that drives the connections of stores that have no separate one.
    pub runtime: Handle,
}

/// How a process takes part in the writing of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// It writes alone: its opening makes a view whose only member it is, which ends every earlier view.
    #[default]
    Alone,
    /// It writes when the members have agreed on a view to which it belongs ([`tidewire_core::store::Registry`]). Its opening changes no
    /// view.
    Joins {
        /// The number of its node.
        node: u16,
    },
}

impl Membership {
    /// The number of the node.
    #[must_use]
    pub fn node(self) -> u16 {
        match self {
            Self::Alone => 0,
            Self::Joins { node } => node,
        }
    }
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

/// An open store.
pub struct OpenStore {
    /// The store.
    pub store: Box<dyn Store>,
    /// Its epoch and opening.
    pub opened: Opened,
    /// Its durability.
    pub promise: Promise,
}

/// The durability of an acknowledged write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The text for the operator, such as `on disk, synced: PostgreSQL with fsync=on`.
    pub text: String,
    /// Why acknowledged writes may not be synced to disk, which the operator has allowed; `None` if they are.
    pub weakness: Option<String>,
}

impl Promise {
    /// Acknowledged writes are on disk and synced, as the settings `found` show.
    #[must_use]
    pub fn synced(found: &str) -> Self {
        Self {
            text: format!("on disk, synced: {found}"),
            weakness: None,
        }
    }

    /// Acknowledged writes may be lost because of `weakness`.
    #[must_use]
    pub fn relaxed(weakness: String) -> Self {
        Self {
            text: format!("not known to be on disk: {weakness}"),
            weakness: Some(weakness),
        }
    }

    /// The durability of a server with these `weaknesses`, each with the setting to change.
    ///
    /// # Errors
    /// There are weaknesses, and the operator has not allowed relaxed durability.
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

/// Why a server can't be used as the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It can't be reached or does not answer. A retry may help.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// It refuses permanently, or the settings are wrong. A retry does not help.
    #[error("can't be used: {0}")]
    Refused(String),
    /// It acknowledges writes before they are synced, or does not report whether it syncs them.
    #[error("may lose acknowledged writes: {0}; or set store.durability to relaxed")]
    Weak(String),
    /// A newer version of Tidewire has written the store.
    #[error(
        "has format {found}, and this version reads up to format {known}; start a newer version, or move the records with `tidewire store export` of the newer version and `tidewire store import` of this one"
    )]
    NewerFormat {
        /// Its format.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
    },
}

impl From<RemoteError> for StoreError {
    fn from(error: RemoteError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl RemoteError {
    /// The refusal of a server whose cargo feature the build does not have.
    #[must_use]
    pub fn not_built() -> Self {
        Self::Refused("this build does not include it; enable its cargo feature".to_owned())
    }
}

impl RemoteOptions {
    /// Blocks this thread until `work` is done or the timeout of a request has passed.
    ///
    /// # Errors
    /// The timeout has passed.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreError> {
        self.runtime.block_on(self.limited(work))
    }

    /// The same for a caller that has a runtime.
    pub(crate) async fn limited<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreError> {
        tokio::time::timeout(self.timeout, work)
            .await
            .map_err(|_| StoreError::unavailable(format!("no answer within {:?}", self.timeout)))
    }
}

/// Opens a server's store with `open`. While the server can't be reached, retries, because it may be starting as well.
///
/// # Errors
/// The server could not be reached for 30 seconds, or can't be used.
pub fn open_patiently(
    kind: &str,
    mut open: impl FnMut() -> Result<OpenStore, RemoteError>,
) -> Result<OpenStore, RemoteError> {
    let start = std::time::Instant::now();
    let mut is_logged = false;
    loop {
        match open() {
            Err(RemoteError::Unreachable(cause)) if start.elapsed() < START_TIMEOUT => {
                if !is_logged {
                    is_logged = true;
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

/// Checks the format number that the server has for the store.
///
/// # Errors
/// There is no format, so no store, or the format is newer than `known`.
pub fn refuse_format(found: Option<i64>, known: i64) -> Result<(), RemoteError> {
    match found {
        None => Err(RemoteError::Refused("it holds no store".to_owned())),
        Some(found) if found > known => Err(RemoteError::NewerFormat { found, known }),
        Some(_) => Ok(()),
    }
}

/// The text for the operator if an error means that the server's certificate was not accepted. Retries do not help: the operator must
/// change the certificate or the settings.
#[must_use]
pub fn certificate_fault(error: &(dyn Error + 'static)) -> Option<String> {
    // Unwraps I/O errors and shared errors, because neither returns the error that it holds as its source.
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

/// Whether a host is this machine, so that connections to it need no TLS.
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

/// The error of a commit to a server that has another generation than the view.
pub const NEW_GENERATION: &str = "another server has taken over, which may lack the last commits; commits wait until the members have a new view";

/// The error of a proposed view with a member that the store does not know.
#[must_use]
pub fn unknown_member() -> StoreError {
    StoreError::unavailable("a proposed member has not opened the store, or was removed")
}

/// The outcomes of `count` writes. `refused` has the numbers of the refused writes, counted from 1; all others were done.
pub fn outcomes<N: TryInto<usize>>(
    count: usize,
    refused: impl IntoIterator<Item = N>,
) -> Vec<Written> {
    let mut outcomes = vec![Written::Done; count];
    for number in refused {
        let index = number.try_into().ok().and_then(|at| at.checked_sub(1));
        if let Some(outcome) = index.and_then(|index| outcomes.get_mut(index)) {
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
        // Numbers that no server returns.
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
        // The operator allows less, and the report still shows that the server syncs.
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
            let text = certificate_fault(&*error).unwrap_or_default();
            assert!(text.contains("as `ca` of the store"), "{text}");
        }
        let renewed = certificate_fault(&refused(CertificateError::Expired));
        assert!(renewed.is_some_and(|text| text.ends_with("renew it")));
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

//! The certificate: read and checked at the start, and again when its files change or SIGHUP comes.
//!
//! A new one is used only if it is right as a whole; handshakes go on with the old one otherwise, and the log and a
//! metric say so. Connections that are open keep what they have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::config::Problem;
use crate::config::plan::Plan;
use crate::config::section::TlsVersion;
use crate::exit::{Exit, Failure};

/// What is spoken inside: WebSockets are opened by HTTP/1.1.
const ALPN: &[u8] = b"http/1.1";

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// What tells that a file was replaced or written, without reading it.
type Stamp = [Option<(SystemTime, u64, u64)>; 2];

/// How handshakes are made, and the certificate that they show now.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
    /// The files as they were when they were last read.
    stamp: Mutex<Stamp>,
}

/// The certificate that the next handshake shows.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

impl Tls {
    /// Reads the files of the configuration; `None` if it has none.
    ///
    /// # Errors
    /// A file can't be read, is not PEM, or certificate and key do not belong together.
    pub fn open(plan: &Plan) -> Result<Option<Arc<Self>>, Problem> {
        let options = &plan.config.tls;
        let (Some(certificate), Some(key)) = (&options.certificate.0, &options.key.0) else {
            return Ok(None);
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        let stamp = files.stamp();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Arc::new(Current(RwLock::new(files.read(&provider)?)));
        let versions: &[&SupportedProtocolVersion] = match options.min_version {
            TlsVersion::V1_2 => &[&TLS13, &TLS12],
            TlsVersion::V1_3 => &[&TLS13],
        };
        let wrong = |error| Problem::new("tls", format!("TLS can't be set up: {error}"));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(wrong)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Tickets hold the session at the client, so a server with many clients keeps nothing for them. Their keys live
        // in memory only and change every six hours.
        config.ticketer = Ticketer::new().map_err(wrong)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Some(Arc::new(Self {
            files,
            current,
            config: Arc::new(config),
            stamp: Mutex::new(stamp),
        })))
    }

    /// What a handshake that begins now needs.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Whether the files are not those that were last read.
    #[must_use]
    pub fn has_changed_files(&self) -> bool {
        self.files.stamp() != *self.stamp.lock()
    }

    /// Reads the files again. With an error handshakes go on as before.
    ///
    /// # Errors
    /// As for [`Tls::open`].
    pub fn reload(&self) -> Result<(), Problem> {
        // Taken before the files are read: what is written meanwhile counts as another change.
        *self.stamp.lock() = self.files.stamp();
        let renewed = self.files.read(self.config.crypto_provider())?;
        *self.current.0.write() = renewed;
        Ok(())
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            use std::os::unix::fs::MetadataExt as _;
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Problem> {
        let chain = read_chain(&self.certificate)?;
        let key = read_key(&self.key)?;
        let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            let certificate = self.certificate.display();
            let reason = match error {
                rustls::Error::InconsistentKeys(_) => format!(
                    "{} is not the key of {certificate}; give the key that the certificate was issued for",
                    self.key.display()
                ),
                error => format!("{certificate} or its key can't be used: {error}"),
            };
            Problem::new("tls.key", reason)
        })?;
        Ok(Arc::new(certified))
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = read(path, "tls.certificate", "the certificate chain as PEM")?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(Problem::new(
            "tls.certificate",
            format!(
                "{} has no certificate; it must be PEM with `-----BEGIN CERTIFICATE-----`, the server's own first",
                path.display()
            ),
        )),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let text = read(path, "tls.key", "the private key as PEM")?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        Problem::new(
            "tls.key",
            format!(
                "{} has no private key; it must be PEM with `-----BEGIN PRIVATE KEY-----`, without a passphrase",
                path.display()
            ),
        )
    })
}

fn read(path: &Path, option: &str, what: &str) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|error| {
        let reason = format!(
            "{} can't be read: {error}; name a file with {what} that this user may read",
            path.display()
        );
        Problem::new(option, reason)
    })
}

/// Makes rustls use the one library that this server was built with, whatever else is linked in.
///
/// # Errors
/// Another one was installed before, which only a defect can cause.
pub fn install_provider() -> Result<(), Failure> {
    aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| Failure::new(Exit::Bug, "another cryptographic provider is installed"))
}

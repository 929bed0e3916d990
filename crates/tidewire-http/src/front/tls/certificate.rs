//! The server's certificate and the authorities of client certificates. The server reads and checks them at the start, and
//! again when the files change or SIGHUP arrives.
//!
//! It uses the new files only if all of them are valid. Otherwise handshakes continue with the old ones, and the log and a
//! metric report that. Open connections keep the certificate of their handshake.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tidewire_config::Problem;
use tidewire_config::plan::Plan;
use tidewire_config::section::{ClientCertificates, TlsVersion};

use super::stream::HTTP_2;

/// The protocol of a connection without HTTP/2: HTTP/1.1, which also opens WebSockets.
const HTTP_1: &[u8] = b"http/1.1";

/// The paths of the certificate, its key, and the authorities of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// Modification time, size and inode of each file. A change of them shows that the file was written or replaced.
type Stamp = [Option<(SystemTime, u64, u64)>; 3];

/// The TLS configuration and the files that it comes from.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    options: Options,
    /// The configuration of the next handshake.
    config: RwLock<Arc<ServerConfig>>,
    /// The state of the files when they were last read.
    stamp: Mutex<Stamp>,
}

/// Options that stay the same when the files are read again.
#[derive(Debug)]
struct Options {
    provider: Arc<CryptoProvider>,
    min_version: TlsVersion,
    /// Whether HTTP/2 is offered.
    http2: bool,
    client_certificates: ClientCertificates,
}

impl Tls {
    /// Reads the files of the configuration; returns `None` if it names none.
    ///
    /// # Errors
    /// A file can't be read or is not PEM, or the key does not belong to the certificate.
    pub fn open(plan: &Plan) -> Result<Option<Arc<Self>>, Problem> {
        let options = &plan.config.tls;
        let (Some(certificate), Some(key)) = (&options.certificate.0, &options.key.0) else {
            return Ok(None);
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: options.client_ca.0.clone(),
        };
        let options = Options {
            provider: Arc::new(aws_lc_rs::default_provider()),
            min_version: options.min_version,
            http2: options.http2,
            client_certificates: options.client_certificates,
        };
        let stamp = files.stamp();
        let config = options.config(&files, new_ticketer()?)?;
        Ok(Some(Arc::new(Self {
            files,
            options,
            config: RwLock::new(config),
            stamp: Mutex::new(stamp),
        })))
    }

    /// The configuration for a handshake that begins now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    /// Whether the files have changed since they were last read.
    #[must_use]
    pub fn has_changed_files(&self) -> bool {
        self.files.stamp() != *self.stamp.lock()
    }

    /// Reads the files again. After an error, handshakes continue with the old configuration.
    ///
    /// # Errors
    /// As for [`Tls::open`].
    pub fn reload(&self) -> Result<(), Problem> {
        // Taken before the files are read, so that a write during the read counts as another change.
        *self.stamp.lock() = self.files.stamp();
        let ticketer = match self.files.client_ca {
            None => Arc::clone(&self.config.read().ticketer),
            // A resumed connection keeps the certificate of its first handshake, whose authority may have been removed since.
            // New ticket keys prevent the resumption.
            Some(_) => new_ticketer()?,
        };
        let renewed = self.options.config(&self.files, ticketer)?;
        *self.config.write() = renewed;
        Ok(())
    }
}

/// With tickets the client stores the session, so the server stores nothing for each client. The ticket keys exist in memory
/// only and change every six hours.
fn new_ticketer() -> Result<Arc<dyn ProducesTickets>, Problem> {
    Ticketer::new().map_err(wrong)
}

fn wrong(error: rustls::Error) -> Problem {
    Problem::new("tls", format!("TLS can't be set up: {error}"))
}

impl Options {
    fn config(
        &self,
        files: &Files,
        ticketer: Arc<dyn ProducesTickets>,
    ) -> Result<Arc<ServerConfig>, Problem> {
        let certified = files.read(&self.provider)?;
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            TlsVersion::V1_2 => &[&TLS13, &TLS12],
            TlsVersion::V1_3 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .map_err(wrong)?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(self.client_verifier(path)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        // In order of preference.
        config.alpn_protocols = match self.http2 {
            true => vec![HTTP_2.to_vec(), HTTP_1.to_vec()],
            false => vec![HTTP_1.to_vec()],
        };
        config.ticketer = ticketer;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    fn client_verifier(&self, path: &Path) -> Result<Arc<dyn ClientCertVerifier>, Problem> {
        let unusable = |error: &dyn std::fmt::Display| {
            let reason = format!("{} can't be used: {error}", path.display());
            Problem::new("tls.client_ca", reason)
        };
        let mut roots = RootCertStore::empty();
        let what = "the certificates of authorities";
        for certificate in read_chain(path, "tls.client_ca", what)? {
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
        let provider = Arc::clone(&self.provider);
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match self.client_certificates {
            ClientCertificates::Optional => builder.allow_unauthenticated(),
            ClientCertificates::Required => builder,
        };
        builder.build().map_err(|error| unusable(&error))
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        let paths = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ];
        paths.map(|path| {
            use std::os::unix::fs::MetadataExt as _;
            let metadata = std::fs::metadata(path?).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Problem> {
        let what = "the certificate chain, the server's own first";
        let chain = read_chain(&self.certificate, "tls.certificate", what)?;
        let key = read_key(&self.key)?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            let certificate = self.certificate.display();
            let reason = match error {
                rustls::Error::InconsistentKeys(_) => format!(
                    "{} is not the key of {certificate}; use the key that the certificate was issued for",
                    self.key.display()
                ),
                error => format!("{certificate} or its key can't be used: {error}"),
            };
            Problem::new("tls.key", reason)
        })
    }
}

fn read_chain(
    path: &Path,
    option: &str,
    what: &str,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = read(path, option, what)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(Problem::new(
            option,
            format!(
                "{} has no certificate; it must be PEM with `-----BEGIN CERTIFICATE-----`: {what}",
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
            "{} can't be read: {error}; use a file with {what} that the user of the server can read",
            path.display()
        );
        Problem::new(option, reason)
    })
}

/// Makes rustls use the cryptographic library that this server was built with, even if others are linked in.
///
/// # Errors
/// Another library was installed before, which only a defect can cause.
pub fn install_provider() -> Result<(), &'static str> {
    aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| "another cryptographic provider is installed")
}

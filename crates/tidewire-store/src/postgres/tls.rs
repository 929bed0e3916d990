//! TLS between the store and PostgreSQL.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::remote::{RemoteError, RemoteOptions};

/// The TLS configuration. It trusts the authorities of the configured file, or else the system's.
///
/// # Errors
/// The file can't be read or has no certificate.
pub(super) fn config(options: &RemoteOptions) -> Result<ClientConfig, RemoteError> {
    let mut roots = RootCertStore::empty();
    match &options.ca {
        Some(path) => {
            for certificate in read_authorities(path)? {
                roots.add(certificate).map_err(|error| {
                    RemoteError::Refused(format!("{}: {error}", path.display()))
                })?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RemoteError::Refused(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, RemoteError> {
    let wrong = |cause: &dyn fmt::Display| {
        RemoteError::Refused(format!("{} can't be read: {cause}", path.display()))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() {
        return Err(wrong(&"it has no certificate"));
    }
    Ok(found)
}

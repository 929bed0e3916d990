//! The certificate of a process, which lives as long as the process.

use std::fmt;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A certificate that the process has signed itself, with its key.
#[derive(Debug)]
pub struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Makes a key and a certificate.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        // The name has no meaning: peers compare the fingerprint.
        let params = CertificateParams::new(vec!["tidewire".to_owned()])?;
        let certificate = CertificateDer::from(params.self_signed(&key)?.der().to_vec());
        Ok(Self {
            fingerprint: Fingerprint::of(&certificate),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            certificate,
        })
    }

    /// The fingerprint, by which peers know this process.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

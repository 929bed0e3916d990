//! Certificate checks that accept exactly the expected fingerprints, at both ends, and the TLS configurations that use them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::identity::{Fingerprint, Identity};

/// The peers that may connect, by their fingerprints.
#[derive(Debug)]
pub(super) struct Peers<T>(RwLock<HashMap<Fingerprint, T>>);

impl<T: Clone> Peers<T> {
    pub fn new() -> Self {
        Self(RwLock::new(HashMap::new()))
    }

    pub fn insert(&self, fingerprint: Fingerprint, peer: T) {
        let mut peers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        peers.insert(fingerprint, peer);
    }

    /// Removes the peer, if `is_same` accepts it: another carrier may have taken its place.
    pub fn remove(&self, fingerprint: Fingerprint, is_same: impl FnOnce(&T) -> bool) {
        let mut peers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if peers.get(&fingerprint).is_some_and(is_same) {
            peers.remove(&fingerprint);
        }
    }

    pub fn find(&self, fingerprint: Fingerprint) -> Option<T> {
        let peers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&fingerprint).cloned()
    }
}

/// Accepts a certificate with an accepted fingerprint, if its owner has the key.
struct Pinned<F> {
    is_accepted: F,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<F> std::fmt::Debug for Pinned<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Pinned")
    }
}

impl<F: Fn(Fingerprint) -> bool> Pinned<F> {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match (self.is_accepted)(Fingerprint::of(certificate)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

/// Both configurations allow TLS 1.3 only.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("links use TLS 1.3".to_owned()))
}

impl<F: Fn(Fingerprint) -> bool + Send + Sync> ServerCertVerifier for Pinned<F> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl<F: Fn(Fingerprint) -> bool + Send + Sync> ClientCertVerifier for Pinned<F> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn pinned<F>(is_accepted: F) -> (Arc<CryptoProvider>, Arc<Pinned<F>>) {
    let provider = aws_lc_rs::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let pinned = Pinned {
        is_accepted,
        algorithms,
    };
    (Arc::new(provider), Arc::new(pinned))
}

/// The configuration of accepted connections: clients need the certificate of a peer.
pub(super) fn server_config<T: Clone + Send + Sync + 'static>(
    identity: &Identity,
    peers: Arc<Peers<T>>,
) -> Result<ServerConfig, Error> {
    let (provider, pinned) = pinned(move |fingerprint| peers.find(fingerprint).is_some());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13])?;
    let builder = builder.with_client_cert_verifier(pinned);
    let chain = vec![identity.certificate.clone()];
    let mut config = builder.with_single_cert(chain, identity.key.clone_key())?;
    // A resumed session would not compare the certificate again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The configuration of a dialed connection to the process with this fingerprint.
pub(super) fn client_config(identity: &Identity, peer: Fingerprint) -> Result<ClientConfig, Error> {
    let (provider, pinned) = pinned(move |fingerprint| fingerprint == peer);
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(pinned);
    let chain = vec![identity.certificate.clone()];
    let mut config = builder.with_client_auth_cert(chain, identity.key.clone_key())?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

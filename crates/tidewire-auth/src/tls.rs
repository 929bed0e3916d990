//! Authentication with client certificates: the certificate from the TLS handshake names the user.
//!
//! The handshake has verified the certificate against the authorities of `tls.client_ca` (`front/tls/certificate.rs`). This module
//! turns it into a principal. The credential is the serial number, which the authority has signed. A hash of the whole certificate
//! would not do: with ECDSA, the holder can make a second form of it with a valid signature, which would escape a revocation.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tidewire_config::section::{AuthTls, CertificateName};
use tidewire_core::hex::hex;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt, jwt, reason};

/// Code for a client that has presented no certificate.
pub const MISSING_CERTIFICATE: &str = "MISSING_CERTIFICATE";
/// Code for a certificate that names no user, or several. The log has the kind of name that the server expected.
pub const INVALID_CERTIFICATE: &str = "INVALID_CERTIFICATE";
/// Code for an expired certificate, as on a resumed connection.
pub const CERTIFICATE_EXPIRED: &str = "CERTIFICATE_EXPIRED";
/// Maximum digits of a serial number; RFC 5280, section 4.1.2.2, allows 20 bytes.
const SERIAL_DIGITS_MAX: usize = 40;

/// Authenticates with client certificates.
#[derive(Debug)]
pub struct Tls {
    options: AuthTls,
    is_alone: bool,
}

impl Tls {
    /// `is_alone`: whether it is the only member of the chain.
    #[must_use]
    pub fn new(options: &AuthTls, is_alone: bool) -> Self {
        Self {
            options: options.clone(),
            is_alone,
        }
    }

    fn check(&self, attempt: &LoginAttempt) -> AuthDecision {
        let Some(certificate) = &attempt.peer.certificate else {
            return match self.is_alone {
                true => declined(MISSING_CERTIFICATE),
                false => AuthDecision::Unknown,
            };
        };
        match principal(&certificate.0, self.options.user) {
            Ok(principal) if principal.is_expired(jwt::now()) => declined(CERTIFICATE_EXPIRED),
            Ok(principal) => AuthDecision::Accepted(principal),
            Err(reason) => {
                tracing::debug!(reason, "a client certificate was refused");
                attempt.explain(reason);
                declined(INVALID_CERTIFICATE)
            }
        }
    }
}

impl Authenticator for Tls {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(std::future::ready(self.check(attempt)))
    }
}

fn declined(code: &'static str) -> AuthDecision {
    AuthDecision::Declined {
        client_data: reason(code),
    }
}

/// The user that a certificate names, with the expiry of the certificate.
fn principal(der: &[u8], name: CertificateName) -> Result<Principal, &'static str> {
    let certificate = parse(der).ok_or("the certificate can't be read")?;
    let serial = serial_of(&certificate).ok_or("the serial number is too long")?;
    let user = only_name(&certificate, name)?;
    Ok(Principal::new(Name::from(user))
        .with_credential(Credential::Certificate(serial))
        .with_expiry(end_of(&certificate)))
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// The only name of this kind. If there were several, the user would depend on their order.
fn only_name<'a>(
    certificate: &'a X509Certificate<'_>,
    kind: CertificateName,
) -> Result<&'a str, &'static str> {
    let mut names: Vec<&str> = Vec::new();
    if kind == CertificateName::CommonName {
        for attribute in certificate.subject().iter_common_name() {
            names.push(
                attribute
                    .as_str()
                    .map_err(|_| "the common name is not text")?,
            );
        }
    } else {
        let alternative = certificate.subject_alternative_name();
        let alternative = alternative.map_err(|_| "the alternative names can't be read")?;
        let general = alternative
            .into_iter()
            .flat_map(|found| &found.value.general_names);
        names.extend(general.filter_map(|name| match (kind, name) {
            (CertificateName::Dns, GeneralName::DNSName(text))
            | (CertificateName::Email, GeneralName::RFC822Name(text))
            | (CertificateName::Uri, GeneralName::URI(text)) => Some(*text),
            _ => None,
        }));
    }
    match names[..] {
        [name] if !name.is_empty() && !name.contains(char::is_control) => Ok(name),
        [_] => Err("the name (auth.tls.user) is empty or has control characters"),
        [] => Err("the certificate has no name of the kind in auth.tls.user"),
        _ => Err("the certificate has several names of the kind in auth.tls.user"),
    }
}

/// A certificate is valid until the end of its last second (RFC 5280, section 4.1.2.5).
fn end_of(certificate: &X509Certificate<'_>) -> WallTime {
    let seconds = certificate.validity().not_after.timestamp();
    let seconds = u64::try_from(seconds).unwrap_or(0);
    WallTime(seconds.saturating_add(1).saturating_mul(1_000))
}

fn serial_of(certificate: &X509Certificate<'_>) -> Option<Name> {
    serial(&hex(certificate.raw_serial()))
}

/// A serial number in the form of credentials: hexadecimal, in lower case, without leading zeros. Accepts the output of common
/// tools, with or without colons.
#[must_use]
pub fn serial(text: &str) -> Option<Name> {
    let digits: String = text.chars().filter(|digit| *digit != ':').collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = digits.trim_start_matches('0').to_ascii_lowercase();
    let digits = if digits.is_empty() { "0" } else { &digits };
    (is_number && digits.len() <= SERIAL_DIGITS_MAX).then(|| Name::from(digits))
}

/// Parses what an operator revokes: a serial number, or a PEM certificate, which yields its serial number and its expiry.
#[must_use]
pub fn revoked(text: &str) -> Option<(Name, Option<WallTime>)> {
    if !text.contains("-----BEGIN") {
        return Some((serial(text.trim())?, None));
    }
    let der = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
    let certificate = parse(&der)?;
    Some((serial_of(&certificate)?, Some(end_of(&certificate))))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, SerialNumber};

    use super::*;

    /// A self-signed certificate with these common names and alternative names. These tests do not check the signature.
    fn certificate(common: &[&str], alternative: Vec<SanType>) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        for (index, name) in common.iter().enumerate() {
            // The library keeps one attribute of each kind; the second one has a custom kind with the same number.
            let kind = match index {
                0 => DnType::CommonName,
                _ => DnType::CustomDnType(vec![2, 5, 4, 3]),
            };
            subject.push(kind, *name);
        }
        params.distinguished_name = subject;
        params.subject_alt_names = alternative;
        params.serial_number = Some(SerialNumber::from(vec![0x00, 0x0a, 0xbc]));
        params.not_after = rcgen::date_time_ymd(2100, 1, 2);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate")
    }

    fn user(
        certificate: &rcgen::Certificate,
        kind: CertificateName,
    ) -> Result<String, &'static str> {
        let principal = principal(certificate.der(), kind)?;
        Ok(principal.user_id.as_str().to_owned())
    }

    fn text(text: &str) -> rcgen::string::Ia5String {
        text.try_into().expect("ascii")
    }

    #[test]
    fn the_only_name_of_the_kind_is_the_user() {
        let alternative = vec![
            SanType::DnsName(text("sensor-7.example")),
            SanType::Rfc822Name(text("anna@example.com")),
            SanType::URI(text("spiffe://example/sensor")),
        ];
        let made = certificate(&["anna"], alternative);
        for (kind, name) in [
            (CertificateName::CommonName, "anna"),
            (CertificateName::Dns, "sensor-7.example"),
            (CertificateName::Email, "anna@example.com"),
            (CertificateName::Uri, "spiffe://example/sensor"),
        ] {
            assert_eq!(user(&made, kind).as_deref(), Ok(name), "{kind:?}");
        }
        let principal = principal(made.der(), CertificateName::CommonName).expect("a user");
        let serial = Credential::Certificate(Name::from("abc"));
        assert_eq!(principal.credential(), Some(&serial));
        // 2100-01-02T00:00:00Z, to the end of that second.
        assert_eq!(principal.expires_at(), Some(WallTime(4_102_531_201_000)));
    }

    /// The holder of a certificate signed with ECDSA can derive a second valid signature from its own.
    #[test]
    fn another_signature_does_not_change_the_identity() {
        let made = certificate(&["anna"], vec![]);
        let mut changed = made.der().to_vec();
        *changed.last_mut().expect("bytes") ^= 1;
        let kind = CertificateName::CommonName;
        let principals =
            [made.der(), &changed[..]].map(|der| principal(der, kind).expect("a user"));
        assert_eq!(principals[0], principals[1]);
    }

    #[test]
    fn none_and_several_are_refused() {
        let two = || {
            let name = |name| SanType::DnsName(text(name));
            vec![name("a.example"), name("b.example")]
        };
        let common = CertificateName::CommonName;
        assert!(user(&certificate(&["anna", "bert"], vec![]), common).is_err());
        assert!(user(&certificate(&[], two()), common).is_err());
        assert!(user(&certificate(&[""], vec![]), common).is_err());
        assert!(user(&certificate(&["an\0na"], vec![]), common).is_err());
        assert!(user(&certificate(&["anna"], two()), CertificateName::Dns).is_err());
        assert!(user(&certificate(&["anna"], two()), CertificateName::Email).is_err());
        assert!(user(&certificate(&["anna"], vec![]), CertificateName::Uri).is_err());
    }

    #[test]
    fn no_bytes_end_the_process() {
        let made = certificate(&["anna"], vec![SanType::DnsName(text("a.example"))]);
        let der = made.der();
        for index in 0..der.len() {
            let _ = principal(&der[..index], CertificateName::Dns);
            for bit in 0..8 {
                let mut changed = der.to_vec();
                changed[index] ^= 1 << bit;
                let _ = principal(&changed, CertificateName::Dns);
                let _ = principal(&changed, CertificateName::CommonName);
            }
        }
        let longer = [der.as_ref(), &[0]].concat();
        assert!(principal(&longer, CertificateName::CommonName).is_err());
    }

    #[test]
    fn a_serial_number_has_one_form() {
        let check = |text: &str, expected: Option<&str>| {
            let found = revoked(text).map(|(serial, _)| serial);
            assert_eq!(found.as_ref().map(Name::as_str), expected, "{text:?}");
        };
        check("0ABC", Some("abc"));
        check("00:0a:bc", Some("abc"));
        check(" abc\n", Some("abc"));
        check("00", Some("0"));
        check(&"f".repeat(40), Some("f".repeat(40).as_str()));
        check(&"f".repeat(41), None);
        check("", None);
        check(":", None);
        check("serial=0ABC", None);
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            None,
        );
        let made = certificate(&["anna"], vec![]);
        check(&made.pem(), Some("abc"));
        let (_, end) = revoked(&made.pem()).expect("a certificate");
        assert_eq!(end, Some(WallTime(4_102_531_201_000)));
    }
}

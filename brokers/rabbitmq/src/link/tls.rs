//! TLS for AMQP and the management interface: trusted CAs, the client certificate, and causes of failed handshakes.
//!
//! The AMQP client would trust the system's CAs in addition to those in `ca`. So it receives a complete configuration,
//! and `ca` replaces the system's CAs.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig, RootCertStore};

use crate::config::Options;

/// Builds the TLS configuration. It reads the files for every connection, so a renewed certificate is used at once.
pub(crate) fn client(options: &Options) -> Result<Arc<ClientConfig>> {
    let failed = |error: rustls::Error| Error::new(ErrorKind::Internal, "TLS cannot be set up").with_source(error);
    // Explicit, because a process with several crypto providers has no default.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(trusted(options.ca.as_deref())?);
    let Some((certificate, key)) = &options.certificate else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let unusable = |error: Box<dyn StdError + Send + Sync>| {
        Error::invalid(format!("the key in {} cannot be used", key.display())).with_source(error)
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(error.into()))?;
    let config = builder.with_client_auth_cert(certificates(certificate)?, private);
    Ok(Arc::new(config.map_err(|error| unusable(error.into()))?))
}

fn trusted(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut trusted = RootCertStore::empty();
    match ca {
        Some(file) => {
            for certificate in certificates(file)? {
                trusted.add(certificate).map_err(|error| unusable(file, error.into()))?;
            }
        }
        None => {
            // Some system certificates are too old to be parsed; they are skipped.
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(trusted)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found.map_err(|error| unusable(file, error.into()))? {
        none if none.is_empty() => Err(unusable(file, "the file contains none".into())),
        found => Ok(found),
    }
}

fn unusable(file: &Path, error: Box<dyn StdError + Send + Sync>) -> Error {
    Error::invalid(format!("the certificates in {} cannot be used", file.display())).with_source(error)
}

/// Explains a TLS connection without a client certificate that the server closed early.
/// The server checks for the certificate after the client has finished the handshake, and its alert is often lost. It
/// closes the socket while the client writes, and the failed write is reported before the alert is read.
pub(crate) fn closed_early(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let closed = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    let mut causes = std::iter::successors(Some(error), |error| (**error).source());
    let found = causes.find_map(|error| error.downcast_ref::<io::Error>())?;
    closed
        .contains(&found.kind())
        .then_some("closed the connection; it may require a client certificate (set certificate= and key=)")
}

/// Explains a failed TLS handshake. Returns `None` if something else failed.
pub(crate) fn handshake_failure(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        // `source` of an I/O error skips the error that it wraps.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(found) = inner.or_else(|| error.downcast_ref()) {
            return Some(explain(found));
        }
        next = error.source();
    }
    None
}

fn explain(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "is not trusted: no trusted CA signed its certificate (set ca= to trust another)"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "is not trusted: its certificate is for another host name than the URL's",
        rustls::Error::InvalidCertificate(_) => "is not trusted: its certificate is not valid",
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "requires a client certificate (set certificate= and key=)"
        }
        rustls::Error::AlertReceived(_) => "aborted the TLS handshake",
        rustls::Error::InvalidMessage(_) => "does not speak TLS",
        _ => "failed the TLS handshake",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_handshake_is_found_in_the_error_chain() {
        let inner = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = lapin::Error::from(io::Error::new(io::ErrorKind::InvalidData, inner));
        assert!(handshake_failure(&error).unwrap().contains("no trusted CA signed"));
        assert_eq!(handshake_failure(&lapin::Error::from(io::Error::other("no route"))), None);
    }

    #[test]
    fn early_close_suggests_a_client_certificate() {
        let closed = |kind: io::ErrorKind| closed_early(&lapin::Error::from(io::Error::from(kind))).is_some();
        assert!(closed(io::ErrorKind::ConnectionReset) && closed(io::ErrorKind::BrokenPipe));
        assert!(!closed(io::ErrorKind::ConnectionRefused), "no server was listening");
    }

    #[test]
    fn empty_certificate_file_is_refused() {
        let ca = Some("/dev/null".into());
        let error = client(&Options { ca, ..Options::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), "the certificates in /dev/null cannot be used: the file contains none");
    }
}

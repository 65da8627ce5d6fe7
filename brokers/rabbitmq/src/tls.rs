//! TLS, for AMQP and for the management interface alike: who is believed, who we are, and what a failed handshake means.
//!
//! The client library would trust the authorities of the system besides those that `ca` names. So it is handed a
//! finished configuration, and `ca` means these and nobody else.

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

/// The files are read for every connection, so that a certificate that was renewed is used with the next.
pub(crate) fn client(options: &Options) -> Result<Arc<ClientConfig>> {
    let impossible = |error: rustls::Error| Error::new(ErrorKind::Internal, "TLS cannot be set up").with_source(error);
    // The provider is named because a process may hold several and must then choose.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(impossible)?
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
            // Some of a system's are always too old to be understood.
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(trusted)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found.map_err(|error| unusable(file, error.into()))? {
        none if none.is_empty() => Err(unusable(file, "there are none".into())),
        found => Ok(found),
    }
}

fn unusable(file: &Path, error: Box<dyn StdError + Send + Sync>) -> Error {
    Error::invalid(format!("the certificates in {} cannot be used", file.display())).with_source(error)
}

/// What a connection that was ended before it could be used means where TLS is spoken and no certificate shown. The
/// server looks for one when its part of the handshake is over for us, and what it says then is often lost: it hangs up
/// on the words that are already on their way, and a write that fails is heard of before the alert is read.
pub(crate) fn hung_up(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let hung_up = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    let mut causes = std::iter::successors(Some(error), |error| (**error).source());
    let found = causes.find_map(|error| error.downcast_ref::<io::Error>())?;
    hung_up
        .contains(&found.kind())
        .then_some("hung up: perhaps it asks for a certificate (certificate= and key= name one)")
}

/// What a failed handshake means to whoever has to mend it; `None` if it was something else that failed.
pub(crate) fn complaint(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        // What an I/O error was made of is not among its causes.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(found) = inner.or_else(|| error.downcast_ref()) {
            return Some(meaning(found));
        }
        next = error.source();
    }
    None
}

fn meaning(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "is not believed: nobody who is trusted here vouches for its certificate (ca= says who is trusted)"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "is not believed: its certificate is for another name than the URL has",
        rustls::Error::InvalidCertificate(_) => "is not believed: its certificate is not valid",
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "asks for a certificate (certificate= and key= name one)"
        }
        rustls::Error::AlertReceived(_) => "ended the handshake: it does not like something about this side",
        rustls::Error::InvalidMessage(_) => "does not speak TLS",
        _ => "could not agree with this side on how to speak TLS",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_that_failed_is_found_among_the_causes() {
        let inner = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = lapin::Error::from(io::Error::new(io::ErrorKind::InvalidData, inner));
        assert!(complaint(&error).unwrap().contains("nobody who is trusted here vouches"));
        assert_eq!(complaint(&lapin::Error::from(io::Error::other("no route"))), None);
    }

    #[test]
    fn a_server_that_hangs_up_may_have_asked_for_a_certificate() {
        let hung_up = |kind: io::ErrorKind| hung_up(&lapin::Error::from(io::Error::from(kind))).is_some();
        assert!(hung_up(io::ErrorKind::ConnectionReset) && hung_up(io::ErrorKind::BrokenPipe));
        assert!(!hung_up(io::ErrorKind::ConnectionRefused), "nobody was there");
    }

    #[test]
    fn files_that_hold_no_certificate_are_a_sentence() {
        let ca = Some("/dev/null".into());
        let error = client(&Options { ca, ..Options::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), "the certificates in /dev/null cannot be used: there are none");
    }
}

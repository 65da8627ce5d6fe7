//! Trusted certificate authorities for https receivers: the public ones, and those in `push.ca_file`.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// Creates the TLS connector; an empty `ca_file` adds no authorities. Offers `protocols` (ALPN), and none without any.
pub(super) fn connector(ca_file: &str, protocols: &[&[u8]]) -> Result<TlsConnector> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if !ca_file.is_empty() {
        add(&mut roots, ca_file).map_err(|error| {
            Error::usage(format!("push.ca_file: cannot use the certificates in {ca_file:?}: {error}"))
        })?;
    }
    // With several providers linked into one process, rustls needs an explicit choice.
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::failed(format!("cannot configure TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add(roots: &mut RootCertStore, file: &str) -> std::result::Result<(), String> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("the file contains no certificate".into());
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(())
}

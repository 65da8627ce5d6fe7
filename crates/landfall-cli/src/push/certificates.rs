//! Whom an https receiver is believed to be: the usual authorities, and those of `push.ca_file`.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// `ca_file` is empty for none.
pub(super) fn connector(ca_file: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if !ca_file.is_empty() {
        add(&mut roots, ca_file).map_err(|error| {
            Error::wrong_use(format!("push.ca_file: the certificates in {ca_file:?} cannot be used: {error}"))
        })?;
    }
    // The provider is named because a process may hold several and must then choose.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::not_so(format!("https cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add(roots: &mut RootCertStore, file: &str) -> std::result::Result<(), String> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("there are none".into());
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(())
}

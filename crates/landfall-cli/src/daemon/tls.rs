//! TLS of the listener: the certificate and the key of `[http]`, read again when their files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Http;
use crate::error::{Error, Result};

/// The files are checked at most this often, when a connection arrives.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The certificate of the listener, for as many connections as arrive.
pub(super) struct Tls {
    certificate: String,
    key: String,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The files as they were when they were last read, with or without success.
    stamps: Stamps,
    checked: Instant,
}

/// Identifies the content of both files; `None` if one cannot be read.
type Stamps = Option<[(u64, u64, SystemTime); 2]>;

impl Tls {
    /// Loads the files of `[http]`; `None` if it names none. Refuses (usage) files that cannot be used.
    pub(super) fn load(http: &Http) -> Result<Option<Arc<Self>>> {
        let (certificate, key) = (http.certificate_file.clone(), http.key_file.clone());
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) => return Ok(None),
            (false, true) => return Err(Error::usage("http.certificate_file is set, but http.key_file is not")),
            (true, false) => return Err(Error::usage("http.key_file is set, but http.certificate_file is not")),
            (false, false) => {}
        }
        let stamps = stamps(&certificate, &key);
        let acceptor = acceptor(&certificate, &key).map_err(Error::usage)?;
        let current = Mutex::new(Current { acceptor, stamps, checked: Instant::now() });
        Ok(Some(Arc::new(Self { certificate, key, current })))
    }

    /// Returns the acceptor for a new connection, with the current content of the files. If they changed and cannot be
    /// used, warns once and keeps the previous certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK_EVERY {
            current.checked = Instant::now();
            let stamps = stamps(&self.certificate, &self.key);
            if stamps != current.stamps {
                current.stamps = stamps;
                match acceptor(&self.certificate, &self.key) {
                    Ok(acceptor) => {
                        current.acceptor = acceptor;
                        tracing::info!(certificate = self.certificate, "certificate of the listener reloaded");
                    }
                    Err(error) => tracing::warn!(error, "new certificate unusable, keeping the previous one"),
                }
            }
        }
        current.acceptor.clone()
    }
}

fn stamps(certificate: &str, key: &str) -> Stamps {
    let stamp = |file: &str| {
        let metadata = fs::metadata(file).ok()?;
        Some((metadata.ino(), metadata.len(), metadata.modified().ok()?))
    };
    Some([stamp(certificate)?, stamp(key)?])
}

fn acceptor(certificate: &str, key: &str) -> std::result::Result<TlsAcceptor, String> {
    let unusable = |setting: &str, file: &str, why: &str| format!("{setting}: cannot use {file:?}: {why}");
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unusable("http.certificate_file", certificate, &error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable("http.certificate_file", certificate, "the file contains no certificate"));
    }
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("http.key_file", key, &error.to_string()))?;
    // With several providers linked into one process, rustls needs an explicit choice.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot configure TLS: {error}"))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| {
            format!("http.key_file: {key:?} and the certificate in {certificate:?} cannot be used together: {error}")
        })?;
    if cfg!(feature = "grpc") {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(TlsAcceptor::from(Arc::new(config)))
}

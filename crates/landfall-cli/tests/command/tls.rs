//! HTTPS of the listener.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use landfall_testkit::servers::Certificates;
use landfall_testkit::{current_test, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::support::{Sandbox, TIMEOUT};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";

/// Returns the response to a request over TLS, from a client that trusts `authority`.
async fn get(address: SocketAddr, authority: &Path) -> std::io::Result<String> {
    exchange(address, authority, REQUEST).await
}

pub(crate) async fn exchange(address: SocketAddr, authority: &Path, request: &[u8]) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(request).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

/// Replaces the daemon's files, as a tool that renews certificates does.
pub(crate) fn install(folder: &Path, certificates: &Certificates) {
    let (from_certificate, from_key) = certificates.server();
    std::fs::copy(from_key, folder.join("new.key")).unwrap();
    std::fs::copy(from_certificate, folder.join("new.pem")).unwrap();
    std::fs::rename(folder.join("new.key"), folder.join("tls.key")).unwrap();
    std::fs::rename(folder.join("new.pem"), folder.join("tls.pem")).unwrap();
}

fn configure(sandbox: &Sandbox, certificate: &str, key: &str) {
    let file = |name: &str| match name {
        "" => String::new(),
        name => sandbox.path().join(name).display().to_string(),
    };
    sandbox.configure(&format!("[http]\ncertificate_file = {:?}\nkey_file = {:?}\n", file(certificate), file(key)));
}

#[tokio::test]
async fn listener_speaks_https_and_reloads_its_certificate() {
    let Some(first) = Certificates::make(&current_test()).await else { return };
    let Some(second) = Certificates::make(&current_test()).await else { return };
    let sandbox = Sandbox::new();
    install(sandbox.path(), &first);
    configure(&sandbox, "tls.pem", "tls.key");
    let daemon = sandbox.serve().await;
    assert!(daemon.stderr().contains("ready on https://"), "{}", daemon.stderr());
    let response = get(daemon.address, &first.authority()).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let error = get(daemon.address, &second.authority()).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let mut plain = TcpStream::connect(daemon.address).await.unwrap();
    plain.write_all(REQUEST).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "plain HTTP was answered: {answer:?}");

    install(sandbox.path(), &second);
    let renewed = async || get(daemon.address, &second.authority()).await.is_ok();
    eventually(TIMEOUT, "the new certificate", renewed).await;

    std::fs::write(sandbox.path().join("tls.pem"), "no certificate").unwrap();
    let warning = "new certificate unusable, keeping the previous one";
    eventually(TIMEOUT, "the warning", async || {
        assert!(get(daemon.address, &second.authority()).await.is_ok(), "the previous certificate stays");
        daemon.stderr().contains(warning)
    })
    .await;
    assert_eq!(daemon.stderr().matches(warning).count(), 1, "{}", daemon.stderr());
}

#[tokio::test]
async fn unusable_certificate_is_refused_at_start() {
    let Some(first) = Certificates::make(&current_test()).await else { return };
    let Some(second) = Certificates::make(&current_test()).await else { return };
    let sandbox = Sandbox::new();
    install(sandbox.path(), &first);
    std::fs::copy(second.server().1, sandbox.path().join("other.key")).unwrap();
    std::fs::write(sandbox.path().join("empty.pem"), "").unwrap();
    for (certificate, key, text) in [
        ("tls.pem", "", "http.certificate_file is set, but http.key_file is not"),
        ("", "tls.key", "http.key_file is set, but http.certificate_file is not"),
        ("nowhere.pem", "tls.key", "http.certificate_file: cannot use"),
        ("empty.pem", "tls.key", "the file contains no certificate"),
        ("tls.pem", "empty.pem", "http.key_file: cannot use"),
        ("tls.pem", "other.key", "cannot be used together"),
    ] {
        configure(&sandbox, certificate, key);
        let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert!(refused.error_line(2).contains(text), "{text}: {refused:?}");
    }
}

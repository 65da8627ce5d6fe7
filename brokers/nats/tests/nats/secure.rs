//! TLS: the client verifies the server's certificate.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use landfall_core::{Broker, Outcome};
use landfall_nats::{Nats, Options};
use landfall_testkit::traffic::keyed;
use landfall_testkit::{current_test, eventually, not_run};

use crate::support::{SOON, connect, own};

/// Creates a CA and a certificate for this machine signed by it.
const SCRIPT: &str = "
    set -e
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
    printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\n' >server.ext
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext \\
        -out server.pem
    chmod 644 *.pem *.key
";

async fn create_certificates(folder: &Path) -> bool {
    let output = tokio::process::Command::new("sh").arg("-c").arg(SCRIPT).current_dir(folder).output().await.unwrap();
    output.status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_verifies_the_server_certificate() {
    let Some(server) = own().await else { return };
    let folder = server.folder();
    if !create_certificates(folder).await {
        return not_run(&current_test(), "openssl is not installed");
    }
    let readable = std::fs::metadata(folder.join("server.key")).unwrap().permissions().mode();
    assert_eq!(readable & 0o044, 0o044, "the server runs under another account and must read the key");
    server.reconfigure("tls { cert_file: \"server.pem\", key_file: \"server.key\" }").await.unwrap();

    let ca = folder.join("ca.pem");
    let secure = format!("natss://{}?ca={}", server.address(), ca.display());
    eventually(SOON, "the server accepts TLS", async || {
        Nats::connect(Options::from_url(&secure).unwrap()).await.is_ok()
    })
    .await;
    let broker = connect(&secure).await;
    let outcomes = broker.publisher().publish(&[keyed("a", 1), keyed("a", 2)]).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
    // Without the CA the server's certificate is not trusted.
    let unknown = Options::from_url(&format!("natss://{}?timeout=2s", server.address())).unwrap();
    assert!(Nats::connect(unknown).await.is_err());
}

//! HTTP/2 connections are bounded like those of HTTP/1, with and without TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Version};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_testkit::current_test;
use landfall_testkit::servers::Certificates;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::calls::{half, prepare};
use crate::support::{Sandbox, TIMEOUT};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A HEADERS frame of one byte on stream 1, after which more header frames follow: it ends neither them nor the stream.
const UNFINISHED_HEADERS: &[u8] = &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
/// A CONTINUATION frame of one byte on stream 1, which does not end the headers.
const CONTINUATION: &[u8] = &[0, 0, 1, 9, 0, 0, 0, 0, 1, 0x86];

/// Sends `start` and then `drip` over and over, and waits until the daemon closes the connection.
async fn assert_cut_off(address: SocketAddr, start: &[u8], drip: &[u8]) {
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    writer.write_all(start).await.unwrap();
    let dripping = async {
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        while !drip.is_empty() && writer.write_all(drip).await.is_ok() {
            interval.tick().await;
        }
        std::future::pending::<()>().await
    };
    let read = async { reader.read_to_end(&mut Vec::new()).await };
    let ended = async { tokio::select!(() = dripping => (), _ = read => ()) };
    let closed = tokio::time::timeout(TIMEOUT, ended).await;
    assert!(closed.is_ok(), "not closed after {start:?} and {drip:?}");
}

#[tokio::test]
async fn idle_and_unfinished_http2_connections_are_cut_off() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 300\n");
    let daemon = sandbox.serve().await;
    let opened = [PREFACE, SETTINGS].concat();
    let unfinished = [PREFACE, SETTINGS, UNFINISHED_HEADERS].concat();
    for (start, drip) in [
        (&PREFACE[..5], &b""[..]),
        (PREFACE, b""),
        (&opened, b""),
        // An acknowledged PING does not keep it open, nor do headers that never end.
        (&opened, &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (&unfinished, CONTINUATION),
    ] {
        assert_cut_off(daemon.address, start, drip).await;
    }
    prepare(&daemon, half(1)).await.unwrap();
    assert_eq!(daemon.get("/readyz").await.status, 200);
}

/// A call whose message drips in for too long is refused, and a connection with a running call is not idle.
#[tokio::test]
async fn call_that_never_ends_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 400\n");
    let daemon = sandbox.serve().await;
    let stream = TcpStream::connect(daemon.address).await.unwrap();
    let endless = futures_util::stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, std::io::Error>(hyper::body::Frame::data("x".into())), ()))
    });
    let body = Body::new(http_body_util::StreamBody::new(Box::pin(endless)));
    let request = Request::post(format!("http://{}/landfall.v1.HalfMessages/Prepare", daemon.address))
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let response = tokio::time::timeout(TIMEOUT, send(stream, request)).await.unwrap().unwrap();
    let status = response.headers().get("grpc-status").unwrap();
    // DEADLINE_EXCEEDED
    assert_eq!((status.to_str().unwrap(), response.status().as_u16()), ("4", 200));
}

async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Body>,
) -> hyper::Result<axum::http::Response<hyper::body::Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

#[tokio::test]
async fn http2_is_negotiated_over_tls_and_http1_still_works() {
    let Some(certificates) = Certificates::make(&current_test()).await else { return };
    let sandbox = Sandbox::new();
    let (certificate, key) = certificates.server();
    sandbox.configure(&format!("[http]\ncertificate_file = {certificate:?}\nkey_file = {key:?}\n"));
    let daemon = sandbox.serve().await;
    for (offered, negotiated) in [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificates.authority()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(daemon.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), negotiated.map(str::as_bytes));
        if negotiated == Some("h2") {
            let request = Request::get(format!("https://{}/healthz", daemon.address)).body(Body::empty()).unwrap();
            let response = send(stream, request).await.unwrap();
            assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
            assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
        } else {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        }
    }
}

/// A prepare in flight is answered before the daemon exits, and an idle connection does not delay the exit.
#[tokio::test]
async fn shutdown_closes_http2_connections() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 60000\nstop_timeout_ms = 60000\n");
    let daemon = sandbox.serve().await;
    let mut idle = TcpStream::connect(daemon.address).await.unwrap();
    idle.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    // The daemon's own SETTINGS: it has taken the connection.
    idle.read_exact(&mut [0; 9]).await.unwrap();
    prepare(&daemon, half(1)).await.unwrap();
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    idle.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(daemon.exit_code().await, Some(0));
}

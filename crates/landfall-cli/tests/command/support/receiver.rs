//! The receiver of a subscription: an HTTP server in the test's process with scripted responses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

/// Stops when dropped, together with its connections.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Received>>>,
    _tasks: tokio::task::JoinSet<()>,
}

#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Returns the bytes of the response to the request with this number (from 0); `None` never responds, and without bytes
/// the connection is closed.
type Script = dyn Fn(usize, &Received) -> Option<Vec<u8>> + Send + Sync;

/// A response with this status and these header lines.
pub(crate) fn response(status: u16, headers: &str, body: &str) -> Option<Vec<u8>> {
    let length = body.len();
    Some(format!("HTTP/1.1 {status} Because\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes())
}

impl Receiver {
    /// Responds to every request with 200.
    pub(crate) async fn accepting() -> Self {
        Self::start(|_, _| response(200, "", "thanks")).await
    }

    pub(crate) async fn start(script: impl Fn(usize, &Received) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::listen("127.0.0.1:0", script, None).await
    }

    /// Like [`Receiver::accepting`], on a socket that is already bound.
    pub(crate) fn at(address: TcpSocket) -> Self {
        Self::behind(address.listen(1024).unwrap(), |_, _| response(200, "", ""), None)
    }

    /// Responds to every request with 503, on a socket that is already bound.
    pub(crate) fn refusing(address: TcpSocket) -> Self {
        Self::behind(address.listen(1024).unwrap(), |_, _| response(503, "", "not ready"), None)
    }

    /// Accepts requests over TLS, with a certificate for `localhost`.
    pub(crate) async fn secure() -> Self {
        Self::listen("127.0.0.1:0", |_, _| response(200, "", ""), Some(tls_for_localhost(&[]))).await
    }

    async fn listen(
        address: &str,
        script: impl Fn(usize, &Received) -> Option<Vec<u8>> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        Self::behind(TcpListener::bind(address).await.unwrap(), script, tls)
    }

    fn behind(
        listener: TcpListener,
        script: impl Fn(usize, &Received) -> Option<Vec<u8>> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let (address, script): (_, Arc<Script>) = (listener.local_addr().unwrap(), Arc::new(script));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let seen = requests.clone();
        tasks.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, seen, tls) = (script.clone(), seen.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => converse(stream, &*script, &seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, &*script, &seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests, _tasks: tasks }
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.body).collect()
    }

    /// Returns the configuration of a subscription to `orders` with this receiver, additional `lines`, a short backoff,
    /// and private addresses allowed.
    pub(crate) fn subscription(&self, lines: &str) -> String {
        subscription_to(self.address, lines)
    }
}

/// Like [`Receiver::subscription`], for an address without a receiver yet.
pub(crate) fn subscription_to(address: SocketAddr, lines: &str) -> String {
    format!(
        "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"http://{address}/in?x=1\"\n\
         backoff_first_ms = 10\nbackoff_cap_ms = 100\n{lines}\n[push]\nallow_private_addresses = true\n"
    )
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, script: &Script, seen: &Mutex<Vec<Received>>) {
    let mut stream = BufStream::new(stream);
    while let Some(request) = read(&mut stream).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let Some(response) = script(number, &request) else { return std::future::pending().await };
        let is_written = stream.write_all(&response).await.is_ok() && stream.flush().await.is_ok();
        if !is_written || response.is_empty() {
            return;
        }
    }
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Received> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    headers.insert("request-line".to_owned(), line.trim_end().to_owned());
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { headers, body: String::from_utf8(body).ok()? })
}

/// Returns TLS with a certificate for `localhost` and these protocols (ALPN).
pub(super) fn tls_for_localhost(protocols: &[&[u8]]) -> TlsAcceptor {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/fixtures/tls");
    let chain = CertificateDer::from_pem_file(format!("{folder}/receiver.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{folder}/receiver.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

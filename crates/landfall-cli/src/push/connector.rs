//! Connects to the host of a URL. Resolves the name once, checks each address, and connects only to checked addresses.
//! A name server that returns another address the next time (DNS rebinding) therefore gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use super::address::{Rules, host};
use super::certificates;
use crate::config::Push;
use crate::error::Result;

#[derive(Clone)]
pub(crate) struct Connector {
    rules: Arc<Rules>,
    tls: TlsConnector,
}

/// Why no connection was made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The rules of `[push]` forbid the address.
    Refused(String),
    /// Resolution or the connection failed.
    Failed(io::Error),
    /// The TLS handshake failed: an untrusted certificate or no common protocol version. Needs an operator.
    Untrusted(io::Error),
}

impl Connector {
    pub(crate) fn new(push: &Push) -> Result<Self> {
        Self::with_protocols(push, &[])
    }

    /// For a client that speaks HTTP/2 only.
    #[cfg(feature = "grpc")]
    pub(crate) fn http2(push: &Push) -> Result<Self> {
        Self::with_protocols(push, &[b"h2"])
    }

    fn with_protocols(push: &Push, protocols: &[&[u8]]) -> Result<Self> {
        let tls = certificates::connector(&push.ca_file, protocols)?;
        Ok(Self { rules: Arc::new(push.rules.clone()), tls })
    }

    pub(super) async fn connect(self, url: Uri) -> std::result::Result<HttpStream, ConnectError> {
        let host = host(&url);
        let secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let addresses = allowed_addresses(&self.rules, &host, port).await?;
        let stream = connect_first(&addresses).await.map_err(ConnectError::Failed)?;
        // Nagle's algorithm would delay small requests.
        stream.set_nodelay(true).map_err(ConnectError::Failed)?;
        if !secure {
            return Ok(HttpStream::new(stream));
        }
        let name = ServerName::try_from(host).map_err(|error| ConnectError::Failed(io::Error::other(error)))?;
        Ok(HttpStream::new(self.tls.connect(name, stream).await.map_err(classify_handshake_error)?))
    }
}

/// Rustls reports its own handshake errors as invalid data; other kinds come from the connection.
fn classify_handshake_error(error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::InvalidData => ConnectError::Untrusted(error),
        _ => ConnectError::Failed(error),
    }
}

/// Resolves `host` and returns its allowed addresses, at least one.
async fn allowed_addresses(rules: &Rules, host: &str, port: u16) -> std::result::Result<Vec<SocketAddr>, ConnectError> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await.map_err(ConnectError::Failed)?.collect(),
    };
    let allowed: Vec<_> = found.iter().copied().filter(|address| rules.allow(host, address.ip())).collect();
    match (allowed.is_empty(), found.first()) {
        (false, _) => Ok(allowed),
        (true, Some(address)) => Err(ConnectError::Refused(rules.refusal(host, address.ip()))),
        (true, None) => Err(ConnectError::Failed(io::Error::new(io::ErrorKind::NotFound, "the host has no address"))),
    }
}

/// Connects to the first address that accepts.
async fn connect_first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, std::result::Result<HttpStream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        Box::pin(self.clone().connect(url))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.write_str(text),
            Self::Failed(error) | Self::Untrusted(error) => write!(f, "cannot connect: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection with or without TLS.
pub(crate) struct HttpStream(TokioIo<Box<dyn Stream>>);

impl HttpStream {
    fn new(stream: impl Stream + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last line of defence, with the resolver of this machine: the start-up check refuses most of these.
    #[tokio::test]
    async fn host_that_resolves_to_this_machine_is_refused() {
        let hosts = ["localhost", "LOCALHOST", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "::1%lo"];
        for host in hosts {
            let resolved = allowed_addresses(&Rules::default(), host, 80).await;
            assert!(
                matches!(resolved, Err(ConnectError::Refused(_) | ConnectError::Failed(_))),
                "{host}: {resolved:?}"
            );
        }
        let resolved = allowed_addresses(&Rules::default(), "localhost", 80).await;
        assert!(matches!(resolved, Err(ConnectError::Refused(_))), "{resolved:?}");
    }
}

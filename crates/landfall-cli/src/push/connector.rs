//! Connects to a URL's host: its name is looked up once, the addresses are judged, and only those that were judged are
//! connected to. A name server that answers otherwise the next time changes nothing.

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

use super::address::{Rules, host, refusal};
use super::certificates;
use crate::config::Push;
use crate::error::Result;

#[derive(Clone)]
pub(super) struct Connector {
    rules: Arc<Rules>,
    tls: TlsConnector,
}

/// Why nothing was connected to.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// It must not be.
    Refused(String),
    /// Nobody answers.
    Failed(io::Error),
    /// Somebody answers who is not believed, or with whom there is no common language: a person has to see to it.
    Unbelieved(io::Error),
}

impl Connector {
    pub(super) fn new(push: &Push) -> Result<Self> {
        Ok(Self { rules: Arc::new(push.rules.clone()), tls: certificates::connector(&push.ca_file)? })
    }

    async fn connect(self, url: Uri) -> std::result::Result<Wire, ConnectError> {
        let host = host(&url);
        let secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = open(&judged(&self.rules, &host, port).await?).await.map_err(ConnectError::Failed)?;
        // Small requests must not wait for each other's acknowledgements.
        stream.set_nodelay(true).map_err(ConnectError::Failed)?;
        if !secure {
            return Ok(Wire::new(stream));
        }
        let name = ServerName::try_from(host).map_err(|error| ConnectError::Failed(io::Error::other(error)))?;
        Ok(Wire::new(self.tls.connect(name, stream).await.map_err(judge_handshake)?))
    }
}

/// What the handshake itself found wrong is told as invalid data; the rest is the connection's.
fn judge_handshake(error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::InvalidData => ConnectError::Unbelieved(error),
        _ => ConnectError::Failed(error),
    }
}

/// The addresses of `host` that may be connected to, of which there is at least one.
async fn judged(rules: &Rules, host: &str, port: u16) -> std::result::Result<Vec<SocketAddr>, ConnectError> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await.map_err(ConnectError::Failed)?.collect(),
    };
    let allowed: Vec<_> = found.iter().copied().filter(|place| rules.allow(host, place.ip())).collect();
    match (allowed.is_empty(), found.first()) {
        (false, _) => Ok(allowed),
        (true, Some(place)) => Err(ConnectError::Refused(refusal(host, place.ip()))),
        (true, None) => Err(ConnectError::Failed(io::Error::new(io::ErrorKind::NotFound, "the host has no address"))),
    }
}

/// The first that answers.
async fn open(places: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match TcpStream::connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Service<Uri> for Connector {
    type Response = Wire;
    type Error = ConnectError;
    type Future = BoxFuture<'static, std::result::Result<Wire, ConnectError>>;

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
            Self::Refused(sentence) => f.write_str(sentence),
            Self::Failed(error) | Self::Unbelieved(error) => write!(f, "cannot connect: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection, encrypted or not.
pub(super) struct Wire(TokioIo<Box<dyn Stream>>);

impl Wire {
    fn new(stream: impl Stream + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Wire {
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

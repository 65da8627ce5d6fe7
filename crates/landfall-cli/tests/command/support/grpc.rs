//! A gRPC client and a gRPC server in the test's process, without a transport of their own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::server::conn::http2;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use landfall_grpc::half_messages_client::HalfMessagesClient;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::receiver::tls_for_localhost;

pub(crate) type Http2 = Client<HttpConnector, tonic::body::Body>;

/// A client that speaks HTTP/2 without TLS.
pub(crate) fn http2() -> Http2 {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

pub(crate) fn origin(address: SocketAddr) -> axum::http::Uri {
    format!("http://{address}").parse().unwrap()
}

pub(crate) fn half_messages(address: SocketAddr) -> HalfMessagesClient<Http2> {
    HalfMessagesClient::with_origin(http2(), origin(address))
}

/// A gRPC server. Stops when dropped.
pub(crate) struct GrpcServer {
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    _tasks: JoinSet<()>,
}

impl GrpcServer {
    pub(crate) async fn start(router: Router) -> Self {
        Self::start_with(router, None).await
    }

    /// Over TLS, with a certificate for `localhost`.
    pub(crate) async fn secure(router: Router) -> Self {
        Self::start_with(router, Some(tls_for_localhost(&[b"h2"]))).await
    }

    async fn start_with(router: Router, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (service, tls) = (TowerToHyperService::new(router.clone()), tls.clone());
                connections.spawn(async move {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    match tls {
                        None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            drop(builder.serve_connection(TokioIo::new(stream), service).await);
                        }
                    }
                });
            }
        });
        Self { address, calls: Arc::default(), _tasks: tasks }
    }

    /// Answers the check-back with this number (from 0) as `script` says; `None` never answers.
    pub(crate) async fn scripted(script: impl Fn(usize) -> Option<Response<Body>> + Send + Sync + 'static) -> Self {
        let (calls, script) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(script));
        let seen = calls.clone();
        let answer = async move |headers: HeaderMap, body: Bytes| {
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push((headers, body));
                seen.len() - 1
            };
            match script(number) {
                Some(response) => response,
                None => std::future::pending().await,
            }
        };
        let router = Router::new().route("/landfall.v1.CheckBack/Check", axum::routing::post(answer));
        Self { calls, ..Self::start(router).await }
    }

    /// The headers and bodies of the calls so far.
    pub(crate) fn calls(&self) -> Vec<(HeaderMap, Bytes)> {
        self.calls.lock().unwrap().clone()
    }
}

/// A message as gRPC frames it.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// A gRPC response with this body and this status in the trailers; `None` ends without trailers.
pub(crate) fn reply(body: Vec<u8>, status: Option<&'static str>) -> Option<Response<Body>> {
    let mut frames = vec![Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(body)))];
    if let Some(status) = status {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        frames.push(Ok(Frame::trailers(trailers)));
    }
    let mut response = Response::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    Some(response)
}

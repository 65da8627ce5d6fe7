//! Reaches the coordinator over gRPC: `landfall serve`, on any machine.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    CheckBack, Decided, Error, ErrorKind, HalfMessage, HalfState, HalfVerdict, MessageId, Prepared, Result,
};
use landfall_grpc::half_messages_client::HalfMessagesClient;
use landfall_grpc::{self as wire, CheckBackTarget, DecideRequest, HalfMessageReply, PrepareRequest};
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, ConnectError, Request, Response, Status};

use super::HalfCoordinator;

/// The metadata with the name of a problem. Without it, a status is not the daemon's.
const PROBLEM: &str = "landfall-problem";

/// How a sender reaches `landfall serve`.
#[derive(Clone)]
pub struct GrpcOptions {
    /// A token with the role operator, if the daemon has tokens.
    pub token: Option<String>,
    /// How long one call may take, with its connection.
    pub timeout: Duration,
    /// Certificates in PEM that are trusted besides the public authorities.
    pub authorities: Option<String>,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self { token: None, timeout: Duration::from_secs(10), authorities: None }
    }
}

/// The coordinator of a daemon, as senders reach it over the network. Cheap to clone; clones share a connection.
///
/// A call whose answer did not arrive in time fails with kind `Unknown`, and one that could not be sent with kind
/// `Unavailable`. Both may be repeated. Connects when it is first called, and again after a lost connection.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::half::{GrpcCoordinator, GrpcOptions, HalfProducer};
/// use landfall::sqlite::{self, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// let options = GrpcOptions { token: Some("operator-token".into()), ..GrpcOptions::default() };
/// let coordinator = GrpcCoordinator::new("https://landfall.example.com:7700", options)?;
/// let producer = HalfProducer::new(shop, Arc::new(coordinator));
/// # drop(producer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GrpcCoordinator {
    client: HalfMessagesClient<Channel>,
    url: String,
    token: Option<AsciiMetadataValue>,
    timeout: Duration,
}

impl GrpcCoordinator {
    /// Names the daemon by its URL, such as `http://127.0.0.1:7700`, without a path. Must be called in a Tokio runtime.
    ///
    /// Fails with kind `Invalid` if the URL, the token, the timeout or the authorities cannot be used.
    pub fn new(url: &str, options: GrpcOptions) -> Result<Self> {
        let GrpcOptions { token, timeout, authorities } = options;
        let endpoint = endpoint(url, timeout, authorities)?;
        let token = token.map(|token| {
            let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
            let mut value = value
                .map_err(|error| Error::invalid("the token has other characters than ASCII").with_source(error))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        let client = HalfMessagesClient::new(endpoint.connect_lazy());
        Ok(Self { client, url: url.to_owned(), token: token.transpose()?, timeout })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// Awaits the answer within the time limit. The outer error is one without an answer.
    async fn call(
        &self,
        call: impl Future<Output = std::result::Result<Response<HalfMessageReply>, Status>>,
    ) -> Result<std::result::Result<HalfMessageReply, Status>> {
        let answered = tokio::time::timeout(self.timeout, call).await.map_err(|elapsed| {
            let text = format!("the coordinator at {} did not answer within {:?}", self.url, self.timeout);
            Error::new(ErrorKind::Unknown, text).with_source(elapsed)
        })?;
        Ok(answered.map(Response::into_inner))
    }

    fn failed(&self, call: &str, status: Status) -> Error {
        let text = format!("the coordinator at {} failed the {call}", self.url);
        Error::new(kind(&status), text).with_source(status)
    }

    fn unclear(&self, reply: &HalfMessageReply) -> Error {
        let text = format!("the coordinator at {} answered with the state {}, unknown here", self.url, reply.state);
        Error::new(ErrorKind::Internal, text)
    }
}

#[async_trait]
impl HalfCoordinator for GrpcCoordinator {
    async fn prepare(&self, half: &HalfMessage) -> Result<Prepared> {
        let request = self.request(prepare_request(half));
        match self.call(self.client.clone().prepare(request)).await? {
            Ok(reply) => {
                let state = state(&reply).ok_or_else(|| self.unclear(&reply))?;
                Ok(if reply.fresh { Prepared::Fresh(state) } else { Prepared::Repeated(state) })
            }
            Err(status) if problem(&status) == Some("different-message") => Ok(Prepared::Conflict),
            Err(status) => Err(self.failed("prepare", status)),
        }
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> Result<Decided> {
        let request = self.request(DecideRequest { id: id.to_string() });
        let mut client = self.client.clone();
        let (name, first, answer) = match verdict {
            HalfVerdict::Committed => ("commit", HalfVerdict::RolledBack, self.call(client.commit(request)).await),
            HalfVerdict::RolledBack => ("rollback", HalfVerdict::Committed, self.call(client.rollback(request)).await),
        };
        match answer? {
            Ok(reply) if state(&reply) != Some(verdict.state()) => Err(self.unclear(&reply)),
            Ok(reply) if reply.fresh => Ok(Decided::Now),
            Ok(_) => Ok(Decided::Before),
            Err(status) if problem(&status) == Some("other-verdict") => Ok(Decided::Contradiction(first)),
            Err(status) => Err(self.failed(name, status)),
        }
    }
}

fn endpoint(url: &str, timeout: Duration, authorities: Option<String>) -> Result<Endpoint> {
    let refused = |why: &str| Error::invalid(format!("the URL of the coordinator {url:?} {why}"));
    if timeout.is_zero() {
        return Err(Error::invalid("the timeout of the coordinator is zero; no call could be answered in time"));
    }
    let endpoint = Endpoint::from_shared(url.to_owned());
    let endpoint = endpoint.map_err(|error| refused("is not valid").with_source(error))?;
    if !matches!(endpoint.uri().scheme_str(), Some("http" | "https")) || endpoint.uri().host().is_none() {
        return Err(refused("must begin with http:// or https:// and name a host"));
    }
    if !matches!(endpoint.uri().path_and_query().map_or("/", |path| path.as_str()), "" | "/") {
        return Err(refused("must have no path"));
    }
    let is_secure = endpoint.uri().scheme_str() == Some("https");
    // A connection is shared, so a dead one must be noticed.
    let endpoint = endpoint.connect_timeout(timeout).http2_keep_alive_interval(timeout).keep_alive_timeout(timeout);
    if !is_secure {
        return Ok(endpoint);
    }
    let mut tls = ClientTlsConfig::new().with_webpki_roots();
    if let Some(pem) = authorities {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    endpoint.tls_config(tls).map_err(|error| Error::invalid("the authorities cannot be used").with_source(error))
}

fn prepare_request(half: &HalfMessage) -> PrepareRequest {
    let HalfMessage { message, business_type, business_id, check_back, check_after } = half;
    let CheckBack { database, http, grpc } = check_back.clone();
    PrepareRequest {
        id: Some(message.id.to_string()),
        topic: message.topic.as_str().to_owned(),
        key: message.key.as_ref().map(|key| key.as_str().to_owned()),
        kind: Some(message.kind.as_str().to_owned()),
        payload: message.payload.clone(),
        business_type: business_type.clone(),
        business_id: business_id.clone(),
        check_back: Some(CheckBackTarget { database, http, grpc }),
        // Rounded up: the immunity period must not be shorter than the sender asks for.
        check_after_s: Some(check_after.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)),
        headers: message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        sequence: message.sequence,
        mode: Some(message.mode.as_str().to_owned()),
    }
}

fn state(reply: &HalfMessageReply) -> Option<HalfState> {
    match reply.state() {
        wire::HalfState::Unspecified => None,
        wire::HalfState::Prepared => Some(HalfState::Prepared),
        wire::HalfState::Committed => Some(HalfState::Committed),
        wire::HalfState::RolledBack => Some(HalfState::RolledBack),
        wire::HalfState::Parked => Some(HalfState::Parked),
    }
}

fn problem(status: &Status) -> Option<&str> {
    status.metadata().get(PROBLEM).and_then(|name| name.to_str().ok())
}

/// Returns what a status means. One that is not the daemon's may come from a lost connection or a proxy, after the
/// daemon has acted.
fn kind(status: &Status) -> ErrorKind {
    if is_unconnected(status) {
        return ErrorKind::Unavailable;
    }
    match (status.code(), problem(status).is_some()) {
        (Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied, _) => ErrorKind::Invalid,
        (Code::Unimplemented, _) => ErrorKind::Unsupported,
        (Code::ResourceExhausted, true) => ErrorKind::Invalid,
        (Code::AlreadyExists | Code::FailedPrecondition, true) => ErrorKind::Conflict,
        (Code::NotFound, true) => ErrorKind::NotFound,
        (Code::Unavailable, true) => ErrorKind::Unavailable,
        (Code::Internal, true) => ErrorKind::Internal,
        _ => ErrorKind::Unknown,
    }
}

/// Returns whether no connection was made, so that nothing was sent.
fn is_unconnected(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl fmt::Debug for GrpcOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcOptions")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GrpcCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcCoordinator").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unusable_options_are_refused() {
        let new = |url: &str, options: GrpcOptions| GrpcCoordinator::new(url, options).unwrap_err();
        for (url, word) in [("", "is not valid"), ("ftp://a", "must begin with"), ("http://a/x", "must have no path")] {
            let error = new(url, GrpcOptions::default());
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{url}: {error}");
        }
        let zero = GrpcOptions { timeout: Duration::ZERO, ..GrpcOptions::default() };
        assert!(new("http://a", zero).to_string().contains("timeout"));
        let token = GrpcOptions { token: Some("secret\n".into()), ..GrpcOptions::default() };
        assert!(!format!("{token:?}").contains("secret"));
        assert!(new("http://a", token).to_string().contains("token"));
    }

    #[test]
    fn status_without_a_problem_of_the_daemon_is_unknown() {
        for code in [Code::Unavailable, Code::Internal, Code::AlreadyExists, Code::Cancelled, Code::DeadlineExceeded] {
            assert_eq!(kind(&Status::new(code, "")), ErrorKind::Unknown, "{code:?}");
        }
        for (code, expected) in [
            (Code::Unavailable, ErrorKind::Unavailable),
            (Code::Unknown, ErrorKind::Unknown),
            (Code::DeadlineExceeded, ErrorKind::Unknown),
            (Code::InvalidArgument, ErrorKind::Invalid),
            (Code::FailedPrecondition, ErrorKind::Conflict),
        ] {
            let mut status = Status::new(code, "");
            status.metadata_mut().insert(PROBLEM, "x".parse().unwrap());
            assert_eq!(kind(&status), expected, "{code:?}");
        }
    }
}

//! Read-only client of the management plugin's HTTP interface.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use landfall_core::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::config::{Management, Options};
use crate::link::tls;

/// Size limit of a response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Client {
    management: Management,
    virtual_host: String,
    options: Arc<Options>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) durable: bool,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
    /// The name of the policy that applies to it.
    #[serde(default)]
    pub(crate) policy: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Policy {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) definition: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) durable: bool,
    #[serde(default)]
    pub(crate) messages: u64,
    #[serde(default)]
    pub(crate) message_bytes: u64,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
    /// Settings that policies add to the arguments.
    #[serde(default)]
    pub(crate) effective_policy_definition: Value,
    #[serde(default)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Binding {
    pub(crate) source: String,
    pub(crate) destination: String,
    pub(crate) routing_key: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) running: bool,
    #[serde(default)]
    pub(crate) mem_alarm: bool,
    #[serde(default)]
    pub(crate) disk_free_alarm: bool,
}

impl Queue {
    /// Returns the setting `name` from a policy or from the queue's arguments. If both set a number the lower one
    /// counts, as it does for the server.
    pub(crate) fn setting(&self, name: &str) -> Option<Value> {
        let argument = self.arguments.get(&format!("x-{name}"));
        let policy = self.effective_policy_definition.get(name);
        match (argument, policy) {
            (Some(argument), Some(policy)) => match (argument.as_i64(), policy.as_i64()) {
                (Some(one), Some(other)) => Some(one.min(other).into()),
                _ => Some(argument.clone()),
            },
            (one, other) => one.or(other).cloned(),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.as_i64()
    }
}

impl Client {
    pub(crate) fn new(management: Management, options: Arc<Options>) -> Self {
        Self { management, virtual_host: encode(&options.virtual_host), options }
    }

    pub(crate) async fn exchanges(&self) -> Result<Vec<Exchange>> {
        self.get(&format!("/api/exchanges/{}", self.virtual_host)).await
    }

    pub(crate) async fn queues(&self) -> Result<Vec<Queue>> {
        self.get(&format!("/api/queues/{}", self.virtual_host)).await
    }

    pub(crate) async fn bindings(&self) -> Result<Vec<Binding>> {
        self.get(&format!("/api/bindings/{}", self.virtual_host)).await
    }

    pub(crate) async fn policies(&self) -> Result<Vec<Policy>> {
        self.get(&format!("/api/policies/{}", self.virtual_host)).await
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<Node>> {
        self.get("/api/nodes").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let Management { host, port, .. } = &self.management;
        let failed = |why: &str| {
            let text = format!("the management interface at {host}:{port} {why}");
            move |error: BoxError| Error::new(ErrorKind::Unavailable, text.clone()).with_source(error)
        };
        let sent = tokio::time::timeout(self.options.connect_timeout, self.send(path));
        let response = sent.await.map_err(|error| failed("did not answer in time")(error.into()))?;
        let (status, body) =
            response.map_err(|error| failed(tls::handshake_failure(&*error).unwrap_or("is unreachable"))(error))?;
        match status {
            StatusCode::OK => {
                serde_json::from_slice(&body).map_err(|error| failed("returned an invalid response")(error.into()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let text = format!("this account may not read {path} of the management interface at {host}:{port}");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            status => Err(failed("returned an error status")(status.to_string().into())),
        }
    }

    async fn send(&self, path: &str) -> Result<(StatusCode, Bytes), BoxError> {
        let Management { host, port, .. } = &self.management;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        if !self.management.tls {
            return self.exchange(stream, path).await;
        }
        let tls = TlsConnector::from(tls::client(&self.options)?);
        let stream = tls.connect(ServerName::try_from(host.clone())?, stream).await?;
        self.exchange(stream, path).await
    }

    async fn exchange<S>(&self, stream: S, path: &str) -> Result<(StatusCode, Bytes), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Management { host, port, user, password, .. } = &self.management;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // The connection serves one request.
        let driver = tokio::spawn(connection);
        let account = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(HOST, format!("{host}:{port}"))
            .header(AUTHORIZATION, format!("Basic {account}"))
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await?.to_bytes();
        driver.abort();
        Ok((status, body))
    }
}

/// Percent-encodes a virtual host as a path segment.
fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let escape = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_host_is_percent_encoded() {
        assert_eq!((encode("/").as_str(), encode("shop.eu").as_str()), ("%2F", "shop.eu"));
    }

    #[test]
    fn lower_of_policy_and_argument_counts() {
        let queue = |text: &str| serde_json::from_str::<Queue>(text).unwrap();
        let both =
            r#"{"name":"q","arguments":{"x-delivery-limit":100},"effective_policy_definition":{"delivery-limit":3}}"#;
        assert_eq!(queue(both).number("delivery-limit"), Some(3));
        assert_eq!(queue(r#"{"name":"q","effective_policy_definition":[]}"#).number("delivery-limit"), None);
        let policy = r#"{"name":"q","effective_policy_definition":{"overflow":"drop-head"}}"#;
        assert_eq!(queue(policy).setting("overflow"), Some("drop-head".into()));
    }
}

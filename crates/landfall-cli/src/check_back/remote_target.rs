//! Asks a service at a URL, or at the addresses of its name. HTTP and gRPC differ only in the request and the answer.
//!
//! Redirects are not followed. Addresses are checked as for push.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use landfall::check_back::{Answer, CheckBackTarget, ServiceResolver};
use landfall::{HalfMessage, Timestamp};

use super::http_target;
use crate::config::{Config, Push, receiver_url};
use crate::error::Result;
use crate::push::connector::Connector;
use crate::push::{Rules, SigningKey, signature};

/// The longest body of an answer.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024;
/// Idle connections are closed after this time; the next connection resolves the host again.
const IDLE: Duration = Duration::from_secs(30);
const SERVICE: &str = "service:";

/// How the service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    #[cfg(feature = "grpc")]
    Grpc,
}

/// The body of a question, and what is particular to its protocol.
pub(super) struct Question {
    pub(super) content_type: &'static str,
    /// What the signature covers.
    pub(super) signed: Vec<u8>,
    pub(super) body: Bytes,
}

pub(super) struct RemoteTarget {
    protocol: Protocol,
    client: Client<Connector, Full<Bytes>>,
    rules: Rules,
    keys: Vec<SigningKey>,
    services: Arc<dyn ServiceResolver>,
}

impl RemoteTarget {
    pub(super) fn http(config: &Config, services: Arc<dyn ServiceResolver>) -> Result<Self> {
        let client = client(config).build(Connector::new(&push(config))?);
        Ok(Self::new(Protocol::Http, client, config, services))
    }

    #[cfg(feature = "grpc")]
    pub(super) fn grpc(config: &Config, services: Arc<dyn ServiceResolver>) -> Result<Self> {
        let mut client = client(config);
        client.http2_only(true).timer(TokioTimer::new());
        client.http2_max_header_list_size(MAX_BODY_BYTES as u32);
        // A connection is shared, so a dead one must be noticed.
        client.http2_keep_alive_interval(config.check_back.timeout);
        client.http2_keep_alive_timeout(config.check_back.timeout);
        let client = client.build(Connector::http2(&push(config))?);
        Ok(Self::new(Protocol::Grpc, client, config, services))
    }

    fn new(
        protocol: Protocol,
        client: Client<Connector, Full<Bytes>>,
        config: &Config,
        services: Arc<dyn ServiceResolver>,
    ) -> Self {
        let (rules, keys) = (config.check_back.rules.clone(), config.check_back.keys.clone());
        Self { protocol, client, rules, keys, services }
    }

    /// Returns the URLs to ask, in order.
    async fn urls(&self, target: &str) -> Result<Vec<Uri>, String> {
        let Some((name, path)) = service(target) else {
            return receiver_url(target).map(|url| vec![url]).map_err(|why| format!("the URL {why}"));
        };
        let bases = self.services.resolve(name).await.map_err(|error| error.to_string())?;
        let url = |base: &String| receiver_url(&format!("{}{path}", base.trim_end_matches('/')));
        bases.iter().map(url).collect::<Result<_, _>>().map_err(|why| format!("an address of {name} {why}"))
    }

    async fn ask_url(&self, half: &HalfMessage, url: Uri) -> Result<Answer, String> {
        self.rules.check_literal(&url)?;
        match self.protocol {
            Protocol::Http => {
                let request = self.request(half, url, http_target::question(half), &[])?;
                http_target::answer(self.send(request).await?).await
            }
            #[cfg(feature = "grpc")]
            Protocol::Grpc => {
                let url = super::grpc_target::method(&url)?;
                let question = super::grpc_target::question(half);
                let request = self.request(half, url, question, &[("te", "trailers")])?;
                super::grpc_target::answer(self.send(request).await?).await
            }
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        self.client.request(request).await.map_err(|error| match error.source() {
            Some(cause) => cause.to_string(),
            None => error.to_string(),
        })
    }

    /// Builds the request with a Standard Webhooks signature, if keys are configured.
    fn request(
        &self,
        half: &HalfMessage,
        url: Uri,
        question: Question,
        headers: &[(&str, &str)],
    ) -> Result<Request<Full<Bytes>>, String> {
        let id = half.message.id.to_string();
        let seconds = Timestamp::now().as_millis().div_euclid(1000);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(CONTENT_TYPE, HeaderValue::from_static(question.content_type))
            .header(USER_AGENT, HeaderValue::from_static(concat!("landfall/", env!("CARGO_PKG_VERSION"))))
            .header("webhook-id", &id)
            .header("webhook-timestamp", seconds.to_string());
        if !self.keys.is_empty() {
            let signature = signature::header_value(&self.keys, &id, seconds, &question.signed);
            request = request.header("webhook-signature", signature);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(question.body)).map_err(|error| format!("the request is not valid: {error}"))
    }
}

#[async_trait]
impl CheckBackTarget for RemoteTarget {
    async fn ask(&self, half: &HalfMessage) -> Answer {
        let target = match self.protocol {
            Protocol::Http => &half.check_back.http,
            #[cfg(feature = "grpc")]
            Protocol::Grpc => &half.check_back.grpc,
        };
        let urls = match self.urls(target.as_deref().unwrap_or_default()).await {
            Ok(urls) => urls,
            Err(why) => return Answer::Unknown(why),
        };
        let mut last = Answer::unknown("the service has no address");
        for url in urls {
            last = self.ask_url(half, url).await.unwrap_or_else(Answer::Unknown);
            if last.verdict().is_some() {
                break;
            }
        }
        last
    }
}

fn client(config: &Config) -> Builder {
    let mut client = Client::builder(TokioExecutor::new());
    client
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(config.check_back.concurrency)
        .retry_canceled_requests(false);
    client
}

fn push(config: &Config) -> Push {
    Push { rules: config.check_back.rules.clone(), ca_file: config.push.ca_file.clone() }
}

fn split_service(text: &str) -> (&str, &str) {
    text.find('/').map_or((text, ""), |at| text.split_at(at))
}

/// Returns the name of a service and the path; `None` if the target is a URL.
pub(super) fn service(target: &str) -> Option<(&str, &str)> {
    target.strip_prefix(SERVICE).map(split_service)
}

/// Returns the part of a target that is connected to: `service:NAME`, or a URL without its path. `None` if invalid.
pub(crate) fn origin(target: &str) -> Option<String> {
    match service(target) {
        Some((name, _)) => Some(format!("{SERVICE}{name}")),
        None => {
            let url = receiver_url(target).ok()?;
            Some(format!("{}://{}", url.scheme_str()?, url.authority()?))
        }
    }
}

/// Refuses a target that can never be asked. The end of a sentence.
pub(crate) fn check(target: &str) -> Result<(), &'static str> {
    match service(target) {
        Some(("", _)) => Err("must be service:NAME/path"),
        Some(_) => Ok(()),
        None => receiver_url(target).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_url_or_a_service() {
        for target in ["http://a/b", "https://a:8443", "service:orders", "service:orders/state"] {
            assert_eq!(check(target), Ok(()), "{target}");
        }
        for target in ["", "a/b", "ftp://a", "service:", "service:/x", "http://u:p@a/"] {
            assert!(check(target).is_err(), "{target} was accepted");
        }
        assert_eq!(split_service("orders/state?x=1"), ("orders", "/state?x=1"));
        assert_eq!(origin("service:orders/state").as_deref(), Some("service:orders"));
        assert_eq!(origin("https://a:8443/state?x=1").as_deref(), Some("https://a:8443"));
        assert_eq!(origin("nonsense"), None);
    }
}

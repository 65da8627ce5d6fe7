//! The channels: each renders notices for its kind of server, and judges the answer.

mod dingtalk;
mod slack;
mod text;
mod webhook;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use landfall::{NoticeBatch, Timestamp};

use crate::config::{Alerts, Channel, ChannelKind};
use crate::error::{Error, Result};
use crate::push::connector::Connector;
use crate::push::{beginning, excerpt, failure_without_response, retry_after};
use text::Links;

/// How long a channel rests that says it is asked too often, and not for how long.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// The limits of a kind of channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The most notices in one delivery.
    pub(crate) at_most: usize,
    /// The shortest time between two attempts.
    pub(crate) spacing: Duration,
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Retry(String),
    /// The server accepts nothing for this time.
    Wait(Duration, String),
    /// A repetition would be refused as well.
    Refused(String),
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// What the server answered, for people; empty without an answer.
    pub(crate) shown: String,
}

/// What is sent: the URL, further headers, and the body as JSON.
struct Outgoing {
    url: Uri,
    headers: Vec<(&'static str, String)>,
    body: String,
}

/// What a server answered.
struct Reply<'a> {
    status: u16,
    retry_after: Option<Duration>,
    body: &'a [u8],
    shown: &'a str,
}

/// Sends notices to one channel.
pub(crate) struct Sender {
    channel: Channel,
    client: Client<Connector, Full<Bytes>>,
    links: Links,
}

impl Sender {
    /// Refuses a channel at a forbidden address. A host name is checked when it is resolved.
    pub(crate) fn new(config: &Alerts, channel: &Channel) -> Result<Self> {
        let refused = |error| Error::usage(format!("the alert channel {}: {error}", channel.name));
        config.push.rules.check_literal(&channel.url.0).map_err(refused)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .pool_timer(TokioTimer::new())
            // The notifier decides about retries.
            .retry_canceled_requests(false)
            .build(Connector::new(&config.push)?);
        Ok(Self { channel: channel.clone(), client, links: Links::new(&config.link_base) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.channel.name
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.channel.timeout
    }

    pub(crate) fn give_up_after(&self) -> Duration {
        self.channel.give_up_after
    }

    pub(crate) fn pace(&self) -> Pace {
        match self.channel.kind {
            ChannelKind::Webhook { .. } => webhook::PACE,
            ChannelKind::Slack => slack::PACE,
            ChannelKind::DingTalk { .. } => dingtalk::PACE,
        }
    }

    /// Makes one attempt.
    pub(crate) async fn send(&self, batch: &NoticeBatch) -> Answer {
        let without_answer = |verdict| Answer { verdict, shown: String::new() };
        let request = match self.request(batch, Timestamp::now()) {
            Ok(request) => request,
            Err(error) => return without_answer(Verdict::Refused(error)),
        };
        let exchange = async {
            let response = self.client.request(request).await;
            let response = response.map_err(|error| failure_without_response(&error).error)?;
            let (head, body) = response.into_parts();
            Ok((head, beginning(body).await))
        };
        let (head, body) = match tokio::time::timeout(self.channel.timeout, exchange).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return without_answer(Verdict::Retry(error)),
            Err(_) => {
                let error = format!("no answer within {} ms", self.channel.timeout.as_millis());
                return without_answer(Verdict::Retry(error));
            }
        };
        let (status, excerpt) = (head.status.as_u16(), excerpt(&body));
        let shown = if excerpt.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {excerpt}") };
        let retry_after = retry_after(&head.headers, SystemTime::now());
        let reply = Reply { status, retry_after, body: &body, shown: &shown };
        let verdict = match self.channel.kind {
            ChannelKind::Webhook { .. } | ChannelKind::Slack => judge_status(&reply),
            ChannelKind::DingTalk { .. } => dingtalk::judge(&reply),
        };
        Answer { verdict, shown }
    }

    fn request(&self, batch: &NoticeBatch, now: Timestamp) -> std::result::Result<Request<Full<Bytes>>, String> {
        let url = &self.channel.url.0;
        let outgoing = match &self.channel.kind {
            ChannelKind::Webhook { keys } => webhook::render(batch, url, keys, &self.links, now),
            ChannelKind::Slack => slack::render(batch, url, &self.links),
            ChannelKind::DingTalk { secret, keyword } => {
                dingtalk::render(batch, url, secret.as_ref(), keyword, &self.links, now)?
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("landfall/", env!("CARGO_PKG_VERSION"))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in outgoing.headers {
            let value = HeaderValue::from_str(&value).map_err(|_| format!("the header {name} is not valid"))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let mut request = Request::new(Full::new(Bytes::from(outgoing.body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = outgoing.url;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Judges by the status: 429 and 503 wait for `Retry-After`, other 5xx and redirects are retried, other 4xx refuse.
fn judge_status(reply: &Reply<'_>) -> Verdict {
    let shown = reply.shown.to_owned();
    match reply.status {
        200..300 => Verdict::Accepted,
        429 => Verdict::Wait(reply.retry_after.unwrap_or(DEFAULT_WAIT), shown),
        503 if reply.retry_after.is_some() => Verdict::Wait(reply.retry_after.unwrap_or_default(), shown),
        400..500 if reply.status != 408 => Verdict::Refused(shown),
        _ => Verdict::Retry(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_verdict() {
        let judge = |status, seconds: Option<u64>| {
            let retry_after = seconds.map(Duration::from_secs);
            judge_status(&Reply { status, retry_after, body: b"", shown: "shown" })
        };
        let shown = || "shown".to_owned();
        for status in [200, 202, 204] {
            assert_eq!(judge(status, None), Verdict::Accepted);
        }
        for status in [301, 408, 500, 502, 503, 504] {
            assert_eq!(judge(status, None), Verdict::Retry(shown()), "{status}");
        }
        for status in [400, 401, 403, 404, 410] {
            assert_eq!(judge(status, Some(9)), Verdict::Refused(shown()), "{status}");
        }
        let wait = |seconds| Verdict::Wait(Duration::from_secs(seconds), shown());
        assert_eq!((judge(429, Some(9)), judge(429, None), judge(503, Some(9))), (wait(9), wait(30), wait(9)));
    }
}

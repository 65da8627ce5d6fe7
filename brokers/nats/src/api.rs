//! JetStream's management API: streams, stored messages and consumers.

use async_nats::jetstream::consumer::{self, pull};
use async_nats::jetstream::context::{RequestError, RequestErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream;
use landfall_core::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::error::{Denied, api_error, request_error};

#[derive(Deserialize)]
struct DeleteResponse {
    success: bool,
}

#[derive(Deserialize)]
struct MessageResponse {
    message: stream::RawMessage,
}

/// One page of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    total: usize,
    #[serde(default = "Option::default", alias = "streams", alias = "consumers")]
    entries: Option<Vec<T>>,
    /// Page size.
    #[serde(default)]
    limit: usize,
    /// Names for which no server of the cluster answered.
    #[serde(default)]
    missing: Option<Vec<String>>,
}

impl<T> Page<T> {
    /// Returns the names that exist but are absent from the list. `before` counts the entries of earlier pages.
    fn unanswered(&self, before: usize) -> Option<String> {
        let missing = self.missing.as_ref().filter(|missing| !missing.is_empty())?;
        let found = self.entries.as_ref().map_or(0, Vec::len);
        (before + found < self.total && found < self.limit).then(|| missing.join(", "))
    }
}

/// A created consumer. It is not bound to a client, because the client may be replaced.
#[derive(Debug)]
pub(crate) struct PullConsumer {
    config: pull::Config,
    info: consumer::Info,
}

impl PullConsumer {
    pub(crate) fn info(&self) -> &consumer::Info {
        &self.info
    }

    /// Binds the consumer to the connection's current client.
    pub(crate) fn bind(&self, connection: &Connection) -> consumer::Consumer<pull::Config> {
        consumer::Consumer::new(self.config.clone(), self.info.clone(), connection.context())
    }
}

impl Connection {
    pub(crate) async fn stream(&self, name: &str) -> Result<stream::Info> {
        self.call(&format!("reading the info of stream {name} failed"), format!("STREAM.INFO.{name}"), &json!({})).await
    }

    /// Creates a stream. Succeeds if it exists with the same settings.
    pub(crate) async fn create_stream(&self, config: &stream::Config) -> Result<stream::Info> {
        let name = &config.name;
        self.call(&format!("creating stream {name} failed"), format!("STREAM.CREATE.{name}"), config).await
    }

    /// Deletes a stream. Returns whether it existed.
    pub(crate) async fn delete_stream(&self, name: &str) -> Result<bool> {
        let what = format!("deleting stream {name} failed");
        let deleted: Result<DeleteResponse> = self.call(&what, format!("STREAM.DELETE.{name}"), &json!({})).await;
        false_if_missing(deleted.map(|response| response.success))
    }

    pub(crate) async fn streams(&self) -> Result<Vec<stream::Info>> {
        self.list("listing the streams failed", "STREAM.LIST".into()).await
    }

    /// Returns the first message on `subject` at or after `sequence`, as stored. The client does not parse its headers.
    pub(crate) async fn message(&self, stream: &str, subject: &str, sequence: u64) -> Result<stream::RawMessage> {
        let what = format!("reading message {sequence} of stream {stream} failed");
        let request = json!({"seq": sequence, "next_by_subj": subject});
        let response: MessageResponse = self.call(&what, format!("STREAM.MSG.GET.{stream}"), &request).await?;
        Ok(response.message)
    }

    pub(crate) async fn consumers(&self, stream: &str) -> Result<Vec<consumer::Info>> {
        self.list(&format!("listing the consumers of stream {stream} failed"), format!("CONSUMER.LIST.{stream}")).await
    }

    /// Returns the names of the consumers. Unlike [`Self::consumers`] it does not wait for each consumer to answer: one
    /// without a leader delays that list past any timeout.
    pub(crate) async fn consumer_names(&self, stream: &str) -> Result<Vec<String>> {
        self.list(&format!("listing the consumer names of stream {stream} failed"), format!("CONSUMER.NAMES.{stream}"))
            .await
    }

    /// Fetches all pages of a list.
    async fn list<T: DeserializeOwned>(&self, what: &str, subject: String) -> Result<Vec<T>> {
        let mut entries = Vec::new();
        loop {
            let page: Page<T> = self.call(what, subject.clone(), &json!({"offset": entries.len()})).await?;
            if let Some(missing) = page.unanswered(entries.len()) {
                return Err(Error::new(ErrorKind::Unavailable, format!("{what}: no server answered for {missing}")));
            }
            let more = page.entries.unwrap_or_default();
            let is_last = more.is_empty() || entries.len() + more.len() >= page.total;
            entries.extend(more);
            if is_last {
                return Ok(entries);
            }
        }
    }

    pub(crate) async fn consumer(&self, stream: &str, name: &str) -> Result<consumer::Info> {
        let what = format!("reading the info of consumer {name} of stream {stream} failed");
        self.call(&what, format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await
    }

    /// Creates a consumer. Returns [`ErrorKind::Conflict`] if it exists with other settings.
    pub(crate) async fn create_consumer(&self, stream: &str, config: pull::Config) -> Result<PullConsumer> {
        let name = config.name.clone().or_else(|| config.durable_name.clone()).unwrap_or_default();
        let filter = if config.filter_subject.is_empty() { "" } else { "." };
        let subject = format!("CONSUMER.CREATE.{stream}.{name}{filter}{}", config.filter_subject);
        let settings = consumer::IntoConsumerConfig::into_consumer_config(config.clone());
        let request = json!({"stream_name": stream, "config": settings, "action": "create"});
        let info = self.call(&format!("creating consumer {name} of stream {stream} failed"), subject, &request).await?;
        Ok(PullConsumer { config, info })
    }

    pub(crate) async fn delete_consumer(&self, stream: &str, name: &str) -> Result<bool> {
        let what = format!("deleting consumer {name} of stream {stream} failed");
        let deleted: Result<DeleteResponse> =
            self.call(&what, format!("CONSUMER.DELETE.{stream}.{name}"), &json!({})).await;
        false_if_missing(deleted.map(|response| response.success))
    }

    /// Sends one request. A missing permission yields an error with the source [`Denied`], unlike a missing answer.
    pub(crate) async fn call<T, R>(&self, what: &str, subject: String, request: &R) -> Result<T>
    where
        T: DeserializeOwned,
        R: Serialize + ?Sized,
    {
        let watch = self.denials.watch();
        let full = format!("$JS.API.{subject}");
        // The client's own timeout starts when it queues the request, and without a connection its queue is bounded.
        let sent = timeout(self.timeout(), async {
            // A client that has stopped fails at once, before its replacement exists.
            self.connected().await;
            self.context().request::<_, _, Response<T>>(subject, request).await
        });
        let answer = tokio::select! {
            answer = sent => answer.unwrap_or_else(|_| Err(RequestError::new(RequestErrorKind::TimedOut))),
            () = watch.denied(&full) => {
                return Err(Error::new(ErrorKind::Unavailable, what).with_source(Denied(full)));
            }
        };
        match answer {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(api_error(what, error)),
            Err(error) => Err(request_error(what, error)),
        }
    }
}

fn false_if_missing(deleted: Result<bool>) -> Result<bool> {
    match deleted {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_list_is_an_error() {
        let page = |text: &str| serde_json::from_str::<Page<String>>(text).unwrap();
        let silent = page(r#"{"total": 3, "limit": 256, "streams": ["b", "c"], "missing": ["a"]}"#);
        assert_eq!(silent.unanswered(0).as_deref(), Some("a"));
        // Streams whose servers are all down are named as missing, but are in the list too.
        let away = page(r#"{"total": 3, "limit": 256, "streams": ["a", "b", "c"], "missing": ["a"]}"#);
        assert_eq!(away.unanswered(0), None);
        let first_of_two = page(r#"{"total": 3, "limit": 2, "streams": ["a", "b"]}"#);
        assert_eq!(first_of_two.unanswered(0), None);
    }
}

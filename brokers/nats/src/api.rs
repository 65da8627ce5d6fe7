//! The server's own API: what it knows about streams and consumers.

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
use crate::error::{Denied, of_api, of_request};

#[derive(Deserialize)]
struct Done {
    success: bool,
}

#[derive(Deserialize)]
struct Found {
    message: stream::RawMessage,
}

/// A part of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    total: usize,
    #[serde(default = "Option::default", alias = "streams", alias = "consumers")]
    entries: Option<Vec<T>>,
    /// How many are in a page at most.
    #[serde(default)]
    limit: usize,
    /// Those that a cluster has and that nobody answers for.
    #[serde(default)]
    missing: Option<Vec<String>>,
}

impl<T> Page<T> {
    /// Those that are not in the list although they are there.
    fn left_out(&self, before: usize) -> Option<String> {
        let missing = self.missing.as_ref().filter(|missing| !missing.is_empty())?;
        let found = self.entries.as_ref().map_or(0, Vec::len);
        (before + found < self.total && found < self.limit).then(|| missing.join(", "))
    }
}

/// A consumer that was made. What it is asked goes through the client that is there then.
#[derive(Debug)]
pub(crate) struct PullConsumer {
    config: pull::Config,
    info: consumer::Info,
}

impl PullConsumer {
    pub(crate) fn info(&self) -> &consumer::Info {
        &self.info
    }

    pub(crate) fn over(&self, connection: &Connection) -> consumer::Consumer<pull::Config> {
        consumer::Consumer::new(self.config.clone(), self.info.clone(), connection.context())
    }
}

impl Connection {
    pub(crate) async fn stream(&self, name: &str) -> Result<stream::Info> {
        self.call(&format!("stream {name} cannot be looked at"), format!("STREAM.INFO.{name}"), &json!({})).await
    }

    /// Makes a stream; one that is there with the same settings counts as made.
    pub(crate) async fn create_stream(&self, config: &stream::Config) -> Result<stream::Info> {
        let name = &config.name;
        self.call(&format!("stream {name} cannot be created"), format!("STREAM.CREATE.{name}"), config).await
    }

    /// Whether it was there.
    pub(crate) async fn delete_stream(&self, name: &str) -> Result<bool> {
        let what = format!("stream {name} cannot be deleted");
        let deleted: Result<Done> = self.call(&what, format!("STREAM.DELETE.{name}"), &json!({})).await;
        found(deleted.map(|done| done.success))
    }

    pub(crate) async fn streams(&self) -> Result<Vec<stream::Info>> {
        self.list("the streams cannot be listed", "STREAM.LIST".into()).await
    }

    /// The first message on `subject` from `sequence` on, as it is stored: the client does not read its headers on the way.
    pub(crate) async fn message(&self, stream: &str, subject: &str, sequence: u64) -> Result<stream::RawMessage> {
        let what = format!("message {sequence} of {stream} cannot be looked at");
        let request = json!({"seq": sequence, "next_by_subj": subject});
        let found: Found = self.call(&what, format!("STREAM.MSG.GET.{stream}"), &request).await?;
        Ok(found.message)
    }

    pub(crate) async fn consumers(&self, stream: &str) -> Result<Vec<consumer::Info>> {
        self.list(&format!("the consumers of {stream} cannot be listed"), format!("CONSUMER.LIST.{stream}")).await
    }

    /// What they are called. Unlike their list it does not wait for each of them to answer: one that has lost its leader
    /// keeps a list back for longer than anybody waits.
    pub(crate) async fn consumer_names(&self, stream: &str) -> Result<Vec<String>> {
        self.list(&format!("the consumers of {stream} cannot be named"), format!("CONSUMER.NAMES.{stream}")).await
    }

    /// All pages of a list.
    async fn list<T: DeserializeOwned>(&self, what: &str, subject: String) -> Result<Vec<T>> {
        let mut entries = Vec::new();
        loop {
            let page: Page<T> = self.call(what, subject.clone(), &json!({"offset": entries.len()})).await?;
            if let Some(missing) = page.left_out(entries.len()) {
                return Err(Error::new(ErrorKind::Unavailable, format!("{what}: nobody answers for {missing}")));
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
        let what = format!("consumer {name} of {stream} cannot be looked at");
        self.call(&what, format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await
    }

    /// Makes a consumer, which must not be there: kind `Conflict` if it is, unless with exactly these settings.
    pub(crate) async fn create_consumer(&self, stream: &str, config: pull::Config) -> Result<PullConsumer> {
        let name = config.name.clone().or_else(|| config.durable_name.clone()).unwrap_or_default();
        let filter = if config.filter_subject.is_empty() { "" } else { "." };
        let subject = format!("CONSUMER.CREATE.{stream}.{name}{filter}{}", config.filter_subject);
        let settings = consumer::IntoConsumerConfig::into_consumer_config(config.clone());
        let request = json!({"stream_name": stream, "config": settings, "action": "create"});
        let info = self.call(&format!("consumer {name} of {stream} cannot be created"), subject, &request).await?;
        Ok(PullConsumer { config, info })
    }

    pub(crate) async fn delete_consumer(&self, stream: &str, name: &str) -> Result<bool> {
        let what = format!("consumer {name} of {stream} cannot be deleted");
        let deleted: Result<Done> = self.call(&what, format!("CONSUMER.DELETE.{stream}.{name}"), &json!({})).await;
        found(deleted.map(|done| done.success))
    }

    /// One call. What the account may not ask is told apart from what nobody answers.
    pub(crate) async fn call<T, R>(&self, what: &str, subject: String, request: &R) -> Result<T>
    where
        T: DeserializeOwned,
        R: Serialize + ?Sized,
    {
        let watch = self.denials.watch();
        let full = format!("$JS.API.{subject}");
        // The client's own time begins when it has taken the request, and without a connection it takes only so much.
        let asked = timeout(self.patience(), async {
            // One that has ended would answer at once, before there is another.
            self.connected().await;
            self.context().request::<_, _, Response<T>>(subject, request).await
        });
        let answer = tokio::select! {
            answer = asked => answer.unwrap_or_else(|_| Err(RequestError::new(RequestErrorKind::TimedOut))),
            () = watch.denied(&full) => {
                return Err(Error::new(ErrorKind::Unavailable, what).with_source(Denied(full)));
            }
        };
        match answer {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(of_api(what, error)),
            Err(error) => Err(of_request(what, error)),
        }
    }
}

fn found(deleted: Result<bool>) -> Result<bool> {
    match deleted {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_leaves_somebody_out_is_no_list() {
        let page = |text: &str| serde_json::from_str::<Page<String>>(text).unwrap();
        let silent = page(r#"{"total": 3, "limit": 256, "streams": ["b", "c"], "missing": ["a"]}"#);
        assert_eq!(silent.left_out(0).as_deref(), Some("a"));
        // Those whose servers are all away are named, and are in the list all the same.
        let away = page(r#"{"total": 3, "limit": 256, "streams": ["a", "b", "c"], "missing": ["a"]}"#);
        assert_eq!(away.left_out(0), None);
        let first_of_two = page(r#"{"total": 3, "limit": 2, "streams": ["a", "b"]}"#);
        assert_eq!(first_of_two.left_out(0), None);
    }
}

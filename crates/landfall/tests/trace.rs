//! A handler's logs carry the sender's trace. In a process of its own, because the subscriber is global.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::consume::{Consumer, Context, Options, Trace, plain};
use landfall::{Broker, Failure, GroupName, Key, Message, Schema, TopicName};
use landfall_sqlite::Sqlite;
use landfall_testkit::{MemoryBroker, eventually};
use tokio_util::sync::CancellationToken;

/// The log output.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn find(&self, text: &str) -> Option<String> {
        let lines = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        lines.lines().find(|line| line.contains(text)).map(ToOwned::to_owned)
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn traced(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    let sampled = context.trace().map(|Trace { is_sampled, .. }| is_sampled);
    tracing::info!(sampled, "handling");
    Ok(())
}

#[tokio::test]
async fn handler_logs_carry_the_senders_trace() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();

    let folder = tempfile::tempdir().unwrap();
    let database = Sqlite::open(folder.path().join("trace.db").to_str().unwrap(), Default::default()).await.unwrap();
    database.migrate().await.unwrap();
    let (topic, broker) = (TopicName::new("orders").unwrap(), Arc::new(MemoryBroker::new()));
    let mut sent = Message::new(topic.clone(), "").with_key(Key::new("a").unwrap());
    sent.headers.insert("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    broker.publisher().publish(std::slice::from_ref(&sent)).await;
    let stop = CancellationToken::new();
    let group = GroupName::new("stock").unwrap();
    let consumer = Consumer::builder(database, broker)
        .topic(topic)
        .group(group)
        .handler(plain(traced))
        .options(Options::default())
        .build()
        .unwrap();
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    eventually(Duration::from_secs(60), "the handler logs", async || lines.find("handling").is_some()).await;
    stop.cancel();
    consumer.await.unwrap().unwrap();

    let line = lines.find("handling").unwrap();
    for part in ["trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"", "sampled=true", &format!("message_id={}", sent.id)] {
        assert!(line.contains(part), "{part} is missing: {line}");
    }
}

//! Runs the conformance suite of all brokers against the log.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_log::{Log, Options};
use landfall_testkit::conformance::broker::BrokerFixture;

struct LogFixture {
    log: Log,
    folder: tempfile::TempDir,
}

impl BrokerFixture for LogFixture {
    async fn create() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), options()).unwrap();
        Some(Self { log, folder })
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.log.clone())
    }

    async fn reopen(self) -> Self {
        self.log.close().await.unwrap();
        let log = Log::open(self.folder.path(), options()).unwrap();
        Self { log, folder: self.folder }
    }
}

/// Segments just large enough for the suite's largest message, so that its cases also roll segments.
fn options() -> Options {
    Options { segment_bytes: 1024 * 1024 + 4096, ..Options::default() }
}

landfall_testkit::broker_conformance!(
    LogFixture,
    without payload_bytes: "no `payload_bytes`: the log accepts every payload that Landfall does"
);

//! Relays on a broker with fencing: the holder of an expired shard is fenced before anything of the shard is published.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::adapter::{FencedPublisher, LeaseName, Shard};
use landfall::relay::{Options, Relay};
use landfall::{Broker, Error, ErrorKind, Holder, Leases, Message, OutboxQueue, Outcome, Publisher, Result};
use landfall_testkit::eventually;

use crate::fixture::{Fixture, QUICK, TIMEOUT, message};

/// The in-memory broker, with a journal of fencing and publishing in order.
#[derive(Clone)]
struct Fencing {
    inner: Arc<dyn Publisher>,
    journal: Arc<Mutex<Vec<String>>>,
    /// Whether fencing fails now.
    is_down: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Publisher for Fencing {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        self.journal.lock().unwrap().push("publish".into());
        self.inner.publish(batch).await
    }

    fn fenced(&self, holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        self.journal.lock().unwrap().push(format!("as {holder}"));
        Some(Arc::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl FencedPublisher for Fencing {
    async fn begin(&self) -> Result<()> {
        Ok(())
    }

    async fn fence(&self, holder: &Holder) -> Result<()> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "down"));
        }
        self.journal.lock().unwrap().push(format!("fence {holder}"));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_fences_its_predecessor_before_it_acquires_shards() {
    let fixture = Fixture::new().await;
    fixture.append(&[message("a", 1), message("b", 1)]).await;
    let (slow, moment) = (Holder("slow".into()), Duration::from_millis(1));
    for shard in 0..fixture.database.shards() {
        let name: LeaseName = Shard(shard).lease_name();
        fixture.database.acquire(&name, &slow, moment).await.unwrap().unwrap();
    }
    let is_down = Arc::new(AtomicBool::new(true));
    let fencing = Fencing { inner: fixture.broker.publisher(), journal: Arc::default(), is_down: is_down.clone() };
    let (journal, stop) = (fencing.journal.clone(), fixture.stop.clone());
    let options = Options {
        backoff: QUICK,
        lease_ttl: Duration::from_secs(3),
        holder: Holder("next".into()),
        ..Default::default()
    };
    let relay = Relay::builder(fixture.database.clone(), Arc::new(fencing)).options(options).build().unwrap();
    let relay = tokio::spawn(relay.run(stop));
    eventually(TIMEOUT, "the relay is registered", async || fixture.database.held("relay/").await.unwrap().len() == 1)
        .await;
    // After two rounds it still holds no shard.
    two_rounds(&fixture.database).await;
    assert!(fixture.database.held(Shard::LEASES).await.unwrap().is_empty() && fixture.published().is_empty());
    is_down.store(false, Ordering::SeqCst);
    eventually(TIMEOUT, "everything is published", async || fixture.stats().await.published == 2).await;
    let journal = journal.lock().unwrap().clone();
    // A round that took too long is repeated before anything is published.
    let first = |what: &str| journal.iter().position(|entry| entry == what).unwrap();
    assert!(journal[0] == "as next" && first("fence slow") < first("publish"), "{journal:?}");
    fixture.stop.cancel();
    relay.await.unwrap().unwrap();
}

/// A relay renews its registration once a round: a lease of two rounds that is not renewed measures the time.
async fn two_rounds(database: &impl Leases) {
    let (name, clock) = (LeaseName("clock".into()), Holder("clock".into()));
    database.acquire(&name, &clock, Duration::from_secs(2)).await.unwrap().unwrap();
    let over = async || database.held("clock").await.unwrap().is_empty();
    eventually(TIMEOUT, "two rounds", over).await;
}

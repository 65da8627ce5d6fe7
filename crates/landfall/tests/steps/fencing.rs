//! Relays over a broker that can fence: whoever let a shard expire is silenced before anything of it is published.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::adapter::{FencedPublisher, LeaseName, Shard};
use landfall::relay::{Options, Relay};
use landfall::{Broker, Error, ErrorKind, Holder, Leases, Message, OutboxQueue, Outcome, Publisher, Result};
use landfall_testkit::eventually;

use crate::stage::{PATIENCE, QUICK, Stage, message};

/// The broker in memory, with a book of who was silenced and what was published in which order.
#[derive(Clone)]
struct Fencing {
    inner: Arc<dyn Publisher>,
    book: Arc<Mutex<Vec<String>>>,
    /// Whether nobody can be silenced now.
    is_down: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Publisher for Fencing {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        self.book.lock().unwrap().push("publish".into());
        self.inner.publish(batch).await
    }

    fn fenced(&self, holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        self.book.lock().unwrap().push(format!("as {holder}"));
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
        self.book.lock().unwrap().push(format!("silence {holder}"));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_silences_the_one_before_it_and_takes_nothing_until_it_has() {
    let stage = Stage::new().await;
    stage.append(&[message("a", 1), message("b", 1)]).await;
    let (slow, moment) = (Holder("slow".into()), Duration::from_millis(1));
    for shard in 0..stage.database.shards() {
        let name: LeaseName = Shard(shard).lease_name();
        stage.database.acquire(&name, &slow, moment).await.unwrap().unwrap();
    }
    let is_down = Arc::new(AtomicBool::new(true));
    let fencing = Fencing { inner: stage.broker.publisher(), book: Arc::default(), is_down: is_down.clone() };
    let (book, seated) = (fencing.book.clone(), stage.stop.clone());
    let options = Options {
        backoff: QUICK,
        lease_ttl: Duration::from_secs(3),
        holder: Holder("next".into()),
        ..Default::default()
    };
    let relay = Relay::builder(stage.database.clone(), Arc::new(fencing)).options(options).build().unwrap();
    let relay = tokio::spawn(relay.run(seated));
    eventually(PATIENCE, "it is there", async || stage.database.held("relay/").await.unwrap().len() == 1).await;
    // Two of its rounds later it still has nothing.
    two_rounds(&stage.database).await;
    assert!(stage.database.held(Shard::LEASES).await.unwrap().is_empty() && stage.published().is_empty());
    is_down.store(false, Ordering::SeqCst);
    eventually(PATIENCE, "everything is published", async || stage.stats().await.published == 2).await;
    let book = book.lock().unwrap().clone();
    // A round that took too long begins anew, before anything is published.
    let first = |what: &str| book.iter().position(|entry| entry == what).unwrap();
    assert!(book[0] == "as next" && first("silence slow") < first("publish"), "{book:?}");
    stage.stop.cancel();
    relay.await.unwrap().unwrap();
}

/// A relay renews its seat once a round: a lease of that length which nobody renews tells that rounds have passed.
async fn two_rounds(database: &impl Leases) {
    let (name, clock) = (LeaseName("clock".into()), Holder("clock".into()));
    database.acquire(&name, &clock, Duration::from_secs(2)).await.unwrap().unwrap();
    let over = async || database.held("clock").await.unwrap().is_empty();
    eventually(PATIENCE, "two rounds", over).await;
}

//! What the scenarios share: relays in processes of their own, everything else in the test's, where it can be seen.
//!
//! ```text
//!   writers (here) ─▶ PostgreSQL ─▶ relay processes ─▶ TCP ─▶ recording broker (here) ─▶ consumer (here) ─▶ effects
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::adapter::Shard;
use landfall::postgres::Postgres;
use landfall::{Leases, OutboxView};
use landfall_system_tests::books::{Books, Order};
use landfall_system_tests::remains::Remains;
use landfall_system_tests::verdict::Verdict;
use landfall_system_tests::writer::Writer;
use landfall_system_tests::{BrokerAddress, Event, Failpoint, Life, PATIENCE, Role, World, worker};
use landfall_testkit::remote::PublishServer;
use landfall_testkit::{MemoryBroker, eventually};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::WORLD;

pub(crate) struct Stage {
    pub(crate) world: World<Postgres>,
    pub(crate) broker: MemoryBroker,
    pub(crate) producer: Postgres,
    consumer: Postgres,
    consuming: JoinHandle<landfall::Result<()>>,
    told: Arc<Mutex<Vec<Event>>>,
    stop: CancellationToken,
    _server: PublishServer,
}

impl Stage {
    /// `None` where there is no PostgreSQL; it has been said then.
    pub(crate) async fn set(seed: u64, lease: Duration) -> Option<Self> {
        let mut world = World::postgres(WORLD, seed).await?;
        let broker = MemoryBroker::new();
        let server = PublishServer::start(broker.clone()).await.unwrap();
        world.setup.broker = BrokerAddress::Remote(server.address());
        world.setup.roles = vec![Role::Relay];
        world.setup.trouble = false;
        world.setup.lease_ms = lease.as_millis() as u64;
        let (producer, consumer) = (world.producer().await, world.consumer().await);
        let stop = CancellationToken::new();
        let consume = worker::consumer(consumer.clone(), Arc::new(broker.clone()), world.setup.backoff()).unwrap();
        let consuming = tokio::spawn(consume.run(stop.clone()));
        Some(Self { world, broker, producer, consumer, consuming, told: Arc::default(), stop, _server: server })
    }

    /// Starts a relay process.
    pub(crate) fn relay(&mut self) -> Life {
        self.world.begin()
    }

    /// Starts one that will fall asleep at `failpoint`.
    pub(crate) fn relay_with(&mut self, failpoint: &Failpoint) -> Life {
        self.world.begin_with(|setup| setup.failpoint = Some(failpoint.clone()))
    }

    /// One writer per key, each until it has committed `writes` times or `stop` is cancelled.
    pub(crate) fn begin_writing(&mut self, writes: Option<u32>, stop: &CancellationToken) -> JoinSet<()> {
        self.world.setup.seed += 1;
        let mut writers = JoinSet::new();
        for number in 0..self.world.setup.keys {
            let told = self.told.clone();
            let tell = Arc::new(move |event| told.lock().unwrap().push(event));
            let writer = Writer::new(self.producer.clone(), &self.world.setup, number, tell).unwrap();
            writers.spawn(writer.run(writes, stop.clone()));
        }
        writers
    }

    /// Each key's writer commits `writes` times.
    pub(crate) async fn write(&mut self, writes: u32) {
        let stop = self.stop.clone();
        self.begin_writing(Some(writes), &stop).join_all().await;
    }

    /// Waits until exactly `relays` are alive and share all shards among them.
    pub(crate) async fn is_shared_by(&self, relays: usize) {
        let what = format!("all shards are shared by {relays} relays");
        eventually(PATIENCE, &what, async || {
            let holders: Vec<String> = sqlx::query_scalar(
                "SELECT holder FROM landfall_lease WHERE name LIKE 'outbox/%' AND expires_at > clock_timestamp() \
                 AND holder IS NOT NULL",
            )
            .fetch_all(self.producer.pool())
            .await
            .unwrap();
            holders.len() == 16 && holders.iter().collect::<HashSet<_>>().len() == relays
        })
        .await;
    }

    /// The leases of shards and the signs of life that are held right now.
    pub(crate) async fn held(&self) -> (usize, usize) {
        let held = async |prefix| self.producer.held(prefix).await.unwrap().len();
        (held(Shard::LEASES).await, held("relay/").await)
    }

    /// Waits until the broker has `more` messages than now.
    pub(crate) async fn has_published(&self, more: usize) {
        let before = self.broker.published().len();
        let what = format!("{more} more messages are published");
        eventually(PATIENCE, &what, async || self.broker.published().len() >= before + more).await;
    }

    /// Messages that the broker got more than once.
    pub(crate) fn copies(&self) -> usize {
        let published = self.broker.published();
        let messages: HashSet<_> = published.iter().map(|(_, message)| message.id).collect();
        published.len() - messages.len()
    }

    pub(crate) async fn effects(&self) -> Vec<Order> {
        self.consumer.effects().await.unwrap()
    }

    /// Waits until every committed order that `matches` has had its effect.
    pub(crate) async fn has_effects(&self, matches: impl Fn(&Order) -> bool) {
        eventually(PATIENCE, "every order has had its effect", async || {
            let effects: HashSet<_> = self.effects().await.into_iter().map(|effect| effect.message_id).collect();
            let orders = self.producer.orders().await.unwrap();
            orders.iter().filter(|order| matches(order)).all(|order| effects.contains(&order.message_id))
        })
        .await;
    }

    /// Lets everything drain, and judges. Every message was settled exactly once, whoever had it in his hands.
    pub(crate) async fn judge(mut self, relays: impl IntoIterator<Item = Life>) -> Verdict {
        self.has_effects(|_| true).await;
        for relay in relays {
            self.world.stop(relay).await;
        }
        // Nobody who was paused is left. What a new relay publishes now comes after every copy of the others, so when
        // the last message of each key has had its effect, no copy is still on its way.
        let last = self.relay();
        self.write(1).await;
        self.has_effects(|_| true).await;
        self.world.stop(last).await;
        self.stop.cancel();
        (&mut self.consuming).await.unwrap().unwrap();

        let (orders, stats) = (self.producer.orders().await.unwrap(), self.producer.stats().await.unwrap());
        assert_eq!((stats.pending, stats.retrying, stats.parked), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.published, orders.len() as u64, "each message is settled as published exactly once");
        let effects = self.effects().await;
        let remains = Remains::look(&self.producer, &self.consumer).await.unwrap();
        let verdict = Verdict::new(&self.told.lock().unwrap(), &orders, &effects, remains);
        println!("{verdict}");
        verdict
    }
}

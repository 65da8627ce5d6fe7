//! The setup of the scenarios: relays run in processes, everything else runs inside the test, where it can be observed.
//!
//! ```text
//!   writers (here) ─▶ PostgreSQL ─▶ relay processes ─▶ TCP ─▶ recording broker (here) ─▶ consumer (here) ─▶ effects
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::postgres::Postgres;
use landfall::{Leases, OutboxView, Shard};
use landfall_system_tests::business_tables::{BusinessTables, Order};
use landfall_system_tests::check_report::CheckReport;
use landfall_system_tests::undelivered::Undelivered;
use landfall_system_tests::writer::Writer;
use landfall_system_tests::{BrokerAddress, Event, Failpoint, Harness, Role, TIMEOUT, WorkerProcess, worker};
use landfall_testkit::remote::PublishServer;
use landfall_testkit::{MemoryBroker, eventually};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::WORKER;

pub(crate) struct Scenario {
    pub(crate) harness: Harness<Postgres>,
    pub(crate) broker: MemoryBroker,
    pub(crate) producer: Postgres,
    consumer: Postgres,
    consuming: JoinHandle<landfall::Result<()>>,
    events: Arc<Mutex<Vec<Event>>>,
    stop: CancellationToken,
    _server: PublishServer,
}

impl Scenario {
    /// Starts the scenario. Returns `None` without PostgreSQL, after reporting that the test is not run.
    pub(crate) async fn start(seed: u64, lease: Duration) -> Option<Self> {
        let mut harness = Harness::postgres(WORKER, seed).await?;
        let broker = MemoryBroker::new();
        let server = PublishServer::start(broker.clone()).await.unwrap();
        harness.setup.broker = BrokerAddress::Remote(server.address());
        harness.setup.roles = vec![Role::Relay];
        harness.setup.handler_failures = false;
        harness.setup.lease_ms = lease.as_millis() as u64;
        let (producer, consumer) = (harness.producer().await, harness.consumer().await);
        let stop = CancellationToken::new();
        let consume = worker::consumer(consumer.clone(), Arc::new(broker.clone()), harness.setup.backoff()).unwrap();
        let consuming = tokio::spawn(consume.run(stop.clone()));
        Some(Self { harness, broker, producer, consumer, consuming, events: Arc::default(), stop, _server: server })
    }

    /// Starts a relay process.
    pub(crate) fn relay(&mut self) -> WorkerProcess {
        self.harness.start()
    }

    /// Starts a relay process that stops (SIGSTOP) at `failpoint`.
    pub(crate) fn relay_with(&mut self, failpoint: &Failpoint) -> WorkerProcess {
        self.harness.start_with(|setup| setup.failpoint = Some(failpoint.clone()))
    }

    /// Starts one writer per key. Each runs until it has committed `writes` times or `stop` is cancelled.
    pub(crate) fn start_writers(&mut self, writes: Option<u32>, stop: &CancellationToken) -> JoinSet<()> {
        self.harness.setup.seed += 1;
        let mut writers = JoinSet::new();
        for number in 0..self.harness.setup.keys {
            let events = self.events.clone();
            let record = Arc::new(move |event| events.lock().unwrap().push(event));
            let writer = Writer::new(self.producer.clone(), &self.harness.setup, number, record).unwrap();
            writers.spawn(writer.run(writes, stop.clone()));
        }
        writers
    }

    /// Lets each key's writer commit `writes` times.
    pub(crate) async fn write(&mut self, writes: u32) {
        let stop = self.stop.clone();
        self.start_writers(Some(writes), &stop).join_all().await;
    }

    /// Waits until exactly `relays` relays share all shards.
    pub(crate) async fn wait_until_shared_by(&self, relays: usize) {
        let what = format!("all shards are shared by {relays} relays");
        eventually(TIMEOUT, &what, async || {
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

    /// The numbers of currently held shard leases and relay registrations.
    pub(crate) async fn held(&self) -> (usize, usize) {
        let held = async |prefix| self.producer.held(prefix).await.unwrap().len();
        (held(Shard::LEASES).await, held("relay/").await)
    }

    /// Waits until the broker has `more` messages than now.
    pub(crate) async fn wait_until_published(&self, more: usize) {
        let before = self.broker.published().len();
        let what = format!("{more} more messages are published");
        eventually(TIMEOUT, &what, async || self.broker.published().len() >= before + more).await;
    }

    /// The number of surplus copies that the broker received.
    pub(crate) fn duplicates(&self) -> usize {
        let published = self.broker.published();
        let messages: HashSet<_> = published.iter().map(|(_, message)| message.id).collect();
        published.len() - messages.len()
    }

    pub(crate) async fn effects(&self) -> Vec<Order> {
        self.consumer.effects().await.unwrap()
    }

    /// Waits until every committed order that `matches` has taken effect.
    pub(crate) async fn wait_for_effects(&self, matches: impl Fn(&Order) -> bool) {
        eventually(TIMEOUT, "every order has taken effect", async || {
            let effects: HashSet<_> = self.effects().await.into_iter().map(|effect| effect.message_id).collect();
            let orders = self.producer.orders().await.unwrap();
            orders.iter().filter(|order| matches(order)).all(|order| effects.contains(&order.message_id))
        })
        .await;
    }

    /// Drains everything and checks the result. Every message must be settled exactly once.
    pub(crate) async fn check(mut self, relays: impl IntoIterator<Item = WorkerProcess>) -> CheckReport {
        self.wait_for_effects(|_| true).await;
        for relay in relays {
            self.harness.stop(relay).await;
        }
        // All paused relays are gone. A new relay publishes after every duplicate of the others. So when the last
        // message of each key has taken effect, no duplicate is still in flight.
        let last = self.relay();
        self.write(1).await;
        self.wait_for_effects(|_| true).await;
        self.harness.stop(last).await;
        self.stop.cancel();
        (&mut self.consuming).await.unwrap().unwrap();

        let (orders, stats) = (self.producer.orders().await.unwrap(), self.producer.stats().await.unwrap());
        assert_eq!((stats.pending, stats.retrying, stats.parked), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.published, orders.len() as u64, "each message must be settled as published exactly once");
        let effects = self.effects().await;
        let undelivered = Undelivered::collect(&self.producer, &self.consumer).await.unwrap();
        let result = CheckReport::new(&self.events.lock().unwrap(), &orders, &effects, undelivered);
        println!("{result}");
        result
    }
}

//! When a relay is killed, its shards are published again within the lease plus two seconds.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{ErrorKind, Key, Message, TopicName};
use landfall_system_tests::soak::broker::BrokerLocation;
use landfall_system_tests::soak::environment::Environment;
use landfall_system_tests::soak::ledger::Ledger;
use landfall_system_tests::soak::processes::Processes;
use landfall_system_tests::soak::test_run::alone;
use landfall_system_tests::soak::{DatabaseKind, Order, ProcessConfig, ProcessRole};
use landfall_system_tests::{Adapter, TIMEOUT, TOPIC};
use landfall_testkit::remote::PublishServer;
use landfall_testkit::{MemoryBroker, current_test, eventually, not_run};

use crate::SOAK;

const LEASE: Duration = Duration::from_secs(2);
/// The promise.
const WITHIN: Duration = Duration::from_secs(2);
/// Tolerance for a busy machine, which may delay all processes.
const SLACK: Duration = Duration::from_secs(3);
/// Enough keys that every shard has some.
const KEYS: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_relay_is_replaced_in_time_on_sqlite() {
    taken_over_in_time::<Sqlite>(DatabaseKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_relay_is_replaced_in_time_on_postgresql() {
    taken_over_in_time::<Postgres>(DatabaseKind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_relay_is_replaced_in_time_on_mariadb() {
    taken_over_in_time::<MySql>(DatabaseKind::Mysql).await;
}

/// The first relay acquires all shards and then shares them with the second, if there is more than one shard. After the
/// kill, a message of each key is committed. Those of its shards can only be published after a takeover.
async fn taken_over_in_time<D: Adapter + Ledger>(kind: DatabaseKind) {
    let _alone = alone().await;
    let environment = match Environment::prepare::<D>(kind, 0).await {
        Ok(environment) => environment,
        Err(error) if error.kind() == ErrorKind::Unavailable => return not_run(&current_test(), &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let mut processes = Processes::new(SOAK.into(), environment.folder().into(), config(kind, &environment, &server));
    let database = D::open(&environment.producer).await.unwrap();
    let published = async |messages: usize| {
        eventually(TIMEOUT, "all messages are published", async || count(&broker) == messages).await;
    };

    let first = processes.add(ProcessRole::Relay(0)).unwrap();
    append(&database).await;
    published(KEYS).await;
    processes.add(ProcessRole::Relay(1)).unwrap();
    eventually(TIMEOUT, "both relays are registered", async || database.held("relay/").await.unwrap().len() == 2).await;

    let killed = Instant::now();
    processes.kill(first).await;
    append(&database).await;
    published(2 * KEYS).await;
    let elapsed = killed.elapsed();
    println!("{kind}: the shards of a killed relay were taken over after {elapsed:?}, with a lease of {LEASE:?}");
    assert!(elapsed > LEASE / 4, "no takeover was needed: {elapsed:?}");
    assert!(elapsed < LEASE + WITHIN + SLACK, "{elapsed:?}");
    database.close().await;
}

fn config(kind: DatabaseKind, environment: &Environment, server: &PublishServer) -> ProcessConfig {
    ProcessConfig {
        database: kind,
        writers: environment.producer.clone(),
        producer: environment.producer.clone(),
        consumer: environment.consumer.clone(),
        // There is no consumer.
        broker: BrokerLocation::Memory { publish: server.address(), deliver: server.address() },
        role: ProcessRole::Relay(0),
        seed: 1,
        accounts: 0,
        hold_ms: 0,
        lease_ms: LEASE.as_millis() as u64,
        order: Order::Key,
        planted_bug: None,
    }
}

async fn append<D: Adapter>(database: &D) {
    let message = |number: usize| {
        let key = Key::new(format!("customer-{number}")).unwrap();
        Message::new(TopicName::new(TOPIC).unwrap(), "plain").with_key(key)
    };
    let messages: Vec<_> = (0..KEYS).map(message).collect();
    database.append(&messages).await.unwrap();
}

/// The number of distinct messages: a killed relay may have published messages that it did not settle.
fn count(broker: &MemoryBroker) -> usize {
    broker.published().into_iter().map(|(_, message)| message.id).collect::<HashSet<_>>().len()
}

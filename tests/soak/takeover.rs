//! A relay is killed: what it was responsible for goes out again within the lease and two seconds.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{ErrorKind, Key, Message, TopicName};
use landfall_system_tests::soak::actor::Cast;
use landfall_system_tests::soak::ground::Ground;
use landfall_system_tests::soak::ledger::Ledger;
use landfall_system_tests::soak::{DatabaseKind, Order, Part, Play};
use landfall_system_tests::{Adapter, PATIENCE, TOPIC};
use landfall_testkit::remote::PublishServer;
use landfall_testkit::{MemoryBroker, current_test, eventually, not_run};

use crate::{SOAK, alone};

const LEASE: Duration = Duration::from_secs(2);
/// What is promised.
const WITHIN: Duration = Duration::from_secs(2);
/// For a machine that is busy with something else: it may keep everybody from running for as long.
const SLACK: Duration = Duration::from_secs(3);
/// So many that every shard has some.
const KEYS: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_killed_relay_is_taken_over_in_time_on_sqlite() {
    taken_over_in_time::<Sqlite>(DatabaseKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_killed_relay_is_taken_over_in_time_on_postgresql() {
    taken_over_in_time::<Postgres>(DatabaseKind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_killed_relay_is_taken_over_in_time_on_mariadb() {
    taken_over_in_time::<MySql>(DatabaseKind::Mysql).await;
}

/// The first relay takes all shards, and then shares them with the second, where there is more than one. After it is
/// killed a message of each key is committed. Those of its shards can only go out after they have been taken over.
async fn taken_over_in_time<D: Adapter + Ledger>(kind: DatabaseKind) {
    let _alone = alone().await;
    let ground = match Ground::prepare::<D>(kind, 0).await {
        Ok(ground) => ground,
        Err(error) if error.kind() == ErrorKind::Unavailable => return not_run(&current_test(), &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let mut cast = Cast::new(SOAK.into(), part(kind, &ground, &server));
    let database = D::open(&ground.producer).await.unwrap();
    let published = async |messages: usize| {
        eventually(PATIENCE, "everything is published", async || count(&broker) == messages).await;
    };

    let first = cast.add(Play::Relay(0)).unwrap();
    append(&database).await;
    published(KEYS).await;
    cast.add(Play::Relay(1)).unwrap();
    eventually(PATIENCE, "both relays are alive", async || database.held("relay/").await.unwrap().len() == 2).await;

    let killed = Instant::now();
    cast.kill(first).await;
    append(&database).await;
    published(2 * KEYS).await;
    let elapsed = killed.elapsed();
    println!("{kind}: the shards of a killed relay were taken over after {elapsed:?} of a lease of {LEASE:?}");
    assert!(elapsed > LEASE / 4, "nothing had to be taken over: {elapsed:?}");
    assert!(elapsed < LEASE + WITHIN + SLACK, "{elapsed:?}");
    database.close().await;
}

fn part(kind: DatabaseKind, ground: &Ground, server: &PublishServer) -> Part {
    Part {
        database: kind,
        writers: ground.producer.clone(),
        producer: ground.producer.clone(),
        consumer: ground.consumer.clone(),
        publish: server.address(),
        // Nobody consumes.
        deliver: server.address(),
        play: Play::Relay(0),
        seed: 1,
        accounts: 0,
        hold_ms: 0,
        lease_ms: LEASE.as_millis() as u64,
        order: Order::Key,
        plant: None,
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

/// Copies left out: a relay that is killed may have published what it did not settle.
fn count(broker: &MemoryBroker) -> usize {
    broker.published().into_iter().map(|(_, message)| message.id).collect::<HashSet<_>>().len()
}

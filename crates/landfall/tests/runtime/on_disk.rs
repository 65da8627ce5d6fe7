//! A copy is let go when its original is safe, not when it can be seen. On MariaDB the one comes after the other.

use std::sync::Arc;

use landfall::consume::plain;
use landfall::{Admission, Database, Inbox};
use landfall_mysql::MySql;
use landfall_testkit::servers::{MariaDbOptions, private_mariadb_with};
use landfall_testkit::{MemoryBroker, eventually};

use crate::batches::apply;
use crate::ground::{Ground, PATIENCE, group, message, options, topic};
use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_acknowledged_when_its_original_is_on_the_disk() {
    let options_of_server = MariaDbOptions { holdable_log: true, ..Default::default() };
    let Some(server) = private_mariadb_with(options_of_server).await else { return };
    let url = server.fresh_database().await.unwrap();
    let database = MySql::connect(&url, landfall_mysql::Options::default()).await.unwrap();
    database.prepare().await;
    let ground = Ground { database: database.clone(), broker: Arc::new(MemoryBroker::new()) };
    let original = message("a", 1, "good");

    server.hold_log().unwrap();
    let handled = {
        let (database, original) = (database.clone(), original.clone());
        tokio::spawn(async move {
            let mut transaction = database.begin().await?;
            let admission = database.admit(&mut transaction, &group(), &original, None).await?;
            assert_eq!(admission, Admission::Fresh);
            database.commit(transaction).await
        })
    };
    let seen = "SELECT COUNT(*) FROM landfall_inbox";
    eventually(PATIENCE, "others see the original", async || database.number(seen).await == 1).await;

    ground.publish(&[original]).await;
    let consumer = ground.consumer(options(), plain(apply::<MySql>));
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO landfall_flush %'";
    eventually(PATIENCE, "the consumer waits for the disk", async || database.number(waiting).await == 1).await;
    assert_eq!(ground.broker.unfinished(&topic(), &group()), 1, "acknowledged before it was safe");
    assert!(!handled.is_finished());
    server.release_log().unwrap();
    handled.await.unwrap().unwrap();
    ground.is_drained().await;
    consumer.stop().await;
    assert!(database.effects().await.is_empty(), "the copy took no effect");
}

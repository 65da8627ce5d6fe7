//! Connections of the pool after a failover.

use landfall_core::{ErrorKind, OutboxQueue, Schema};
use landfall_testkit::eventually;
use landfall_testkit::servers::{MariaDbOptions, private_mariadb_with};

use crate::stage::{SOON, message, open};

#[tokio::test(flavor = "multi_thread")]
async fn read_only_connections_are_not_reused() {
    let Some(server) = private_mariadb_with(MariaDbOptions::default()).await else { return };
    let url = server.fresh_database().await.unwrap();
    let before = open(&url).await;
    before.migrate().await.unwrap();
    // As if the connections had been opened to a replica, before the server's name pointed to the new primary.
    sqlx::query("SET GLOBAL tx_read_only = 1").execute(before.pool()).await.unwrap();
    let database = open(&url).await;
    let error = database.append(&[message("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    sqlx::query("SET GLOBAL tx_read_only = 0").execute(before.pool()).await.unwrap();
    eventually(SOON, "it writes", async || database.append(&[message("a", 1)]).await.is_ok()).await;
    for sequence in 2..20 {
        database.append(&[message("a", sequence)]).await.unwrap();
    }
}

//! The server limits the size of statements (`max_allowed_packet`).

use landfall_core::{ErrorKind, Limits, Message, OutboxQueue, Schema, TopicName};
use landfall_mysql::{MySql, Options};
use landfall_testkit::servers::{MariaDbOptions, MariaDbServer, mariadb};

use crate::stage::{LONG, lease_all};

const MEBIBYTE: usize = 1024 * 1024;

#[tokio::test]
async fn batch_is_split_and_an_oversized_message_refused() {
    let Some(_installed) = mariadb().await else { return };
    let settings = vec!["max-allowed-packet=2M".to_owned()];
    let server = MariaDbServer::start_with(MariaDbOptions { settings, ..Default::default() }).await.unwrap();
    let options = Options { limits: Limits { payload_bytes: 64 * MEBIBYTE }, ..Options::default() };
    let database = MySql::connect(&server.fresh_database().await.unwrap(), options).await.unwrap();
    database.migrate().await.unwrap();

    let message = |bytes: usize| Message::new(TopicName::new("orders").unwrap(), vec![7; bytes]);
    // Five times the limit of one statement.
    let batch: Vec<_> = (0..100).map(|_| message(MEBIBYTE / 10)).collect();
    database.append(&batch).await.unwrap();
    database.append(&[message(2 * MEBIBYTE - 64 * 1024)]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    assert_eq!(database.next(&leases, 1000).await.unwrap().len(), 101);

    for bytes in [2 * MEBIBYTE, 40 * MEBIBYTE] {
        let error = database.append(&[message(10), message(bytes)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("max_allowed_packet"), "{error}");
    }
    assert_eq!(database.next(&leases, 1000).await.unwrap().len(), 101, "nothing of it was written");
}

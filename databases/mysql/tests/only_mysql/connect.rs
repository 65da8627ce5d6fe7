//! A server that cannot be reached: told soon, with its name and without the password.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, OutboxQueue, Schema};
use landfall_mysql::{MySql, Options};
use landfall_testkit::eventually;
use landfall_testkit::servers::{MariaDbOptions, fresh_mysql_database, private_mariadb_with};

use crate::stage::{SOON, message, open};

async fn refused(url: &str) -> Error {
    let started = Instant::now();
    let error = MySql::connect(url, Options::default()).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    error
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("mysql://shop:s3cret@127.0.0.1:{port}/orders")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with(&format!("MySQL at 127.0.0.1:{port}/orders could not open a connection")), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = refused(&format!("mysql://shop:s3cret@127.0.0.1:{port}/orders")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test]
async fn a_url_that_is_none_is_invalid() {
    let error = refused("mysql://shop:s3cret@host:port/orders").await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_not_found() {
    let Some(url) = fresh_mysql_database().await else { return };
    let error = refused(&format!("{url}_but_not_this_one")).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_take_no_change_are_not_used_again() {
    let Some(server) = private_mariadb_with(MariaDbOptions::default()).await else { return };
    let url = server.fresh_database().await.unwrap();
    let before = open(&url).await;
    before.migrate().await.unwrap();
    // As if they had been opened to a replica, while the name of the first server still led there.
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

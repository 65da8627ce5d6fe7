//! A server that cannot be reached: told soon, with its name and without the password.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, OutboxQueue, Schema};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::fresh_postgres_database;

use crate::stage::{SOON, message};

async fn refused(url: &str) -> Error {
    let started = Instant::now();
    let error = Postgres::connect(url, Options::default()).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    error
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("postgres://shop:s3cret@127.0.0.1:{port}/orders")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with(&format!("PostgreSQL at 127.0.0.1:{port}/orders could not open a connection")), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = refused(&format!("postgres://shop:s3cret@127.0.0.1:{port}/orders")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test]
async fn a_url_that_is_none_is_invalid() {
    let error = refused("postgres://shop:s3cret@host:port/orders").await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_not_found() {
    let Some(url) = fresh_postgres_database().await else { return };
    let error = refused(&format!("{url}_but_not_this_one")).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_the_pool_comes_back_though_its_caller_left_in_the_middle() {
    let Some(url) = fresh_postgres_database().await else { return };
    let database = Postgres::connect(&url, Options { max_connections: 1, ..Options::default() }).await.unwrap();
    let endless = sqlx::query("SELECT pg_sleep(3600)").execute(database.pool());
    let left = tokio::time::timeout(Duration::from_millis(200), endless).await;
    assert!(left.is_err(), "nobody waits for an hour");
    let next = async || sqlx::query("SELECT 1").execute(database.pool()).await.is_ok();
    eventually(SOON, "the only place is free", next).await;
    let left = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT pg_sleep(3600)'";
    let ends = async || sqlx::query(left).fetch_optional(database.pool()).await.is_ok_and(|left| left.is_none());
    eventually(SOON, "the server has noticed that nobody waits", ends).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_take_no_change_are_not_used_again() {
    let Some(url) = fresh_postgres_database().await else { return };
    let before = Postgres::connect(&url, Options::default()).await.unwrap();
    before.migrate().await.unwrap();
    let set = async |what: &str| {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
        let statement = format!("ALTER DATABASE \"{name}\" {what}");
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(before.pool()).await.unwrap();
    };
    // As if they had been opened to a standby, while the name of the first server still led there.
    set("SET default_transaction_read_only = on").await;
    let database = Postgres::connect(&url, Options::default()).await.unwrap();
    let error = database.append(&[message("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    set("RESET default_transaction_read_only").await;
    eventually(SOON, "it writes", async || database.append(&[message("a", 1)]).await.is_ok()).await;
    for sequence in 2..20 {
        database.append(&[message("a", sequence)]).await.unwrap();
    }
}

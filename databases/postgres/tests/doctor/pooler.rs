//! A pooler in transaction mode, with Landfall configured for it or not.

use landfall_core::{Rank, Schema};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::PgBouncer;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{SOON, checks, diagnose};

#[tokio::test(flavor = "multi_thread")]
async fn configured_and_undetected_poolers_are_reported() {
    let Some(pooler) = PgBouncer::fresh_database().await else { return };
    let mut connected = None;
    eventually(SOON, "the pooler answers", async || {
        connected = Postgres::connect(pooler.url(), Options::default()).await.ok();
        connected.is_some()
    })
    .await;
    let configured = connected.unwrap();
    configured.migrate().await.unwrap();
    assert!(checks(&diagnose(&configured).await).contains(&("postgres.pooler", Rank::Latency)));

    let (url, _) = pooler.url().split_once('?').unwrap();
    let target = url.parse::<PgConnectOptions>().unwrap().statement_cache_capacity(0).extra_float_digits(None);
    let pool = PgPoolOptions::new().connect_with(target).await.unwrap();
    let found = diagnose(&Postgres::from_pool(pool, Options::default())).await;
    assert_eq!(checks(&found), [("postgres.pooler", Rank::Loss)]);
    assert!(found[0].mend.contains("?pooler=transaction"), "{}", found[0].mend);
}

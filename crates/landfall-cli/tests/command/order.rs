//! What the relay keeps in order, and what it does not: `relay.order` and `relay.when_exhausted`.

use landfall_testkit::eventually;

use super::support::{PATIENCE, Place};

#[tokio::test]
async fn what_fails_for_the_last_time_can_be_skipped() {
    let place = Place::new();
    place.configure("[relay]\nwhen_exhausted = \"skip\"\n");
    let daemon = place.serve().await;
    let insert =
        r#"INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES ('orders', 'k', '{"a":"x\ny"}', x'31')"#;
    place.sql(insert).await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":2}"#).await;
    eventually(PATIENCE, "its successor is published", async || {
        daemon.get("/metrics").await.body.contains("landfall_published_total 1")
    })
    .await;
    let stats = place.run(&["outbox", "stats", "--json"]).await.objects();
    assert_eq!((stats[0]["parked"].as_u64(), stats[0]["pending"].as_u64()), (Some(1), Some(0)));
}

async fn published_without_order(place: &Place) {
    place.configure("[relay]\norder = \"none\"\n");
    let daemon = place.serve().await;
    for n in 1..=20 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{n}}}"#)).await;
    }
    let published = async || place.run(&["outbox", "stats", "--json"]).await.objects()[0]["published"].as_u64();
    eventually(PATIENCE, "all are published", async || published().await == Some(20)).await;
    let lines = place.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let mut numbers: Vec<_> = lines.iter().map(|line| line["payload"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "each once, in whatever order");
}

#[tokio::test]
async fn relays_compete_on_postgres() {
    if let Some(place) = Place::on_postgres().await {
        published_without_order(&place).await;
    }
}

#[tokio::test]
async fn relays_compete_on_mysql() {
    if let Some(place) = Place::on_mysql().await {
        published_without_order(&place).await;
    }
}

#[tokio::test]
async fn without_order_is_refused_where_relays_cannot_compete() {
    let place = Place::new();
    place.configure("[relay]\norder = \"none\"\n");
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.sentence(2).contains("order = \"key\""), "{refused:?}");
    place.configure("[relay]\norder = \"any\"\n");
    let refused = place.run(&["serve"]).await;
    assert!(refused.sentence(2).contains("relay.order must be key or none"), "{refused:?}");
}

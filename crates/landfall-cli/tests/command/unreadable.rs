//! Entries that another program wrote to a topic and that are no messages.

use std::collections::BTreeSet;

use landfall::MessageId;
use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::{current_test, eventually};

use super::support::{Receiver, Sandbox, TIMEOUT};

#[tokio::test]
async fn unreadable_entries_are_parked_and_never_posted() {
    let Some(redis) = RedisServer::start_with(&current_test(), RedisOptions::durable()).await else { return };
    let (sandbox, receiver) = (Sandbox::new(), Receiver::accepting().await);
    let url = format!("{}?prefix=shop:&partitions=1", redis.url());
    sandbox.configure(&format!("{}\n[broker]\nurl = {url:?}\n", receiver.subscription("")));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    eventually(TIMEOUT, "the topic", async || receiver.bodies() == ["1"]).await;

    let [bad, late, good] = [MessageId::new(), MessageId::new(), MessageId::new()];
    for fields in [
        "hello world".to_owned(),
        format!("ce_id {late} ce_time yesterday"),
        format!("ce_id {bad} ce_sequence -1 ce_data secret"),
        format!("ce_id {good} landfall-attempts many landfall-group other landfall-retry-at never ce_data 2"),
    ] {
        let reply = redis.ask(&format!("XADD shop:{{orders/0}} * {fields}")).await.unwrap();
        assert!(reply.starts_with('$'), "{reply}");
    }
    daemon.send(r#"{"topic":"orders","payload":3}"#).await;
    let posted = || receiver.bodies().into_iter().collect::<BTreeSet<_>>();
    let expected = BTreeSet::from(["1", "2", "3"].map(str::to_owned));
    eventually(TIMEOUT, "what follows", async || posted() == expected).await;
    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "the dead letters", async || letters().await.len() == 3).await;
    // Without keys they have no order.
    let parked = letters().await;
    for reason in ["no ce_id", "yesterday", "ce_sequence is negative"] {
        let letter = parked.iter().find(|letter| letter["error"].as_str().unwrap().contains(reason)).unwrap();
        assert_eq!((&letter["error_code"], &letter["attempts"]), (&"VALIDATION_ERROR".into(), &1.into()), "{letter}");
    }
    let kept = parked.iter().find(|letter| letter["error"].as_str().unwrap().contains("ce_sequence")).unwrap();
    let kept = sandbox.run(&["dlq", "show", &kept["id"].to_string(), "--json"]).await.objects().remove(0);
    assert_eq!(kept["payload"], "secret", "the payload of what cannot be read is kept: {kept}");

    // There is nothing to post: a redrive parks them again.
    let redriven = sandbox.run(&["dlq", "redrive", "--all", "--json"]).await.objects().remove(0);
    assert_eq!(redriven["redriven"].as_array().map(Vec::len), Some(3), "{redriven}");
    let parked = r#"landfall_redrive_total{outcome="parked"} 3"#;
    eventually(TIMEOUT, "they are parked again", async || daemon.get("/metrics").await.body.contains(parked)).await;
    assert_eq!((posted(), receiver.bodies().len()), (expected, 3));
    assert!(letters().await.iter().all(|letter| letter["status"] == "parked"));
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

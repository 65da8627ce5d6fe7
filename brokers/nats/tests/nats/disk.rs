//! A server without space, because of a limit or a full disk. No accepted message is lost, order per key holds, and the
//! backlog drains once there is space.
use std::path::Path;

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::keyed;
use landfall_testkit::{SMALL_DISK, current_test, eventually, run_on_a_small_disk};

use crate::support::{SOON, connect, traffic};

const PARAMETERS: &str = "timeout=2s&session_timeout=3s&partitions=4";

/// Server configuration with an account that may store this many bytes.
fn account(bytes: u64) -> String {
    format!(
        "accounts {{ SHOP {{ jetstream: {{ max_file: {bytes} }}, users: [ {{ user: shop, password: secret }} ] }} }}"
    )
}

/// Publishes to a separate topic until the server refuses messages because it is full.
async fn until_full(url: &str) {
    let broker = connect(&format!("{url}&prefix=probe.")).await;
    let is_full = |outcome: &Outcome| {
        let Outcome::Refused(refusal) = outcome else { return false };
        assert!(refusal.retriable, "{refusal:?}");
        [ErrorCode::STORAGE_FULL, ErrorCode::PREDECESSOR].contains(&refusal.code)
    };
    // Creating the topic needs space as well.
    let mut number = 0;
    eventually(SOON, "the server is full", async || {
        number += 10;
        // Several messages of a key and a single one take different code paths.
        let batch = [keyed("a", number), keyed("a", number + 1), keyed("b", number)];
        broker.publisher().publish(&batch).await.iter().all(is_full)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_account_is_refused_until_its_limit_is_raised() {
    let options = NatsOptions { more: account(1_000_000), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    for atomic in [true, false] {
        server.reconfigure(&account(1_000_000)).await.unwrap();
        let url = format!("nats://shop:secret@{}?prefix={atomic}.&{PARAMETERS}&atomic={atomic}", server.address());
        let traffic = traffic(&connect(&url).await).await;
        until_full(&format!("nats://shop:secret@{}?{PARAMETERS}", server.address())).await;
        traffic.wait_for_failed_batches(1).await;
        server.reconfigure(&account(100_000_000)).await.unwrap();
        traffic.wait_for_progress(300).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_refuses_until_space_is_freed() {
    let options = NatsOptions { store_bytes: Some(2_000_000), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    let administrator = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let stream = async_nats::jetstream::stream::Config { name: "old".into(), ..Default::default() };
    administrator.create_stream(stream).await.unwrap();
    for _ in 0..15 {
        administrator.publish("old", vec![b'x'; 100_000].into()).await.unwrap().await.unwrap();
    }
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let traffic = traffic(&broker).await;
    until_full(&format!("{}?{PARAMETERS}", server.url())).await;
    traffic.wait_for_failed_batches(1).await;
    administrator.delete_stream("old").await.unwrap();
    traffic.wait_for_progress(300).await;
    traffic.finish().await;
}

#[test]
fn full_disk_loses_no_accepted_message() {
    run_on_a_small_disk("disk::child_fills_the_disk", 8);
}

/// Since 2.12, a stream that failed to write does not answer until its server restarts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on a small disk, in a process of its own"]
async fn child_fills_the_disk() {
    let disk = std::env::var(SMALL_DISK).unwrap();
    let options = NatsOptions { within: Some(disk.clone().into()), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let traffic = traffic(&broker).await;
    traffic.wait_for_progress(300).await;
    let ballast = Path::new(&disk).join("ballast");
    fill(&ballast);
    traffic.wait_for_failed_batches(1).await;
    std::fs::remove_file(&ballast).unwrap();
    server.restart().await.unwrap();
    traffic.wait_for_progress(300).await;
    traffic.finish().await;
}

/// Writes to a file until the disk is full.
fn fill(file: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

//! A server without room, by a limit and on a disk that is really full: nothing that was accepted is lost, the order of
//! every key holds, and it drains once there is room.
use std::path::Path;

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::keyed;
use landfall_testkit::{SMALL_DISK, current_test, eventually, run_on_a_small_disk};

use crate::support::{SOON, connect, traffic};

const PARAMETERS: &str = "timeout=2s&session_timeout=3s&partitions=4";

/// An account that may store so many bytes.
fn account(bytes: u64) -> String {
    format!(
        "accounts {{ SHOP {{ jetstream: {{ max_file: {bytes} }}, users: [ {{ user: shop, password: secret }} ] }} }}"
    )
}

/// Until a topic of its own, beside the one that is played on, is refused for want of room.
async fn until_full(url: &str) {
    let broker = connect(&format!("{url}&prefix=probe.")).await;
    let is_full = |outcome: &Outcome| {
        let Outcome::Refused(refusal) = outcome else { return false };
        assert!(refusal.retriable, "{refusal:?}");
        [ErrorCode::STORAGE_FULL, ErrorCode::PREDECESSOR].contains(&refusal.code)
    };
    // A new topic needs room as well.
    let mut number = 0;
    eventually(SOON, "there is no room", async || {
        number += 10;
        // Several of a key, and one that is alone: they go different ways.
        let batch = [keyed("a", number), keyed("a", number + 1), keyed("b", number)];
        broker.publisher().publish(&batch).await.iter().all(is_full)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_full_is_refused_until_it_is_given_more() {
    let options = NatsOptions { more: account(1_000_000), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    for atomic in [true, false] {
        server.reconfigure(&account(1_000_000)).await.unwrap();
        let url = format!("nats://shop:secret@{}?prefix={atomic}.&{PARAMETERS}&atomic={atomic}", server.address());
        let traffic = traffic(&connect(&url).await).await;
        until_full(&format!("nats://shop:secret@{}?{PARAMETERS}", server.address())).await;
        traffic.fails(1).await;
        server.reconfigure(&account(100_000_000)).await.unwrap();
        traffic.flows(300).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_full_is_refused_until_somebody_makes_room() {
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
    traffic.fails(1).await;
    administrator.delete_stream("old").await.unwrap();
    traffic.flows(300).await;
    traffic.finish().await;
}

#[test]
fn a_disk_that_is_really_full_loses_nothing_that_was_accepted() {
    run_on_a_small_disk("disk::child_fills_the_disk_of_a_server", 8);
}

/// Since 2.12 a stream that could not be written answers nothing until its server is started again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process with a disk of its own"]
async fn child_fills_the_disk_of_a_server() {
    let disk = std::env::var(SMALL_DISK).unwrap();
    let options = NatsOptions { within: Some(disk.clone().into()), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let traffic = traffic(&broker).await;
    traffic.flows(300).await;
    let ballast = Path::new(&disk).join("ballast");
    fill(&ballast);
    traffic.fails(1).await;
    std::fs::remove_file(&ballast).unwrap();
    server.restart().await.unwrap();
    traffic.flows(300).await;
    traffic.finish().await;
}

/// Until nothing more fits.
fn fill(file: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

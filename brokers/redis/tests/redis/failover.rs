//! Failover: the master dies, and a replica takes its place.

use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::traffic::Traffic;
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, options_for, several};

async fn online_replicas(server: &RedisServer) -> usize {
    server.ask("INFO replication").await.unwrap().matches("state=online").count()
}

/// Replication offset of this replica.
async fn offset(replica: &RedisServer) -> u64 {
    let info = replica.ask("INFO replication").await.unwrap();
    let offset = info.lines().find_map(|line| line.strip_prefix("slave_repl_offset:"));
    offset.and_then(|offset| offset.trim().parse().ok()).expect("a replica reports its offset")
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_under_load_loses_no_accepted_message() {
    let options = RedisOptions::durable().with("repl-diskless-sync-delay", "0");
    let Some(master) = RedisServer::start_with(&current_test(), options).await else { return };
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let replica = RedisServer::start_with(&current_test(), RedisOptions::replica_of(master.port())).await;
        replicas.extend(replica);
    }
    eventually(SOON, "two replicas are online", async || online_replicas(&master).await == 2).await;

    // The first host is a replica, and is skipped.
    let mut options = options_for(replicas[0].port(), "replicas=1&timeout=2s&connect_timeout=5s&lease=1s");
    options.hosts.extend([&master, &replicas[1]].map(|server| ("127.0.0.1".to_owned(), server.port())));
    let redis = several(&options, 1).await.remove(0);
    let traffic = Traffic::start(redis.clone(), [redis]).await;
    traffic.wait_for_progress(1_500).await;
    master.kill_9().await.unwrap();
    traffic.wait_for_failed_batches(1).await;

    // Like Sentinel, promote the replica with the higher offset.
    replicas.sort_by_cached_key(|replica| replica.port());
    if offset(&replicas[0]).await < offset(&replicas[1]).await {
        replicas.swap(0, 1);
    }
    assert!(replicas[0].ask("REPLICAOF NO ONE").await.unwrap().starts_with("+OK"));
    replicas[1].ask(&format!("REPLICAOF 127.0.0.1 {}", replicas[0].port())).await.unwrap();
    traffic.wait_for_progress(1_500).await;
    traffic.finish().await;
}

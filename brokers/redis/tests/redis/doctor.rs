//! Every finding, provoked on a real server, and gone after the fix.

use std::os::unix::fs::symlink;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, ErrorCode, Finding, Outcome, Rank, Span, TopicAdministration};
use landfall_redis::{Options, Redis};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::traffic::{keyed, orders, stock};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect, options_for};

/// A master with a replica in sync, and an adapter that waits for the replica.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    redis: Redis,
}

impl Pair {
    async fn start() -> Option<Self> {
        let options = RedisOptions::durable().with("repl-diskless-sync-delay", "0");
        let master = RedisServer::start_with(&current_test(), options).await?;
        let replica = replica_of(&master).await?;
        let redis = connect(master.port(), "replicas=1").await;
        Some(Self { master, replica, redis })
    }

    async fn set(&self, setting: &str) {
        let answer = self.master.ask(&format!("CONFIG SET {setting}")).await.unwrap();
        assert!(answer.starts_with("+OK"), "{setting}: {answer}");
    }

    /// Asserts that the setting `bad` yields exactly the finding `check`, and `good` none.
    async fn provoke(&self, check: &str, rank: Rank, bad: &str, good: &str) {
        self.set(bad).await;
        let findings = diagnose(&self.redis).await;
        assert_eq!(names(&findings), [(check, rank)], "{bad}: {findings:?}");
        self.set(good).await;
        assert_eq!(diagnose(&self.redis).await, [], "{good}");
    }
}

async fn replica_of(master: &RedisServer) -> Option<RedisServer> {
    let replica = RedisServer::start_with(&current_test(), RedisOptions::replica_of(master.port())).await?;
    eventually(SOON, "the replica is online", async || {
        master.ask("INFO replication").await.unwrap().contains("state=online")
    })
    .await;
    Some(replica)
}

async fn diagnose(redis: &Redis) -> Vec<Finding> {
    redis.diagnose(&Demands { window: Span::days(45) }).await.unwrap()
}

fn names(findings: &[Finding]) -> Vec<(&str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

async fn find(redis: &Redis, check: &str) -> Option<Finding> {
    diagnose(redis).await.into_iter().find(|finding| finding.check == check)
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_every_unsafe_setting() {
    let Some(pair) = Pair::start().await else { return };
    let subscriber = pair.redis.subscribe(&orders(), &stock()).await.unwrap();
    assert!(pair.redis.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    assert_eq!(diagnose(&pair.redis).await, []);

    pair.provoke("redis.appendfsync", Rank::Loss, "appendfsync everysec", "appendfsync always").await;
    pair.provoke("redis.appendfsync", Rank::Loss, "appendfsync no", "appendfsync always").await;
    let setting = "no-appendfsync-on-rewrite";
    pair.provoke("redis.no-appendfsync-on-rewrite", Rank::Loss, &format!("{setting} yes"), &format!("{setting} no"))
        .await;
    pair.set("maxmemory 500mb").await;
    for (policy, rank) in [("allkeys-lru", Rank::Loss), ("volatile-ttl", Rank::Order)] {
        let policy = format!("maxmemory-policy {policy}");
        pair.provoke("redis.eviction", rank, &policy, "maxmemory-policy noeviction").await;
    }
    pair.provoke("redis.memory", Rank::Latency, "maxmemory 1mb", "maxmemory 0").await;
    let buffer = "client-output-buffer-limit \"normal";
    let small = format!("{buffer} 1mb 1mb 10\"");
    pair.provoke("redis.output-buffer", Rank::Latency, &small, &format!("{buffer} 0 0 0\"")).await;
    // A documentation address, which Redis skips if it cannot bind to it.
    pair.set("protected-mode no").await;
    pair.provoke("redis.password", Rank::Loss, "bind \"127.0.0.1 -192.0.2.1\"", "bind 127.0.0.1").await;

    pair.set("appendonly no").await;
    assert_eq!(names(&diagnose(&pair.redis).await), [("redis.appendonly", Rank::Loss)]);
    pair.set("appendonly yes").await;
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_lagging_replicas_are_findings() {
    let Some(pair) = Pair::start().await else { return };
    let connect_with = async |replicas: u32| {
        let parameters = format!("replicas={replicas}&dedup=10m&timeout=2s");
        connect(pair.master.port(), &parameters).await
    };
    assert_eq!(names(&diagnose(&connect_with(0).await).await), [("redis.replicas-not-waited-for", Rank::Loss)]);
    let redis = connect_with(2).await;
    assert_eq!(names(&diagnose(&redis).await), [("redis.replicas-missing", Rank::Latency)]);
    // With one of two required replicas the outcome is unknown.
    let outcome = redis.publisher().publish(&[keyed("a", 1)]).await.remove(0);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    redis.delete_topic(&orders()).await.unwrap();

    // Connect to the replica directly, then pause it while the master continues.
    let to_replica = connect(pair.replica.port(), "replicas=1").await;
    let found = find(&to_replica, "redis.role").await.expect("a replica is a finding");
    assert_eq!(found.rank, Rank::Latency);
    pair.replica.pause().await.unwrap();
    // A payload so large that its sync takes a while.
    let unguarded = connect(pair.master.port(), "replicas=0&dedup=10m&timeout=30s").await;
    let mut large = keyed("a", 1);
    large.payload = vec![7; 20 * 1024 * 1024].into();
    assert!(unguarded.publisher().publish(&[large]).await[0].is_accepted());
    let late = find(&unguarded, "redis.replica-lag").await.expect("the replica lags");
    assert_eq!(late.rank, Rank::Loss);
    let guarded = connect(pair.master.port(), "replicas=1&timeout=3s").await;
    assert_eq!(find(&guarded, "redis.replica-lag").await.map(|late| late.rank), Some(Rank::Latency));
    // With replicas=1 a message is accepted only once the replica has it.
    let publisher = guarded.publisher();
    let message = keyed("b", 1);
    let outcome = publisher.publish(std::slice::from_ref(&message)).await.remove(0);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    pair.replica.resume().await.unwrap();
    eventually(SOON, "the replica has the message", async || {
        publisher.publish(std::slice::from_ref(&message)).await[0].is_accepted()
    })
    .await;

    pair.replica.kill_9().await.unwrap();
    eventually(SOON, "the missing replica is reported", async || {
        names(&diagnose(&pair.redis).await) == [("redis.replica", Rank::Loss)]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_disk_is_a_finding_and_refuses_messages() {
    let options = RedisOptions::durable().with("appendfsync", "everysec").with("save", "3600 1");
    let Some(server) = RedisServer::start_with(&current_test(), options).await else { return };
    let redis = connect(server.port(), "").await;
    let publisher = redis.publisher();
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
    for check in ["redis.snapshot", "redis.aof-rewrite", "redis.aof-write"] {
        assert_eq!(find(&redis, check).await, None);
    }
    // A directory in the place of the file makes the snapshot fail.
    let snapshot = server.folder().join("dump.rdb");
    std::fs::create_dir(&snapshot).unwrap();
    server.ask("BGSAVE").await.unwrap();
    eventually(SOON, "the failed snapshot is reported", async || find(&redis, "redis.snapshot").await.is_some()).await;
    std::fs::remove_dir(&snapshot).unwrap();
    server.ask("BGSAVE").await.unwrap();
    eventually(SOON, "a snapshot succeeds", async || find(&redis, "redis.snapshot").await.is_none()).await;

    let files = server.folder().join("appendonlydir");
    let base = files.join("appendonly.aof.2.base.rdb");
    std::fs::create_dir(&base).unwrap();
    server.ask("BGREWRITEAOF").await.unwrap();
    eventually(SOON, "the failed rewrite is reported", async || find(&redis, "redis.aof-rewrite").await.is_some())
        .await;
    std::fs::remove_dir(&base).unwrap();

    // The next part of the append-only file is on a device that is always full.
    for number in 2..9 {
        let _exists = symlink("/dev/full", files.join(format!("appendonly.aof.{number}.incr.aof")));
    }
    server.ask("BGREWRITEAOF").await.unwrap();
    eventually(SOON, "the disk is full", async || {
        let _written = publisher.publish(&[keyed("probe", 1)]).await;
        find(&redis, "redis.aof-write").await.is_some_and(|found| found.rank == Rank::Loss)
    })
    .await;
    match publisher.publish(&[keyed("a", 2)]).await.remove(0) {
        Outcome::Refused(refusal) => assert_eq!((refusal.code, refusal.retriable), (ErrorCode::STORAGE_FULL, true)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_and_stuck_messages_are_findings() {
    let Some(pair) = Pair::start().await else { return };
    let redis = &pair.redis;
    let publish = async |number: i64| assert!(redis.publisher().publish(&[keyed("a", number)]).await[0].is_accepted());
    publish(1).await;
    assert_eq!(names(&diagnose(redis).await), [("redis.no-group", Rank::Latency)]);

    let mut subscriber = redis.subscribe(&orders(), &stock()).await.unwrap();
    let delivery = subscriber.next().await.unwrap().unwrap();
    assert_eq!(diagnose(redis).await, []);
    // As if it had been delivered an hour ago.
    let id = delivery.position.offset;
    let streams = pair.master.ask("KEYS *{orders/*}").await.unwrap();
    let stream = streams.lines().find(|line| line.ends_with(&format!("{{orders/{}}}", delivery.position.partition)));
    let stream = stream.expect("the stream exists").to_owned();
    let claim = format!("XCLAIM {stream} stock landfall 0 {}-{} IDLE 3600000", id >> 21, id & ((1 << 21) - 1));
    pair.master.ask(&claim).await.unwrap();
    assert_eq!(names(&diagnose(redis).await), [("redis.unfinished", Rank::Latency)]);
    delivery.ack().await.unwrap();
    eventually(SOON, "the message is acknowledged", async || diagnose(redis).await.is_empty()).await;

    subscriber.close().await.unwrap();
    assert_eq!(diagnose(redis).await, [], "a group without pending messages is no finding");
    publish(2).await;
    assert_eq!(names(&diagnose(redis).await), [("redis.group-without-member", Rank::Latency)]);
    let mut subscriber = redis.subscribe(&orders(), &stock()).await.unwrap();
    subscriber.next().await.unwrap().unwrap().ack().await.unwrap();

    let ahead = landfall_core::Timestamp::now().as_millis() + 3_600_000;
    pair.master.ask(&format!("XADD {stream} {ahead}-0 x y")).await.unwrap();
    let clock = find(redis, "redis.clock").await.expect("the clock skew is a finding");
    assert_eq!((clock.rank, clock.about.as_str()), (Rank::Latency, "orders"));
}

#[tokio::test(flavor = "multi_thread")]
async fn short_dedup_window_is_a_finding() {
    let Some(pair) = Pair::start().await else { return };
    for dedup in ["dedup=0", "dedup=5s"] {
        let redis = connect(pair.master.port(), &format!("replicas=1&{dedup}")).await;
        assert_eq!(names(&diagnose(&redis).await), [("redis.dedup", Rank::Duplicates)]);
        assert_eq!(redis.capabilities().deduplicates, dedup != "dedup=0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_a_finding() {
    let Some(pair) = Pair::start().await else { return };
    assert!(pair.redis.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    pair.master.ask("ACL SETUSER shop on >secret ~* &* +@all -config -info -acl -xinfo").await.unwrap();
    let mut options = options_for(pair.master.port(), "replicas=1");
    (options.user, options.password) = (Some("shop".into()), Some("secret".into()));
    let redis = Redis::connect(options.clone()).await.unwrap();
    assert!(!redis.capabilities().durable, "unreadable settings count as not durable");
    let hidden: Vec<_> = diagnose(&redis).await.into_iter().map(|finding| (finding.check, finding.about)).collect();
    let expected = ["ACL GETUSER", "CONFIG GET", "INFO"].map(|about| ("redis.hidden", about.to_owned()));
    assert_eq!(hidden, expected);

    redis.publisher().publish(&[keyed("a", 1)]).await;
    let about: Vec<_> = diagnose(&redis).await.into_iter().map(|finding| finding.about).collect();
    assert!(about.iter().any(|about| about.contains("{orders/")), "an unreadable stream is a finding: {about:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_node_is_refused() {
    let options = RedisOptions::durable().with("cluster-enabled", "yes");
    let Some(server) = RedisServer::start_with(&current_test(), options).await else { return };
    let url = format!("redis://127.0.0.1:{}", server.port());
    let refused = Redis::connect(Options::from_url(&url).unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), landfall_core::ErrorKind::Unsupported);
}

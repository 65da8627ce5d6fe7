//! `landfall topic`: create, show, configure, grow and delete topics, move and forget groups.

use serde_json::json;

use super::support::Sandbox;

#[tokio::test]
async fn topic_is_created_shown_configured_grown_and_deleted() {
    let sandbox = Sandbox::new();
    let create =
        ["topic", "create", "orders", "--partitions", "2", "--retention", "7d", "--retention-bytes", "10GiB", "--json"];
    let settings = json!({
        "retention_ms": 604_800_000, "retention_bytes": 10_737_418_240_u64, "may_drop_unread": false, "compact": false,
        "deduplicate": true
    });
    for created in [true, false] {
        let response = json!({"topic": "orders", "created": created, "partitions": 2, "settings": settings});
        assert_eq!(sandbox.run(&create).await.objects(), [response]);
    }
    let conflict = sandbox.run(&["topic", "create", "orders", "--partitions", "3"]).await;
    let line = conflict.error_line(1);
    assert!(line.contains("it has 2 partitions and not 3, its retention is 604800000 ms and not forever"));

    for n in ["1", "2", "3"] {
        assert_eq!(sandbox.run(&["topic", "publish", "orders", n, "--key", "k"]).await.code, 0);
    }
    let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
    assert_eq!((&shown["messages"], &shown["skew"], &shown["settings"]), (&json!(3), &json!(2.0), &settings));
    let shares: Vec<f64> =
        shown["partitions"].as_array().unwrap().iter().map(|partition| partition["share"].as_f64().unwrap()).collect();
    assert!(shares == [1.0, 0.0] || shares == [0.0, 1.0], "{shares:?}");
    let shown = sandbox.run(&["topic", "show", "orders"]).await;
    for text in ["skew         2.00", "retention    7days or 10 GiB", "PARTITION  START  END  MESSAGES", "100.0 %"] {
        assert!(shown.stdout.contains(text), "{text} is not in {}", shown.stdout);
    }

    let configure =
        ["topic", "configure", "orders", "--retention", "forever", "--compact", "--no-deduplicate", "--json"];
    let settings = json!({
        "retention_ms": null, "retention_bytes": 10_737_418_240_u64, "may_drop_unread": false, "compact": true,
        "deduplicate": false
    });
    for changed in [true, false] {
        let response = json!({"topic": "orders", "changed": changed, "settings": settings});
        assert_eq!(sandbox.run(&configure).await.objects(), [response]);
    }
    let back = sandbox.run(&["topic", "configure", "orders", "--compact=false", "--deduplicate"]).await;
    assert_eq!((back.code, back.stdout.as_str()), (0, "topic orders is changed; retention: 10 GiB\n"));

    let grow = ["topic", "grow", "orders", "--partitions", "5"];
    let refused = sandbox.run(&grow).await;
    assert!(refused.error_line(2).contains("before older ones of the same key are finished"));
    assert!(refused.error_line(2).contains("nothing was changed; confirm with --yes"));
    let grown = sandbox.run(&[&grow[..], &["--yes", "--json"]].concat()).await.objects();
    assert_eq!(grown, [json!({"topic": "orders", "before": 2, "after": 5})]);
    let again = sandbox.run(&grow).await;
    assert_eq!((again.code, again.stdout.as_str()), (0, "topic orders has 5 partitions, as before; no key moves\n"));
    assert!(
        sandbox
            .run(&["topic", "grow", "orders", "--partitions", "1"])
            .await
            .error_line(2)
            .contains("cannot have fewer")
    );

    let listed = sandbox.run(&["topic", "list", "--json"]).await.objects().remove(0);
    assert_eq!((&listed["partitions"], &listed["messages"], &listed["skew"]), (&json!(5), &json!(3), &json!(5.0)));
    let listed = sandbox.run(&["topic", "list"]).await.stdout;
    assert!(listed.lines().next().unwrap().ends_with("SKEW  RETENTION"), "{listed}");

    let refused = sandbox.run(&["topic", "delete", "orders"]).await;
    assert!(refused.error_line(2).contains("topic orders has 3 messages, which cannot be recovered"));
    for deleted in [true, false] {
        let response = sandbox.run(&["topic", "delete", "orders", "--yes", "--json"]).await.objects();
        assert_eq!(response, [json!({"topic": "orders", "deleted": deleted})]);
    }
    assert!(sandbox.run(&["topic", "list", "--json"]).await.objects().is_empty());
    assert!(sandbox.run(&["topic", "show", "orders"]).await.error_line(1).contains("there is no topic orders"));
}

#[tokio::test]
async fn new_topics_use_the_configured_defaults() {
    let sandbox = Sandbox::new();
    sandbox.configure("[broker]\npartitions = 3\nretention = \"36h\"\ndeduplicate = false\n");
    assert_eq!(sandbox.run(&["topic", "publish", "orders", "1"]).await.code, 0);
    let created = sandbox.run(&["topic", "create", "clicks", "--deduplicate", "--json"]).await.objects().remove(0);
    assert_eq!((&created["partitions"], &created["settings"]["deduplicate"]), (&json!(3), &json!(true)));
    let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
    assert_eq!(
        (&shown["settings"]["retention_ms"], &shown["settings"]["deduplicate"]),
        (&json!(129_600_000), &json!(false))
    );
}

#[tokio::test]
async fn usage_errors_change_nothing() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["topic", "configure", "orders"]).await.error_line(2).contains("no setting given"));
    for (flag, value, words) in [
        ("--partitions", "0", "1..=1024"),
        ("--partitions", "2000", "1..=1024"),
        ("--retention", "7", "must be a time such as 7d"),
        ("--retention-bytes", "10XB", "must be a size such as 10GiB"),
    ] {
        let refused = sandbox.run(&["topic", "create", "orders", flag, value]).await;
        assert!(refused.code == 2 && refused.stderr.contains(words), "{refused:?}");
    }
    assert!(!sandbox.data().exists());

    let elsewhere = ["--broker-url", "log:elsewhere"];
    for verb in [
        &["topic", "configure", "orders", "--compact"][..],
        &["topic", "grow", "orders", "--partitions", "9", "--yes"],
        &["topic", "delete", "orders", "--yes"],
        &["topic", "seek", "orders", "--group", "billing", "--to", "end"],
        &["topic", "forget", "orders", "--group", "billing", "--yes"],
        &["topic", "show", "orders"],
    ] {
        let line = sandbox.run(&[verb, &elsewhere].concat()).await;
        assert!(line.error_line(1).contains("there is no log in the folder elsewhere"));
    }
    assert!(!sandbox.path().join("elsewhere").exists());
}

#[tokio::test]
async fn topics_are_read_only_beside_a_daemon() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic": "orders", "key": "k", "payload": 1}"#).await;
    landfall_testkit::eventually(super::support::TIMEOUT, "the message in the log", async || {
        let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await;
        shown.code == 0 && shown.objects()[0]["messages"] == json!(1)
    })
    .await;
    for verb in [
        &["topic", "create", "other"][..],
        &["topic", "configure", "orders", "--compact"],
        &["topic", "grow", "orders", "--partitions", "9", "--yes"],
        &["topic", "delete", "orders", "--yes"],
        &["topic", "seek", "orders", "--group", "billing", "--to", "end"],
    ] {
        let refused = sandbox.run(verb).await;
        assert!(refused.error_line(1).contains("process"), "{refused:?}");
        assert!(refused.error_line(1).contains("stop that process first"), "{refused:?}");
    }
    let metrics = daemon.get("/metrics").await.body;
    let of = |name: &str| -> f64 {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!(of("landfall_topic_messages{topic=\"orders\",partition="), 1.0, "{metrics}");
    assert!(of("landfall_topic_bytes{topic=\"orders\",partition=") > 0.0, "{metrics}");
    assert_eq!(of("landfall_topic_skew{topic=\"orders\"}"), 4.0, "{metrics}");
}

#[tokio::test]
async fn group_lag_is_shown_and_exported() {
    use landfall::Broker;

    let sandbox = Sandbox::new();
    for n in ["1", "2", "3"] {
        assert_eq!(sandbox.run(&["topic", "publish", "orders", n, "--key", "k"]).await.code, 0);
    }
    let log = landfall::log::Log::open(sandbox.data().join("log"), landfall::log::Options::default()).unwrap();
    let (topic, group) = ("orders".parse().unwrap(), "billing".parse().unwrap());
    let mut subscriber = log.subscribe(&topic, &group).await.unwrap();
    subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
    let group = &shown["groups"][0];
    assert_eq!((&group["group"], &group["members"], &group["lag"]), (&json!("billing"), &json!(null), &json!(2)));
    let shown = sandbox.run(&["topic", "show", "orders"]).await.stdout;
    assert!(shown.ends_with("GROUP    MEMBERS  LAG\nbilling  -        2\n"), "{shown}");
    let daemon = sandbox.serve().await;
    let metrics = daemon.get("/metrics").await.body;
    let line = "landfall_group_lag{topic=\"orders\",group=\"billing\"} 2";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[tokio::test]
async fn group_is_moved_by_seek_and_removed_by_forget() {
    use landfall::Broker;

    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["topic", "create", "orders", "--partitions", "1"]).await.code, 0);
    for n in ["1", "2", "3"] {
        assert_eq!(sandbox.run(&["topic", "publish", "orders", n]).await.code, 0);
    }
    let seek = ["topic", "seek", "orders", "--group", "billing", "--to"];
    for (to, finished) in
        [("end", 3), ("1", 1), ("99", 3), ("2000-01-01T00:00:00Z", 0), ("2100-01-01T00:00:00Z", 3), ("2", 2)]
    {
        let response = sandbox.run(&[&seek[..], &[to, "--json"]].concat()).await.objects();
        let lag = 3 - finished;
        let partition = json!({"partition": 0, "finished": finished, "end": 3, "lag": lag});
        let expected = json!({"topic": "orders", "group": "billing", "partitions": [partition], "lag": lag});
        assert_eq!(response, [expected], "{to}");
    }
    let log = landfall::log::Log::open(sandbox.data().join("log"), landfall::log::Options::default()).unwrap();
    let mut subscriber = log.subscribe(&"orders".parse().unwrap(), &"billing".parse().unwrap()).await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().unwrap().position.offset, 2);
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
    let back = sandbox.run(&[&seek[..], &["beginning"]].concat()).await;
    let table = "PARTITION  NEXT  END  LAG\n0          0     3    3\n";
    let line = "group billing of topic orders is moved and has a lag of 3 messages";
    assert_eq!((back.code, back.stdout), (0, format!("{line}\n{table}")));

    assert_eq!(sandbox.run(&[&seek[..], &["2"]].concat()).await.code, 0);
    let forget = ["topic", "forget", "orders", "--group", "billing"];
    let refused = sandbox.run(&forget).await;
    assert!(refused.error_line(2).contains("at the beginning of topic orders and receives 2 finished messages again"));
    for forgotten in [true, false] {
        let response = sandbox.run(&[&forget[..], &["--yes", "--json"]].concat()).await.objects();
        assert_eq!(response, [json!({"topic": "orders", "group": "billing", "forgotten": forgotten})]);
    }
    assert_eq!(sandbox.run(&forget).await.stdout, "topic orders had no group billing\n");
    let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
    assert_eq!(shown["groups"], json!([]));

    let wrong = sandbox.run(&[&seek[..], &["yesterday"]].concat()).await;
    assert!(wrong.code == 2 && wrong.stderr.contains("must be beginning, end, an offset, or a time"), "{wrong:?}");
    for verb in [&["seek", "--to", "end"][..], &["forget", "--yes"]] {
        let missing = sandbox.run(&[&["topic"], verb, &["nothing", "--group", "billing"]].concat()).await;
        assert!(missing.error_line(1).contains("there is no topic nothing"), "{missing:?}");
    }
}

#[tokio::test]
async fn topic_changes_are_audited() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["topic", "create", "orders", "--partitions", "1"]).await.code, 0);
    let seek = ["topic", "seek", "orders", "--group", "billing", "--to", "end", "--actor", "alice"];
    let unrecorded = sandbox.run(&seek).await;
    assert!(unrecorded.code == 0 && unrecorded.stderr.contains("the change is not recorded"), "{unrecorded:?}");

    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    let changes = [
        &seek[..],
        &["topic", "configure", "orders", "--retention", "7d", "--actor", "alice"],
        // Changes nothing, and is not recorded.
        &["topic", "configure", "orders", "--retention", "7d", "--actor", "alice"],
        &["topic", "grow", "orders", "--partitions", "2", "--yes", "--actor", "alice"],
        &["topic", "forget", "orders", "--group", "billing", "--yes", "--actor", "alice"],
        &["topic", "delete", "orders", "--yes", "--actor", "alice"],
    ];
    for change in changes {
        let changed = sandbox.run(change).await;
        assert_eq!((changed.code, changed.stderr.as_str()), (0, ""), "{change:?}");
    }
    let recorded = "SELECT count(*) FROM landfall_audit WHERE actor = 'alice' AND detail LIKE '%orders%' AND action";
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_audit").await, 5);
    for action in ["topic-seek", "topic-configure", "topic-grow", "topic-forget", "topic-delete"] {
        assert_eq!(sandbox.count(&format!("{recorded} = '{action}'")).await, 1, "{action}");
    }
}

#[tokio::test]
async fn seek_behind_the_inbox_needs_a_flag() {
    let sandbox = Sandbox::new();
    // Every message is older than the inbox remembers.
    sandbox.configure("[retention]\ninbox = \"0\"\n");
    assert_eq!(sandbox.run(&["topic", "create", "orders", "--partitions", "2"]).await.code, 0);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(sandbox.run(&["topic", "publish", "orders", "1", "--key", key]).await.code, 0);
    }
    let seek = async |to: &str, flags: &[&str]| {
        let seek = ["topic", "seek", "orders", "--group", "billing", "--to", to, "--json"];
        sandbox.run(&[&seek[..], flags].concat()).await
    };
    assert_eq!(seek("beginning", &[]).await.code, 0, "a new group has handled nothing");
    assert_eq!(seek("end", &[]).await.code, 0, "forward nothing is repeated");
    for to in ["beginning", "0", "2000-01-01T00:00:00Z"] {
        let refused = seek(to, &[]).await;
        assert!(refused.error_line(2).contains("their effects would happen a second time"), "{refused:?}");
    }
    let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
    assert_eq!(shown["groups"][0]["lag"], 0, "a refused seek changes nothing");
    assert_eq!(seek("beginning", &["--repeat-effects"]).await.objects()[0]["lag"], 4);

    sandbox.configure("[retention]\ninbox = \"forever\"\n");
    assert_eq!(seek("end", &[]).await.code, 0);
    assert_eq!(seek("beginning", &[]).await.code, 0, "the inbox remembers all of them");
}

//! Alerts end to end: recorded, delivered, resolved, muted; with daemons killed and answers lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::Timestamp;
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};

use super::support::{
    Daemon, Receiver, Sandbox, TIMEOUT, alert_in, notices, of_rule, on_each, record_letter, response, subscription_to,
    verified_alerts, webhook,
};

/// How long a test waits to show that nothing is sent: several looks of the notifier.
const QUIET: Duration = Duration::from_secs(3);

async fn metric(daemon: &Daemon, name: &str) -> Option<f64> {
    let body = daemon.get("/metrics").await.body;
    body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(|value| value.parse().unwrap())
}

/// Waits for an alert of `rule` about `topic` with this status at the receiver.
async fn told(receiver: &Receiver, rule: &str, topic: &str, status: &str) {
    eventually(TIMEOUT, &format!("{rule} of {topic} is reported as {status}"), async || {
        of_rule(&receiver.requests(), rule, topic).iter().any(|(found, _)| found == status)
    })
    .await;
}

fn statuses(receiver: &Receiver, rule: &str, topic: &str) -> Vec<String> {
    of_rule(&receiver.requests(), rule, topic).into_iter().map(|(status, _)| status).collect()
}

on_each! {
    async fn letter_is_reported_and_resolved_after_its_redrive(sandbox: &Sandbox) {
        let (pager, is_fixed) = (Receiver::accepting().await, Arc::new(AtomicBool::new(false)));
        let fixed = is_fixed.clone();
        let mailer = Receiver::start(move |_, _| {
            if fixed.load(Ordering::SeqCst) { response(200, "", "") } else { response(400, "", "no such customer") }
        })
        .await;
        sandbox.configure(&format!("{}{}", webhook(pager.address), subscription_to(mailer.address, "")));
        let daemon = sandbox.serve().await;
        // A first look before the first error, so that the error is new.
        eventually(TIMEOUT, "the rules have run", async || {
            sandbox.count("SELECT count(*) FROM landfall_alert WHERE state = 'rule'").await > 0
        })
        .await;
        daemon.send(r#"{"topic": "orders", "key": "k", "payload": 1}"#).await;
        told(&pager, "dead-letter", "orders", "firing").await;
        eventually(TIMEOUT, "the new error is reported", async || {
            let all: Vec<_> = pager.requests().iter().flat_map(verified_alerts).collect();
            all.iter().any(|alert| alert["labels"]["alertname"] == "new-group")
        })
        .await;

        let requests = pager.requests();
        let all: Vec<_> = requests.iter().flat_map(verified_alerts).collect();
        let firing = all.iter().find(|alert| alert["labels"]["alertname"] == "dead-letter").unwrap();
        assert_eq!(firing["labels"]["group"], "mailer", "{firing}");
        assert_eq!(firing["annotations"]["summary"], "1 dead letter of topic orders, group mailer is parked");
        let sample = firing["annotations"]["dead_letter"].as_str().unwrap();
        let link = format!("https://landfall.example/console/messages/{sample}");
        assert_eq!(firing["generatorURL"], link.as_str());
        let path = link.strip_prefix("https://landfall.example").unwrap();
        let page = daemon.get(path).await;
        assert!(page.status == 200 && page.body.contains("no such customer"), "the link leads to the letter");
        let new = all.iter().find(|alert| alert["labels"]["alertname"] == "new-group").unwrap();
        assert!(new["annotations"]["summary"].as_str().unwrap().contains("no such customer"), "{new}");
        let shown = daemon.get("/v1/alerts?state=firing&rule=dead-letter").await.json();
        assert_eq!((shown["items"][0]["value"].as_u64(), shown["items"].as_array().unwrap().len()), (Some(1), 1));
        assert_eq!(metric(&daemon, r#"landfall_alerts_firing{rule="dead-letter"}"#).await, Some(1.0));
        assert_eq!(metric(&daemon, r#"landfall_alerts_firing{rule="outbox-age"}"#).await, Some(0.0));

        is_fixed.store(true, Ordering::SeqCst);
        assert_eq!(daemon.post(&format!("/v1/dead-letters/{sample}/redrive"), "{}").await.status, 200);
        told(&pager, "dead-letter", "orders", "resolved").await;
        assert_eq!(statuses(&pager, "dead-letter", "orders"), ["firing", "resolved"], "each once");
        eventually(TIMEOUT, "everything is delivered", async || {
            notices(sandbox, &["--state", "waiting"]).await.is_empty()
        })
        .await;
        let log = daemon.get("/v1/alert-notices?channel=ops&limit=1000").await.json();
        let log = log["items"].as_array().unwrap();
        assert!(log.iter().all(|notice| notice["state"] == "delivered" && notice["attempts"] == 1), "{log:?}");
        let counted = r#"landfall_alert_notices_total{channel="ops",outcome="delivered"}"#;
        eventually(TIMEOUT, "each delivery is counted", async || {
            metric(&daemon, counted).await == Some(log.len() as f64)
        })
        .await;
        daemon.kill().await;
    }

    async fn parked_half_message_is_reported_and_resolved_by_its_decision(sandbox: &Sandbox) {
        let pager = Receiver::accepting().await;
        let quick = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\nmax_checks = 1\n";
        sandbox.configure(&format!("{}{quick}", webhook(pager.address)));
        let daemon = sandbox.serve().await;
        let half = r#"{"topic": "orders", "payload": 1, "business_type": "order", "business_id": "7",
                       "check_back": {"database": "nowhere"}}"#;
        let prepared = daemon.post("/v1/half-messages", half).await;
        assert_eq!(prepared.status, 201, "{prepared:?}");
        let reported = async |status: &str| {
            eventually(TIMEOUT, &format!("half-message is reported as {status}"), async || {
                let alerts: Vec<_> = pager.requests().iter().flat_map(verified_alerts).collect();
                alerts.iter().any(|one| one["labels"]["alertname"] == "half-message" && one["status"] == status)
            })
            .await;
        };
        reported("firing").await;
        let id = prepared.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(sandbox.run(&["half", "commit", &id]).await.code, 0);
        reported("resolved").await;
    }

    async fn uncertain_record_is_reported_until_a_person_has_resolved_it(sandbox: &Sandbox) {
        let pager = Receiver::accepting().await;
        sandbox.configure(&webhook(pager.address));
        let daemon = sandbox.serve().await;
        let told = async |status: &str| {
            eventually(TIMEOUT, &format!("the record is reported as {status}"), async || {
                let all: Vec<_> = pager.requests().iter().flat_map(verified_alerts).collect();
                all.iter().any(|one| {
                    one["status"] == status && one["labels"]["alertname"] == "idempotency-uncertain"
                })
            })
            .await;
        };
        let key = r#""scope": "tenant-7", "business_type": "payment", "key": "1""#;
        let claim = format!(r#"{{{key}, "on_unknown": "uncertain"}}"#);
        let epoch = daemon.post("/v1/idempotency/claim", claim).await.json()["epoch"].clone();
        let unknown = format!(r#"{{{key}, "epoch": {epoch}, "outcome": "unknown"}}"#);
        assert_eq!(daemon.post("/v1/idempotency/release", unknown).await.status, 200);
        told("firing").await;
        let listed = sandbox.run(&["idempotency", "list", "--state", "uncertain", "--json"]).await.objects();
        let released = sandbox.run(&["idempotency", "release", listed[0]["id"].as_str().unwrap()]).await;
        assert_eq!(released.code, 0, "{released:?}");
        told("resolved").await;
        daemon.kill().await;
    }

    async fn notice_survives_a_kill_before_its_delivery(sandbox: &Sandbox) {
        // An address at which nothing listens yet.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        sandbox.configure(&webhook(address));
        let daemon = sandbox.serve().await;
        record_letter(sandbox, "orders").await;
        eventually(TIMEOUT, "an attempt has failed", async || {
            let waiting = notices(sandbox, &["--state", "waiting"]).await;
            waiting.iter().any(|notice| notice["rule"] == "dead-letter" && notice["error"].is_string())
        })
        .await;
        let waiting = notices(sandbox, &[]).await;
        let of_letter = waiting.iter().find(|notice| notice["rule"] == "dead-letter").unwrap();
        let delivery = of_letter["delivery"].as_str().unwrap().to_owned();
        daemon.kill().await;
        let pager = Receiver::at(socket);
        let daemon = sandbox.serve().await;
        told(&pager, "dead-letter", "orders", "firing").await;
        eventually(TIMEOUT, "it is recorded as delivered", async || {
            notices(sandbox, &["--state", "waiting"]).await.is_empty()
        })
        .await;
        let found = of_rule(&pager.requests(), "dead-letter", "orders");
        assert_eq!(found, [("firing".to_owned(), delivery)], "the same delivery, once");
        daemon.kill().await;
    }

    async fn lost_answer_repeats_the_same_delivery(sandbox: &Sandbox) {
        let pager = Receiver::accepting().await;
        let network = Proxy::start(pager.address).await.unwrap();
        sandbox.configure(&webhook(network.address()));
        network.cut_next(Trigger::word("POST"), CutPoint::BeforeResponse);
        let daemon = sandbox.serve().await;
        record_letter(sandbox, "orders").await;
        eventually(TIMEOUT, "it is recorded as delivered", async || {
            let delivered = notices(sandbox, &["--state", "delivered"]).await;
            delivered.iter().any(|notice| notice["rule"] == "dead-letter")
        })
        .await;
        let mut bodies: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for request in pager.requests() {
            verified_alerts(&request);
            bodies.entry(request.header("webhook-id").to_owned()).or_default().push(request.body.clone());
        }
        let repeated: Vec<_> = bodies.values().filter(|bodies| bodies.len() > 1).collect();
        assert_eq!(repeated.len(), 1, "exactly the delivery whose answer was lost: {bodies:?}");
        assert!(repeated[0].len() == 2 && repeated[0][0] == repeated[0][1], "{repeated:?}");
        daemon.kill().await;
    }

    async fn two_daemons_send_each_notice_once(sandbox: &Sandbox) {
        let pager = Receiver::accepting().await;
        sandbox.configure(&webhook(pager.address));
        let first = sandbox.serve().await;
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--broker-url", "log:second"];
        let second = Daemon::start(sandbox.command(&arguments)).await;
        let topics: Vec<String> = (0..5).map(|number| format!("orders{number}")).collect();
        for topic in &topics {
            record_letter(sandbox, topic).await;
        }
        for topic in &topics {
            told(&pager, "dead-letter", topic, "firing").await;
        }
        // A daemon that is killed before it has recorded an answer leaves the delivery to the other, under the same id.
        eventually(TIMEOUT, "everything is recorded", async || {
            notices(sandbox, &["--state", "waiting"]).await.is_empty()
        })
        .await;
        first.kill().await;
        record_letter(sandbox, "late").await;
        told(&pager, "dead-letter", "late", "firing").await;
        for topic in topics.iter().map(String::as_str).chain(["late"]) {
            let told = of_rule(&pager.requests(), "dead-letter", topic);
            assert!(matches!(&told[..], [(status, _)] if status == "firing"), "{topic}: {told:?}");
        }
        second.kill().await;
    }
}

#[tokio::test]
async fn muted_rule_is_reported_when_the_mute_ends() {
    let (sandbox, pager) = (Sandbox::new(), Receiver::accepting().await);
    let rule = "[[alert]]\nrule = \"dead-letter\"\nquiet = \"1s\"\n";
    sandbox.configure(&format!("{}{rule}", webhook(pager.address)));
    let daemon = sandbox.serve().await;
    let mute = ["alerts", "mute", "--rule", "dead-letter", "--actor", "maria", "--reason", "known"];
    let muted = sandbox.run(&[&mute[..], &["--for", "2h", "--json"]].concat()).await.objects();
    assert_eq!(muted[0]["rule"], "dead-letter");
    record_letter(&sandbox, "orders").await;
    let alert = alert_in(&sandbox, "dead-letter", "orders", "firing").await;
    assert_eq!(alert["notified_at"], serde_json::Value::Null);
    // The other rules are not muted.
    eventually(TIMEOUT, "another rule is reported", async || !pager.requests().is_empty()).await;
    tokio::time::sleep(QUIET).await;
    assert!(statuses(&pager, "dead-letter", "orders").is_empty());

    assert_eq!(sandbox.run(&[&mute[..], &["--for", "0"]].concat()).await.code, 0);
    told(&pager, "dead-letter", "orders", "firing").await;
    // A muted alert is not repeated, and others of its rule are reported.
    let id = alert["id"].as_str().unwrap();
    assert_eq!(sandbox.run(&["alerts", "mute", id, "--for", "1h", "--actor", "maria"]).await.code, 0);
    record_letter(&sandbox, "orders").await;
    record_letter(&sandbox, "other").await;
    told(&pager, "dead-letter", "other", "firing").await;
    assert_eq!(statuses(&pager, "dead-letter", "orders"), ["firing"]);
    let audit = daemon.get("/v1/audit?actor=maria").await.json();
    let actions: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["alert-mute", "alert-unmute", "alert-mute"]);

    let path = format!("/v1/alerts/{id}/mute");
    let response = daemon.post(&path, r#"{"for_s": 0, "actor": "maria"}"#).await;
    assert_eq!((response.status, &response.json()["id"]), (200, &alert["id"]));
    eventually(TIMEOUT, "the letter during the mute is reported", async || {
        statuses(&pager, "dead-letter", "orders") == ["firing", "firing"]
    })
    .await;
    for wrong in ["", "[]", "{}", r#"{"for_s": -1}"#, r#"{"for_s": 99999999999}"#, r#"{"for_s": 1, "x": 1}"#] {
        assert_eq!(daemon.post(&path, wrong).await.status, 400, "{wrong}");
    }
    let unknown = sandbox.run(&["alerts", "mute", "--rule", "dead", "--for", "1h"]).await;
    assert!(
        unknown.error_line(2).starts_with("there is no alert rule \"dead\"; the rules are new-group, "),
        "{unknown:?}"
    );
    let missing = sandbox.run(&["alerts", "mute", "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d", "--for", "1h"]).await;
    assert!(missing.error_line(1).contains("there is no alert 0190d2a7"), "{missing:?}");
}

#[tokio::test]
async fn quiet_period_bounds_the_notices_of_an_alert() {
    let (sandbox, pager) = (Sandbox::new(), Receiver::accepting().await);
    let rule = "[[alert]]\nrule = \"dead-letter\"\nquiet = \"6s\"\n";
    sandbox.configure(&format!("{}{rule}", webhook(pager.address)));
    let _daemon = sandbox.serve().await;
    record_letter(&sandbox, "orders").await;
    told(&pager, "dead-letter", "orders", "firing").await;
    for letters in 2..=3 {
        record_letter(&sandbox, "orders").await;
        eventually(TIMEOUT, "the letter is recorded", async || {
            sandbox.count("SELECT count(*) FROM landfall_dead_letter").await == letters
        })
        .await;
    }
    let of_rule = async || {
        let notices = notices(&sandbox, &["--state", "delivered"]).await;
        notices.into_iter().filter(|notice| notice["rule"] == "dead-letter").collect::<Vec<_>>()
    };
    eventually(TIMEOUT, "the last letter is reported", async || {
        of_rule().await.first().is_some_and(|newest| newest["value"] == 3)
    })
    .await;
    let log = of_rule().await;
    let made: Vec<Timestamp> = log.iter().map(|one| one["created_at"].as_str().unwrap().parse().unwrap()).collect();
    for pair in made.windows(2) {
        let pause = pair[1].elapsed_since(pair[0]);
        assert!(pause >= Duration::from_secs(6), "{pause:?} between two notices: {log:?}");
    }
    assert!((2..=3).contains(&log.len()), "{log:?}");
    assert_eq!(statuses(&pager, "dead-letter", "orders").len(), log.len(), "each is sent once");
}

#[tokio::test]
async fn channel_at_a_private_address_is_refused() {
    let sandbox = Sandbox::new();
    for (url, expected) in [
        ("http://169.254.169.254/x", "the alert channel ops: 169.254.169.254 is not a public address; to allow it"),
        ("http://127.1/x", "the alert channel ops: 127.1 is not a public address in its usual form"),
    ] {
        sandbox.configure(&format!("[[alert_channel]]\nname = \"ops\"\ntype = \"slack\"\nurl = \"{url}\"\n"));
        let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert!(refused.error_line(2).starts_with(expected), "{refused:?}");
    }
    // A name is refused when it is resolved.
    sandbox.configure("[[alert_channel]]\nname = \"ops\"\ntype = \"slack\"\nurl = \"http://localhost:9/x\"\n");
    let tested = sandbox.run(&["alerts", "test", "ops"]).await;
    assert!(tested.error_line(1).contains("alerts.allow_private_addresses"), "{tested:?}");
}

#[tokio::test]
async fn test_of_a_channel_prints_the_answer() {
    let sandbox = Sandbox::new();
    let pager = Receiver::start(|number, _| match number {
        0 => response(202, "", "queued"),
        1 => response(500, "", "oops"),
        _ => response(404, "", ""),
    })
    .await;
    sandbox.configure(&webhook(pager.address));
    let accepted = sandbox.run(&["alerts", "test", "ops"]).await;
    assert_eq!((accepted.code, accepted.stdout.as_str()), (0, "channel ops accepted the notice: HTTP 202: queued\n"));
    let alerts = verified_alerts(&pager.requests()[0]);
    assert_eq!(alerts[0]["labels"]["alertname"], "test");
    let failed = sandbox.run(&["alerts", "test", "ops"]).await;
    assert_eq!(failed.error_line(1), "channel ops did not accept the notice: HTTP 500: oops");
    let refused = sandbox.run(&["alerts", "test", "ops", "--json"]).await;
    let line: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!((refused.code, &line["accepted"], &line["error"]), (1, &false.into(), &"HTTP 404".into()));
    let unknown = sandbox.run(&["alerts", "test", "opps"]).await;
    assert_eq!(unknown.error_line(2), "there is no alert channel \"opps\"; the channels: ops");
}

//! The findings of `landfall doctor` and its exit code.

use landfall_testkit::eventually;
use serde_json::Value;

use super::outbox::one_of_each;
use super::support::{Receiver, Sandbox, TIMEOUT, subscription_to};

fn checks(diagnosis: &Value) -> Vec<(&str, &str)> {
    let text = |finding: &'_ Value, name: &str| -> String { finding[name].as_str().unwrap().to_owned() };
    let findings = diagnosis["findings"].as_array().unwrap();
    for finding in findings {
        let (what, mend) = (text(finding, "what"), text(finding, "mend"));
        assert!(!what.is_empty() && !mend.is_empty() && !text(finding, "about").is_empty(), "{finding}");
    }
    findings.iter().map(|finding| (finding["check"].as_str().unwrap(), finding["rank"].as_str().unwrap())).collect()
}

async fn diagnosis(sandbox: &Sandbox, arguments: &[&str], code: i32) -> Value {
    let finished = sandbox.run(&[&["doctor", "--json"], arguments].concat()).await;
    assert_eq!(finished.code, code, "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[tokio::test]
async fn default_setup_is_healthy_beside_a_daemon() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    let found = diagnosis(&sandbox, &[], 0).await;
    assert_eq!((&found["healthy"], checks(&found)), (&Value::Bool(true), vec![]), "{found}");
    assert_eq!(found["examined"].as_array().unwrap().len(), 3, "{found}");
    let report = sandbox.run(&["doctor"]).await;
    assert_eq!(report.code, 0, "{report:?}");
    assert!(report.stdout.contains("Healthy: nothing was found"), "{report:?}");
}

#[tokio::test]
async fn loss_findings_come_first_and_exit_1() {
    let sandbox = Sandbox::new();
    drop(sandbox.serve().await);
    sandbox.configure("[broker]\nacknowledge = \"written\"\n[relay]\norder = \"none\"\n");
    let found = diagnosis(&sandbox, &[], 1).await;
    assert_eq!(checks(&found), [("log.acknowledge", "loss"), ("configuration.relay-order", "order")], "{found}");
    let report = sandbox.run(&["doctor"]).await;
    assert_eq!((report.code, report.stderr.as_str()), (1, "landfall: a message can be lost\n"), "{report:?}");
    for text in
        ["acknowledge  (log.acknowledge)", "→ acknowledge = \"synced\" under [broker]", "Found: 1 loss, 1 order."]
    {
        assert!(report.stdout.contains(text), "{text:?} is missing in\n{}", report.stdout);
    }
}

#[tokio::test]
async fn non_loss_findings_exit_0() {
    let sandbox = Sandbox::new();
    drop(sandbox.serve().await);
    sandbox.configure("[relay]\nwhen_exhausted = \"skip\"\n");
    assert_eq!(checks(&diagnosis(&sandbox, &[], 0).await), [("configuration.when-exhausted", "order")]);
}

#[tokio::test]
async fn waiting_work_is_reported() {
    let sandbox = Sandbox::new();
    one_of_each(&sandbox).await;
    let backlog = async || {
        let finished = sandbox.run(&["doctor", "--json"]).await;
        let diagnosis: Value = serde_json::from_str(&finished.stdout).unwrap();
        let found = diagnosis["findings"].as_array().unwrap().clone();
        found.into_iter().filter(|finding| finding["check"].as_str().unwrap().starts_with("backlog.")).collect()
    };
    let found: Vec<Value> = backlog().await;
    assert_eq!(found.len(), 1, "a fresh message is no backlog: {found:?}");
    assert_eq!((&found[0]["check"], &found[0]["about"]), (&"backlog.dead-letters".into(), &"orders (relay)".into()));

    sandbox.sql("UPDATE landfall_outbox SET created_at = created_at - 3600000").await;
    sandbox
        .sql(
            "INSERT INTO landfall_delivery (consumer_group, topic, message_id, attempts, error_code, error, \
             next_attempt_at) VALUES ('mailer', 'orders', '0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d', 3, 'UPSTREAM_5XX', \
             'out of order', 0)",
        )
        .await;
    let found: Vec<Value> = backlog().await;
    let shown: Vec<&str> = found.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(shown, ["backlog.dead-letters", "backlog.deliveries", "backlog.outbox"]);
    assert!(found[1]["what"].as_str().unwrap().ends_with("the error of the oldest is: out of order"), "{found:?}");
    assert!(found[2]["what"].as_str().unwrap().contains("the oldest for 1h"), "{found:?}");
}

#[tokio::test]
async fn unreachable_server_is_a_loss_finding() {
    let sandbox = Sandbox::new();
    // No server listens on port 1.
    let found = diagnosis(&sandbox, &["--database-url", "postgres://shop:secret@127.0.0.1:1/shop"], 1).await;
    assert_eq!(checks(&found), [("database.unreachable", "loss")], "{found}");
    assert!(!found.to_string().contains("secret"), "{found}");
}

#[tokio::test]
async fn unknown_url_scheme_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let finished = sandbox.run(&["doctor", "--broker-url", "carrier-pigeon://coop"]).await;
    assert_eq!(finished.code, 2, "{finished:?}");
    for scheme in ["log:", "kafka:", "nats:", "amqp:", "redis:", "sqs:"] {
        assert!(finished.stderr.contains(scheme), "{finished:?}");
    }
}

#[tokio::test]
async fn missing_tables_are_a_loss_finding() {
    let sandbox = Sandbox::new();
    drop(sandbox.serve().await);
    sandbox.sql("DROP TABLE landfall_schema").await;
    let found = diagnosis(&sandbox, &[], 1).await;
    assert_eq!(checks(&found), [("sqlite.schema", "loss")], "{found}");
    assert_eq!(found["findings"][0]["mend"], "landfall migrate");
}

#[tokio::test]
async fn unreachable_receiver_is_reported() {
    let (sandbox, receiver) = (Sandbox::new(), Receiver::accepting().await);
    drop(sandbox.serve().await);
    sandbox.configure(&receiver.subscription(""));
    assert_eq!(checks(&diagnosis(&sandbox, &[], 0).await), []);
    assert!(receiver.bodies().is_empty(), "the doctor sends no request");
    // No server listens on port 1.
    sandbox.configure(&subscription_to(([127, 0, 0, 1], 1).into(), ""));
    let found = diagnosis(&sandbox, &[], 0).await;
    assert_eq!(checks(&found), [("push.receiver", "latency")], "{found}");
    assert!(found["findings"][0]["what"].as_str().unwrap().contains("http://127.0.0.1:1/in"), "{found}");
}

#[tokio::test]
async fn unreachable_service_of_a_route_is_reported() {
    let (sandbox, service) = (Sandbox::new(), Receiver::accepting().await);
    drop(sandbox.serve().await);
    let route = "[[idempotent_route]]\nmatch = \"POST /orders\"\nbusiness_type = \"order\"\non_unknown = \"rerun\"\n";
    sandbox.configure(&format!("{route}upstream = \"http://{}\"\n", service.address));
    assert_eq!(checks(&diagnosis(&sandbox, &[], 0).await), []);
    assert!(service.bodies().is_empty(), "the doctor sends no request");
    sandbox.configure(&format!("{route}upstream = \"http://127.0.0.1:1\"\n"));
    let found = diagnosis(&sandbox, &[], 0).await;
    assert_eq!(checks(&found), [("proxy.upstream", "latency")], "{found}");
    assert_eq!(found["findings"][0]["about"], "POST /orders", "{found}");
}

/// Half messages that wait for a person, and targets of check-backs that cannot be asked.
#[tokio::test]
async fn half_messages_and_their_targets_are_examined() {
    let sandbox = Sandbox::new();
    sandbox.configure("[check_back]\ninterval_ms = 20\nimmunity_ms = 0\nmax_checks = 1\n");
    let daemon = sandbox.serve().await;
    let half = r#"{"topic":"orders","payload":1,"business_type":"order","business_id":"7",
                   "check_back":{"database":"nowhere"}}"#;
    let prepare = async || {
        let response = daemon.post("/v1/half-messages", half).await;
        response.json()["id"].as_str().unwrap().to_owned()
    };
    prepare().await;
    let contradicted = prepare().await;
    for verb in ["commit", "rollback"] {
        daemon.post(&format!("/v1/half-messages/{contradicted}/{verb}"), "").await;
    }
    daemon.post("/v1/half-messages/0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d/commit", "").await;
    let parked = "SELECT count(*) FROM landfall_half_message WHERE state = 'parked'";
    eventually(TIMEOUT, "a parked one", async || sandbox.count(parked).await == 1).await;
    daemon.kill().await;

    let receiver = Receiver::accepting().await;
    sandbox.configure(&format!(
        "[check_back]\nallow_private_addresses = true\n\
         databases = {{ gone = \"sqlite:{gone}\", here = \"sqlite:{here}\" }}\n\
         services = {{ down = \"http://127.0.0.1:9\", up = \"http://{}\" }}\n\
         [[check_back.shard]]\ntopics = [\"pay.*\"]\ndatabase = \"sqlite:{gone}\"\n",
        receiver.address,
        gone = sandbox.path().join("nowhere.db").display(),
        here = sandbox.data().join("landfall.db").display()
    ));
    let found = diagnosis(&sandbox, &[], 0).await;
    let about: Vec<_> =
        found["findings"].as_array().unwrap().iter().map(|one| one["about"].as_str().unwrap()).collect();
    assert_eq!(
        checks(&found).iter().map(|(check, _)| *check).collect::<Vec<_>>(),
        ["check-back.database", "check-back.service", "check-back.shard"],
        "{found}"
    );
    assert_eq!(about, ["check_back.databases.gone", "check_back.services.down", "check_back.shard"]);
    assert_eq!(receiver.requests().len(), 0, "the doctor asks nothing");

    sandbox.configure("");
    let found = diagnosis(&sandbox, &[], 0).await;
    let expected = ["backlog.half-contradicted", "backlog.half-early", "backlog.half-parked"];
    let found: Vec<_> =
        checks(&found).into_iter().map(|(check, _)| check).filter(|check| check.contains("half")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn immunity_shorter_than_an_open_transaction_is_reported() {
    for sandbox in [Sandbox::on_postgres().await, Sandbox::on_mysql().await].into_iter().flatten() {
        let settings = |immunity: u32| {
            format!("[check_back]\nimmunity_ms = {immunity}\ndatabases = {{ shop = \"env:LANDFALL_DATABASE_URL\" }}\n")
        };
        sandbox.configure(&settings(1));
        assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
        let open = sandbox.open_transaction().await;
        let immunity = async || {
            let finished = sandbox.run(&["doctor", "--json"]).await;
            let found: Value = serde_json::from_str(&finished.stdout).unwrap();
            checks(&found).iter().any(|(check, _)| *check == "check-back.immunity")
        };
        // MariaDB counts whole seconds.
        eventually(TIMEOUT, "the finding", immunity).await;
        sandbox.configure(&settings(3_600_000));
        assert!(!immunity().await, "an hour is longer than the transaction");
        drop(open);
    }
}

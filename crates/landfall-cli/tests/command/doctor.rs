//! What the doctor says, and with which exit code.

use serde_json::Value;

use super::support::Place;

fn checks(diagnosis: &Value) -> Vec<(&str, &str)> {
    let text = |finding: &'_ Value, name: &str| -> String { finding[name].as_str().unwrap().to_owned() };
    let findings = diagnosis["findings"].as_array().unwrap();
    for finding in findings {
        let (what, mend) = (text(finding, "what"), text(finding, "mend"));
        assert!(!what.is_empty() && !mend.is_empty() && !text(finding, "about").is_empty(), "{finding}");
    }
    findings.iter().map(|finding| (finding["check"].as_str().unwrap(), finding["rank"].as_str().unwrap())).collect()
}

async fn diagnosis(place: &Place, arguments: &[&str], code: i32) -> Value {
    let finished = place.run(&[&["doctor", "--json"], arguments].concat()).await;
    assert_eq!(finished.code, code, "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[tokio::test]
async fn a_place_at_its_defaults_is_healthy_beside_its_daemon() {
    let place = Place::new();
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    let found = diagnosis(&place, &[], 0).await;
    assert_eq!((&found["healthy"], checks(&found)), (&Value::Bool(true), vec![]), "{found}");
    assert_eq!(found["examined"].as_array().unwrap().len(), 3, "{found}");
    let told = place.run(&["doctor"]).await;
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("Healthy: nothing was found"), "{told:?}");
}

#[tokio::test]
async fn what_can_be_lost_comes_first_and_is_exit_code_1() {
    let place = Place::new();
    drop(place.serve().await);
    place.configure("[broker]\nacknowledge = \"written\"\n[relay]\norder = \"none\"\n");
    let found = diagnosis(&place, &[], 1).await;
    assert_eq!(checks(&found), [("log.acknowledge", "loss"), ("configuration.relay-order", "order")], "{found}");
    let told = place.run(&["doctor"]).await;
    assert_eq!((told.code, told.stderr.as_str()), (1, "landfall: a message can be lost\n"), "{told:?}");
    for text in
        ["acknowledge  (log.acknowledge)", "→ acknowledge = \"synced\" under [broker]", "Found: 1 loss, 1 order."]
    {
        assert!(told.stdout.contains(text), "{text:?} is missing in\n{}", told.stdout);
    }
}

#[tokio::test]
async fn what_may_be_wanted_is_no_failure() {
    let place = Place::new();
    drop(place.serve().await);
    place.configure("[relay]\nwhen_exhausted = \"skip\"\n");
    assert_eq!(checks(&diagnosis(&place, &[], 0).await), [("configuration.when-exhausted", "order")]);
}

#[tokio::test]
async fn a_server_that_does_not_answer_cannot_be_called_safe() {
    let place = Place::new();
    // Nobody listens on port 1.
    let found = diagnosis(&place, &["--database-url", "postgres://shop:secret@127.0.0.1:1/shop"], 1).await;
    assert_eq!(checks(&found), [("database.unreachable", "loss")], "{found}");
    assert!(!found.to_string().contains("secret"), "{found}");
}

#[tokio::test]
async fn a_wrong_url_is_wrong_use() {
    let place = Place::new();
    let finished = place.run(&["doctor", "--broker-url", "carrier-pigeon://coop"]).await;
    assert_eq!(finished.code, 2, "{finished:?}");
    for scheme in ["log:", "kafka:", "nats:", "amqp:", "redis:", "sqs:"] {
        assert!(finished.stderr.contains(scheme), "{finished:?}");
    }
}

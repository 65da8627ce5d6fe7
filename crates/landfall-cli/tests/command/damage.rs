//! `landfall topic verify`: damage is found, located, and repaired on request.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::support::Sandbox;

/// Creates a log with five messages in one partition, and returns its only segment.
async fn five_messages() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new();
    sandbox.configure("[broker]\npartitions = 1\n");
    for n in 0..5 {
        let payload = format!("\"number {n}\"");
        assert_eq!(sandbox.run(&["topic", "publish", "orders", &payload]).await.code, 0);
    }
    let segment = sandbox.data().join("log/topics/orders/0/00000000000000000000.segment");
    (sandbox, segment)
}

/// Changes a byte of message 2 and returns the position of its batch.
fn damage(segment: &PathBuf) -> usize {
    let mut bytes = fs::read(segment).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"number 2").unwrap();
    bytes[at] ^= 1;
    fs::write(segment, &bytes).unwrap();
    bytes[..at].windows(4).rposition(|bytes| bytes == b"LFB\x01").unwrap()
}

async fn payloads(sandbox: &Sandbox) -> Vec<(u64, String)> {
    let lines = sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let of =
        |line: &serde_json::Value| (line["offset"].as_u64().unwrap(), line["payload"].as_str().unwrap().to_owned());
    lines.iter().map(of).collect()
}

#[tokio::test]
async fn damage_is_located_and_repaired_on_request() {
    let (sandbox, segment) = five_messages().await;
    let clean = sandbox.run(&["topic", "verify"]).await;
    assert_eq!((clean.code, clean.stderr.as_str()), (0, ""), "{clean:?}");
    assert!(clean.stdout.starts_with("orders: no problem; messages: 5, segments: 1, "), "{clean:?}");
    assert_eq!(sandbox.run(&["topic", "verify", "--repair", "--yes"]).await.stdout, clean.stdout);

    let position = damage(&segment);
    let damaged = fs::read(&segment).unwrap();
    let found = sandbox.run(&["topic", "verify", "orders"]).await;
    assert_eq!(found.code, 1);
    let named =
        format!("00000000000000000000.segment, byte {position}: the checksum of the batch is wrong (offset 2)\n");
    assert!(found.stdout.contains(&named), "{found:?}");
    assert!(found.stderr.starts_with("landfall: 1 problem;"), "{found:?}");
    let found = sandbox.run(&["topic", "verify", "--json"]).await;
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let problem = &report["problems"][0];
    assert_eq!((found.code, &report["messages"]), (1, &json!(4)));
    assert_eq!(
        (&problem["position"], &problem["first_offset"], &problem["last_offset"]),
        (&json!(position), &json!(2), &json!(2))
    );

    // A reader that meets the damage is referred to this command.
    let met = sandbox.run(&["topic", "tail", "orders"]).await;
    assert!(met.code == 1 && met.stderr.contains("`landfall topic verify`"), "{met:?}");

    // Without a terminal there is no confirmation, so nothing changes.
    assert!(sandbox.run(&["topic", "verify", "--repair"]).await.error_line(2).contains("--yes"));
    assert_eq!(sandbox.run(&["topic", "verify", "--yes"]).await.code, 2);
    assert_eq!(fs::read(&segment).unwrap(), damaged);

    let repaired = sandbox.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(repaired.code, 0, "{repaired:?}");
    assert!(repaired.stdout.contains("was repaired; lost offsets: 2; the original is kept in"), "{repaired:?}");
    let kept = sandbox.data().join("log/damaged/orders/0/00000000000000000000.segment.1");
    assert_eq!(fs::read(kept).unwrap(), damaged);
    let after = sandbox.run(&["topic", "verify"]).await;
    assert_eq!(after.code, 0);
    assert!(after.stdout.contains("messages: 4,") && after.stdout.contains("1 given up as lost"), "{after:?}");

    assert_eq!(sandbox.run(&["topic", "publish", "orders", "\"number 5\""]).await.code, 0);
    let expected = [0, 1, 3, 4, 5].map(|n| (n, format!("number {n}")));
    assert_eq!(payloads(&sandbox).await, expected);
}

#[tokio::test]
async fn repair_prints_one_json_object_per_file() {
    let (sandbox, segment) = five_messages().await;
    damage(&segment);
    let repaired = sandbox.run(&["topic", "verify", "orders", "--repair", "--yes", "--json"]).await.objects();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0]["lost"], json!([{"first_offset": 2, "last_offset": 2}]));
    assert!(repaired[0]["kept"].as_str().unwrap().ends_with(".segment.1"));
    assert!(sandbox.run(&["topic", "verify", "orders", "--repair", "--yes", "--json"]).await.objects().is_empty());
}

#[tokio::test]
async fn verify_runs_beside_a_daemon_and_repair_is_refused() {
    let (sandbox, segment) = five_messages().await;
    let daemon = sandbox.serve().await;
    let clean = sandbox.run(&["topic", "verify"]).await;
    assert_eq!(clean.code, 0, "{clean:?}");
    damage(&segment);
    assert_eq!(sandbox.run(&["topic", "verify"]).await.code, 1);
    let refused = sandbox.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("in use by process"), "{refused:?}");
    drop(daemon);
}

#[tokio::test]
async fn unrepairable_damage_and_missing_logs_are_errors() {
    let (sandbox, _) = five_messages().await;
    assert!(sandbox.run(&["topic", "verify", "nothing"]).await.error_line(1).contains("nothing"));
    fs::write(sandbox.data().join("log/topics/orders/topic.json"), "{}").unwrap();
    let found = sandbox.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(found.code, 1);
    assert!(
        found.stdout.contains("topic.json, byte 0: ") && found.stderr.contains("cannot repair any of it"),
        "{found:?}"
    );

    let empty = Sandbox::new();
    assert!(empty.run(&["topic", "verify"]).await.error_line(1).contains("there is no log"));
    assert!(!empty.data().exists());
}

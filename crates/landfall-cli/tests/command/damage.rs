//! `landfall topic verify`: damage is found, named, and repaired on request.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::support::Place;

/// A log with five messages in one partition, and its only segment.
async fn five_messages() -> (Place, PathBuf) {
    let place = Place::new();
    place.configure("[broker]\npartitions = 1\n");
    for n in 0..5 {
        let payload = format!("\"number {n}\"");
        assert_eq!(place.run(&["topic", "publish", "orders", &payload]).await.code, 0);
    }
    let segment = place.data().join("log/topics/orders/0/00000000000000000000.segment");
    (place, segment)
}

/// Changes a byte of message 2 and answers with where its batch begins.
fn damage(segment: &PathBuf) -> usize {
    let mut bytes = fs::read(segment).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"number 2").unwrap();
    bytes[at] ^= 1;
    fs::write(segment, &bytes).unwrap();
    bytes[..at].windows(4).rposition(|bytes| bytes == b"LFB\x01").unwrap()
}

async fn payloads(place: &Place) -> Vec<(u64, String)> {
    let lines = place.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let of =
        |line: &serde_json::Value| (line["offset"].as_u64().unwrap(), line["payload"].as_str().unwrap().to_owned());
    lines.iter().map(of).collect()
}

#[tokio::test]
async fn damage_is_named_by_file_and_byte_and_repaired_on_request() {
    let (place, segment) = five_messages().await;
    let clean = place.run(&["topic", "verify"]).await;
    assert_eq!((clean.code, clean.stderr.as_str()), (0, ""), "{clean:?}");
    assert!(clean.stdout.starts_with("orders: no problem; messages: 5, segments: 1, "), "{clean:?}");
    assert_eq!(place.run(&["topic", "verify", "--repair", "--yes"]).await.stdout, clean.stdout);

    let position = damage(&segment);
    let damaged = fs::read(&segment).unwrap();
    let found = place.run(&["topic", "verify", "orders"]).await;
    assert_eq!(found.code, 1);
    let named =
        format!("00000000000000000000.segment, byte {position}: the checksum of the batch is wrong (offset 2)\n");
    assert!(found.stdout.contains(&named), "{found:?}");
    assert!(found.stderr.starts_with("landfall: 1 problem;"), "{found:?}");
    let found = place.run(&["topic", "verify", "--json"]).await;
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let problem = &report["problems"][0];
    assert_eq!((found.code, &report["messages"]), (1, &json!(4)));
    assert_eq!(
        (&problem["position"], &problem["first_offset"], &problem["last_offset"]),
        (&json!(position), &json!(2), &json!(2))
    );

    // Whoever meets it is pointed here.
    let met = place.run(&["topic", "tail", "orders"]).await;
    assert!(met.code == 1 && met.stderr.contains("`landfall topic verify`"), "{met:?}");

    // Nobody is there to be asked, so nothing happens.
    assert!(place.run(&["topic", "verify", "--repair"]).await.sentence(2).contains("--yes"));
    assert_eq!(place.run(&["topic", "verify", "--yes"]).await.code, 2);
    assert_eq!(fs::read(&segment).unwrap(), damaged);

    let repaired = place.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(repaired.code, 0, "{repaired:?}");
    assert!(repaired.stdout.contains("was repaired; lost offsets: 2; as it was found it is kept in"), "{repaired:?}");
    let kept = place.data().join("log/damaged/orders/0/00000000000000000000.segment.1");
    assert_eq!(fs::read(kept).unwrap(), damaged);
    let after = place.run(&["topic", "verify"]).await;
    assert_eq!(after.code, 0);
    assert!(after.stdout.contains("messages: 4,") && after.stdout.contains("1 given up as lost"), "{after:?}");

    assert_eq!(place.run(&["topic", "publish", "orders", "\"number 5\""]).await.code, 0);
    let expected = [0, 1, 3, 4, 5].map(|n| (n, format!("number {n}")));
    assert_eq!(payloads(&place).await, expected);
}

#[tokio::test]
async fn what_was_repaired_is_an_object_a_line() {
    let (place, segment) = five_messages().await;
    damage(&segment);
    let repaired = place.run(&["topic", "verify", "orders", "--repair", "--yes", "--json"]).await.objects();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0]["lost"], json!([{"first_offset": 2, "last_offset": 2}]));
    assert!(repaired[0]["kept"].as_str().unwrap().ends_with(".segment.1"));
    assert!(place.run(&["topic", "verify", "orders", "--repair", "--yes", "--json"]).await.objects().is_empty());
}

#[tokio::test]
async fn verify_works_beside_a_daemon_and_repair_says_who_is_in_the_way() {
    let (place, segment) = five_messages().await;
    let daemon = place.serve().await;
    let clean = place.run(&["topic", "verify"]).await;
    assert_eq!(clean.code, 0, "{clean:?}");
    damage(&segment);
    assert_eq!(place.run(&["topic", "verify"]).await.code, 1);
    let refused = place.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("in use by process"), "{refused:?}");
    drop(daemon);
}

#[tokio::test]
async fn what_cannot_be_repaired_and_what_is_not_there_are_sentences() {
    let (place, _) = five_messages().await;
    assert!(place.run(&["topic", "verify", "nothing"]).await.sentence(1).contains("nothing"));
    fs::write(place.data().join("log/topics/orders/topic.json"), "{}").unwrap();
    let found = place.run(&["topic", "verify", "--repair", "--yes"]).await;
    assert_eq!(found.code, 1);
    assert!(
        found.stdout.contains("topic.json, byte 0: ") && found.stderr.contains("none of it can be repaired"),
        "{found:?}"
    );

    let empty = Place::new();
    assert!(empty.run(&["topic", "verify"]).await.sentence(1).contains("there is no log"));
    assert!(!empty.data().exists());
}

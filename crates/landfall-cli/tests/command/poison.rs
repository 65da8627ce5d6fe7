//! Messages that can never succeed: discarded, or edited and redriven.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Receiver, Sandbox, TIMEOUT, on_each, response};

async fn letters(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(&[&["dlq", "list", "--json"], arguments].concat()).await.objects()
}

on_each! {
    async fn poison_is_discarded_or_edited_and_its_key_continues(sandbox: &Sandbox) {
        let receiver = Receiver::start(|_, request| match request.body.contains("poison") {
            true => response(422, "", "no"),
            false => response(204, "", ""),
        })
        .await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        for payload in ["poison 1", "second", "poison 3", "fourth"] {
            daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":"{payload}"}}"#)).await;
        }
        eventually(TIMEOUT, "the key to wait", async || letters(sandbox, &[]).await.len() == 4).await;
        let size = r#"landfall_dlq_size{topic="orders",group="mailer"}"#;
        let metrics = daemon.get("/metrics").await.body;
        assert!(metrics.lines().any(|line| line == format!("{size} 4")), "{metrics}");

        let id = letters(sandbox, &["--status", "parked"]).await[0]["id"].to_string();
        assert!(sandbox.run(&["dlq", "discard", "--reason", "why"]).await.error_line(2).contains("filter"));
        let discard = ["dlq", "discard", "--id", &id, "--reason", "test order", "--actor", "maria", "--json"];
        let done = sandbox.run(&discard).await.objects();
        assert_eq!(done[0]["discarded"][0].to_string(), id, "{done:?}");
        assert_eq!(sandbox.run(&discard).await.code, 1, "a discarded letter was discarded again");
        eventually(TIMEOUT, "the next poison", async || {
            let parked = letters(sandbox, &["--status", "parked"]).await;
            parked.iter().any(|letter| letter["id"].as_i64() != id.parse().ok())
        })
        .await;
        assert_eq!(receiver.bodies().last().map(String::as_str), Some("\"poison 3\""));

        let next = letters(sandbox, &["--status", "parked"]).await[0]["id"].to_string();
        let edit = ["dlq", "edit", &next, "--payload", "-", "--actor", "maria"];
        let edited = sandbox.run_with_input(&edit, b"\"third\"").await;
        assert_eq!(edited.code, 0, "{edited:?}");
        let shown = sandbox.run(&["dlq", "show", &next, "--json"]).await.objects().remove(0);
        assert_eq!((&shown["payload"], &shown["original"]["payload"]), (&json!("third"), &json!("poison 3")));
        assert_eq!(sandbox.run(&["dlq", "redrive", "--id", &next]).await.code, 0);
        eventually(TIMEOUT, "no open letters", async || letters(sandbox, &[]).await.is_empty()).await;
        let accepted: Vec<_> = receiver.bodies().into_iter().filter(|body| !body.contains("poison")).collect();
        assert_eq!(accepted, ["\"second\"", "\"third\"", "\"fourth\""]);

        let all: Vec<_> = letters(sandbox, &["--status", "all"]).await;
        let of = |status: &str| all.iter().filter(|letter| letter["status"] == status).count();
        assert_eq!((of("done"), of("discarded")), (3, 1));
        let audited = "SELECT count(*) FROM landfall_audit WHERE actor = 'maria' AND action IN ('discard', 'edit')";
        assert_eq!(sandbox.count(audited).await, 2);
        let metrics = daemon.get("/metrics").await.body;
        assert!(metrics.lines().any(|line| line == format!("{size} 0")), "{metrics}");
    }
}

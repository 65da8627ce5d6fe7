//! Push delivery: messages arrive whole, signed, at least once, in order per key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use ring::hmac;
use serde_json::Value;
use tokio::net::TcpSocket;

use super::support::{Receiver, Sandbox, TIMEOUT, on_each, response, subscription_to};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn letters(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["dlq", "list", "--json"]).await.objects()
}

async fn delivered(sandbox: &Sandbox, count: i64) -> bool {
    sandbox.count("SELECT count(*) FROM landfall_inbox").await == count
}

on_each! {
    async fn message_is_posted_whole_and_signed(sandbox: &Sandbox) {
        let receiver = Receiver::accepting().await;
        sandbox.configure(&receiver.subscription(&format!("secret = {SECRET:?}")));
        let daemon = sandbox.serve().await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let id = daemon
            .send(&format!(
                r#"{{"topic":"orders","key":"k 1","kind":"OrderPlaced","sequence":3,
                     "headers":{{"traceparent":"{trace}","tenant":"eu"}},"payload":{{"total":1.10}}}}"#
            ))
            .await;
        eventually(TIMEOUT, "the post", async || receiver.requests().len() == 1).await;
        let request = receiver.requests().remove(0);
        for (name, value) in [
            ("request-line", "POST /in?x=1 HTTP/1.1"),
            ("ce-specversion", "1.0"),
            ("ce-id", &id),
            ("ce-type", "OrderPlaced"),
            ("ce-partitionkey", "k%201"),
            ("ce-sequence", "3"),
            ("content-type", "application/json"),
            ("idempotency-key", &id),
            ("webhook-id", &id),
            ("traceparent", trace),
            ("tenant", "eu"),
        ] {
            assert_eq!(request.header(name), value, "{name} in {request:?}");
        }
        assert_eq!(request.body, r#"{"total":1.10}"#);
        assert!(!request.header("ce-time").is_empty() && !request.header("ce-source").is_empty());

        // Verifies the signature as a receiver does.
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap());
        let signed = format!("{id}.{}.{}", request.header("webhook-timestamp"), request.body);
        let signature = STANDARD.decode(request.header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&key, signed.as_bytes(), &signature).unwrap();

        eventually(TIMEOUT, "the inbox row", async || delivered(sandbox, 1).await).await;
        let metrics = daemon.get("/metrics").await.body;
        for line in [
            r#"landfall_breaker_state{dependency="orders/mailer"} 0"#,
            r#"landfall_retry_allowed_total{dependency="orders/mailer"} 0"#,
        ] {
            assert!(metrics.lines().any(|shown| shown == line), "{line} is missing in {metrics}");
        }
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.exit_code().await, Some(0));
        assert_eq!(receiver.requests().len(), 1);
    }

    async fn crash_before_acknowledgement_posts_the_same_id_again(sandbox: &Sandbox) {
        // Receives the third request and never responds, so that the daemon is killed during that post.
        let receiver = Receiver::start(|number, _| if number == 2 { None } else { response(204, "", "") }).await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        let mut ids = Vec::new();
        for number in 0..5 {
            ids.push(daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{number}}}"#)).await);
        }
        eventually(TIMEOUT, "the third post", async || receiver.requests().len() == 3).await;
        daemon.kill().await;

        let _daemon = sandbox.serve().await;
        eventually(TIMEOUT, "the rest", async || delivered(sandbox, 5).await).await;
        let requests = receiver.requests();
        let seen: Vec<&str> = requests.iter().map(|request| request.header("idempotency-key")).collect();
        let mut expected = ids.clone();
        expected.insert(2, ids[2].clone());
        // The third is posted only after the second is in the inbox, so no other message can arrive twice.
        assert_eq!(seen, expected, "each in order, and the third twice");
        assert!(letters(sandbox).await.is_empty());
    }

    async fn refused_message_is_parked_and_holds_its_key(sandbox: &Sandbox) {
        let repaired = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_repaired = repaired.clone();
        let receiver = Receiver::start(move |_, request| {
            if request.body == "\"bad\"" && !is_repaired.load(std::sync::atomic::Ordering::SeqCst) {
                return response(422, "", "no such\nproduct");
            }
            response(200, "", "")
        })
        .await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        for (key, payload) in [("a", "\"bad\""), ("a", "\"next\""), ("b", "\"other\"")] {
            daemon.send(&format!(r#"{{"topic":"orders","key":"{key}","payload":{payload}}}"#)).await;
        }
        eventually(TIMEOUT, "two letters", async || letters(sandbox).await.len() == 2).await;
        eventually(TIMEOUT, "the other key", async || receiver.bodies().contains(&"\"other\"".into())).await;
        let letter = letters(sandbox).await.into_iter().find(|letter| letter["status"] == "parked").unwrap();
        assert_eq!((&letter["error_code"], &letter["attempts"]), (&"UPSTREAM_4XX".into(), &1.into()));
        let error = format!("POST http://{}/in: the answer was HTTP 422: no such product", receiver.address);
        assert_eq!(letter["error"], error.as_str());

        repaired.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(sandbox.run(&["dlq", "redrive", "--key", "a"]).await.code, 0);
        eventually(TIMEOUT, "the successor", async || receiver.bodies().contains(&"\"next\"".into())).await;
        let of_a: Vec<String> = receiver.bodies().into_iter().filter(|body| body != "\"other\"").collect();
        assert_eq!(of_a, ["\"bad\"", "\"bad\"", "\"next\""], "in order, each once after the first refusal");
    }
}

on_each! {
    async fn killed_daemon_continues_the_attempts_of_a_retry_lane(sandbox: &Sandbox) {
        let receiver = Receiver::start(|_, _| response(500, "", "")).await;
        sandbox.configure(&format!(
            "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"http://{}/in\"\nmax_attempts = 3\n\
             retry_lane = \"database\"\nbackoff_first_ms = 2000\nbackoff_cap_ms = 2000\n\
             [push]\nallow_private_addresses = true\n",
            receiver.address
        ));
        let daemon = sandbox.serve().await;
        daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
        let delayed = async || sandbox.run(&["dlq", "list", "--status", "delayed", "--json"]).await.objects();
        eventually(TIMEOUT, "the message waits in the database", async || delayed().await.len() == 1).await;
        daemon.kill().await;
        let before = receiver.requests().len();

        let _daemon = sandbox.serve().await;
        let parked = async || letters(sandbox).await.iter().any(|letter| letter["status"] == "parked");
        eventually(TIMEOUT, "the last attempt", parked).await;
        let attempts = receiver.requests().len();
        assert!((1..=2).contains(&before), "{before} attempts before the kill");
        // An attempt that the kill interrupted is repeated. Attempts that start again would be three more.
        assert!((3..=4).contains(&attempts) && attempts - before < 3, "{before} attempts, then {attempts} in all");
        assert_eq!(letters(sandbox).await[0]["attempts"], 3);
    }
}

#[tokio::test]
async fn parked_message_is_copied_to_the_dlq_topic_each_time() {
    let receiver = Receiver::start(|_, _| response(422, "", "no")).await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription("letter_topic = true"));
    let daemon = sandbox.serve().await;
    let id = daemon.send(r#"{"topic":"orders","key":"a","payload":"bad"}"#).await;
    for count in 1..=2 {
        // The first parked message creates the topic.
        let tail = async || sandbox.run(&["topic", "tail", "orders.dlq", "--json"]).await;
        eventually(TIMEOUT, "the topic", async || tail().await.code == 0).await;
        let letters = async || tail().await.objects();
        eventually(TIMEOUT, "the letter in the topic", async || letters().await.len() == count).await;
        let letter = letters().await.pop().unwrap();
        assert_eq!((&letter["id"], &letter["payload"]), (&id.clone().into(), &"bad".into()));
        let headers = &letter["headers"];
        assert_eq!(headers["landfall-attempts"], count.to_string());
        assert_eq!(
            (&headers["landfall-group"], &headers["landfall-error-code"]),
            (&"mailer".into(), &"UPSTREAM_4XX".into())
        );
        assert_eq!(sandbox.run(&["dlq", "redrive", "--all"]).await.code, 0);
    }
}

#[tokio::test]
async fn failing_message_blocks_only_its_key() {
    let failures = std::sync::atomic::AtomicU32::new(0);
    let receiver = Receiver::start(move |_, request| {
        let fails = request.body == "1" && failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 4;
        response(if fails { 500 } else { 200 }, "", "")
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    for number in 0..20 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"{}","payload":{number}}}"#, number % 2)).await;
    }
    eventually(TIMEOUT, "all of them", async || delivered(&sandbox, 20).await).await;
    let numbers: Vec<u32> = receiver.bodies().iter().map(|body| body.parse().unwrap()).collect();
    let of = |key: u32| numbers.iter().copied().filter(|number| number % 2 == key).collect::<Vec<_>>();
    assert_eq!(of(0), (0..20).step_by(2).collect::<Vec<_>>());
    assert_eq!(of(1), [vec![1; 5], (3..20).step_by(2).collect()].concat(), "five times the first, then the others");
}

#[tokio::test]
async fn retry_after_is_honored_and_counted() {
    let receiver = Receiver::start(|number, _| match number {
        0 => response(429, "retry-after: 1\r\n", ""),
        1 => response(503, "retry-after: 1\r\n", ""),
        _ => response(200, "", ""),
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    eventually(TIMEOUT, "the third attempt", async || delivered(&sandbox, 1).await).await;
    assert_eq!(receiver.requests().len(), 3);
    // The consumer's tests, which control the clock, check that it is never retried sooner.
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains(r#"landfall_retry_after_honored_total{dependency="orders/mailer"} 2"#), "{metrics}");
}

#[tokio::test]
async fn receiver_outage_parks_nothing() {
    // A bound port without a listener; the receiver starts later.
    let sandbox = Sandbox::new();
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // An unreachable receiver counts as no attempt, so that even a single allowed attempt is not used up.
    sandbox.configure(&subscription_to(bound.local_addr().unwrap(), "max_attempts = 1"));
    let daemon = sandbox.serve().await;
    // Most of them are not attempted during the outage; their successes refill the retry budget of the others.
    for number in 0..300 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"{number}","payload":{number}}}"#)).await;
    }
    let open = r#"landfall_breaker_state{dependency="orders/mailer"} 2"#;
    eventually(TIMEOUT, "the open breaker", async || daemon.get("/metrics").await.body.contains(open)).await;
    let receiver = Receiver::at(bound);
    eventually(TIMEOUT, "all of them", async || delivered(&sandbox, 300).await).await;
    assert!(letters(&sandbox).await.is_empty(), "{:?}", letters(&sandbox).await);
    assert!(receiver.requests().len() >= 300);
}

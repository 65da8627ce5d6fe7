//! A subscription's messages at its receiver: whole, signed, at least once, per key in order.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use ring::hmac;
use serde_json::Value;
use tokio::net::TcpSocket;

use super::support::{PATIENCE, Place, Receiver, answer, on_each, subscription_to};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn letters(place: &Place) -> Vec<Value> {
    place.run(&["dlq", "list", "--json"]).await.objects()
}

async fn delivered(place: &Place, count: i64) -> bool {
    place.count("SELECT count(*) FROM landfall_inbox").await == count
}

on_each! {
    async fn a_message_arrives_whole_and_signed(place: &Place) {
        let receiver = Receiver::content().await;
        place.configure(&receiver.subscription(&format!("secret = {SECRET:?}")));
        let daemon = place.serve().await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let id = daemon
            .send(&format!(
                r#"{{"topic":"orders","key":"k 1","kind":"OrderPlaced","sequence":3,
                     "headers":{{"traceparent":"{trace}","tenant":"eu"}},"payload":{{"total":1.10}}}}"#
            ))
            .await;
        eventually(PATIENCE, "the post", async || receiver.requests().len() == 1).await;
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

        // As a receiver checks it.
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap());
        let signed = format!("{id}.{}.{}", request.header("webhook-timestamp"), request.body);
        let signature = STANDARD.decode(request.header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&key, signed.as_bytes(), &signature).unwrap();

        eventually(PATIENCE, "the inbox row", async || delivered(place, 1).await).await;
        let metrics = daemon.get("/metrics").await.body;
        for line in [
            r#"landfall_breaker_state{dependency="orders/mailer"} 0"#,
            r#"landfall_retry_allowed_total{dependency="orders/mailer"} 0"#,
        ] {
            assert!(metrics.lines().any(|shown| shown == line), "{line} is missing in {metrics}");
        }
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.ended().await, Some(0));
        assert_eq!(receiver.requests().len(), 1);
    }

    async fn a_kill_between_the_post_and_the_acknowledgement_brings_the_same_id_again(place: &Place) {
        // Takes the third and says nothing, until somebody kills the daemon for it.
        let receiver = Receiver::start(|number, _| if number == 2 { None } else { answer(204, "", "") }).await;
        place.configure(&receiver.subscription(""));
        let daemon = place.serve().await;
        let mut ids = Vec::new();
        for number in 0..5 {
            ids.push(daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{number}}}"#)).await);
        }
        eventually(PATIENCE, "the third post", async || receiver.requests().len() == 3).await;
        daemon.kill().await;

        let _daemon = place.serve().await;
        eventually(PATIENCE, "the rest", async || delivered(place, 5).await).await;
        let seen: Vec<String> = receiver.requests().iter().map(|request| request.header("idempotency-key").into()).collect();
        let mut expected = ids.clone();
        expected.insert(2, ids[2].clone());
        // The third is posted only when the second stands in the inbox, so that no other can come twice.
        assert_eq!(seen, expected, "each in order, and the third twice");
        assert!(letters(place).await.is_empty());
    }

    async fn a_message_that_is_refused_is_parked_and_its_key_waits_for_the_redrive(place: &Place) {
        let mended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_mended = mended.clone();
        let receiver = Receiver::start(move |_, request| {
            if request.body == "\"bad\"" && !is_mended.load(std::sync::atomic::Ordering::SeqCst) {
                return answer(422, "", "no such\nproduct");
            }
            answer(200, "", "")
        })
        .await;
        place.configure(&receiver.subscription(""));
        let daemon = place.serve().await;
        for (key, payload) in [("a", "\"bad\""), ("a", "\"next\""), ("b", "\"other\"")] {
            daemon.send(&format!(r#"{{"topic":"orders","key":"{key}","payload":{payload}}}"#)).await;
        }
        eventually(PATIENCE, "two letters", async || letters(place).await.len() == 2).await;
        eventually(PATIENCE, "the other key", async || receiver.bodies().contains(&"\"other\"".into())).await;
        let letter = letters(place).await.into_iter().find(|letter| letter["status"] == "parked").unwrap();
        assert_eq!((&letter["error_code"], &letter["attempts"]), (&"UPSTREAM_4XX".into(), &1.into()));
        assert_eq!(letter["error"], "the answer was HTTP 422: no such product");

        mended.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(place.run(&["dlq", "redrive", "--key", "a"]).await.code, 0);
        eventually(PATIENCE, "the successor", async || receiver.bodies().contains(&"\"next\"".into())).await;
        let of_a: Vec<String> = receiver.bodies().into_iter().filter(|body| body != "\"other\"").collect();
        assert_eq!(of_a, ["\"bad\"", "\"bad\"", "\"next\""], "in order, each once after the first refusal");
    }
}

#[tokio::test]
async fn what_is_parked_goes_to_a_topic_too_and_again_after_a_redrive_in_vain() {
    let receiver = Receiver::start(|_, _| answer(422, "", "no")).await;
    let place = Place::new();
    place.configure(&receiver.subscription("letter_topic = true"));
    let daemon = place.serve().await;
    let id = daemon.send(r#"{"topic":"orders","key":"a","payload":"bad"}"#).await;
    for count in 1..=2 {
        // There is no such topic before the first.
        let tail = async || place.run(&["topic", "tail", "orders.dlq", "--json"]).await;
        eventually(PATIENCE, "the topic", async || tail().await.code == 0).await;
        let letters = async || tail().await.objects();
        eventually(PATIENCE, "the letter in the topic", async || letters().await.len() == count).await;
        let letter = letters().await.pop().unwrap();
        assert_eq!((&letter["id"], &letter["payload"]), (&id.clone().into(), &"bad".into()));
        let headers = &letter["headers"];
        assert_eq!(headers["landfall-attempts"], count.to_string());
        assert_eq!(
            (&headers["landfall-group"], &headers["landfall-error-code"]),
            (&"mailer".into(), &"UPSTREAM_4XX".into())
        );
        assert_eq!(place.run(&["dlq", "redrive", "--all"]).await.code, 0);
    }
}

#[tokio::test]
async fn a_failing_message_holds_up_its_own_key_and_no_other() {
    let failures = std::sync::atomic::AtomicU32::new(0);
    let receiver = Receiver::start(move |_, request| {
        let fails = request.body == "1" && failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 4;
        answer(if fails { 500 } else { 200 }, "", "")
    })
    .await;
    let place = Place::new();
    place.configure(&receiver.subscription(""));
    let daemon = place.serve().await;
    for number in 0..20 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"{}","payload":{number}}}"#, number % 2)).await;
    }
    eventually(PATIENCE, "all of them", async || delivered(&place, 20).await).await;
    let numbers: Vec<u32> = receiver.bodies().iter().map(|body| body.parse().unwrap()).collect();
    let of = |key: u32| numbers.iter().copied().filter(|number| number % 2 == key).collect::<Vec<_>>();
    assert_eq!(of(0), (0..20).step_by(2).collect::<Vec<_>>());
    assert_eq!(of(1), [vec![1; 5], (3..20).step_by(2).collect()].concat(), "five times the first, then the others");
}

#[tokio::test]
async fn a_retry_after_is_followed_and_counted() {
    let receiver = Receiver::start(|number, _| match number {
        0 => answer(429, "retry-after: 1\r\n", ""),
        1 => answer(503, "retry-after: 1\r\n", ""),
        _ => answer(200, "", ""),
    })
    .await;
    let place = Place::new();
    place.configure(&receiver.subscription(""));
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    eventually(PATIENCE, "the third try", async || delivered(&place, 1).await).await;
    assert_eq!(receiver.requests().len(), 3);
    // That it is never sooner is shown where the clock can be turned, in the tests of the consumer.
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains(r#"landfall_retry_after_honored_total{dependency="orders/mailer"} 2"#), "{metrics}");
}

#[tokio::test]
async fn a_receiver_that_was_down_gets_everything_and_nothing_is_parked() {
    // A port that is kept and that nobody listens on, until somebody does.
    let place = Place::new();
    let kept = TcpSocket::new_v4().unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // A receiver that cannot be reached is no message's fault: not one try is spent, however few are allowed.
    place.configure(&subscription_to(kept.local_addr().unwrap(), "max_attempts = 1"));
    let daemon = place.serve().await;
    // Most of them are never tried while it is down: their successes pay for the retries of the others.
    for number in 0..300 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"{number}","payload":{number}}}"#)).await;
    }
    let open = r#"landfall_breaker_state{dependency="orders/mailer"} 2"#;
    eventually(PATIENCE, "the open breaker", async || daemon.get("/metrics").await.body.contains(open)).await;
    let receiver = Receiver::at(kept);
    eventually(PATIENCE, "all of them", async || delivered(&place, 300).await).await;
    assert!(letters(&place).await.is_empty(), "{:?}", letters(&place).await);
    assert!(receiver.requests().len() >= 300);
}

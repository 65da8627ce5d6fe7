//! One key, one effect: replays, refusals and concurrent requests.

use futures_util::future::join_all;
use landfall_testkit::eventually;

use super::super::support::{Sandbox, TIMEOUT, on_each, request};
use super::fixture::{ANN, BOB, Pay, Shop, counted, refused, replayed, second, serve, until_status};

on_each! {
    async fn token_header_is_consumed_by_work_that_is_done(sandbox: &Sandbox) {
        let shop = Shop::start().await;
        let daemon = serve(sandbox, &shop.route("token_business_id = \"{id}\"\n")).await;
        let business = r#"{"business_type": "payment", "business_id": "7"}"#;
        let token = daemon.post("/v1/tokens", business).await.json()["token"].as_str().unwrap().to_owned();
        let pay = async |target: &str, more: &[(&str, &str)]| {
            let headers = [&[("idempotent-token", token.as_str())], more].concat();
            request(daemon.proxy(), "POST", target, &headers, b"10").await
        };
        let ann = ("authorization", ANN);
        refused(&pay("/orders/8/pay", &[ann]).await, 409, "token-invalid");
        refused(&pay("/orders/7/pay", &[]).await, 401, "unauthorized");
        refused(&pay("/orders/7/pay", &[ann, ("idempotency-key", "k1")]).await, 400, "invalid-request");
        assert_eq!(shop.effects(), 0);
        // The service refuses before any work: the token is given back.
        assert_eq!(pay("/orders/7/pay", &[ann, ("x-behave", "status:429")]).await.status, 429);
        let first = pay("/orders/7/pay", &[ann]).await;
        assert_eq!((first.status, first.body.as_str()), (201, "{\"paid\":2}"), "{first:?}");
        assert_eq!(shop.seen()[1].header("idempotent-token"), token);
        replayed(&pay("/orders/7/pay", &[ann]).await, &first);
        let consumed = format!(r#"{{"business_type": "payment", "business_id": "7", "token": "{token}"}}"#);
        refused(&daemon.post("/v1/tokens/consume", consumed).await, 409, "token-used");
        assert_eq!(shop.effects(), 2);
    }

    async fn repeat_gets_the_first_answer_and_has_no_effect(sandbox: &Sandbox) {
        let shop = Shop::start().await;
        let daemon = serve(sandbox, &shop.route("")).await;
        let first = Pay::default().to(daemon.proxy()).await;
        assert_eq!((first.status, first.body.as_str()), (201, "{\"paid\":1}"), "{first:?}");
        assert_eq!(first.header("set-cookie"), Some("session=secret"), "the first caller gets its own");
        assert_eq!(first.header("idempotent-replayed"), None);
        // Quoted and bare are one key.
        for key in ["k1", "\"k1\""] {
            let repeat = Pay { key: Some(key), ..Pay::default() }.to(daemon.proxy()).await;
            replayed(&repeat, &first);
            assert_eq!(repeat.header("idempotency-key"), Some(key));
        }
        assert_eq!(shop.effects(), 1);
        // Another body, query or path parameter is another request.
        for other in [
            Pay { body: "{\"euro\":11}", ..Pay::default() },
            Pay { target: "/orders/7/pay?twice=1", ..Pay::default() },
            Pay { target: "/orders/8/pay", ..Pay::default() },
        ] {
            refused(&other.to(daemon.proxy()).await, 422, "different-request");
        }
        assert_eq!(shop.effects(), 1);
        // Another caller has keys of its own.
        let other = Pay { caller: Some(BOB), ..Pay::default() }.to(daemon.proxy()).await;
        assert_eq!((other.status, other.body.as_str(), shop.effects()), (201, "{\"paid\":2}", 2));
        let counts = counted(&daemon).await;
        assert_eq!((counts["executed"], counts["replayed"], counts["mismatch"]), (2, 2, 3), "{counts:?}");
        // A restart forgets nothing.
        daemon.kill().await;
        let daemon = sandbox.serve_as("push").await;
        replayed(&Pay::default().to(daemon.proxy()).await, &first);
        assert_eq!(shop.effects(), 2);
    }

    async fn hundred_clients_of_two_daemons_have_one_effect(sandbox: &Sandbox) {
        let shop = Shop::start().await;
        let first = serve(sandbox, &shop.route("wait_ms = 60000\n")).await;
        let second = second(sandbox).await;
        let held = Pay { behave: "held", ..Pay::default() };
        let calls: Vec<_> = (0..100)
            .map(|number| held.spawn(if number % 2 == 0 { first.proxy() } else { second.proxy() }))
            .collect();
        shop.wait_for_effects(1).await;
        // Another body is refused while the first one is in flight, in both daemons.
        for daemon in [&first, &second] {
            let other = Pay { body: "{}", ..Pay::default() };
            refused(&other.to(daemon.proxy()).await, 422, "different-request");
        }
        shop.open_gate();
        let answers = join_all(calls).await;
        for answer in answers {
            let answer = answer.unwrap();
            assert_eq!((answer.status, answer.body.as_str()), (201, "{\"paid\":1}"), "{answer:?}");
        }
        assert_eq!(shop.effects(), 1);
    }

    async fn statuses_free_the_key_store_the_answer_or_wait_for_a_person(sandbox: &Sandbox) {
        let shop = Shop::start().await;
        let daemon = serve(sandbox, &shop.route("")).await;
        let mut effects = 0;
        for status in ["404", "409", "422", "303"] {
            let pay = Pay { key: Some(status), behave: &format!("status:{status}"), ..Pay::default() };
            let first = pay.to(daemon.proxy()).await;
            replayed(&Pay { behave: "", ..pay }.to(daemon.proxy()).await, &first);
            effects += 1;
        }
        for status in ["400", "401", "429"] {
            let pay = Pay { key: Some(status), behave: &format!("status:{status}"), ..Pay::default() };
            assert_eq!(pay.to(daemon.proxy()).await.status.to_string(), status);
            let corrected = Pay { behave: "", body: "{}", ..pay }.to(daemon.proxy()).await;
            assert_eq!(corrected.status, 201, "{corrected:?}");
            effects += 2;
        }
        let broken = Pay { key: Some("broken"), behave: "status:503", ..Pay::default() };
        assert_eq!(broken.to(daemon.proxy()).await.status, 503);
        let refusal = Pay { behave: "", ..broken }.to(daemon.proxy()).await;
        refused(&refusal, 409, "uncertain");
        assert_eq!((refusal.header("retry-after"), shop.effects()), (None, effects + 1));
        // A person says that it was not done.
        let listed = sandbox.run(&["idempotency", "list", "--state", "uncertain", "--json"]).await.objects();
        let id = listed[0]["id"].as_str().unwrap();
        let scope = listed[0]["scope"].as_str().unwrap();
        assert!(scope.starts_with("authorization:") && !scope.contains("ann"), "{scope}");
        assert_eq!(sandbox.run(&["idempotency", "release", id, "--actor", "ann"]).await.code, 0);
        assert_eq!(Pay { key: Some("broken"), ..Pay::default() }.to(daemon.proxy()).await.status, 201);
    }
}

#[tokio::test]
async fn missing_and_malformed_keys_are_refused() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let long = "x".repeat(256);
    for key in [None, Some(""), Some("a b"), Some("\"a"), Some("\"\""), Some("é"), Some(long.as_str())] {
        refused(&Pay { key, ..Pay::default() }.to(daemon.proxy()).await, 400, "invalid-request");
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b"), ("authorization", ANN)];
    refused(&request(daemon.proxy(), "POST", "/orders/7/pay", &twice, b"").await, 400, "invalid-request");
    refused(&Pay { caller: None, ..Pay::default() }.to(daemon.proxy()).await, 401, "unauthorized");
    let two = [("idempotency-key", "a"), ("authorization", ANN), ("authorization", BOB)];
    refused(&request(daemon.proxy(), "POST", "/orders/7/pay", &two, b"").await, 400, "invalid-request");
    assert_eq!(shop.effects(), 0);
    assert_eq!(Pay { key: Some(&long[1..]), ..Pay::default() }.to(daemon.proxy()).await.status, 201);
}

#[tokio::test]
async fn impatient_repeat_is_told_to_wait_and_a_patient_one_gets_the_answer() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("wait_ms = 50\n")).await;
    let held = Pay { behave: "held", ..Pay::default() };
    let first = held.spawn(daemon.proxy());
    shop.wait_for_effects(1).await;
    let waiting = Pay::default().to(daemon.proxy()).await;
    refused(&waiting, 409, "in-flight");
    let retry_after: u64 = waiting.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{retry_after}");
    shop.open_gate();
    let first = first.await.unwrap();
    assert_eq!(first.status, 201);
    replayed(&until_status(daemon.proxy(), &Pay::default(), 201).await, &first);
    assert_eq!(shop.effects(), 1);
}

#[tokio::test]
async fn client_that_disconnects_finds_its_answer_later() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let call = Pay { behave: "held", ..Pay::default() }.spawn(daemon.proxy());
    shop.wait_for_effects(1).await;
    call.abort();
    let _ = call.await;
    shop.open_gate();
    let answer = until_status(daemon.proxy(), &Pay::default(), 201).await;
    assert_eq!((answer.body.as_str(), shop.effects()), ("{\"paid\":1}", 1));
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn large_and_streamed_answers_are_passed_on_and_not_kept() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let large = Pay { key: Some("large"), behave: "large:300000", ..Pay::default() };
    let first = large.to(daemon.proxy()).await;
    assert_eq!((first.status, first.body.len()), (201, 300_000));
    let repeat = large.to(daemon.proxy()).await;
    refused(&repeat, 409, "result-not-kept");
    assert_eq!(repeat.header("location"), Some("/payments/1"));
    let limit = Pay { key: Some("limit"), behave: "large:262144", ..Pay::default() };
    let first = limit.to(daemon.proxy()).await;
    replayed(&limit.to(daemon.proxy()).await, &first);
    // An event stream arrives while it is written, so nothing of it is kept.
    let events = Pay { key: Some("events"), behave: "events", ..Pay::default() };
    let first = events.spawn(daemon.proxy());
    shop.wait_for_effects(3).await;
    let repeat = until_status(daemon.proxy(), &events, 409).await;
    refused(&repeat, 409, "result-not-kept");
    shop.open_gate();
    let first = first.await.unwrap();
    assert!(first.body.contains("data: first") && first.body.contains("data: last"), "{first:?}");
    assert_eq!(shop.effects(), 3);
}

#[tokio::test]
async fn expired_answer_is_known_as_done() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    assert_eq!(Pay::default().to(daemon.proxy()).await.status, 201);
    sandbox.sql("UPDATE landfall_idempotency SET body = NULL, body_state = 'expired'").await;
    refused(&Pay::default().to(daemon.proxy()).await, 409, "result-expired");
    sandbox.sql("DELETE FROM landfall_idempotency").await;
    assert_eq!((Pay::default().to(daemon.proxy()).await.status, shop.effects()), (201, 2));
}

#[tokio::test]
async fn nothing_is_forwarded_while_the_store_is_down() {
    let Some(sandbox) = Sandbox::on_own_postgres().await else { return };
    let shop = Shop::start().await;
    let daemon = serve(&sandbox, &shop.route("")).await;
    assert_eq!(Pay::default().to(daemon.proxy()).await.status, 201);
    sandbox.server().stop_immediately().await.unwrap();
    let mut refusal = None;
    eventually(TIMEOUT, "the outage is noticed", async || {
        refusal = Some(Pay { key: Some("k2"), ..Pay::default() }.to(daemon.proxy()).await);
        refusal.as_ref().is_some_and(|refusal| refusal.status == 503)
    })
    .await;
    let refusal = refusal.unwrap();
    refused(&refusal, 503, "unavailable");
    assert_eq!((refusal.header("retry-after"), shop.effects()), (Some("1"), 1));
}

//! What a subscription must not be able to do: reach into the network, follow, swallow, or keep others from working.

use landfall_testkit::eventually;

use super::support::{PATIENCE, Place, Receiver, answer};

async fn delivered(place: &Place, count: i64) -> bool {
    place.count("SELECT count(*) FROM landfall_inbox").await == count
}

#[tokio::test]
async fn a_private_address_in_a_url_is_refused_at_start_up() {
    let place = Place::new();
    for url in [
        "http://127.0.0.1:9/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:10.0.0.1]/",
        "https://[fd00::1]/",
    ] {
        place.configure(&format!("[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"{url}\"\n"));
        let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        let sentence = refused.sentence(2);
        assert!(sentence.contains("is not a public address; name it in push.allowed_hosts"), "{url}: {sentence}");
    }
    assert!(!place.data().exists(), "nothing was opened or written");
}

#[tokio::test]
async fn a_name_that_leads_to_a_private_address_is_not_connected_to_unless_it_is_allowed() {
    let receiver = Receiver::content().await;
    let place = Place::new();
    let subscription = format!(
        "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"http://localhost:{}/\"\nmax_attempts = 1\n",
        receiver.address.port()
    );
    place.configure(&subscription);
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let letters = async || place.run(&["dlq", "list", "--json"]).await.objects();
    eventually(PATIENCE, "the dead letter", async || letters().await.len() == 1).await;
    let letter = &letters().await[0];
    assert_eq!(letter["error_code"], "ADDRESS_REFUSED");
    assert!(letter["error"].as_str().unwrap().starts_with("localhost ("), "{letter}");
    assert!(receiver.requests().is_empty());
    daemon.kill().await;

    place.configure(&format!("{subscription}[push]\nallowed_hosts = [\"LocalHost\"]\n"));
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":2}"#).await;
    eventually(PATIENCE, "the post", async || receiver.bodies() == ["2"]).await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let inside = Receiver::content().await;
    let location = format!("location: http://{}/secret\r\n", inside.address);
    let receiver = Receiver::start(move |number, _| match number {
        0 => answer(307, &location, ""),
        _ => answer(200, "", ""),
    })
    .await;
    let place = Place::new();
    place.configure(&receiver.subscription(""));
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    eventually(PATIENCE, "the second try", async || delivered(&place, 1).await).await;
    assert_eq!((receiver.requests().len(), inside.requests().len()), (2, 0));
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off() {
    let receiver = Receiver::start(|number, _| {
        let endless = "x".repeat(1 << 20);
        let status = if number == 0 { 200 } else { 400 };
        Some(format!("HTTP/1.1 {status} Because\r\ncontent-length: 99999999999\r\n\r\n{endless}").into_bytes())
    })
    .await;
    let place = Place::new();
    place.configure(&receiver.subscription(""));
    let daemon = place.serve().await;
    for number in 0..2 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{number}}}"#)).await;
    }
    let letters = async || place.run(&["dlq", "list", "--json"]).await.objects();
    eventually(PATIENCE, "the dead letter", async || letters().await.len() == 1).await;
    assert_eq!(letters().await[0]["error_code"], "UPSTREAM_4XX");
    assert!(letters().await[0]["error"].as_str().unwrap().len() < 1000);
    assert!(delivered(&place, 2).await, "200 is done, whatever follows");
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn a_receiver_that_never_answers_keeps_nobody_from_writing() {
    let receiver = Receiver::start(|_, _| None).await;
    let place = Place::new();
    place.configure(&receiver.subscription("timeout_ms = 600000"));
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    eventually(PATIENCE, "the post", async || receiver.requests().len() == 1).await;
    // SQLite has one writer at a time, and it is not the one that waits for the receiver.
    for number in 0..5 {
        daemon.send(&format!(r#"{{"topic":"others","payload":{number}}}"#)).await;
    }
    let published = "landfall_published_total 6";
    eventually(PATIENCE, "the relay", async || daemon.get("/metrics").await.body.contains(published)).await;
}

#[tokio::test]
async fn https_is_believed_if_the_authority_is() {
    let receiver = Receiver::secure().await;
    let place = Place::new();
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/fixtures/tls/authority.pem");
    let subscription = format!(
        "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"https://localhost:{}/\"\nmax_attempts = 1\n\
         [push]\nallow_private_addresses = true\n",
        receiver.address.port()
    );
    place.configure(&subscription);
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let letters = async || place.run(&["dlq", "list", "--json"]).await.objects();
    eventually(PATIENCE, "the dead letter", async || letters().await.len() == 1).await;
    let error = letters().await[0]["error"].to_string();
    assert!(error.contains("cannot connect") && error.contains("certificate"), "{error}");
    assert!(receiver.requests().is_empty());
    daemon.kill().await;

    place.configure(&format!("{subscription}ca_file = \"{authority}\"\n"));
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","payload":2}"#).await;
    eventually(PATIENCE, "the post", async || receiver.bodies() == ["2"]).await;

    daemon.kill().await;
    place.configure(&format!("{subscription}ca_file = \"/nowhere.pem\"\n"));
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.sentence(2).starts_with("push.ca_file: the certificates in \"/nowhere.pem\" cannot be used"));
}

#[tokio::test]
async fn a_daemon_without_the_role_posts_nothing() {
    let receiver = Receiver::content().await;
    let place = Place::new();
    place.configure(&receiver.subscription(""));
    let daemon = place.serve_as("relay").await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let published = "landfall_published_total 1";
    eventually(PATIENCE, "the relay", async || daemon.get("/metrics").await.body.contains(published)).await;
    assert!(daemon.stderr().contains("roles relay)"), "{}", daemon.stderr());
    daemon.kill().await;
    assert!(receiver.requests().is_empty());

    let daemon = place.serve_as("push").await;
    eventually(PATIENCE, "the post", async || receiver.bodies() == ["1"]).await;
    assert!(daemon.stderr().contains("roles push)"), "{}", daemon.stderr());
}

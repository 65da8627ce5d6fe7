//! Limits of a subscription: it must not reach private addresses, follow redirects, read endless bodies or block
//! writers.

use landfall_testkit::eventually;

use super::support::{Receiver, Sandbox, TIMEOUT, response};

const NOT_PUBLIC: &str = "is not a public address; to allow it, add it to push.allowed_hosts";
const UNUSUAL: &str = "is not a public address in its usual form";

async fn delivered(sandbox: &Sandbox, count: i64) -> bool {
    sandbox.count("SELECT count(*) FROM landfall_inbox").await == count
}

#[tokio::test]
async fn private_address_in_url_is_refused_at_startup() {
    let sandbox = Sandbox::new();
    for (url, reason) in [
        ("http://127.0.0.1:9/", NOT_PUBLIC),
        ("http://169.254.169.254/latest/meta-data", NOT_PUBLIC),
        ("http://0.0.0.0/", NOT_PUBLIC),
        ("https://[fd00::1]/", NOT_PUBLIC),
        ("https://[::1]:8443/", NOT_PUBLIC),
        ("https://[::]/", NOT_PUBLIC),
        // IPv4 addresses in IPv6: mapped, in hex too, compatible, translated, NAT64 and 6to4.
        ("http://[::ffff:10.0.0.1]/", NOT_PUBLIC),
        ("http://[::ffff:a9fe:a9fe]/", NOT_PUBLIC),
        ("http://[::127.0.0.1]/", NOT_PUBLIC),
        ("http://[::ffff:0:127.0.0.1]/", NOT_PUBLIC),
        ("http://[64:ff9b::10.0.0.1]/", NOT_PUBLIC),
        ("http://[64:ff9b:1::10.0.0.1]/", NOT_PUBLIC),
        ("http://[2002:7f00:1::]/", NOT_PUBLIC),
        // IPv4 addresses that only a resolver reads as such.
        ("http://2130706433/", UNUSUAL),
        ("http://017700000001/", UNUSUAL),
        ("http://0x7f000001/", UNUSUAL),
        ("http://0X7F.1/", UNUSUAL),
        ("http://0177.0.0.1/", UNUSUAL),
        ("http://127.1/", UNUSUAL),
        ("http://127.0.0.1./", UNUSUAL),
        // A user, a zone, and characters that URL parsers disagree about.
        ("http://example.com@127.0.0.1/", "user or a password"),
        ("http://127.0.0.1%2f@example.com/", "user or a password"),
        ("http://[fe80::1%25lo]/", "subscription"),
        ("http://127.0.0.1\\\\@example.com/", "subscription[0].url"),
        ("http://127。0。0。1/", "subscription[0].url"),
        ("file:///etc/passwd", "subscription[0].url"),
        ("gopher://127.0.0.1/", "subscription[0].url"),
    ] {
        sandbox.configure(&format!("[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"{url}\"\n"));
        let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        let error = refused.error_line(2);
        assert!(error.contains(reason), "{url}: {error}");
    }
    assert!(!sandbox.data().exists(), "nothing was opened or written");
}

#[tokio::test]
async fn impossible_port_is_refused_at_startup() {
    let sandbox = Sandbox::new();
    let url = "https://example.com:99999/in";
    sandbox.configure(&format!("[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"{url}\"\n"));
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    let error = refused.error_line(2);
    assert!(error.contains("subscription[0].url must have a port from 1 to 65535"), "{error}");
}

#[tokio::test]
async fn host_resolving_to_private_address_needs_permission() {
    let receiver = Receiver::accepting().await;
    let sandbox = Sandbox::new();
    let subscription = format!(
        "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"http://localhost:{}/\"\nmax_attempts = 1\n",
        receiver.address.port()
    );
    sandbox.configure(&subscription);
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "the dead letter", async || letters().await.len() == 1).await;
    let letter = &letters().await[0];
    assert_eq!(letter["error_code"], "ADDRESS_REFUSED");
    assert!(letter["error"].as_str().unwrap().contains(": localhost ("), "{letter}");
    assert!(receiver.requests().is_empty());
    daemon.kill().await;

    sandbox.configure(&format!("{subscription}[push]\nallowed_hosts = [\"LocalHost\"]\n"));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":2}"#).await;
    eventually(TIMEOUT, "the post", async || receiver.bodies() == ["2"]).await;
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let inside = Receiver::accepting().await;
    let location = format!("location: http://{}/secret\r\n", inside.address);
    let receiver = Receiver::start(move |number, _| match number {
        0 => response(307, &location, ""),
        _ => response(200, "", ""),
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    eventually(TIMEOUT, "the second attempt", async || delivered(&sandbox, 1).await).await;
    assert_eq!((receiver.requests().len(), inside.requests().len()), (2, 0));
}

#[tokio::test]
async fn endless_response_body_is_cut_off() {
    let receiver = Receiver::start(|number, _| {
        let endless = "x".repeat(1 << 20);
        let status = if number == 0 { 200 } else { 400 };
        Some(format!("HTTP/1.1 {status} Because\r\ncontent-length: 99999999999\r\n\r\n{endless}").into_bytes())
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    for number in 0..2 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{number}}}"#)).await;
    }
    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "the dead letter", async || letters().await.len() == 1).await;
    assert_eq!(letters().await[0]["error_code"], "UPSTREAM_4XX");
    let error = letters().await[0]["error"].as_str().unwrap().to_owned();
    assert!(error.ends_with("xxx") && error.len() < 1000, "the beginning of the body is kept: {error}");
    assert!(delivered(&sandbox, 2).await, "200 means delivered, whatever the body");
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn silent_receiver_does_not_block_writers() {
    let receiver = Receiver::start(|_, _| None).await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription("timeout_ms = 600000"));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    eventually(TIMEOUT, "the post", async || receiver.requests().len() == 1).await;
    // SQLite has a single writer; waiting for the receiver must not occupy it.
    for number in 0..5 {
        daemon.send(&format!(r#"{{"topic":"others","payload":{number}}}"#)).await;
    }
    let published = "landfall_published_total 6";
    eventually(TIMEOUT, "the relay", async || daemon.get("/metrics").await.body.contains(published)).await;
}

#[tokio::test]
async fn https_receiver_needs_a_trusted_authority() {
    let receiver = Receiver::secure().await;
    let sandbox = Sandbox::new();
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/fixtures/tls/authority.pem");
    let subscription = format!(
        "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"https://localhost:{}/\"\nmax_attempts = 1\n\
         [push]\nallow_private_addresses = true\n",
        receiver.address.port()
    );
    sandbox.configure(&subscription);
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "the dead letter", async || letters().await.len() == 1).await;
    let error = letters().await[0]["error"].to_string();
    assert!(error.contains("cannot connect") && error.contains("certificate"), "{error}");
    assert!(receiver.requests().is_empty());
    daemon.kill().await;

    sandbox.configure(&format!("{subscription}ca_file = \"{authority}\"\n"));
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","payload":2}"#).await;
    eventually(TIMEOUT, "the post", async || receiver.bodies() == ["2"]).await;

    daemon.kill().await;
    sandbox.configure(&format!("{subscription}ca_file = \"/nowhere.pem\"\n"));
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.error_line(2).starts_with("push.ca_file: cannot use the certificates in \"/nowhere.pem\": "));
}

#[tokio::test]
async fn daemon_without_push_role_posts_nothing() {
    let receiver = Receiver::accepting().await;
    let sandbox = Sandbox::new();
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve_as("relay").await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let published = "landfall_published_total 1";
    eventually(TIMEOUT, "the relay", async || daemon.get("/metrics").await.body.contains(published)).await;
    assert!(daemon.stderr().contains("roles relay)"), "{}", daemon.stderr());
    daemon.kill().await;
    assert!(receiver.requests().is_empty());

    let daemon = sandbox.serve_as("push").await;
    eventually(TIMEOUT, "the post", async || receiver.bodies() == ["1"]).await;
    assert!(daemon.stderr().contains("roles push)"), "{}", daemon.stderr());
}

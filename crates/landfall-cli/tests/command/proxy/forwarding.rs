//! What reaches the service, and what comes back.

use landfall_testkit::current_test;
use landfall_testkit::servers::Certificates;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::support::{Receiver, Sandbox, request, response};
use super::super::tls;
use super::fixture::{ANN, Pay, Shop, refused, replayed, route_to, serve};

#[tokio::test]
async fn service_gets_the_request_with_its_key_and_who_asked() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let headers = [
        ("idempotency-key", "\"k1\""),
        ("authorization", ANN),
        ("host", "shop.example"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-host", "forged.example"),
        ("x-forwarded-proto", "forged"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic eDp5"),
        ("expect", "100-continue"),
        ("cookie", "a=1"),
        ("x-own", "kept"),
    ];
    let answer = request(daemon.proxy(), "POST", "/orders/7/pay?a=%2F&b", &headers, b"body").await;
    assert!(answer.body.ends_with("{\"paid\":1}"), "{answer:?}");
    let seen = shop.seen().remove(0);
    assert_eq!((seen.target.as_str(), &seen.body[..]), ("/shop/orders/7/pay?a=%2F&b", &b"body"[..]));
    let host = shop.address.to_string();
    for (name, value) in [
        ("idempotency-key", "\"k1\""),
        ("authorization", ANN),
        ("host", host.as_str()),
        ("x-forwarded-for", "198.51.100.7, 127.0.0.1"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-proto", "http"),
        ("cookie", "a=1"),
        ("x-own", "kept"),
        ("content-length", "4"),
    ] {
        assert_eq!(seen.header(name), value, "{name} of {seen:?}");
    }
    for name in ["te", "proxy-authorization", "expect", "connection", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(name), "{name} of {seen:?}");
    }
}

#[tokio::test]
async fn connection_headers_of_the_service_are_not_passed_on() {
    let sandbox = Sandbox::new();
    let lines = "Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Own: 2\r\n";
    let service = Receiver::start(move |_, _| response(200, lines, "paid")).await;
    let daemon = serve(&sandbox, &route_to(service.address, "")).await;
    let answer = Pay::default().to(daemon.proxy()).await;
    assert_eq!((answer.body.as_str(), answer.header("x-own")), ("paid", Some("2")), "{answer:?}");
    assert_eq!((answer.header("x-hop"), answer.header("keep-alive")), (None, None), "{answer:?}");
}

#[tokio::test]
async fn request_without_a_key_passes_through_where_it_is_optional() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("key = \"optional\"\nmax_body_bytes = 1000\n")).await;
    let plain = Pay { key: None, caller: None, ..Pay::default() };
    for number in 1..=2 {
        let answer = plain.to(daemon.proxy()).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (201, Some("session=secret")));
        assert_eq!(shop.effects(), number);
    }
    // Without a key the body is streamed, and the limit does not apply.
    let large = "x".repeat(3_000_000);
    let streamed = Pay { body: &large, ..plain.clone() }.to(daemon.proxy()).await;
    assert_eq!((streamed.status, shop.seen()[2].body.len()), (201, 3_000_000));
    let refusal = Pay { body: &large[..1001], ..Pay::default() }.to(daemon.proxy()).await;
    refused(&refusal, 413, "too-large");
    let first = Pay { body: &large[..1000], ..Pay::default() }.to(daemon.proxy()).await;
    replayed(&Pay { body: &large[..1000], ..Pay::default() }.to(daemon.proxy()).await, &first);
    assert_eq!(shop.effects(), 4);
}

#[tokio::test]
async fn chunked_body_is_one_request_with_a_length() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let mut stream = TcpStream::connect(daemon.proxy()).await.unwrap();
    let head = "POST /orders/7/pay HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer ann\r\n\
                Idempotency-Key: k1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}4\r\n{{\"eu\r\n7\r\nro\":10}}\r\n0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    // The same request with a length is a repeat.
    let repeat = Pay::default().to(daemon.proxy()).await;
    assert_eq!((repeat.header("idempotent-replayed"), shop.effects()), (Some("true"), 1));
    assert_eq!(shop.seen()[0].header("content-length"), "11");
}

#[tokio::test]
async fn proxy_speaks_https_on_both_sides() {
    let Some(certificates) = Certificates::make(&current_test()).await else { return };
    let (sandbox, service) = (Sandbox::new(), Receiver::secure().await);
    tls::install(sandbox.path(), &certificates);
    let file = |name: &str| sandbox.path().join(name).display().to_string();
    let listener = format!("[http]\ncertificate_file = {:?}\nkey_file = {:?}\n", file("tls.pem"), file("tls.key"));
    let upstream = format!("https://localhost:{}", service.address.port());
    let route = route_to(service.address, "").replace(&format!("http://{}/shop/", service.address), &upstream);
    let request = "POST /orders/7/pay HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer ann\r\n\
                   Idempotency-Key: k1\r\nContent-Length: 0\r\n\r\n";
    // A service that is not trusted gets nothing, and the key stays free.
    let daemon = serve(&sandbox, &format!("{listener}{route}")).await;
    let answer = tls::exchange(daemon.proxy(), &certificates.authority(), request.as_bytes()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 ") && service.requests().is_empty(), "{answer}");
    daemon.kill().await;
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/fixtures/tls/authority.pem");
    let daemon = serve(&sandbox, &format!("{listener}[push]\nca_file = {authority:?}\n{route}")).await;
    for _ in 0..2 {
        let answer = tls::exchange(daemon.proxy(), &certificates.authority(), request.as_bytes()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let seen = service.requests();
    assert_eq!((seen.len(), seen[0].header("x-forwarded-proto")), (1, "https"));
}

//! Requests whose end, host or headers two servers could read differently: answered or refused, never forwarded twice.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::support::{Sandbox, TIMEOUT};
use super::fixture::{Shop, serve};

const KEYED: &str = "Authorization: Bearer ann\r\nIdempotency-Key: k1\r\n";
const HIDDEN: &str = "POST /orders/8/pay HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer ann\r\n\
                      Idempotency-Key: hidden\r\nContent-Length: 0\r\n\r\n";

fn post(lines: &str, body: &str) -> String {
    format!("POST /orders/7/pay HTTP/1.1\r\nHost: shop\r\n{KEYED}{lines}\r\n{body}")
}

/// Sends raw bytes, closes the sending side, and returns all that the proxy answers.
async fn send(proxy: SocketAddr, bytes: &str) -> String {
    exchange(proxy, bytes, true).await
}

async fn exchange(proxy: SocketAddr, bytes: &str, is_closed: bool) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let _ = stream.write_all(bytes.as_bytes()).await;
    if is_closed {
        let _ = stream.shutdown().await;
    }
    let mut answer = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "no end of the answer to {bytes:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn ambiguous_requests_are_never_forwarded_twice() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    for (what, request) in [
        ("two lengths", post("Content-Length: 0\r\nContent-Length: 5\r\n", HIDDEN)),
        ("list of lengths", post("Content-Length: 0, 5\r\n", HIDDEN)),
        ("signed length", post("Content-Length: +0\r\n", HIDDEN)),
        ("unknown coding", post("Transfer-Encoding: xchunked\r\n", &chunked)),
        ("chunked is not last", post("Transfer-Encoding: chunked, identity\r\n", &chunked)),
        ("coding of two lines", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", &chunked)),
        ("space before the colon", post("Content-Length : 5\r\n", HIDDEN)),
        ("folded coding", post("Transfer-Encoding:\r\n chunked\r\n", &chunked)),
        ("vertical tab", post("Transfer-Encoding: \x0bchunked\r\n", &chunked)),
        ("size of a chunk beyond 64 bits", post("Transfer-Encoding: chunked\r\n", "10000000000000001\r\nx\r\n")),
        ("key removed by Connection", post("Connection: close, Idempotency-Key\r\nContent-Length: 0\r\n", "")),
        ("caller removed by Connection", post("Connection: authorization\r\nContent-Length: 0\r\n", "")),
        ("two hosts", post("Host: other\r\nContent-Length: 0\r\n", "")),
        ("CR in a header", post("X-A: b\rIdempotency-Key: c\r\nContent-Length: 0\r\n", "")),
        ("tunnel", "CONNECT shop:80 HTTP/1.1\r\nHost: shop:80\r\n\r\n".to_owned()),
        (
            "target of another host",
            format!("POST http://evil/orders/7/pay HTTP/1.1\r\nHost: shop\r\n{KEYED}Content-Length: 0\r\n\r\n"),
        ),
    ] {
        let answer = send(daemon.proxy(), &request).await;
        let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
        let is_refused = statuses.len() <= 1 && statuses.iter().all(|status| status.starts_with('4'));
        assert!(is_refused, "{what}: {answer}");
        assert_eq!(shop.effects(), 0, "{what} was forwarded");
    }
    // The chunks count, as RFC 9112 says, and the connection is closed, so that the rest is no request.
    for lines in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"]
    {
        let answer = send(daemon.proxy(), &post(lines, &chunked)).await;
        assert_eq!((answer.matches("HTTP/1.1 ").count(), shop.effects()), (1, 1), "{answer}");
        assert_eq!(shop.seen()[0].header("content-length"), "0");
    }
    // Two requests in one go are two requests, each forwarded once.
    let last = HIDDEN.replace("Host: shop", "Host: shop\r\nConnection: close");
    let two = post("Content-Length: 0\r\n", "") + &last;
    let answer = exchange(daemon.proxy(), &two, false).await;
    assert_eq!((answer.matches("HTTP/1.1 201 ").count(), shop.effects()), (2, 2), "{answer}");
    assert_eq!(answer.matches("idempotent-replayed").count(), 1, "the first one has run before: {answer}");
}

/// A client that sends half a body begins nothing.
#[tokio::test]
async fn body_that_never_ends_is_not_forwarded() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &format!("[http]\nrequest_timeout_ms = 300\n{}", shop.route(""))).await;
    let mut stream = TcpStream::connect(daemon.proxy()).await.unwrap();
    stream.write_all(post("Content-Length: 100\r\n", "half").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok() && String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 408 "), "{answer:?}");
    // And one that goes away.
    assert!(!send(daemon.proxy(), &post("Content-Length: 100\r\n", "half")).await.contains("201"));
    assert_eq!(shop.effects(), 0);
}

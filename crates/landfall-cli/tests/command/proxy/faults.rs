//! Services that are down, slow or broken. A request is sent once, whatever happens to its answer.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::{Receiver, Sandbox, response};
use super::fixture::{Pay, Shop, refused, replayed, route_to, serve};

/// An address at which no server listens.
async fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn unreachable_service_frees_the_key() {
    let sandbox = Sandbox::new();
    let address = nowhere().await;
    let daemon = serve(&sandbox, &route_to(address, "")).await;
    for _ in 0..2 {
        refused(&Pay::default().to(daemon.proxy()).await, 502, "bad-gateway");
    }
    // Nothing was sent, so the policy `uncertain` does not apply, and another body is no mismatch.
    let shop = Receiver::start(|_, _| response(200, "", "paid")).await;
    daemon.kill().await;
    let daemon = serve(&sandbox, &route_to(shop.address, "")).await;
    let first = Pay { body: "{}", ..Pay::default() }.to(daemon.proxy()).await;
    assert_eq!((first.status, first.body.as_str(), shop.requests().len()), (200, "paid", 1));
}

#[tokio::test]
async fn lost_answer_is_uncertain_and_never_sent_again() {
    for (broken, status, name) in [
        (Some(Vec::new()), 502, "bad-gateway"),
        (Some(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), 504, "gateway-timeout"),
        (Some(b"no HTTP at all\r\n\r\n".to_vec()), 502, "bad-gateway"),
        (Some(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()), 504, "gateway-timeout"),
        (Some(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_vec()), 502, "bad-gateway"),
        (None, 504, "gateway-timeout"),
    ] {
        let sandbox = Sandbox::new();
        let service = Receiver::start(move |_, _| broken.clone()).await;
        let daemon = serve(&sandbox, &route_to(service.address, "timeout_ms = 500\n")).await;
        refused(&Pay::default().to(daemon.proxy()).await, status, name);
        refused(&Pay::default().to(daemon.proxy()).await, 409, "uncertain");
        assert_eq!(service.requests().len(), 1, "{:?}", service.requests());
    }
}

#[tokio::test]
async fn answer_that_breaks_off_is_uncertain() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("")).await;
    let half = Pay { behave: "half", ..Pay::default() };
    refused(&half.to(daemon.proxy()).await, 502, "bad-gateway");
    refused(&Pay::default().to(daemon.proxy()).await, 409, "uncertain");
    assert_eq!(shop.effects(), 1);
}

#[tokio::test]
async fn rerun_sends_again_only_when_the_client_does() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let daemon = serve(&sandbox, &shop.route("on_unknown = \"rerun\"\n")).await;
    let half = Pay { behave: "half", ..Pay::default() };
    refused(&half.to(daemon.proxy()).await, 502, "bad-gateway");
    assert_eq!(shop.effects(), 1);
    let again = Pay::default().to(daemon.proxy()).await;
    assert_eq!((again.status, shop.effects()), (201, 2));
    replayed(&Pay::default().to(daemon.proxy()).await, &again);
}

/// Sends one request through `proxy` to a service that closes the connection instead of answering, and returns how
/// often it arrived.
async fn arrivals_of_an_unanswered_post(service: &Receiver, proxy: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let head = "POST /orders/7/pay HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer ann\r\n";
    stream.write_all(format!("{head}Idempotency-Key: k1\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    service.requests().len()
}

#[tokio::test]
async fn lost_answer_of_a_post_is_sent_once() {
    let (sandbox, service) = (Sandbox::new(), Receiver::start(|_, _| Some(Vec::new())).await);
    let daemon = serve(&sandbox, &route_to(service.address, "on_unknown = \"rerun\"\n")).await;
    assert_eq!(arrivals_of_an_unanswered_post(&service, daemon.proxy()).await, 1);
}

/// The planted bug: a proxy that sends a POST again by itself when the connection is lost.
#[tokio::test]
async fn proxy_that_retries_a_post_by_itself_is_caught() {
    let service = Receiver::start(|_, _| Some(Vec::new())).await;
    let upstream = service.address;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let retrying = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let (mut request, mut answer) = (vec![0; 4096], Vec::new());
        let length = client.read(&mut request).await.unwrap();
        for _ in 0..2 {
            let mut connection = TcpStream::connect(upstream).await.unwrap();
            connection.write_all(&request[..length]).await.unwrap();
            let _ = connection.read_to_end(&mut answer).await;
            if !answer.is_empty() {
                break;
            }
        }
    });
    assert_eq!(arrivals_of_an_unanswered_post(&service, proxy).await, 2, "the check must see the second one");
    retrying.await.unwrap();
}

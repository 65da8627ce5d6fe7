//! The coordinator asks business services over gRPC.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::Response;
use landfall::check_back::Answer;
use landfall::check_back::grpc::{LocalTransactions, Question, Secrets, service};
use landfall_grpc::check_back_server::SERVICE_NAME;
use landfall_grpc::{CheckBackTarget, CheckRequest, GetRequest, HalfMessage, HalfState, PrepareRequest};
use landfall_testkit::eventually;
use prost::Message;

use super::calls::{half, prepare};
use crate::support::{Daemon, GrpcServer, Sandbox, TIMEOUT, frame, half_messages, reply};

const QUICK: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\ntimeout_ms = 500\nbackoff_first_ms = 10\n\
                     backoff_cap_ms = 20\nallow_private_addresses = true\n";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const COMMITTED: &[u8] = &[8, 1];
const ROLLED_BACK: &[u8] = &[8, 2];

fn asked_at(number: u32, target: String) -> PrepareRequest {
    let check_back = Some(CheckBackTarget { grpc: Some(target), ..Default::default() });
    PrepareRequest { check_back, ..half(number) }
}

async fn row(daemon: &Daemon, id: &str) -> HalfMessage {
    half_messages(daemon.address).get(GetRequest { id: id.into() }).await.unwrap().into_inner()
}

async fn wait_for(daemon: &Daemon, id: &str, state: HalfState) -> HalfMessage {
    eventually(TIMEOUT, "the state", async || row(daemon, id).await.state() == state).await;
    row(daemon, id).await
}

/// A business service as a user writes it.
#[derive(Default)]
struct Orders(Mutex<HashMap<String, u32>>);

#[async_trait]
impl LocalTransactions for Orders {
    async fn answer(&self, question: &Question) -> Answer {
        assert_eq!(question.business_type, "order");
        let times = {
            let mut asked = self.0.lock().unwrap();
            let times = asked.entry(question.business_id.clone()).or_default();
            *times += 1;
            *times
        };
        match question.business_id.as_str() {
            "1" => Answer::Committed,
            "2" => Answer::RolledBack,
            _ if times < 3 => Answer::unknown("still open"),
            _ => Answer::Committed,
        }
    }
}

#[tokio::test]
async fn rust_service_answers_check_backs_over_grpc() {
    let orders = service(Orders::default(), Secrets::new([SECRET]).unwrap());
    let path = format!("/{SERVICE_NAME}/{{method}}");
    let server = GrpcServer::start(Router::new().route_service(&path, orders)).await;
    let sandbox = Sandbox::new();
    let services = format!("services = {{ orders = \"http://{}\" }}\n", server.address);
    sandbox.configure(&format!("{QUICK}secret = \"{SECRET}\"\n{services}"));
    let daemon = sandbox.serve().await;
    let url = format!("http://{}", server.address);
    let kept = prepare(&daemon, asked_at(1, url.clone())).await.unwrap();
    let discarded = prepare(&daemon, asked_at(2, "service:orders".into())).await.unwrap();
    let later = prepare(&daemon, asked_at(3, url)).await.unwrap();
    assert_eq!(wait_for(&daemon, &kept, HalfState::Committed).await.decided_by(), "check-back");
    wait_for(&daemon, &discarded, HalfState::RolledBack).await;
    assert_eq!(wait_for(&daemon, &later, HalfState::Committed).await.checks, 2);
}

/// Over TLS the service must be trusted, and speak HTTP/2.
#[tokio::test]
async fn check_back_over_grpc_and_tls_needs_a_trusted_certificate() {
    let orders = service(Orders::default(), Secrets::unsigned());
    let path = format!("/{SERVICE_NAME}/{{method}}");
    let server = GrpcServer::secure(Router::new().route_service(&path, orders)).await;
    let target = format!("https://localhost:{}", server.address.port());
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("{QUICK}max_checks = 1\n"));
    let daemon = sandbox.serve().await;
    let parked = prepare(&daemon, asked_at(1, target.clone())).await.unwrap();
    let row = wait_for(&daemon, &parked, HalfState::Parked).await;
    assert!(row.last_answer().contains("certificate"), "{row:?}");
    daemon.kill().await;
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/fixtures/tls/authority.pem");
    sandbox.configure(&format!("{QUICK}[push]\nca_file = \"{authority}\"\n"));
    let daemon = sandbox.serve().await;
    let kept = prepare(&daemon, asked_at(1, target)).await.unwrap();
    wait_for(&daemon, &kept, HalfState::Committed).await;
}

/// Catches a service that answers anyone: a wrong secret decides nothing.
#[tokio::test]
async fn unsigned_check_back_decides_nothing() {
    let orders = service(Orders::default(), Secrets::new([SECRET]).unwrap());
    let path = format!("/{SERVICE_NAME}/{{method}}");
    let server = GrpcServer::start(Router::new().route_service(&path, orders)).await;
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("{QUICK}max_checks = 2\n"));
    let daemon = sandbox.serve().await;
    let id = prepare(&daemon, asked_at(1, format!("http://{}", server.address))).await.unwrap();
    let row = wait_for(&daemon, &id, HalfState::Parked).await;
    assert!(row.last_answer().contains("gRPC status 16"), "{row:?}");
}

/// Catches naive clients: an error body or an unfinished reply read as a verdict, unknown read as a rollback.
#[tokio::test]
async fn unclear_grpc_answers_are_unknown_and_asked_again() {
    let status = |code: u16, mut response: Response<Body>| {
        *response.status_mut() = axum::http::StatusCode::from_u16(code).unwrap();
        Some(response)
    };
    let server = GrpcServer::scripted(move |number| match number {
        0 => status(500, reply(frame(COMMITTED), Some("0"))?),
        1 => status(404, reply(frame(ROLLED_BACK), Some("0"))?),
        2 => status(302, reply(frame(COMMITTED), Some("0"))?),
        // The transaction is not found, and the body says otherwise.
        3 => reply(frame(COMMITTED), Some("5")),
        // The connection ended before the status.
        4 => reply(frame(COMMITTED), None),
        5 => reply([frame(COMMITTED), frame(ROLLED_BACK)].concat(), Some("0")),
        6 => reply(frame(&[]), Some("0")),
        7 => reply(frame(&[8, 3]), Some("0")),
        8 => reply(b"{\"state\":\"committed\"}".to_vec(), Some("0")),
        9 => reply(frame(&[COMMITTED, &[0x12, 0xa0, 0x8d, 6], &vec![b'x'; 100_000]].concat()), Some("0")),
        10 => {
            let mut response = reply(frame(COMMITTED), Some("0"))?;
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Some(response)
        }
        11 => None,
        _ => reply(frame(COMMITTED), Some("0")),
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("{QUICK}secret = \"{SECRET}\"\n"));
    let daemon = sandbox.serve().await;
    let id = prepare(&daemon, asked_at(1, format!("http://{}", server.address))).await.unwrap();
    let row = wait_for(&daemon, &id, HalfState::Committed).await;
    assert_eq!((row.checks, server.calls().len()), (12, 13), "{row:?}");

    let (headers, body) = server.calls().remove(0);
    assert_eq!(
        (headers["webhook-id"].as_bytes(), headers["content-type"].as_bytes()),
        (id.as_bytes(), &b"application/grpc"[..])
    );
    assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,"), "{headers:?}");
    let asked = CheckRequest::decode(&body[5..]).unwrap();
    assert_eq!(asked, CheckRequest { id, business_type: "order".into(), business_id: "1".into() });
}

#[tokio::test]
async fn private_grpc_address_is_refused_by_default() {
    let server = GrpcServer::scripted(|_| reply(frame(COMMITTED), Some("0"))).await;
    let sandbox = Sandbox::new();
    sandbox.configure(&QUICK.replace("allow_private_addresses = true", "max_checks = 1"));
    let daemon = sandbox.serve().await;
    for target in [format!("http://{}", server.address), format!("http://localhost:{}", server.address.port())] {
        let id = prepare(&daemon, asked_at(1, target)).await.unwrap();
        let row = wait_for(&daemon, &id, HalfState::Parked).await;
        assert!(row.last_answer().contains("check_back.allow_private_addresses"), "{row:?}");
    }
    assert_eq!(server.calls().len(), 0);
}

//! Tokens, hosts and origins guard calls as they guard requests, and reflection lists the services.

use axum::http::Request;
use landfall_grpc::half_messages_client::HalfMessagesClient;
use landfall_grpc::{DecideRequest, GetRequest};
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::calls::{assert_refused, half, prepare};
use crate::support::{Daemon, Sandbox, half_messages, http2, origin, post};

const ROLES: [&str; 4] = ["viewer", "payload-reader", "operator", "admin"];
const UNKNOWN: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";

async fn serve_with_all_roles(sandbox: &Sandbox) -> Daemon {
    let token = |role| format!("{{ role = \"{role}\", token = \"{role}-0123456789\" }}");
    sandbox.configure(&format!("[auth]\ntokens = [{}]\n", ROLES.map(token).join(", ")));
    sandbox.serve().await
}

fn with<T>(message: T, header: &'static str, value: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(header, value.parse().unwrap());
    request
}

#[tokio::test]
async fn every_call_requires_its_role() {
    let sandbox = Sandbox::new();
    let daemon = serve_with_all_roles(&sandbox).await;
    let mut client = half_messages(daemon.address);
    let wrong = "Bearer wrong-0123456789";
    for (position, token) in
        std::iter::once(wrong.to_owned()).chain(ROLES.map(|role| format!("Bearer {role}-0123456789"))).enumerate()
    {
        // Position 0 has no role; viewer and payload-reader may not write.
        let writes = if position == 0 { Code::Unauthenticated } else { Code::PermissionDenied };
        let may_write = position >= 3;
        let get = client.get(with(GetRequest { id: UNKNOWN.into() }, "authorization", &token)).await.unwrap_err();
        assert_eq!(get.code(), if position == 0 { Code::Unauthenticated } else { Code::NotFound }, "{token}");
        let prepared = client.prepare(with(half(1), "authorization", &token)).await;
        assert_eq!(prepared.as_ref().err().map(tonic::Status::code), (!may_write).then_some(writes), "{token}");
        for number in 0..2 {
            // An invalid id, so that this decides nothing.
            let request = with(DecideRequest { id: "x".into() }, "authorization", &token);
            let decided = if number == 0 { client.commit(request).await } else { client.rollback(request).await };
            let expected = if may_write { Code::InvalidArgument } else { writes };
            assert_eq!(decided.unwrap_err().code(), expected, "{token}");
        }
    }
    assert_refused(prepare(&daemon, half(2)).await, Code::Unauthenticated, "unauthorized");
    let unknown = call_unknown(&daemon, "Bearer admin-0123456789").await;
    assert_eq!(unknown.code(), Code::Unimplemented, "{unknown:?}");
    assert_eq!(call_unknown(&daemon, "Bearer wrong").await.code(), Code::Unauthenticated);
}

/// Calls a method that does not exist.
async fn call_unknown(daemon: &Daemon, token: &str) -> tonic::Status {
    let mut grpc = tonic::client::Grpc::with_origin(http2(), origin(daemon.address));
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<GetRequest, GetRequest>::default();
    let path = "/landfall.v1.HalfMessages/Drop".parse().unwrap();
    grpc.unary(with(GetRequest::default(), "authorization", token), path, codec).await.unwrap_err()
}

#[tokio::test]
async fn calls_of_other_sites_and_hosts_are_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let mut client = half_messages(daemon.address);
    let evil = client.prepare(with(half(1), "origin", "http://evil.example")).await;
    assert_refused(evil, Code::PermissionDenied, "forbidden");
    let cross = client.prepare(with(half(1), "sec-fetch-site", "cross-site")).await;
    assert_refused(cross, Code::PermissionDenied, "forbidden");
    // A name that resolves to this machine, as with DNS rebinding: the authority counts as Host.
    let name = "http://evil.example:80".parse().unwrap();
    let mut rebound = HalfMessagesClient::with_origin(Redirected(origin(daemon.address)), name);
    assert_refused(rebound.prepare(half(1)).await, Code::PermissionDenied, "forbidden");
    // HTTP/1.1, and HTTP/2 without the media type of gRPC.
    for kind in ["application/grpc", "application/json"] {
        let headers = [("content-type", kind)];
        let path = "/landfall.v1.HalfMessages/Prepare";
        let response = crate::support::request(daemon.address, "POST", path, &headers, b"").await;
        assert!(matches!(response.status, 200 | 400), "{response:?}");
        assert!(!response.body.contains("prepared"), "{response:?}");
    }
    assert_eq!(post(daemon.address, "/v1/half-messages", "{").await.status, 400);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_half_message").await, 0);
}

/// Connects to another address than the request names.
#[derive(Clone)]
struct Redirected(axum::http::Uri);

impl tower_service::Service<Request<tonic::body::Body>> for Redirected {
    type Response = axum::http::Response<hyper::body::Incoming>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = futures_util::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let address = self.0.authority().unwrap().to_string();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let (executor, io) = (hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await?;
            tokio::spawn(connection);
            Ok(sender.send_request(request).await?)
        })
    }
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let sandbox = Sandbox::new();
    let daemon = serve_with_all_roles(&sandbox).await;
    let ask = async |request: MessageRequest, token: &str| -> Result<ServerReflectionResponse, tonic::Status> {
        let mut client = ServerReflectionClient::with_origin(http2(), origin(daemon.address));
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let requests = futures_util::stream::iter([request]);
        let mut answers = client.server_reflection_info(with(requests, "authorization", token)).await?.into_inner();
        Ok(answers.message().await?.unwrap())
    };
    let viewer = "Bearer viewer-0123456789";
    let answer = ask(MessageRequest::ListServices(String::new()), viewer).await.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"landfall.v1.HalfMessages") && names.contains(&"landfall.v1.CheckBack"), "{names:?}");
    let symbol = MessageRequest::FileContainingSymbol("landfall.v1.CheckBack".into());
    let answer = ask(symbol.clone(), viewer).await.unwrap();
    assert!(matches!(answer.message_response, Some(MessageResponse::FileDescriptorResponse(_))), "{answer:?}");
    assert_refused(ask(symbol, "Bearer wrong").await, Code::Unauthenticated, "unauthorized");
}

//! The gRPC services, on the port of the routes: `landfall.v1.HalfMessages`, and reflection.
//!
//! A call passes the same checks as a request to a route, and then the same functions. An error is a
//! [`Problem`] until it leaves the daemon as a [`status`].

mod calls;
pub(super) mod status;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Version, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use landfall_grpc::half_messages_server::HalfMessagesServer;

use super::problem::Problem;
use super::{Shared, State, body, messages};

/// Calls that only read. They need the role viewer, all others operator.
const READING: [&str; 3] = [
    "/landfall.v1.HalfMessages/Get",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Returns whether the path is a call that only reads.
pub(super) fn only_reads(path: &str) -> bool {
    READING.contains(&path)
}

/// Returns whether a request is a call, by its media type.
pub(super) fn is_call(request: &Request) -> bool {
    request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The services, as routes.
pub(super) fn router(state: Arc<State>) -> Router<Arc<State>> {
    let limit = messages::body_limit(&state.limits);
    let half = HalfMessagesServer::new(calls::Calls::new(state.clone()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let half = Router::new()
        .route_service("/landfall.v1.HalfMessages/{method}", half)
        .layer(from_fn_with_state(state, read_call));
    let mut services = half;
    // Both fail only if the generated descriptors are damaged, which `reflection_lists_the_services` would show.
    if let Ok(v1) = reflection().build_v1() {
        services = services.route_service(READING[1], v1);
    }
    if let Ok(v1alpha) = reflection().build_v1alpha() {
        services = services.route_service(READING[2], v1alpha);
    }
    services.layer(from_fn(only_calls))
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(landfall_grpc::DESCRIPTORS)
}

/// Reads the whole call within the limits of a request, since the generated server has none in time.
async fn read_call(axum::extract::State(state): Shared, request: Request, next: Next) -> Result<Response, Problem> {
    let (head, given) = request.into_parts();
    let read = body::read(given, messages::body_limit(&state.limits), state.request_timeout).await?;
    Ok(next.run(Request::from_parts(head, Body::from(read))).await)
}

/// Refuses what is no call: a status of gRPC is in trailers, which an HTTP/1.1 client may not see.
async fn only_calls(request: Request, next: Next) -> Result<Response, Problem> {
    if request.version() != Version::HTTP_2 || !is_call(&request) {
        return Err(Problem::invalid("this path takes gRPC calls only: HTTP/2 with content-type application/grpc"));
    }
    Ok(next.run(request).await)
}

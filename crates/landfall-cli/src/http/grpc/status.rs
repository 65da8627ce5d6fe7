//! From a problem to a gRPC status.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tonic::{Code, Status};

use super::super::problem::{Problem, Raised};
use super::is_call;

/// The metadata with the name of a problem, for programs.
const PROBLEM: &str = "landfall-problem";

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let Raised { status, name, detail, .. } = problem.raised();
        let mut result = Status::new(code(status, name), detail);
        result.metadata_mut().insert(PROBLEM, tonic::metadata::MetadataValue::from_static(name));
        result
    }
}

fn code(status: StatusCode, name: &str) -> Code {
    match (status.as_u16(), name) {
        (_, "different-message") => Code::AlreadyExists,
        (_, "outcome-unknown") => Code::Unknown,
        (400 | 422, _) => Code::InvalidArgument,
        (401, _) => Code::Unauthenticated,
        (403, _) => Code::PermissionDenied,
        (405, _) => Code::Unimplemented,
        (404, _) => Code::NotFound,
        (408, _) => Code::DeadlineExceeded,
        (409, _) => Code::FailedPrecondition,
        (413, _) => Code::ResourceExhausted,
        (503, _) => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// Turns the problem that refused a call into a status. A gRPC client reads neither HTTP statuses nor JSON.
pub(in crate::http) async fn translate(request: Request, next: Next) -> Response {
    let is_call = is_call(&request);
    let mut response = next.run(request).await;
    if !is_call {
        return response;
    }
    let Some(Raised { status, name, detail, .. }) = response.extensions_mut().remove::<Raised>() else {
        return response;
    };
    let mut translated: Response = Status::new(code(status, name), detail).into_http();
    translated.headers_mut().insert(PROBLEM, HeaderValue::from_static(name));
    translated
}

#[cfg(test)]
mod tests {
    use landfall::{HalfState, MessageId};

    use super::*;

    #[test]
    fn problem_has_its_status_and_name() {
        let id = MessageId::new();
        for (problem, code, name) in [
            (Problem::invalid("x"), Code::InvalidArgument, "invalid-request"),
            (Problem::two_ids(), Code::InvalidArgument, "two-ids"),
            (Problem::unauthorized(), Code::Unauthenticated, "unauthorized"),
            (Problem::forbidden("x"), Code::PermissionDenied, "forbidden"),
            (Problem::not_found("/x"), Code::NotFound, "not-found"),
            (Problem::no_half_message(id), Code::NotFound, "not-found"),
            (Problem::different_message(id), Code::AlreadyExists, "different-message"),
            (Problem::other_verdict(id, HalfState::Committed), Code::FailedPrecondition, "other-verdict"),
            (Problem::too_large("x"), Code::ResourceExhausted, "too-large"),
            (Problem::request_timeout("x"), Code::DeadlineExceeded, "request-timeout"),
            (Problem::unavailable("x"), Code::Unavailable, "unavailable"),
        ] {
            let status = Status::from(problem);
            assert_eq!((status.code(), status.metadata().get(PROBLEM).unwrap().to_str().unwrap()), (code, name));
        }
    }
}

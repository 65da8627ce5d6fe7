//! Asks a service over gRPC: the method `Check` of `landfall.v1.CheckBack`.
//!
//! Everything but status OK with exactly one reply and a clear state in it is unknown. A general client would accept
//! a reply whose connection ended before its status, so this one reads the reply itself.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Response, StatusCode, Uri};
use landfall::HalfMessage;
use landfall::check_back::Answer;
use landfall_grpc::check_reply::State;
use landfall_grpc::{CheckReply, CheckRequest};
use prost::Message;

use super::remote_target::{MAX_BODY_BYTES, Question, service};
use crate::config::receiver_url;

const METHOD: &str = "/landfall.v1.CheckBack/Check";
/// A flag for compression, and the length of the message.
const FRAME_HEAD: usize = 5;

/// Refuses a target that can never be asked. The end of a sentence.
pub(super) fn check(target: &str) -> Result<(), &'static str> {
    match service(target) {
        Some(("", _)) => Err("must be service:NAME"),
        Some((_, "")) => Ok(()),
        Some(_) => Err("must have no path; the service definition names the method"),
        None => method(&receiver_url(target)?).map(drop),
    }
}

/// Returns the URL of the method at a base URL.
pub(super) fn method(base: &Uri) -> Result<Uri, &'static str> {
    if !matches!(base.path_and_query().map_or("/", |path| path.as_str()), "" | "/") {
        return Err("must have no path; the service definition names the method");
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = METHOD.parse().ok();
    Uri::from_parts(parts).map_err(|_| "is not a valid URL")
}

pub(super) fn question(half: &HalfMessage) -> Question {
    let message = CheckRequest {
        id: half.message.id.to_string(),
        business_type: half.business_type.clone(),
        business_id: half.business_id.clone(),
    };
    let message = message.encode_to_vec();
    let mut body = BytesMut::with_capacity(FRAME_HEAD + message.len());
    body.put_u8(0);
    // Both texts have a bounded length, so this never saturates.
    body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    body.put_slice(&message);
    Question { content_type: "application/grpc", signed: message, body: body.freeze() }
}

pub(super) async fn answer(response: Response<Incoming>) -> Result<Answer, String> {
    if response.status() != StatusCode::OK {
        return Err(format!("the response was HTTP {}", response.status().as_u16()));
    }
    // An error without a message has its status in the head.
    if response.headers().contains_key("grpc-status") {
        check_status(response.headers())?;
        return Err("the response has no reply".into());
    }
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if !kind.starts_with(b"application/grpc") {
        return Err("the response is not gRPC".into());
    }
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
    let body = body.map_err(|error| format!("the response cannot be read: {error}"))?;
    check_status(body.trailers().ok_or("the response ended without a status")?)?;
    parse(body.to_bytes())
}

/// Succeeds only for status OK, given once.
fn check_status(trailers: &HeaderMap) -> Result<(), String> {
    let mut statuses = trailers.get_all("grpc-status").iter();
    match (statuses.next().map(|status| status.as_bytes()), statuses.next()) {
        (Some(b"0"), None) => Ok(()),
        (Some(status), None) => {
            let message = trailers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
            Err(format!("the response was gRPC status {} {message}", String::from_utf8_lossy(status)))
        }
        (Some(_), Some(_)) => Err("the response has several statuses".into()),
        (None, _) => Err("the response ended without a status".into()),
    }
}

/// Reads a body of exactly one message.
fn parse(body: Bytes) -> Result<Answer, String> {
    let Some((head, message)) = body.split_first_chunk::<FRAME_HEAD>() else {
        return Err("the response has no reply".into());
    };
    let [compressed, length @ ..] = *head;
    if compressed != 0 || u32::from_be_bytes(length) as usize != message.len() {
        return Err("the response is not one uncompressed reply".into());
    }
    let reply = CheckReply::decode(message).map_err(|error| format!("the reply cannot be read: {error}"))?;
    match reply.state() {
        State::Committed => Ok(Answer::Committed),
        State::RolledBack => Ok(Answer::RolledBack),
        State::Unknown => Ok(Answer::unknown("the service does not know")),
        State::Unspecified => Err("the reply has no state, or one that this build does not know".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Bytes {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat().into()
    }

    #[test]
    fn only_one_whole_reply_with_a_state_is_an_answer() {
        assert_eq!(parse(frame(&[8, 1])), Ok(Answer::Committed));
        assert_eq!(parse(frame(&[8, 2])), Ok(Answer::RolledBack));
        assert!(matches!(parse(frame(&[8, 3])), Ok(Answer::Unknown(_))));
        let twice = [frame(&[8, 1]), frame(&[8, 2])].concat();
        let compressed = [&[1][..], &frame(&[8, 1])[1..]].concat();
        let truncated = frame(&[8, 1]).slice(..6);
        for body in [
            Bytes::new(),
            "committed".into(),
            frame(&[]),
            frame(&[8, 0]),
            frame(&[8, 9]),
            frame(b"{\"state\":\"committed\"}"),
            twice.into(),
            compressed.into(),
            truncated,
        ] {
            assert!(parse(body.clone()).is_err(), "{body:?} was an answer");
        }
    }

    #[test]
    fn only_one_ok_is_a_status() {
        let trailers = |values: &[&str]| -> HeaderMap {
            values.iter().map(|value| ("grpc-status".parse().unwrap(), value.parse().unwrap())).collect()
        };
        assert_eq!(check_status(&trailers(&["0"])), Ok(()));
        for values in [&[][..], &["5"], &["00"], &[""], &["0", "0"], &["0", "5"]] {
            assert!(check_status(&trailers(values)).is_err(), "{values:?} was OK");
        }
    }

    #[test]
    fn target_is_a_url_without_a_path_or_a_service() {
        for target in ["http://a", "https://a:8443/", "service:orders"] {
            assert_eq!(check(target), Ok(()), "{target}");
        }
        for target in ["", "a:1", "http://a/b", "http://a/?x", "service:", "service:orders/state", "http://u@a"] {
            assert!(check(target).is_err(), "{target} was accepted");
        }
        let url = method(&"https://a:8443/".parse().unwrap()).unwrap();
        assert_eq!(url.to_string(), "https://a:8443/landfall.v1.CheckBack/Check");
    }
}

//! Headers of the connection, which are not forwarded, and those that tell the service who asked.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::Peer;
use crate::http::problem::Problem;

/// Headers that belong to one connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Refuses a request that the service could read differently: with two lengths, or with a `Connection` that removes a
/// header which decided its scope.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Problem::invalid("the request has both Transfer-Encoding and Content-Length"));
    }
    match named_by_connection(headers).find(|name| headers.contains_key(name) && !HOP_BY_HOP.contains(name)) {
        Some(name) => Err(Problem::invalid(format!("Connection names {name}, which is no header of the connection"))),
        None => Ok(()),
    }
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| HeaderName::try_from(name.trim()).ok())
}

/// Removes the headers of the connection.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = named_by_connection(headers).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns the headers for the service. The client sets its host, the length and the end of the body.
pub(super) fn forwarded(parts: &Parts, scheme: &'static str) -> HeaderMap {
    let mut headers = parts.headers.clone();
    remove_hop_by_hop(&mut headers);
    for name in [header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    if let Some(host) = headers.remove(header::HOST) {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    append_peer(&mut headers, parts);
    join_cookies(&mut headers);
    headers
}

/// Appends the address of the client to the list of those before it.
pub(super) fn append_peer(headers: &mut HeaderMap, parts: &Parts) {
    let Some(Peer(peer)) = parts.extensions.get::<Peer>() else { return };
    let mut list = joined(headers, &FORWARDED_FOR, ", ");
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(&peer.ip().to_canonical().to_string());
    if let Ok(list) = HeaderValue::try_from(list) {
        headers.insert(FORWARDED_FOR, list);
    }
}

/// HTTP/2 may split cookies; HTTP/1 has them in one line.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_some()
        && let Ok(cookies) = HeaderValue::try_from(joined(headers, &header::COOKIE, "; "))
    {
        headers.insert(header::COOKIE, cookies);
    }
}

fn joined(headers: &HeaderMap, name: &HeaderName, separator: &str) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(separator)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer("203.0.113.9:5000".parse().unwrap()));
        parts
    }

    #[test]
    fn headers_of_the_connection_are_not_forwarded() {
        let parts = parts(&[
            ("host", "shop.example"),
            ("connection", "close, TE"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic eDp5"),
            ("authorization", "Bearer a"),
            ("idempotency-key", "\"k\""),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-proto", "gopher"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ]);
        let headers = forwarded(&parts, "https");
        let mut shown: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        shown.sort_unstable();
        assert_eq!(
            shown,
            [
                ("authorization", "Bearer a"),
                ("cookie", "a=1; b=2"),
                ("idempotency-key", "\"k\""),
                ("x-forwarded-for", "198.51.100.7, 203.0.113.9"),
                ("x-forwarded-host", "shop.example"),
                ("x-forwarded-proto", "https"),
            ]
        );
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let check = |headers: &[(&str, &str)]| check(&parts(headers).headers).is_ok();
        assert!(check(&[("connection", "keep-alive, Upgrade"), ("upgrade", "h2c")]));
        assert!(!check(&[("transfer-encoding", "chunked"), ("content-length", "4")]));
        for name in ["authorization", "X-Tenant", "idempotency-key", "content-length", "host"] {
            assert!(!check(&[("connection", &format!("close, {name}")), (name, "x")]), "{name} was accepted");
        }
    }
}

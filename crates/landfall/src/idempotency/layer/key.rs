//! The headers and the fingerprint of a request.

use axum_core::body::Body;
use axum_core::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use landfall_core::idempotency::{Fingerprint, FingerprintBuilder, Identity};

use super::problem;

/// The key of a request, chosen by its sender: a string of RFC 8941, or the bare text.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The one-time token of a request.
pub const IDEMPOTENT_TOKEN: HeaderName = HeaderName::from_static("idempotent-token");
/// `true` in a replayed answer.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Returns the value of a header that occurs at most once.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Response> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused = |why: &str| problem::invalid(&format!("the header {name} {why}"));
    if values.next().is_some() {
        return Err(refused("is repeated"));
    }
    value.to_str().map(Some).map_err(|_| refused("contains characters other than visible ASCII"))
}

/// Returns the key, equal whether it was quoted or not.
pub(super) fn parse(text: &str) -> Result<String, Response> {
    let refused = |why: &str| problem::invalid(&format!("the header idempotency-key {why}"));
    let key = match text.strip_prefix('"') {
        None => text.to_owned(),
        Some(quoted) => unquoted(quoted).ok_or_else(|| refused("is not a valid quoted string"))?,
    };
    if key.is_empty() || key.len() > Identity::MAX_KEY_CHARACTERS {
        return Err(refused("must have 1 to 255 characters"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused("must consist of visible ASCII characters"));
    }
    Ok(key)
}

/// Reads the rest of a string of RFC 8941, after its first quote.
fn unquoted(text: &str) -> Option<String> {
    let (mut key, mut characters) = (String::with_capacity(text.len()), text.chars());
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(key),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            character => key.push(character),
        }
    }
}

/// Reads the body of a request.
pub(super) async fn read(body: Body, limit: usize) -> Result<Bytes, Response> {
    let (mut stream, mut read) = (body.into_data_stream(), BytesMut::new());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| problem::invalid(&format!("cannot read the body: {error}")))?;
        if read.len() + chunk.len() > limit {
            return Err(problem::too_large(limit));
        }
        read.extend_from_slice(&chunk);
    }
    Ok(read.freeze())
}

/// Hashes what makes two requests equal. Parameters count in the order of their names; those of one name keep theirs.
pub(super) fn fingerprint(parts: &Parts, body: &[u8]) -> Fingerprint {
    let mut parameters: Vec<&str> = parts.uri.query().unwrap_or_default().split('&').collect();
    parameters.sort_by_key(|parameter| parameter.split('=').next().unwrap_or_default());
    let header = |name: HeaderName| parts.headers.get(name).map(|value| value.as_bytes().to_ascii_lowercase());
    FingerprintBuilder::new("http request")
        .part(parts.method.as_str())
        .part(parts.uri.path())
        .part(parameters.join("&"))
        .optional(header(header::CONTENT_TYPE))
        .optional(header(header::CONTENT_ENCODING))
        .part(body)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_keys_are_equal() {
        assert_eq!(parse("order-7").unwrap(), parse("\"order-7\"").unwrap());
        assert_eq!(parse(r#""a\"b\\""#).unwrap(), r#"a"b\"#);
        let long = "x".repeat(256);
        for wrong in ["", "\"\"", "\"a", "\"a\"b", r#""a\n""#, "a b", "\"a b\"", &long] {
            assert!(parse(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert!(parse(&long[1..]).is_ok());
    }

    #[test]
    fn fingerprint_covers_all_that_makes_requests_equal() {
        let request = |method: &str, uri: &str, kind: &str, body: &str| {
            let request = http::Request::builder().method(method).uri(uri).header("content-type", kind);
            let (parts, ()) = request.header("traceparent", body).body(()).unwrap().into_parts();
            fingerprint(&parts, body.as_bytes())
        };
        let known = request("POST", "/orders/1?a=1&b=2&a=3", "application/json", "{}");
        assert_eq!(known, request("POST", "/orders/1?b=2&a=1&a=3", "Application/JSON", "{}"));
        let others = [
            request("PUT", "/orders/1?a=1&b=2&a=3", "application/json", "{}"),
            request("POST", "/orders/2?a=1&b=2&a=3", "application/json", "{}"),
            request("POST", "/orders/1?a=3&b=2&a=1", "application/json", "{}"),
            request("POST", "/orders/1?a=1&b=3&a=3", "application/json", "{}"),
            request("POST", "/orders/1?a=1&b=2&a=3", "text/plain", "{}"),
            request("POST", "/orders/1?a=1&b=2&a=3", "application/json", "{ }"),
        ];
        assert!(others.iter().all(|other| *other != known));
    }
}

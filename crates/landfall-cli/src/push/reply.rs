//! Interprets a receiver's response.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Response, StatusCode};
use landfall::{ErrorCode, Failure, Verdict};

/// Maximum bytes read of a response body, which serves only error messages.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Maximum characters of the body in an error message.
const SHOWN_CHARS: usize = 200;
/// Time limit for reading the body; only the status decides.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Upper bound for `Retry-After`, so that one header cannot delay a message for a year.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Returns `Ok` for 2xx. 429 and 503 are retried after `Retry-After`, other 5xx with backoff; other 4xx are parked.
pub(super) async fn into_result(response: Response<Incoming>) -> Result<(), Failure> {
    let (head, body) = response.into_parts();
    let body = beginning(body).await;
    if head.status.is_success() {
        return Ok(());
    }
    let body = excerpt(&body);
    let mut failure = failure(head.status, retry_after(&head.headers, SystemTime::now()));
    if !body.is_empty() {
        failure.error.push_str(": ");
        failure.error.push_str(&body);
    }
    Err(failure)
}

/// Returns what arrives of the body within the limits of size and time. A body read to its end lets the pool reuse the
/// connection; otherwise it is closed.
pub(crate) async fn beginning(mut body: impl Body<Data = Bytes> + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    // The time limit and a lost connection end the reading; what arrived before them is kept.
    let _ = tokio::time::timeout(BODY_TIMEOUT, async {
        while kept.len() < MAX_BODY_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            kept.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    })
    .await;
    kept
}

fn failure(status: StatusCode, retry_after: Option<Duration>) -> Failure {
    let status = status.as_u16();
    // `None` means a status below 400: a redirect, which is not followed. The receiver may be fixed, so it is retried.
    Failure::from_status(status, retry_after.filter(|_| matches!(status, 429 | 503))).unwrap_or_else(|| {
        let error = format_args!("the response was HTTP {status}, and redirects are not followed");
        Failure::new(ErrorCode::new("REDIRECTED"), error, Verdict::Retry)
    })
}

/// Parses `Retry-After`: seconds or an HTTP date.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(asked.min(LONGEST_RETRY_AFTER))
}

/// Returns the beginning of the body as one line without control characters.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn verdict_for(status: u16) -> (Verdict, Option<Duration>) {
        let failure = failure(StatusCode::from_u16(status).unwrap(), Some(Duration::from_secs(9)));
        (failure.verdict, failure.retry_after)
    }

    #[test]
    fn each_status_has_its_verdict() {
        let asked = Some(Duration::from_secs(9));
        for status in [429, 503] {
            assert_eq!(verdict_for(status), (Verdict::Retry, asked), "{status}");
        }
        for status in [301, 302, 307, 408, 500, 501, 502, 504, 599] {
            assert_eq!(verdict_for(status), (Verdict::Retry, None), "{status}");
        }
        for status in [400, 401, 403, 404, 409, 410, 413, 422, 425, 451] {
            assert_eq!(verdict_for(status), (Verdict::Park, None), "{status}");
        }
    }

    #[test]
    fn retry_after_parses_seconds_or_date_capped_at_an_hour() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|time| time.as_secs())
        };
        assert_eq!(read("120"), Some(120));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "past");
        assert_eq!((read("31536000"), read("Sat, 06 Nov 2094 08:00:00 GMT")), (Some(3600), Some(3600)), "too long");
        assert_eq!((read("soon"), read("-5"), read("")), (None, None, None));
    }

    #[tokio::test]
    async fn beginning_of_a_long_body_is_kept() {
        let body = http_body_util::Full::new(Bytes::from(vec![b'x'; 3 * MAX_BODY_BYTES]));
        assert!(beginning(body).await.starts_with(b"xxx"));
    }

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(excerpt(b"  no\r\nsuch\x1b[31m order \xff"), "no  such [31m order \u{fffd}");
        assert_eq!(excerpt(&[b'x'; 5000]).len(), SHOWN_CHARS);
    }
}

//! What a receiver's answer means for the message.

use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Response, StatusCode};
use landfall::{ErrorCode, Failure, Verdict};

/// As much of an answer is read, and no more: it is for people to look at.
const MOST_BYTES: usize = 16 * 1024;
/// As much of that is shown.
const SHOWN_CHARS: usize = 200;
/// The status is what counts; for the rest nobody waits long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest `Retry-After` that is followed: nobody puts a message off for a year with one header.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// 2xx is done; 429 and 503 say when to come back; other 5xx are tried again; other 4xx will never work.
pub(super) async fn judge(response: Response<Incoming>) -> Result<(), Failure> {
    let (head, body) = response.into_parts();
    // Read to its end, the connection can be used again; cut off, it is closed.
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, MOST_BYTES).collect()).await;
    if head.status.is_success() {
        return Ok(());
    }
    let body = read.ok().and_then(Result::ok).map(|body| excerpt(&body.to_bytes())).unwrap_or_default();
    let mut failure = failure(head.status, retry_after(&head.headers, SystemTime::now()));
    if !body.is_empty() {
        failure.error.push_str(": ");
        failure.error.push_str(&body);
    }
    Err(failure)
}

fn failure(status: StatusCode, retry_after: Option<Duration>) -> Failure {
    let status = status.as_u16();
    // Anything below is a redirect, which is not followed. Whoever redirects today may answer tomorrow.
    Failure::from_status(status, retry_after.filter(|_| matches!(status, 429 | 503))).unwrap_or_else(|| {
        let error = format_args!("the answer was HTTP {status}, and redirects are not followed");
        Failure::new(ErrorCode::new("REDIRECTED"), error, Verdict::Retry)
    })
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(asked.min(LONGEST_RETRY_AFTER))
}

/// The beginning, as one line without anything that a terminal would obey.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn judged(status: u16) -> (Verdict, Option<Duration>) {
        let failure = failure(StatusCode::from_u16(status).unwrap(), Some(Duration::from_secs(9)));
        (failure.verdict, failure.retry_after)
    }

    #[test]
    fn each_status_has_its_verdict() {
        let asked = Some(Duration::from_secs(9));
        for status in [429, 503] {
            assert_eq!(judged(status), (Verdict::Retry, asked), "{status}");
        }
        for status in [301, 302, 307, 408, 500, 501, 502, 504, 599] {
            assert_eq!(judged(status), (Verdict::Retry, None), "{status}");
        }
        for status in [400, 401, 403, 404, 409, 410, 413, 422, 425, 451] {
            assert_eq!(judged(status), (Verdict::Park, None), "{status}");
        }
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date_and_at_most_an_hour() {
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

    #[test]
    fn an_excerpt_is_one_short_line() {
        assert_eq!(excerpt(b"  no\r\nsuch\x1b[31m order \xff"), "no  such [31m order \u{fffd}");
        assert_eq!(excerpt(&[b'x'; 5000]).len(), SHOWN_CHARS);
    }
}

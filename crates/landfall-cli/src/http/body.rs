//! Reads a request body within a size limit and a time limit, so that the client receives the error response.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::problem::Problem;

/// Up to this many times the limit is read and discarded before the refusal. A client that is refused while it still
/// sends gets a connection reset instead of the response.
const DRAIN_FACTOR: usize = 8;

/// Returns the whole body if it has at most `limit` bytes and arrives within `timeout`.
pub(crate) async fn read(body: Body, limit: usize, timeout: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(timeout, collect(body, limit)).await {
        Ok(result) => result,
        Err(_) => {
            let detail = format!("the body did not arrive within {} ms", timeout.as_millis());
            Err(Problem::request_timeout(detail))
        }
    }
}

async fn collect(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut stream = body.into_data_stream();
    let (mut kept, mut length) = (BytesMut::new(), 0_usize);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| Problem::invalid(format!("cannot read the body: {error}")))?;
        length = length.saturating_add(chunk.len());
        if length <= limit {
            kept.extend_from_slice(&chunk);
        } else {
            kept.clear();
        }
        if length > limit.saturating_mul(DRAIN_FACTOR) {
            break;
        }
    }
    if length > limit {
        return Err(Problem::too_large(format!("the body has more than {limit} bytes, which is the limit")));
    }
    Ok(kept.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_is_limited_in_size_and_time() {
        let body = |length: usize| Body::from(vec![b'x'; length]);
        let second = Duration::from_secs(1);
        assert_eq!(read(body(10), 10, second).await.unwrap().len(), 10);
        assert!(read(body(11), 10, second).await.is_err());
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert!(read(never, 10, Duration::from_millis(1)).await.is_err());
    }
}

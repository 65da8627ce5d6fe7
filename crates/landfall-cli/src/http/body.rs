//! Reading a body: within a limit, within a time, and so that a refusal reaches the client.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::problem::Problem;

/// A client that is refused while it still sends gets a reset instead of the answer, so that much of what it sends
/// beyond the limit is read and thrown away first.
const PATIENCE: usize = 8;

/// The whole body, if it has at most `limit` bytes and arrives within `timeout`.
pub(super) async fn read(body: Body, limit: usize, timeout: Duration) -> Result<Bytes, Problem> {
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
        let chunk = chunk.map_err(|error| Problem::invalid(format!("the body could not be read: {error}")))?;
        length = length.saturating_add(chunk.len());
        if length <= limit {
            kept.extend_from_slice(&chunk);
        } else {
            kept.clear();
        }
        if length > limit.saturating_mul(PATIENCE) {
            break;
        }
    }
    if length > limit {
        return Err(Problem::too_large(format!("the body has more than {limit} bytes, which is the most it may have")));
    }
    Ok(kept.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_taken_up_to_its_limit() {
        let body = |length: usize| Body::from(vec![b'x'; length]);
        let second = Duration::from_secs(1);
        assert_eq!(read(body(10), 10, second).await.unwrap().len(), 10);
        assert!(read(body(11), 10, second).await.is_err());
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert!(read(never, 10, Duration::from_millis(1)).await.is_err());
    }
}

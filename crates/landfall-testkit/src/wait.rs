//! Waiting for a condition, always with a bound: what tests do instead of sleeping.

use std::time::{Duration, Instant};

/// Asks `condition` again and again until it holds, first every millisecond and later every 50.
///
/// # Panics
///
/// When it does not hold within `timeout`; the message says what was waited for.
#[allow(clippy::panic, reason = "a test that waited in vain has failed")]
pub async fn eventually<F>(timeout: Duration, what: &str, mut condition: F)
where
    F: AsyncFnMut() -> bool,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !condition().await {
        assert!(started.elapsed() < timeout, "waited {timeout:?} in vain: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_as_soon_as_the_condition_holds() {
        let mut asked = 0;
        eventually(Duration::from_secs(60), "the third question", async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "in vain: rain in the desert")]
    async fn says_what_never_happened() {
        eventually(Duration::from_millis(5), "rain in the desert", async || false).await;
    }
}

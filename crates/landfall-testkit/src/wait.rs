//! Waiting for a condition with a timeout, instead of sleeping.

use std::time::{Duration, Instant};

/// Polls `condition` until it returns true, with pauses that grow from 1 ms to 50 ms.
///
/// # Panics
///
/// If the condition does not hold within `timeout`. The message contains `what`.
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub async fn eventually<F>(timeout: Duration, what: &str, mut condition: F)
where
    F: AsyncFnMut() -> bool,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !condition().await {
        assert!(started.elapsed() < timeout, "timed out after {timeout:?} waiting until {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_as_soon_as_the_condition_holds() {
        let mut polls = 0;
        eventually(Duration::from_secs(60), "it is polled three times", async || {
            polls += 1;
            polls == 3
        })
        .await;
        assert_eq!(polls, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "waiting until the impossible happens")]
    async fn timeout_message_names_the_condition() {
        eventually(Duration::from_millis(5), "the impossible happens", async || false).await;
    }
}

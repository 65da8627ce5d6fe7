//! Trims entries that every group has finished and whose retention is over.

use tokio::time::Instant;

use super::member::{Member, MemberError};
use crate::error::{self, Cause};
use crate::publisher::millis;
use crate::script::{self, TRIM};
use crate::topics::number;

/// The most entries that one call of the script removes.
const MAX_REMOVED: u64 = 10_000;
/// Calls in a row, so that trimming keeps up with publishing.
const MAX_ROUNDS: usize = 100;

impl Member {
    /// Trims the leased streams that are due: a stream is trimmed by the member that reads it.
    pub(super) async fn trim(&mut self) -> Result<(), MemberError> {
        let Some(retention) = self.options.retention.time() else { return Ok(()) };
        let now = Instant::now();
        let is_due = |since: Instant| now.duration_since(since) >= self.options.trim_every;
        let due: Vec<u32> =
            self.held.iter().filter(|(_, held)| is_due(held.trimmed)).map(|(shard, _)| *shard).collect();
        for shard in due {
            let stream = self.names.stream(&self.topic, shard);
            let mut pipeline = redis::pipe();
            let mut trim = script::call(&TRIM, &[&stream]);
            trim.arg(millis(retention).min(i64::MAX as u64));
            pipeline.add_command(trim);
            for _ in 0..MAX_ROUNDS {
                let removed = match self.ask(&pipeline).await {
                    Ok(answers) => answers.first().and_then(number::<u64>).unwrap_or(0),
                    // The stream does not exist, which the next read reports.
                    Err(MemberError::Answered(error)) if error::cause(&error) == Cause::Other => 0,
                    Err(error) => return Err(error),
                };
                if removed > 0 {
                    tracing::debug!(topic = %self.topic, partition = shard, removed, "stream trimmed");
                }
                if removed < MAX_REMOVED {
                    break;
                }
            }
            if let Some(held) = self.held.get_mut(&shard) {
                held.trimmed = now;
            }
        }
        Ok(())
    }
}

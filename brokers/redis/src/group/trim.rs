//! Removing what every group has finished, once it has stayed long enough.

use tokio::time::Instant;

use super::member::{Member, Trouble};
use crate::error::{self, Cause};
use crate::publisher::millis;
use crate::script::{self, TRIM};
use crate::topics::number;

/// Redis removes no more than this at a time.
const MOST: u64 = 10_000;
/// More than once in a row, so that removing keeps up with publishing.
const MOST_ROUNDS: usize = 100;

impl Member {
    /// Whoever reads a stream sees to it.
    pub(super) async fn trim(&mut self) -> Result<(), Trouble> {
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
            for _ in 0..MOST_ROUNDS {
                let removed = match self.ask(&pipeline).await {
                    Ok(answers) => answers.first().and_then(number::<u64>).unwrap_or(0),
                    // The stream is not there, and the next read says so.
                    Err(Trouble::Answered(error)) if error::cause(&error) == Cause::Other => 0,
                    Err(trouble) => return Err(trouble),
                };
                if removed > 0 {
                    tracing::debug!(topic = %self.topic, partition = shard, removed, "read entries were removed");
                }
                if removed < MOST {
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

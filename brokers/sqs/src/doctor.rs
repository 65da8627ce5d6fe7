//! Doctor checks: settings of the queues and the URL that can lose, reorder, duplicate or delay messages.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use futures_util::{StreamExt, stream};
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Result, Span, TopicName};

use crate::error::CallError;
use crate::queues::MAX_RETENTION_SECONDS;
use crate::subscriber::clock::ServerClock;
use crate::{Options, Sqs};

/// Concurrent calls.
const CONCURRENT_CALLS: usize = 8;
/// Shortest safe visibility timeout. With less, a slow extension call exposes a message while its handler still runs.
const SAFE_VISIBILITY: Duration = Duration::from_secs(10);
/// Tolerated clock skew. SQS refuses requests that are 15 minutes off.
const SAFE_SKEW: Duration = Duration::from_secs(60);

/// One queue and its attributes.
struct Queue<'a> {
    name: &'a str,
    settings: &'a HashMap<Name, String>,
}

#[async_trait]
impl Diagnose for Sqs {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let options = &*self.queues.options;
        let mut findings: Vec<_> = [standard_queues(options), visibility(options)].into_iter().flatten().collect();
        let queues = match self.queues().await {
            Ok(queues) => queues,
            Err(error) => {
                findings.push(hidden("the queues", "sqs:ListQueues", error)?);
                return Ok(findings);
            }
        };
        let clock = ServerClock::default();
        let (this, clock) = (self, &clock);
        let each =
            queues.into_iter().map(|(topic, url)| async move { this.check_queue(&topic, &url, demands, clock).await });
        let found: Vec<_> = stream::iter(each).buffered(CONCURRENT_CALLS).collect().await;
        for queue in found {
            findings.extend(queue?);
        }
        findings.extend(clock.skew().and_then(skewed));
        Ok(findings)
    }
}

impl Sqs {
    async fn check_queue(
        &self,
        topic: &TopicName,
        url: &str,
        demands: &Demands,
        clock: &ServerClock,
    ) -> Result<Vec<Finding>> {
        let name = url.rsplit('/').next().unwrap_or(url);
        let settings = match self.settings(url, clock).await {
            Ok(settings) => settings,
            // Deleted since it was listed.
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(error) => return Ok(vec![hidden(name, "sqs:GetQueueAttributes", error)?]),
        };
        tracing::debug!(%topic, queue = name, "queue checked");
        let queue = Queue { name, settings: &settings };
        let checks = [
            retention(&queue, demands),
            redrive_policy(&queue),
            content_deduplication(&queue),
            throughput(&queue, &self.queues.options),
            delay(&queue),
            message_size(&queue, &self.queues.options),
        ];
        let mut findings: Vec<_> = checks.into_iter().flatten().collect();
        findings.extend(self.dead_letter_retention(&queue, clock).await?);
        Ok(findings)
    }

    async fn settings(&self, url: &str, clock: &ServerClock) -> Result<HashMap<Name, String>, CallError> {
        let call = self.queues.client.get_queue_attributes().queue_url(url).attribute_names(Name::All);
        let answer = call.customize().interceptor(clock.clone()).send().await?;
        Ok(answer.attributes.unwrap_or_default())
    }

    /// Checks the retention of SQS's own dead-letter queue: a moved message keeps its age, and soon expires there.
    async fn dead_letter_retention(&self, queue: &Queue<'_>, clock: &ServerClock) -> Result<Option<Finding>> {
        let policy = queue.settings.get(&Name::RedrivePolicy);
        let target = policy.and_then(|policy| serde_json::from_str::<serde_json::Value>(policy).ok());
        let arn = target.as_ref().and_then(|policy| policy.get("deadLetterTargetArn")).and_then(|arn| arn.as_str());
        let Some(target) = arn.and_then(|arn| arn.rsplit(':').next()) else { return Ok(None) };
        let request = self.queues.client.get_queue_url().queue_name(target);
        let url = request.set_queue_owner_aws_account_id(self.queues.options.account.clone()).send().await;
        let settings = match url.map_err(CallError::from) {
            Ok(found) => self.settings(found.queue_url().unwrap_or_default(), clock).await,
            Err(error) => Err(error),
        };
        match settings {
            Ok(settings) => {
                Ok(retention_seconds(&settings).filter(|kept| *kept < MAX_RETENTION_SECONDS).map(|kept| Finding {
                    check: "sqs.dead-letter-retention",
                    rank: Rank::Loss,
                    about: target.to_owned(),
                    what: format!(
                        "SQS moves messages from {} to this queue, and deletes them {} after they were sent",
                        queue.name,
                        Span::Time(Duration::from_secs(kept))
                    ),
                    mend: format!("MessageRetentionPeriod={MAX_RETENTION_SECONDS}"),
                }))
            }
            // The queue does not exist, so nothing is moved. `sqs.redrive-policy` reports the policy itself.
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => hidden(target, "sqs:GetQueueAttributes", error).map(Some),
        }
    }
}

/// Reports settings that this account may not read. Any other failure is an error, not a finding.
fn hidden(about: &str, permission: &str, error: CallError) -> Result<Finding> {
    if error.code != landfall_core::ErrorCode::DENIED {
        return Err(error.into_error(&format!("{about} cannot be checked")));
    }
    Ok(Finding {
        check: "sqs.hidden",
        rank: Rank::Loss,
        about: about.to_owned(),
        what: format!("this account may not read the settings, which may be unsafe ({error})"),
        mend: format!("allow {permission} for this account"),
    })
}

fn standard_queues(options: &Options) -> Option<Finding> {
    (!options.fifo).then(|| Finding {
        check: "sqs.standard-queue",
        rank: Rank::Order,
        about: "fifo=false in the broker URL".into(),
        what: "standard queues deliver messages of one key in any order, and some of them twice".into(),
        mend: "fifo=true, for FIFO queues".into(),
    })
}

fn visibility(options: &Options) -> Option<Finding> {
    (options.visibility < SAFE_VISIBILITY).then(|| Finding {
        check: "sqs.visibility",
        rank: Rank::Duplicates,
        about: format!("visibility={} in the broker URL", Span::Time(options.visibility)),
        what: "after such a short silence of its consumer, a message is delivered to another one".into(),
        mend: "visibility=30s".into(),
    })
}

fn retention(queue: &Queue<'_>, demands: &Demands) -> Option<Finding> {
    let kept = retention_seconds(queue.settings)?;
    let wanted = demands.window.time().map_or(MAX_RETENTION_SECONDS, |window| window.as_secs());
    (kept < wanted.min(MAX_RETENTION_SECONDS)).then(|| Finding {
        check: "sqs.retention",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: format!(
            "SQS deletes messages that are not consumed within {}; a consumer that is down for longer misses them",
            Span::Time(Duration::from_secs(kept))
        ),
        mend: format!("MessageRetentionPeriod={MAX_RETENTION_SECONDS}"),
    })
}

fn redrive_policy(queue: &Queue<'_>) -> Option<Finding> {
    let policy = queue.settings.get(&Name::RedrivePolicy).filter(|policy| !policy.is_empty())?;
    Some(Finding {
        check: "sqs.redrive-policy",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: format!(
            "SQS itself moves a message that was received too often, bypassing Landfall's dead letters and the order \
             of its key ({policy})"
        ),
        mend: "RedrivePolicy empty: Landfall parks failed messages".into(),
    })
}

fn content_deduplication(queue: &Queue<'_>) -> Option<Finding> {
    (queue.settings.get(&Name::ContentBasedDeduplication)? == "true").then(|| Finding {
        check: "sqs.content-deduplication",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: "SQS drops the second of two messages with equal content from a producer without deduplication ids"
            .into(),
        mend: "ContentBasedDeduplication=false".into(),
    })
}

fn throughput(queue: &Queue<'_>, options: &Options) -> Option<Finding> {
    let limit = queue.settings.get(&Name::FifoThroughputLimit).filter(|_| options.fifo)?;
    (limit == "perQueue").then(|| Finding {
        check: "sqs.throughput",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: "the queue is limited to 300 calls a second, independent of the number of keys".into(),
        mend: "DeduplicationScope=messageGroup and FifoThroughputLimit=perMessageGroupId".into(),
    })
}

fn delay(queue: &Queue<'_>) -> Option<Finding> {
    let seconds = queue.settings.get(&Name::DelaySeconds).filter(|seconds| *seconds != "0")?;
    Some(Finding {
        check: "sqs.delay",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: format!("every message is delayed by {seconds} seconds"),
        mend: "DelaySeconds=0".into(),
    })
}

fn message_size(queue: &Queue<'_>, options: &Options) -> Option<Finding> {
    let limit: usize = queue.settings.get(&Name::MaximumMessageSize)?.parse().ok()?;
    (limit < options.message_bytes).then(|| Finding {
        check: "sqs.message-size",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: format!(
            "the queue allows {limit} bytes and the URL {}: messages in between are refused and parked",
            options.message_bytes
        ),
        mend: format!("MaximumMessageSize={} or message_bytes={limit}", options.message_bytes),
    })
}

fn skewed(skew: Duration) -> Option<Finding> {
    (skew > SAFE_SKEW).then(|| Finding {
        check: "sqs.clock",
        rank: Rank::Latency,
        about: "the clock of this machine".into(),
        what: format!("it is {} off SQS's clock; SQS refuses requests that are 15 minutes off", Span::Time(skew)),
        mend: "synchronize the clock with NTP".into(),
    })
}

fn retention_seconds(settings: &HashMap<Name, String>) -> Option<u64> {
    settings.get(&Name::MessageRetentionPeriod)?.parse().ok()
}

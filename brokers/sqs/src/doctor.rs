//! The doctor's part: every way in which the settings of the queues lose, reorder or double messages.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use futures_util::{StreamExt, stream};
use landfall_core::{Demands, Diagnose, Finding, Rank, Result, Span, TopicName};

use crate::clock::ServerClock;
use crate::error::Trouble;
use crate::queues::LONGEST_RETENTION_SECONDS;
use crate::{Options, Sqs};

/// Calls at once.
const QUESTIONS: usize = 8;
/// With less, a call that takes its time leaves a message to somebody else while its handler still runs.
const SAFE_VISIBILITY: Duration = Duration::from_secs(10);
/// SQS refuses requests whose time is a quarter of an hour off.
const SAFE_SKEW: Duration = Duration::from_secs(60);

/// What is known of one queue.
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
            Err(trouble) => {
                findings.push(hidden("the queues", "sqs:ListQueues", trouble)?);
                return Ok(findings);
            }
        };
        let clock = ServerClock::default();
        let (this, clock) = (self, &clock);
        let each = queues
            .into_iter()
            .map(|(topic, url)| async move { this.examine_queue(&topic, &url, demands, clock).await });
        let found: Vec<_> = stream::iter(each).buffered(QUESTIONS).collect().await;
        for queue in found {
            findings.extend(queue?);
        }
        findings.extend(clock.skew().and_then(skewed));
        Ok(findings)
    }
}

impl Sqs {
    async fn examine_queue(
        &self,
        topic: &TopicName,
        url: &str,
        demands: &Demands,
        clock: &ServerClock,
    ) -> Result<Vec<Finding>> {
        let name = url.rsplit('/').next().unwrap_or(url);
        let settings = match self.settings(url, clock).await {
            Ok(settings) => settings,
            // Gone since it was listed.
            Err(trouble) if trouble.is_missing() => return Ok(Vec::new()),
            Err(trouble) => return Ok(vec![hidden(name, "sqs:GetQueueAttributes", trouble)?]),
        };
        tracing::debug!(%topic, queue = name, "examined a queue");
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

    async fn settings(&self, url: &str, clock: &ServerClock) -> Result<HashMap<Name, String>, Trouble> {
        let call = self.queues.client.get_queue_attributes().queue_url(url).attribute_names(Name::All);
        let answer = call.customize().interceptor(clock.clone()).send().await?;
        Ok(answer.attributes.unwrap_or_default())
    }

    /// A message that SQS moved keeps its age, and soon expires where it was moved to.
    async fn dead_letter_retention(&self, queue: &Queue<'_>, clock: &ServerClock) -> Result<Option<Finding>> {
        let policy = queue.settings.get(&Name::RedrivePolicy);
        let target = policy.and_then(|policy| serde_json::from_str::<serde_json::Value>(policy).ok());
        let arn = target.as_ref().and_then(|policy| policy.get("deadLetterTargetArn")).and_then(|arn| arn.as_str());
        let Some(target) = arn.and_then(|arn| arn.rsplit(':').next()) else { return Ok(None) };
        let asked = self.queues.client.get_queue_url().queue_name(target);
        let url = asked.set_queue_owner_aws_account_id(self.queues.options.account.clone()).send().await;
        let settings = match url.map_err(Trouble::from) {
            Ok(found) => self.settings(found.queue_url().unwrap_or_default(), clock).await,
            Err(trouble) => Err(trouble),
        };
        match settings {
            Ok(settings) => {
                Ok(kept_for(&settings).filter(|kept| *kept < LONGEST_RETENTION_SECONDS).map(|kept| Finding {
                    check: "sqs.dead-letter-retention",
                    rank: Rank::Loss,
                    about: target.to_owned(),
                    what: format!(
                        "SQS moves messages from {} to this queue and removes them here {} after they were sent",
                        queue.name,
                        Span::Time(Duration::from_secs(kept))
                    ),
                    mend: format!("MessageRetentionPeriod={LONGEST_RETENTION_SECONDS}"),
                }))
            }
            // Nothing goes there; that there is a policy at all is said already.
            Err(trouble) if trouble.is_missing() => Ok(None),
            Err(trouble) => hidden(target, "sqs:GetQueueAttributes", trouble).map(Some),
        }
    }
}

/// What this account may not see; anything else that kept it from looking is no finding but an error.
fn hidden(about: &str, permission: &str, trouble: Trouble) -> Result<Finding> {
    if trouble.code != landfall_core::ErrorCode::DENIED {
        return Err(trouble.error(&format!("{about} cannot be examined")));
    }
    Ok(Finding {
        check: "sqs.hidden",
        rank: Rank::Loss,
        about: about.to_owned(),
        what: format!("this account may not look, so that nothing is known about it ({trouble})"),
        mend: format!("allow {permission} for this account"),
    })
}

fn standard_queues(options: &Options) -> Option<Finding> {
    (!options.fifo).then(|| Finding {
        check: "sqs.standard-queue",
        rank: Rank::Order,
        about: "fifo=false in the broker URL".into(),
        what: "standard queues deliver messages of one key in any order, and some of them twice".into(),
        mend: "fifo=true, which uses FIFO queues".into(),
    })
}

fn visibility(options: &Options) -> Option<Finding> {
    (options.visibility < SAFE_VISIBILITY).then(|| Finding {
        check: "sqs.visibility",
        rank: Rank::Duplicates,
        about: format!("visibility={} in the broker URL", Span::Time(options.visibility)),
        what: "a message goes to another consumer as soon as its own is not heard of for so short a time".into(),
        mend: "visibility=30s".into(),
    })
}

fn retention(queue: &Queue<'_>, demands: &Demands) -> Option<Finding> {
    let kept = kept_for(queue.settings)?;
    let wanted = demands.window.time().map_or(LONGEST_RETENTION_SECONDS, |window| window.as_secs());
    (kept < wanted.min(LONGEST_RETENTION_SECONDS)).then(|| Finding {
        check: "sqs.retention",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: format!(
            "SQS removes what was not consumed within {}; a consumer that is down for longer misses messages",
            Span::Time(Duration::from_secs(kept))
        ),
        mend: format!("MessageRetentionPeriod={LONGEST_RETENTION_SECONDS}"),
    })
}

fn redrive_policy(queue: &Queue<'_>) -> Option<Finding> {
    let policy = queue.settings.get(&Name::RedrivePolicy).filter(|policy| !policy.is_empty())?;
    Some(Finding {
        check: "sqs.redrive-policy",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: format!(
            "SQS itself moves a message away that was received too often, past Landfall's dead letters and past the \
             messages of its key ({policy})"
        ),
        mend: "RedrivePolicy empty: Landfall parks what fails".into(),
    })
}

fn content_deduplication(queue: &Queue<'_>) -> Option<Finding> {
    (queue.settings.get(&Name::ContentBasedDeduplication)? == "true").then(|| Finding {
        check: "sqs.content-deduplication",
        rank: Rank::Loss,
        about: queue.name.to_owned(),
        what: "of two messages with the same content from a producer that gives no ids, SQS drops the second".into(),
        mend: "ContentBasedDeduplication=false".into(),
    })
}

fn throughput(queue: &Queue<'_>, options: &Options) -> Option<Finding> {
    let limit = queue.settings.get(&Name::FifoThroughputLimit).filter(|_| options.fifo)?;
    (limit == "perQueue").then(|| Finding {
        check: "sqs.throughput",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: "the whole queue takes 300 calls a second, however many keys there are".into(),
        mend: "DeduplicationScope=messageGroup and FifoThroughputLimit=perMessageGroupId".into(),
    })
}

fn delay(queue: &Queue<'_>) -> Option<Finding> {
    let seconds = queue.settings.get(&Name::DelaySeconds).filter(|seconds| *seconds != "0")?;
    Some(Finding {
        check: "sqs.delay",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: format!("every message waits for {seconds} seconds before it is delivered"),
        mend: "DelaySeconds=0".into(),
    })
}

fn message_size(queue: &Queue<'_>, options: &Options) -> Option<Finding> {
    let most: usize = queue.settings.get(&Name::MaximumMessageSize)?.parse().ok()?;
    (most < options.message_bytes).then(|| Finding {
        check: "sqs.message-size",
        rank: Rank::Latency,
        about: queue.name.to_owned(),
        what: format!(
            "the queue takes {most} bytes, and this URL lets {} through: what is between is parked",
            options.message_bytes
        ),
        mend: format!("MaximumMessageSize={} or message_bytes={most}", options.message_bytes),
    })
}

fn skewed(skew: Duration) -> Option<Finding> {
    (skew > SAFE_SKEW).then(|| Finding {
        check: "sqs.clock",
        rank: Rank::Latency,
        about: "the clock of this machine".into(),
        what: format!("it is {} off the clock of SQS, which refuses requests from 15 minutes on", Span::Time(skew)),
        mend: "set the clock by NTP".into(),
    })
}

fn kept_for(settings: &HashMap<Name, String>) -> Option<u64> {
    settings.get(&Name::MessageRetentionPeriod)?.parse().ok()
}

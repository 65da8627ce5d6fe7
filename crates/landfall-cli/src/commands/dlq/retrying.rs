//! `landfall dlq retrying`.

use clap::Args;
use landfall::{Deliveries, DeliveryFilter, GroupName, Key, MessageId, TopicName};

use crate::error::Result;
use crate::output::{Output, or_dash};

/// List deliveries that failed and are attempted again, the longest failing first.
///
/// They are no dead letters yet: a consumer retries them, and parks them after the last attempt.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq retrying
  landfall dlq retrying --topic orders --group mailer --json | jq -r .error")]
pub(super) struct Retrying {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of deliveries.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Id of the message.
    #[arg(long, value_name = "UUID")]
    message_id: Option<MessageId>,
    /// Topic of the message.
    #[arg(long)]
    topic: Option<TopicName>,
    /// Consumer group in which it fails.
    #[arg(long)]
    group: Option<GroupName>,
    /// Ordering key of the message.
    #[arg(long)]
    key: Option<Key>,
}

impl Retrying {
    pub(super) async fn run(self, deliveries: &dyn Deliveries) -> Result<()> {
        let Self { json, limit, message_id, topic, group, key } = self;
        let filter = DeliveryFilter { message_id, topic, group, key };
        let found = deliveries.retrying(&filter, limit as usize).await?;
        let columns = ["message id", "topic", "group", "key", "attempts", "since", "next attempt", "code", "error"];
        Output::new().list(json, &found, columns, |delivery| {
            [
                delivery.message_id.to_string(),
                delivery.topic.to_string(),
                delivery.group.to_string(),
                or_dash(delivery.key.as_ref()),
                delivery.attempts.to_string(),
                delivery.first_failed.to_string(),
                delivery.next_attempt.to_string(),
                delivery.error_code.clone(),
                delivery.error.clone(),
            ]
        })
    }
}

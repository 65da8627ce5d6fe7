//! Checks of the streams and their groups.

use std::collections::HashMap;
use std::time::Duration;

use landfall_core::{Finding, Rank, Result, Span, TopicName};
use redis::Value;

use super::finding;
use super::state::ServerState;
use crate::broker::Redis;
use crate::entry::EntryId;
use crate::error;
use crate::publisher::millis;
use crate::topics::number;

/// A message that was delivered this long ago and is not acknowledged is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15 * 60);
/// Ids further ahead of the server's clock than this show that the clock was set back.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

pub(super) async fn check(redis: &Redis, state: &ServerState) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = dedup(redis).into_iter().collect();
    let topics = match redis.topics.list(&redis.link).await {
        Ok(topics) => topics,
        Err(error) => {
            findings.push(hidden(redis.names.topics(), &error.text()));
            return Ok(findings);
        }
    };
    for (topic, shards) in topics {
        let mut inspected = TopicState { redis, topic, groups: HashMap::new(), entries: 0, ahead: Duration::ZERO };
        for shard in 0..shards {
            if let Some(refused) = inspected.read_stream(shard, state).await? {
                findings.push(hidden(redis.names.stream(&inspected.topic, shard), &refused));
            }
        }
        findings.extend(inspected.findings());
    }
    Ok(findings)
}

fn hidden(about: String, answer: &str) -> Finding {
    let what = format!("this account may not read it ({answer}), so its groups could not be checked");
    finding("redis.hidden", Rank::Loss, about, what, "ACL SETUSER <account> ~<prefix>* +xinfo +xpending +exists")
}

/// A relay retries at the latest after two timeouts.
fn dedup(redis: &Redis) -> Option<Finding> {
    let (window, minimum) = (redis.options.dedup, redis.options.timeout * 2);
    (window < minimum).then(|| {
        finding(
            "redis.dedup",
            Rank::Duplicates,
            "dedup",
            format!("ids are remembered for {}: a retry after a lost answer stores a duplicate", Span::Time(window)),
            format!("dedup={} or longer in the URL", Span::Time(minimum).to_string().replace(' ', "%20")),
        )
    })
}

/// State of a topic over all of its streams.
struct TopicState<'a> {
    redis: &'a Redis,
    topic: TopicName,
    groups: HashMap<String, Group>,
    entries: u64,
    /// How far the ids are ahead of the server's clock.
    ahead: Duration,
}

#[derive(Default)]
struct Group {
    /// Not delivered yet, or not acknowledged.
    unfinished: u64,
    stuck: u64,
    has_member: bool,
}

impl TopicState<'_> {
    /// Reads the state of one stream. Returns Redis's error if the account may not read it.
    async fn read_stream(&mut self, shard: u32, state: &ServerState) -> Result<Option<String>> {
        let stream = self.redis.names.stream(&self.topic, shard);
        let mut pipeline = redis::pipe();
        pipeline.cmd("XINFO").arg("STREAM").arg(&stream);
        pipeline.cmd("XINFO").arg("GROUPS").arg(&stream);
        let answers = self.redis.link.ask(&pipeline).await.map_err(error::call_error)?;
        let [stream_info, groups] = match <[Value; 2]>::try_from(answers) {
            // A stream without messages and groups does not exist.
            Ok([Value::ServerError(error), _]) if error.code() == "ERR" => return Ok(None),
            Ok([Value::ServerError(error), _] | [_, Value::ServerError(error)]) => {
                return Ok(Some(error::text(&error)));
            }
            Ok(answers) => answers,
            Err(_) => return Ok(None),
        };
        let fields = pairs(stream_info);
        self.entries += fields.get("length").and_then(number::<u64>).unwrap_or(0);
        if let (Some(last), Some(now)) = (fields.get("last-generated-id").and_then(EntryId::from_value), state.time) {
            self.ahead = self.ahead.max(now.elapsed_since(last.time()));
        }
        let Value::Array(groups) = groups else { return Ok(None) };
        for fields in groups.into_iter().map(pairs) {
            let Some(Value::BulkString(name)) = fields.get("name") else { continue };
            let name = String::from_utf8_lossy(name).into_owned();
            let count = |field: &str| fields.get(field).and_then(number::<u64>).unwrap_or(0);
            let unfinished = count("pending") + count("lag");
            if let Some(refused) = self.read_group(&stream, &name, unfinished).await? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    async fn read_group(&mut self, stream: &str, name: &str, unfinished: u64) -> Result<Option<String>> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("EXISTS").arg(format!("{stream}:lease:{name}"));
        pipeline
            .cmd("XPENDING")
            .arg(stream)
            .arg(name)
            .arg("IDLE")
            .arg(millis(STUCK_AFTER))
            .arg("-")
            .arg("+")
            .arg(1_000);
        let answers = self.redis.link.ask(&pipeline).await.map_err(error::call_error)?;
        if let Some(Value::ServerError(error)) = answers.iter().find(|answer| matches!(answer, Value::ServerError(_))) {
            return Ok(Some(error::text(error)));
        }
        let group = self.groups.entry(name.to_owned()).or_default();
        group.unfinished += unfinished;
        group.has_member |= answers.first() == Some(&Value::Int(1));
        if let Some(Value::Array(stuck)) = answers.get(1) {
            group.stuck += stuck.len() as u64;
        }
        Ok(None)
    }

    fn findings(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let topic = self.topic.to_string();
        if self.groups.is_empty() && self.entries > 0 {
            let what =
                format!("{} messages and no group: nothing is removed until a group has read them", self.entries);
            findings.push(finding(
                "redis.no-group",
                Rank::Latency,
                &topic,
                what,
                "start a consumer, or delete the topic",
            ));
        }
        for (name, group) in &self.groups {
            let about = format!("{topic}, group {name}");
            if group.unfinished > 0 && !group.has_member {
                let what = format!(
                    "{} messages wait for a group without a member, and all messages after the first stay in memory",
                    group.unfinished
                );
                let mend =
                    format!("start a consumer, or XGROUP DESTROY … {name} on each stream if the group is obsolete");
                findings.push(finding("redis.group-without-member", Rank::Latency, &about, what, mend));
            }
            if group.stuck > 0 {
                let minutes = STUCK_AFTER.as_secs() / 60;
                let what = format!(
                    "{} messages were delivered more than {minutes} minutes ago and are not acknowledged",
                    group.stuck
                );
                findings.push(finding(
                    "redis.unfinished",
                    Rank::Latency,
                    &about,
                    what,
                    "check the consumers of this group",
                ));
            }
        }
        if self.ahead > CLOCK_SLACK {
            let what = format!(
                "the last message has an id {} ahead of the server's clock: the clock was set back, and the times of \
                 messages are wrong until it has caught up",
                Span::Time(self.ahead)
            );
            findings.push(finding(
                "redis.clock",
                Rank::Latency,
                &topic,
                what,
                "slew the server's clock; never set it back",
            ));
        }
        findings
    }
}

/// Parses `[name, value, …]` into a map.
fn pairs(answer: Value) -> HashMap<String, Value> {
    let Value::Array(parts) = answer else { return HashMap::new() };
    let mut parts = parts.into_iter();
    let mut pairs = HashMap::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        if let Value::BulkString(name) = name {
            pairs.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
    }
    pairs
}

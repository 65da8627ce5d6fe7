//! What the server tells about itself, asked for once.

use std::collections::HashMap;

use landfall_core::{Finding, Rank, Result, Timestamp};
use redis::Value;

use super::finding;
use crate::error;
use crate::link::Link;
use crate::topics::number;

const SETTINGS: [&str; 8] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory-policy",
    "bind",
    "protected-mode",
    "client-output-buffer-limit",
    "stop-writes-on-bgsave-error",
];

#[derive(Debug, Default)]
pub(super) struct Seen {
    settings: HashMap<String, String>,
    info: HashMap<String, String>,
    /// The server's own clock.
    pub(super) time: Option<Timestamp>,
    /// What the default account may do; nothing if that is hidden.
    pub(super) default_user: Option<Vec<String>>,
    /// What this account may not see, and what Redis said.
    hidden: Vec<(&'static str, String)>,
}

impl Seen {
    pub(super) async fn look(link: &Link) -> Result<Self> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("CONFIG").arg("GET").arg(&SETTINGS);
        pipeline.cmd("INFO").arg("everything");
        pipeline.cmd("TIME");
        pipeline.cmd("ACL").arg("GETUSER").arg("default");
        let answers = link.ask(&pipeline).await.map_err(error::of_call)?;
        let mut seen = Self::default();
        for (command, answer) in ["CONFIG GET", "INFO", "TIME", "ACL GETUSER"].into_iter().zip(answers) {
            match (command, answer) {
                (_, Value::ServerError(error)) => seen.hidden.push((command, error::text(&error))),
                ("CONFIG GET", answer) => seen.settings = redis::from_redis_value(answer).unwrap_or_default(),
                ("INFO", answer) => seen.info = info(&redis::from_redis_value::<String>(answer).unwrap_or_default()),
                ("TIME", answer) => seen.time = time(&answer),
                (_, answer) => seen.default_user = flags(answer),
            }
        }
        Ok(seen)
    }

    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// The replicas, each as `INFO` writes them: `ip=…,port=…,state=online,offset=…,lag=0`.
    pub(super) fn replicas(&self) -> Vec<HashMap<&str, &str>> {
        let count = self.number("connected_slaves").unwrap_or(0);
        let replica = |number: u64| {
            Some(self.info(&format!("slave{number}"))?.split(',').filter_map(|pair| pair.split_once('=')).collect())
        };
        (0..count).filter_map(replica).collect()
    }

    /// What is not seen may be anything.
    pub(super) fn hidden(&self) -> Vec<Finding> {
        let hidden = |(command, answer): &(&'static str, String)| {
            finding(
                "redis.hidden",
                Rank::Loss,
                *command,
                format!(
                    "this account may not ask for {command} ({answer}), so that some of what follows could not be looked at"
                ),
                "ACL SETUSER <account> +config|get +info +time +acl|getuser",
            )
        };
        self.hidden.iter().map(hidden).collect()
    }
}

fn info(text: &str) -> HashMap<String, String> {
    let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

fn time(answer: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = [number::<i64>(parts.first()?)?, number::<i64>(parts.get(1)?)?];
    Some(Timestamp::from_millis(seconds * 1000 + micros / 1000))
}

fn flags(answer: Value) -> Option<Vec<String>> {
    let Value::Array(parts) = answer else { return None };
    let mut parts = parts.into_iter();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        if matches!(&name, Value::BulkString(name) if name == b"flags") {
            return redis::from_redis_value(value).ok();
        }
    }
    None
}

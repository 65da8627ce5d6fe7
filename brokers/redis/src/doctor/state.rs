//! The server's settings and state, fetched once for all checks.

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
pub(super) struct ServerState {
    settings: HashMap<String, String>,
    info: HashMap<String, String>,
    /// The server's own clock.
    pub(super) time: Option<Timestamp>,
    /// Flags of the default account, unless this account may not read them.
    pub(super) default_user: Option<Vec<String>>,
    /// Commands that this account may not run, with Redis's errors.
    hidden: Vec<(&'static str, String)>,
}

impl ServerState {
    pub(super) async fn fetch(link: &Link) -> Result<Self> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("CONFIG").arg("GET").arg(&SETTINGS);
        pipeline.cmd("INFO").arg("everything");
        pipeline.cmd("TIME");
        pipeline.cmd("ACL").arg("GETUSER").arg("default");
        let answers = link.ask(&pipeline).await.map_err(error::call_error)?;
        let mut state = Self::default();
        for (command, answer) in ["CONFIG GET", "INFO", "TIME", "ACL GETUSER"].into_iter().zip(answers) {
            match (command, answer) {
                (_, Value::ServerError(error)) => state.hidden.push((command, error::text(&error))),
                ("CONFIG GET", answer) => state.settings = redis::from_redis_value(answer).unwrap_or_default(),
                ("INFO", answer) => state.info = info(&redis::from_redis_value::<String>(answer).unwrap_or_default()),
                ("TIME", answer) => state.time = time(&answer),
                (_, answer) => state.default_user = flags(answer),
            }
        }
        Ok(state)
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

    /// Returns the replicas' fields from `INFO`: `ip=…,port=…,state=online,offset=…,lag=0`.
    pub(super) fn replicas(&self) -> Vec<HashMap<&str, &str>> {
        let count = self.number("connected_slaves").unwrap_or(0);
        let replica = |number: u64| {
            Some(self.info(&format!("slave{number}"))?.split(',').filter_map(|pair| pair.split_once('=')).collect())
        };
        (0..count).filter_map(replica).collect()
    }

    /// Reports the commands that this account may not run: the unread settings may be unsafe.
    pub(super) fn hidden(&self) -> Vec<Finding> {
        let hidden = |(command, answer): &(&'static str, String)| {
            finding(
                "redis.hidden",
                Rank::Loss,
                *command,
                format!("this account may not run {command} ({answer}), so some settings could not be checked"),
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

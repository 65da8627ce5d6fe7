//! Doctor checks: settings of the server, its topics and their groups that can lose, duplicate or delay messages.

mod consumer;
mod monitor;
mod server;
mod stream;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Error, Finding, Rank, Result};

use crate::broker::Nats;
use crate::error::is_denied;

#[async_trait]
impl Diagnose for Nats {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = server::transport(&self.options, self.connection.is_loopback());
        findings.extend(server::sync_and_clock(&self.options).await);
        let topics = match self.topics.all().await {
            Ok(topics) => topics,
            Err(error) => {
                findings.push(not_visible("the topics", &error));
                return Ok(findings);
            }
        };
        let supports_batches = self.connection.client().is_server_compatible(2, 12, 0) && self.options.atomic;
        for (topic, info) in &topics {
            findings.extend(stream::diagnose(topic, info, demands, self.options.timeout, supports_batches));
            match self.connection.consumers(&topic.stream).await {
                Ok(consumers) => findings.extend(consumers.iter().flat_map(|info| consumer::diagnose(topic, info))),
                Err(error) => findings.push(not_visible(&format!("the groups of topic {}", topic.name), &error)),
            }
        }
        Ok(findings)
    }
}

fn not_visible(what: &str, error: &Error) -> Finding {
    let (why, mend) = if is_denied(error) {
        ("This account may not list", "allow the account to publish to $JS.API.STREAM.LIST and $JS.API.CONSUMER.LIST.*")
    } else {
        // The server sends a complete list or none.
        ("The server does not list", "start the servers that are down: the list waits for their answers")
    };
    Finding {
        check: "nats.not-visible",
        rank: Rank::Loss,
        about: what.to_owned(),
        what: format!("{why} {what}, so they may be unsafe: {error}."),
        mend: mend.into(),
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorKind;

    use super::*;
    use crate::error::Denied;

    #[test]
    fn findings_distinguish_denied_from_unanswered() {
        let error = || Error::new(ErrorKind::Unavailable, "listing the consumers of stream orders failed");
        let denied = not_visible("the groups", &error().with_source(Denied("$JS.API.CONSUMER.LIST.orders".into())));
        assert!(denied.what.starts_with("This account") && denied.mend.contains("publish to"), "{denied:?}");
        let silent = not_visible("the groups", &error());
        assert!(silent.what.starts_with("The server") && silent.mend.contains("down"), "{silent:?}");
    }
}

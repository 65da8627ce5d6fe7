//! The doctor's part: what the server, the topics and the groups on it are set to.

mod consumer;
mod monitor;
mod server;
mod stream;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Error, Finding, Rank, Result};

use crate::broker::Nats;
use crate::error::is_denied;

#[async_trait]
impl Diagnose for Nats {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut found = server::transport(&self.options, self.connection.is_loopback());
        found.extend(server::syncing_and_clock(&self.options).await);
        let topics = match self.topics.all().await {
            Ok(topics) => topics,
            Err(error) => {
                found.push(not_visible("the topics", &error));
                return Ok(found);
            }
        };
        let takes_batches = self.connection.client().is_server_compatible(2, 12, 0) && self.options.atomic;
        for (topic, info) in &topics {
            found.extend(stream::diagnose(topic, info, demands, self.options.timeout, takes_batches));
            match self.connection.consumers(&topic.stream).await {
                Ok(consumers) => found.extend(consumers.iter().flat_map(|info| consumer::diagnose(topic, info))),
                Err(error) => found.push(not_visible(&format!("the groups of topic {}", topic.name), &error)),
            }
        }
        Ok(found)
    }
}

fn not_visible(what: &str, error: &Error) -> Finding {
    let (why, mend) = if is_denied(error) {
        ("This account cannot look at", "let the account publish to $JS.API.STREAM.LIST and $JS.API.CONSUMER.LIST.*")
    } else {
        // A list is complete or it is not sent at all.
        ("The server does not tell of", "bring back the servers that are away: what only they know is waited for")
    };
    Finding {
        check: "nats.not-visible",
        rank: Rank::Loss,
        about: what.to_owned(),
        what: format!("{why} {what}, so nobody knows whether they are safe: {error}."),
        mend: mend.into(),
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorKind;

    use super::*;
    use crate::error::Denied;

    #[test]
    fn what_is_denied_is_told_apart_from_what_nobody_answers() {
        let error = || Error::new(ErrorKind::Unavailable, "the consumers of orders cannot be listed");
        let denied = not_visible("the groups", &error().with_source(Denied("$JS.API.CONSUMER.LIST.orders".into())));
        assert!(denied.what.starts_with("This account") && denied.mend.contains("publish to"), "{denied:?}");
        let silent = not_visible("the groups", &error());
        assert!(silent.what.starts_with("The server") && silent.mend.contains("away"), "{silent:?}");
    }
}

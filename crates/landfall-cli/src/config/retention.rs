//! How long what is kept, and whether that is long enough: `[retention]`.

use landfall::housekeeping::{RetentionPlan, Retries, Span, Window};
use landfall::log::TopicSettings;
use landfall::{Backoff, consume};

use super::Config;
use crate::push::LONGEST_RETRY_AFTER;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Retention {
    pub(crate) inbox: Span,
    pub(crate) sent: Span,
    pub(crate) dead_letters: Span,
    pub(crate) redrive: Span,
}

impl Default for Retention {
    fn default() -> Self {
        Self { inbox: Span::days(45), sent: Span::ZERO, dead_letters: Span::days(30), redrive: Span::days(1) }
    }
}

impl Config {
    /// Every time that this configuration names, for the arithmetic of `landfall serve`.
    pub(crate) fn retention_plan(&self) -> RetentionPlan {
        let mut windows = vec![Window { setting: "retention.inbox".into(), length: self.retention.inbox }];
        windows.extend(window("broker.retention".into(), &self.broker.topic));
        let mut retries = vec![
            Retries {
                whose: "the relay's retries".into(),
                setting: "relay.max_attempts, relay.backoff_first_ms, relay.backoff_cap_ms".into(),
                backoff: self.relay.backoff,
            },
            Retries {
                whose: "a consumer's retries".into(),
                setting: "the default of consumers".into(),
                backoff: consume::Options::default().backoff,
            },
        ];
        retries.extend(self.push_retries());
        RetentionPlan { windows, retries, dead_letters: self.retention.dead_letters, redrive: self.retention.redrive }
    }
}

impl Config {
    /// Those of the subscription that takes longest; each has its own inbox rows, so they do not add up.
    fn push_retries(&self) -> Option<Retries> {
        let longest = |backoff: Backoff| {
            // Every wait may be as long as its receiver asks for.
            let wait = backoff.cap.max(LONGEST_RETRY_AFTER);
            Backoff { first: wait, cap: wait, ..backoff }
        };
        let each = self.subscription.iter().map(|one| (longest(one.backoff), &one.topic, &one.group));
        let (backoff, topic, group) = each.max_by_key(|(backoff, ..)| backoff.longest())?;
        Some(Retries {
            whose: format!("the retries of {topic}/{group}"),
            setting: "max_attempts of its subscription, each up to an hour (Retry-After)".into(),
            backoff,
        })
    }
}

/// The window of a topic of the embedded log that stores a message once: an id is known as long as its message is kept.
pub(crate) fn window(setting: String, topic: &TopicSettings) -> Option<Window> {
    let length = topic.retention_time.map_or(Span::Forever, Span::Time);
    topic.deduplicate.then_some(Window { setting, length })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Environment;
    use super::*;

    #[test]
    fn the_default_is_long_enough() {
        Config::default().retention_plan().check().unwrap();
    }

    #[test]
    fn the_slowest_subscription_counts() {
        let file = "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"https://example.com\"\n\
                    max_attempts = 500\n[[subscription]]\ntopic = \"orders\"\ngroup = \"other\"\n\
                    url = \"https://example.com\"\n";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("landfall.toml"), file).unwrap();
        let config = Config::load(Some(folder.path().join("landfall.toml")), &Environment::new([]), &[]).unwrap();
        let error = config.retention_plan().check().unwrap_err().to_string();
        assert!(error.contains("the retries of orders/mailer") && error.contains("20d 19h"), "{error}");
        assert!(!error.contains("orders/other"), "{error}");
    }

    #[test]
    fn a_window_that_is_too_short_is_refused_with_the_settings_to_change() {
        let mut config = Config::default();
        config.retention.inbox = Span::days(7);
        config.broker.topic.retention_time = Some(Duration::from_secs(3600));
        let error = config.retention_plan().check().unwrap_err().to_string();
        for text in [
            "retention.inbox and broker.retention are too short",
            "relay.max_attempts",
            "1m 21s",
            "retention.dead_letters",
            "retention.redrive",
            "= needed                31d 1m 33s 700ms",
        ] {
            assert!(error.contains(text), "{text} is missing in\n{error}");
        }
        // Whoever does not rely on the log's window is not held to it.
        config.broker.topic.deduplicate = false;
        let error = config.retention_plan().check().unwrap_err().to_string();
        assert!(error.starts_with("retention.inbox is too short") && !error.contains("broker.retention"), "{error}");
        config.retention.dead_letters = Span::days(5);
        config.retention_plan().check().unwrap();
    }
}

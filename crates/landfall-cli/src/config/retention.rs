//! `[retention]`: retention periods, and the check that deduplication outlives every redelivery.

use std::path::PathBuf;

use hyper::{Method, Uri};
use landfall::housekeeping::{RetentionPlan, Retries, Span, Window};
use landfall::{Backoff, consume};

use super::value::{Problem, Value};
use super::{Address, Config, Subscription};
use crate::push::LONGEST_RETRY_AFTER;
use crate::topics::TopicSettings;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retention {
    pub(crate) inbox: Span,
    pub(crate) enqueued_ids: Span,
    pub(crate) sent: Span,
    pub(crate) dead_letters: Span,
    /// The folder or the URL to which final dead letters are written before they are removed.
    pub(crate) dead_letters_archive: Option<Address>,
    pub(crate) redrive: Span,
    pub(crate) redelivery: Span,
    pub(crate) half_messages: Span,
    /// The folder to which half messages are written before they are removed.
    pub(crate) half_messages_archive: Option<PathBuf>,
    pub(crate) barriers: Span,
    pub(crate) idempotency_answers: Span,
    pub(crate) idempotency: Span,
    pub(crate) alerts: Span,
    pub(crate) redrive_jobs: Span,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            inbox: Span::days(45),
            enqueued_ids: Span::days(7),
            sent: Span::ZERO,
            dead_letters: Span::days(30),
            dead_letters_archive: None,
            redrive: Span::days(1),
            redelivery: Span::days(7),
            half_messages: Span::days(7),
            half_messages_archive: None,
            barriers: Span::days(30),
            idempotency_answers: Span::days(1),
            idempotency: Span::days(7),
            alerts: Span::days(30),
            redrive_jobs: Span::days(90),
        }
    }
}

/// Reads the place of an archive; an empty string is none. `file:///…` is a folder, any other `file:` a reference.
pub(super) fn archive(value: &Value<'_>) -> Result<Option<Address>, Problem> {
    let text = value.text()?;
    let text = if text.starts_with("file:///") { text.to_owned() } else { value.resolved()? };
    Ok((!text.is_empty()).then(|| Address::new(text)))
}

impl Config {
    /// Collects every period of this configuration, for the start-up check of `landfall serve`.
    pub(crate) fn retention_plan(&self) -> RetentionPlan {
        let mut windows = vec![Window { setting: "retention.inbox".into(), length: self.retention.inbox }];
        // Other brokers do not promise to know an id for as long as they keep its message.
        if self.broker.url.scheme() == "log" {
            windows.extend(window("broker.retention".into(), &self.broker.topic));
        }
        windows.extend(self.proxy_window());
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
        let Retention { dead_letters, redrive, redelivery, .. } = self.retention;
        RetentionPlan { windows, retries, dead_letters, redrive, redelivery }
    }
}

impl Config {
    /// Returns the window of the proxy's records if a subscription posts to a route. A redriven message is then
    /// recognised by its key only while the record is kept. A host may have several names, so port and path decide.
    fn proxy_window(&self) -> Option<Window> {
        let is_routed = |url: &Uri| {
            url.port_u16() == Some(self.proxy.listen.port())
                && self.idempotent_route.iter().any(|route| route.pattern.matches(&Method::POST, url.path()))
        };
        let Subscription { topic, group, .. } = self.subscription.iter().find(|one| is_routed(&one.url))?;
        let setting = format!("retention.idempotency ({topic}/{group} is pushed to an idempotent_route)");
        Some(Window { setting, length: self.retention.idempotency })
    }

    /// Returns the retries of the slowest subscription. Each subscription has its own inbox rows, so they do not add
    /// up.
    fn push_retries(&self) -> Option<Retries> {
        let longest = |backoff: Backoff| {
            // The receiver may ask for the longest `Retry-After` at every attempt.
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

/// Returns the deduplication window of a topic in the embedded log, which knows an id while it keeps the message.
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
    fn default_retention_is_long_enough() {
        Config::default().retention_plan().check().unwrap();
    }

    #[test]
    fn slowest_subscription_determines_the_window() {
        let file = "[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"https://example.com\"\n\
                    max_attempts = 500\n[[subscription]]\ntopic = \"orders\"\ngroup = \"other\"\n\
                    url = \"https://example.com\"\n";
        let error = loaded(file).retention_plan().check().unwrap_err().to_string();
        assert!(error.contains("the retries of orders/mailer") && error.contains("20d 19h"), "{error}");
        assert!(!error.contains("orders/other"), "{error}");
    }

    fn loaded(file: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("landfall.toml"), file).unwrap();
        Config::load(Some(folder.path().join("landfall.toml")), &Environment::new([]), &[]).unwrap()
    }

    #[test]
    fn records_of_a_proxy_outlive_redrives_that_are_pushed_to_it() {
        let route = "[[idempotent_route]]\nmatch = \"POST /orders/{id}\"\nupstream = \"http://127.0.0.1:8080\"\n\
                     business_type = \"order\"\non_unknown = \"rerun\"\n";
        let subscription = |url: &str| {
            format!("[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"{url}\"\nmax_attempts = 5\n")
        };
        let routed = format!("{route}{}", subscription("http://shop:7701/orders/7"));
        let error = loaded(&routed).retention_plan().check().unwrap_err().to_string();
        for text in ["retention.idempotency (orders/mailer is pushed to an idempotent_route) is too short", "= needed"]
        {
            assert!(error.contains(text), "{text} is missing in\n{error}");
        }
        let longer = format!("retention.idempotency = \"45d\"\n{routed}");
        loaded(&longer).retention_plan().check().unwrap();
        // No other setup needs it: without a route, with another port, and with a path that no route takes.
        for file in [
            subscription("http://shop:7701/orders/7"),
            route.to_owned(),
            format!("{route}{}", subscription("http://shop:8080/orders/7")),
            format!("{route}{}", subscription("http://shop:7701/refunds/7")),
        ] {
            loaded(&file).retention_plan().check().unwrap();
        }
    }

    #[test]
    fn short_window_error_names_the_settings() {
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
            "retention.redelivery",
            "= needed                 38d 1m 33s 700ms",
        ] {
            assert!(error.contains(text), "{text} is missing in\n{error}");
        }
        // Without deduplication in the log, its retention no longer matters.
        config.broker.topic.deduplicate = false;
        let error = config.retention_plan().check().unwrap_err().to_string();
        assert!(error.starts_with("retention.inbox is too short") && !error.contains("broker.retention"), "{error}");
        config.retention.dead_letters = Span::days(5);
        let error = config.retention_plan().check().unwrap_err().to_string();
        assert!(error.contains("too short by 6d 1m 33s 700ms"), "the broker can redeliver for a week: {error}");
        config.retention.redelivery = Span::ZERO;
        config.retention_plan().check().unwrap();
    }
}

//! Checks of the configuration alone.

use landfall::{Finding, Rank};

use crate::config::{Config, Order, WhenExhausted};

pub(super) fn diagnose(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |check, rank, about: &str, what: String, mend: &str| {
        findings.push(Finding { check, rank, about: about.to_owned(), what, mend: mend.to_owned() });
    };
    let plan = config.retention_plan();
    for window in plan.too_short() {
        found(
            "configuration.window",
            Rank::Duplicates,
            &window.setting,
            format!(
                "it is {}, but a duplicate of a message may arrive after {}; by then its id is forgotten and it takes \
                 effect again",
                window.length,
                plan.needed()
            ),
            &format!("set {} to at least {}, or shorten retention.dead_letters", window.setting, plan.needed()),
        );
    }
    if config.relay.order == Order::None {
        found(
            "configuration.relay-order",
            Rank::Order,
            "relay.order",
            "it is none: messages of one key may be published out of commit order".into(),
            "set relay.order = \"key\"",
        );
    }
    if config.relay.when_exhausted == WhenExhausted::Skip {
        found(
            "configuration.when-exhausted",
            Rank::Order,
            "relay.when_exhausted",
            "it is skip: successors of a parked message are published before it".into(),
            "set relay.when_exhausted = \"hold\"",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use landfall::housekeeping::Span;

    use super::*;

    #[test]
    fn default_configuration_is_healthy() {
        assert_eq!(diagnose(&Config::default()), []);
    }

    #[test]
    fn each_configuration_risk_is_reported() {
        let mut config = Config::default();
        config.relay.order = Order::None;
        config.relay.when_exhausted = WhenExhausted::Skip;
        config.retention.inbox = Span::days(1);
        let findings = diagnose(&config);
        let found: Vec<_> = findings.iter().map(|finding| (finding.check, finding.rank)).collect();
        assert_eq!(
            found,
            [
                ("configuration.window", Rank::Duplicates),
                ("configuration.relay-order", Rank::Order),
                ("configuration.when-exhausted", Rank::Order),
            ]
        );
        let what = &findings[0].what;
        assert!(what.starts_with("it is 1d, but a duplicate of a message may arrive after 38d"), "{what}");
    }
}

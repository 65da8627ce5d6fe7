//! Findings about settings that the doctor cannot read.

use landfall_core::{Finding, Rank, Result};

use super::finding;

pub(super) const NOT_VISIBLE: &str = "rabbitmq.not-visible";

/// Without the management interface nothing can be checked, because AMQP does not expose settings.
pub(super) fn no_management() -> Finding {
    let what = "the broker URL sets no management interface, so the server could not be checked";
    let mend = "enable the plugin rabbitmq_management and add management=http://host:15672 to the broker URL";
    finding("rabbitmq.no-management", Rank::Loss, "the broker URL", what, mend)
}

/// Returns the fetched list. On an error, adds a finding and returns an empty list.
pub(super) fn list_or_report<T>(about: &str, fetched: Result<Vec<T>>, findings: &mut Vec<Finding>) -> Vec<T> {
    fetched.unwrap_or_else(|error| {
        let mend = "give the management account the tag monitoring, and read access to the virtual host";
        let what = format!("the {about} could not be checked: {error}");
        findings.push(finding(NOT_VISIBLE, Rank::Loss, about, what, mend));
        Vec::new()
    })
}

//! What cannot be seen.

use landfall_core::{Finding, Rank, Result};

use super::finding;

pub(super) const NOT_VISIBLE: &str = "rabbitmq.not-visible";

/// AMQP shows no settings.
pub(super) fn no_management() -> Finding {
    let what = "the broker URL names no management interface, so that nothing about the server could be checked";
    let mend = "enable the plugin rabbitmq_management and add management=http://host:15672 to the broker URL";
    finding("rabbitmq.no-management", Rank::Loss, "the broker URL", what, mend)
}

/// Puts what was `told` in its place, or says that it could not be seen.
pub(super) fn look<T>(about: &str, told: Result<Vec<T>>, place: &mut Vec<T>, findings: &mut Vec<Finding>) {
    match told {
        Ok(told) => *place = told,
        Err(error) => {
            let mend = "give the management account the tag monitoring, and read access to the virtual host";
            let what = format!("the {about} could not be checked: {error}");
            findings.push(finding(NOT_VISIBLE, Rank::Loss, about, what, mend));
        }
    }
}

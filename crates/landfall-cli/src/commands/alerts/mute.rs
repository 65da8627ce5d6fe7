//! `landfall alerts mute`.

use std::time::Duration;

use clap::Args;
use landfall::{AlertId, AlertRule, Alerts, MuteTarget, Timestamp};
use serde_json::json;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::units;

/// Mute an alert, or all alerts of a rule, for a time.
///
/// No notice that it fires is sent before. A notice that was sent is still followed by its end. With `--for 0` the mute
/// ends now, and an alert that fires and was not reported is reported.
#[derive(Debug, Args)]
pub(super) struct Mute {
    /// Id of the alert.
    #[arg(required_unless_present = "rule", conflicts_with = "rule")]
    id: Option<AlertId>,
    /// Mute this rule.
    #[arg(long)]
    rule: Option<String>,
    /// For how long: 30m, 2h, 7d; 0 ends the mute.
    #[arg(long = "for", value_name = "TIME", value_parser = units::age)]
    time: Duration,
    /// Why; recorded in the audit table.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object: id or rule, muted_until.
    #[arg(long)]
    json: bool,
}

impl Mute {
    pub(super) async fn run(self, alerts: &dyn Alerts, rules: &[AlertRule]) -> Result<()> {
        let (target, name, mut shown) = match (self.id, self.rule) {
            (Some(id), _) => (MuteTarget::Alert(id), format!("alert {id}"), json!({ "id": id })),
            (None, Some(rule)) => {
                refuse_unknown(&rule, rules)?;
                (MuteTarget::Rule(rule.clone()), format!("rule {rule}"), json!({ "rule": rule }))
            }
            (None, None) => return Err(Error::usage("name an alert, or a rule with --rule")),
        };
        let millis = i64::try_from(self.time.as_millis()).unwrap_or(i64::MAX);
        let until = Timestamp::from_millis(Timestamp::now().as_millis().saturating_add(millis));
        alerts.mute_alert(&target, until, &self.reason, &actor(self.actor)).await?;
        let mut output = Output::new();
        if self.json {
            shown["muted_until"] = json!(until);
            output.json(&shown)?;
        } else if self.time.is_zero() {
            output.line(&format!("{name} is no longer muted"))?;
        } else {
            output.line(&format!("{name} is muted until {until}"))?;
        }
        output.flush()
    }
}

fn refuse_unknown(name: &str, rules: &[AlertRule]) -> Result<()> {
    if rules.iter().any(|rule| rule.name == name) {
        return Ok(());
    }
    let names: Vec<_> = rules.iter().map(|rule| rule.name.as_str()).collect();
    Err(Error::usage(format!("there is no alert rule {name:?}; the rules are {}", names.join(", "))))
}

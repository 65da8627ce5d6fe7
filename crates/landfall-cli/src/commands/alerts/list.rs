//! `landfall alerts list`.

use clap::Args;
use landfall::{AlertFilter, AlertState, Alerts};

use crate::error::Result;
use crate::output::{Output, or_dash};

/// List alerts, those that changed last first.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only this state: pending, firing or resolved.
    #[arg(long)]
    state: Option<AlertState>,
    /// Only this rule.
    #[arg(long)]
    rule: Option<String>,
    /// Maximum number of alerts.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, alerts: &dyn Alerts) -> Result<()> {
        let filter = AlertFilter { id: None, state: self.state, rule: self.rule };
        let found = alerts.alerts(&filter, self.limit as usize).await?;
        let columns = ["id", "state", "rule", "subject", "value", "firing since", "muted until", "sample", "summary"];
        Output::new().list(self.json, &found, columns, |alert| {
            [
                alert.id.to_string(),
                alert.state.as_str().to_owned(),
                alert.rule.clone(),
                alert.subject(),
                alert.value.to_string(),
                or_dash(alert.firing_since),
                or_dash(alert.muted_until),
                or_dash(alert.sample),
                alert.summary.clone(),
            ]
        })
    }
}

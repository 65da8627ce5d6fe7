//! `landfall alerts notices`: the delivery log.

use clap::Args;
use landfall::{Alerts, MessageId, NoticeFilter, NoticeState};

use crate::error::Result;
use crate::output::{Output, or_dash};

/// List the notices to channels, newest first: what was delivered, what waits, and why.
#[derive(Debug, Args)]
pub(super) struct Notices {
    /// Only this channel.
    #[arg(long)]
    channel: Option<String>,
    /// Only this state: waiting, delivered or given_up.
    #[arg(long)]
    state: Option<NoticeState>,
    /// Maximum number of notices.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Start after this id, the last one of the previous page.
    #[arg(long, value_name = "ID")]
    after: Option<MessageId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Notices {
    pub(super) async fn run(self, alerts: &dyn Alerts) -> Result<()> {
        let filter = NoticeFilter { channel: self.channel, state: self.state, before: self.after };
        let found = alerts.alert_notices(&filter, self.limit as usize).await?;
        let columns = ["id", "channel", "state", "kind", "rule", "attempts", "created", "error", "summary"];
        Output::new().list(self.json, &found, columns, |notice| {
            [
                notice.id.to_string(),
                notice.channel.clone(),
                notice.state.as_str().to_owned(),
                notice.body.kind.as_str().to_owned(),
                notice.body.rule.clone(),
                notice.attempts.to_string(),
                notice.created_at.to_string(),
                or_dash(notice.error.as_ref()),
                notice.body.summary.clone(),
            ]
        })
    }
}

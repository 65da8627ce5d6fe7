//! `landfall alerts test`.

use clap::Args;
use landfall::{Alert, AlertLabels, AlertState, MessageId, NoticeBatch, NoticeBody, NoticeKind, Timestamp};
use serde_json::json;

use crate::alerts::channel::{Answer, Verdict};
use crate::alerts::senders;
use crate::config;
use crate::error::{Error, Result};
use crate::output::{Output, escaped};

/// Send a test notice to a channel and print the answer.
///
/// Nothing is stored, and nothing is retried. Exit code 1 if the channel does not accept it.
#[derive(Debug, Args)]
pub(super) struct Test {
    /// Name of the channel.
    channel: String,
    /// Print one JSON object: channel, delivery, accepted, answer, error.
    #[arg(long)]
    json: bool,
}

impl Test {
    pub(super) async fn run(self, config: &config::Alerts) -> Result<()> {
        let senders = senders(config)?;
        let Some(sender) = senders.iter().find(|sender| sender.name() == self.channel) else {
            let names: Vec<_> = senders.iter().map(|sender| sender.name()).collect();
            let known = if names.is_empty() { "none is configured".to_owned() } else { names.join(", ") };
            return Err(Error::usage(format!("there is no alert channel {:?}; the channels: {known}", self.channel)));
        };
        let batch = batch(&self.channel);
        let Answer { verdict, shown } = sender.send(&batch).await;
        let error = match verdict {
            Verdict::Accepted => None,
            Verdict::Retry(error) | Verdict::Wait(_, error) | Verdict::Refused(error) => Some(error),
        };
        let mut output = Output::new();
        if self.json {
            let (channel, delivery, accepted) = (&self.channel, batch.id, error.is_none());
            let answer = Some(&shown).filter(|shown| !shown.is_empty());
            let line = json!({
                "channel": channel, "delivery": delivery, "accepted": accepted, "answer": answer, "error": error,
            });
            output.json(&line)?;
        } else if error.is_none() {
            output.line(&format!("channel {} accepted the notice: {}", self.channel, escaped(&shown)))?;
        }
        output.flush()?;
        match error {
            None => Ok(()),
            Some(error) => {
                Err(Error::failed(format!("channel {} did not accept the notice: {}", self.channel, escaped(&error))))
            }
        }
    }
}

fn batch(channel: &str) -> NoticeBatch {
    let now = Timestamp::now();
    let labels = AlertLabels::from([("channel".to_owned(), channel.to_owned())]);
    let alert = Alert {
        id: Alert::id_of("test", &labels),
        labels,
        state: AlertState::Firing,
        summary: "this is a test of the channel; nothing is wrong".to_owned(),
        firing_since: Some(now),
        ..Alert::of_rule("test", now)
    };
    let notices = vec![NoticeBody::new(&alert, NoticeKind::Firing)];
    NoticeBatch { id: MessageId::new(), channel: channel.to_owned(), attempt: 1, created_at: now, notices }
}

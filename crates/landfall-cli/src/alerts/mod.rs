//! Alerts: the daemon evaluates the rules of `[[alert]]` and delivers notices to each `[[alert_channel]]`.
//!
//! ```text
//!   observe ─▶ conditions ─▶ changes and notices, in one transaction ─▶ claim ─▶ send ─▶ settle
//!   every interval, by the daemon with the lease                        a loop for each channel
//! ```
//!
//! * [`evaluator`] holds the lease, [`observe`] asks the database and the broker;
//! * [`notifier`] delivers the notices of one channel;
//! * [`channel`] renders a notice for its kind of server, and judges the answer.

pub(crate) mod channel;
mod evaluator;
mod notifier;
mod observe;

use std::sync::Arc;

use landfall::housekeeping::Span;
use landfall::{AlertQueue, AlertRule, Leases};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::error::Result;
use channel::Sender;
use evaluator::{Evaluator, Holding};
use notifier::Notifier;
pub(crate) use observe::Sources;

/// The evaluator and the notifiers of a daemon, before they run.
pub(crate) struct Alerting {
    evaluator: Evaluator,
    notifiers: Vec<Notifier>,
}

impl Alerting {
    pub(crate) fn new(
        config: &config::Alerts,
        retention: Span,
        queue: &Arc<dyn AlertQueue>,
        leases: Arc<dyn Leases>,
        sources: Sources,
    ) -> Result<Self> {
        let rules: Vec<AlertRule> = config.effective_rules();
        let (holding, work) = (Holding::default(), Arc::new(Notify::new()));
        let notifier = |sender| Notifier::new(queue.clone(), sender, holding.clone(), work.clone());
        let notifiers = senders(config)?.into_iter().map(notifier).collect();
        let interval = config.interval;
        let evaluator = Evaluator::new(queue.clone(), leases, sources, rules, interval, retention, holding, work);
        Ok(Self { evaluator, notifiers })
    }

    /// Runs until `stop`. Errors are logged: publishing does not depend on alerts.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for notifier in self.notifiers {
            tasks.spawn(notifier.run(stop.clone()));
        }
        self.evaluator.run(stop).await;
        // The runtime has logged a panic.
        while tasks.join_next().await.is_some() {}
    }
}

/// Returns the sender of each channel. Refuses a URL at a forbidden address.
pub(crate) fn senders(config: &config::Alerts) -> Result<Vec<Sender>> {
    config.channels.iter().map(|channel| Sender::new(config, channel)).collect()
}

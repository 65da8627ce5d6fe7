//! Evaluates the rules, in the daemon that holds the lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall::adapter::{Lease, LeaseName};
use landfall::housekeeping::Span;
use landfall::{
    AlertConditions, AlertQueue, AlertRule, ErrorKind, Holder, Leases, MessageId, Result, Timestamp, evaluate_alerts,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::observe::Sources;

/// The lease of the one daemon that evaluates and delivers.
const LEASE: &str = "alerts";
const LEASE_TTL: Duration = Duration::from_secs(10);
/// The longest pause between two renewals.
const RENEWAL: Duration = Duration::from_secs(2);

/// A pass rests at least this many times as long as it took, so that it is a small part of the database's work.
const REST: u32 = 10;

/// How often old alerts are removed, and how many at once.
const CLEANING: Duration = Duration::from_secs(600);
const CLEANED: usize = 1000;

/// Whether this daemon holds the lease now; shared with the notifiers.
#[derive(Clone, Default)]
pub(super) struct Holding(Arc<Mutex<Option<Lease>>>);

impl Holding {
    pub(super) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Lease::is_live)
    }

    fn set(&self, lease: Option<Lease>) -> Option<Lease> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), lease)
    }

    fn is_half_over(&self) -> bool {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_none_or(|lease| Instant::now() + LEASE_TTL / 2 > lease.until)
    }
}

pub(super) struct Evaluator {
    queue: Arc<dyn AlertQueue>,
    leases: Arc<dyn Leases>,
    holder: Holder,
    sources: Sources,
    rules: Vec<AlertRule>,
    interval: Duration,
    retention: Span,
    holding: Holding,
    /// Wakes the notifiers.
    work: Arc<Notify>,
}

impl Evaluator {
    #[allow(clippy::too_many_arguments, reason = "called once")]
    pub(super) fn new(
        queue: Arc<dyn AlertQueue>,
        leases: Arc<dyn Leases>,
        sources: Sources,
        rules: Vec<AlertRule>,
        interval: Duration,
        retention: Span,
        holding: Holding,
        work: Arc<Notify>,
    ) -> Self {
        let holder = Holder(MessageId::new().to_string());
        Self { queue, leases, holder, sources, rules, interval, retention, holding, work }
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        let (mut evaluated, mut cleaned): (Option<Instant>, Option<Instant>) = (None, None);
        let mut took = Duration::ZERO;
        let is_due = |last: Option<Instant>, pause| last.is_none_or(|last| last.elapsed() >= pause);
        while !stop.is_cancelled() {
            self.renew().await;
            if self.holding.is_held() && is_due(evaluated, self.interval.max(took * REST)) {
                let began = Instant::now();
                self.evaluate().await;
                (evaluated, took) = (Some(Instant::now()), began.elapsed());
            }
            if self.holding.is_held() && is_due(cleaned, CLEANING) {
                cleaned = Some(Instant::now());
                self.clean().await;
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval.min(RENEWAL)) => {}
                () = stop.cancelled() => {}
            }
        }
        if let Some(lease) = self.holding.set(None)
            && let Err(error) = self.leases.release(&[lease]).await
        {
            tracing::debug!(%error, "releasing the lease of the alerts failed; it will expire");
        }
    }

    /// Acquires or extends the lease.
    async fn renew(&self) {
        if !self.holding.is_half_over() {
            return;
        }
        match self.leases.acquire(&LeaseName(LEASE.into()), &self.holder, LEASE_TTL).await {
            Ok(lease) => drop(self.holding.set(lease)),
            Err(error) => tracing::warn!(%error, "cannot acquire the lease of the alerts"),
        }
    }

    async fn evaluate(&self) {
        match self.pass().await {
            Ok(()) => {}
            // Another daemon or a person was faster. The next pass reads the new state.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tracing::debug!(%error, "an alert changed during its evaluation");
            }
            Err(error) => tracing::warn!(%error, "evaluating alerts failed"),
        }
    }

    async fn pass(&self) -> Result<()> {
        let now = Timestamp::now();
        let seen = self.sources.observe(&*self.queue, &self.rules, now).await;
        let conditions = AlertConditions::new(&self.rules, &seen, now);
        let stored = self.queue.open_alerts(&conditions.ids()).await?;
        let changes = evaluate_alerts(&self.rules, &conditions, &stored, now);
        if changes.is_empty() {
            return Ok(());
        }
        self.queue.record_alerts(&changes, now).await?;
        for change in changes.iter().filter(|change| !change.notices.is_empty()) {
            let (rule, subject, summary) = (&change.alert.rule, change.alert.subject(), &change.alert.summary);
            tracing::info!(%rule, %subject, state = change.alert.state.as_str(), %summary, "alert");
        }
        self.work.notify_waiters();
        Ok(())
    }

    async fn clean(&self) {
        let Span::Time(age) = self.retention else { return };
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(age));
        match self.queue.remove_alerts(before, CLEANED).await {
            Ok(0) => {}
            Ok(removed) => {
                metrics::counter!("landfall_housekeeping_removed_total", "what" => "alerts").increment(removed)
            }
            Err(error) => tracing::warn!(%error, "removing old alerts failed"),
        }
    }
}

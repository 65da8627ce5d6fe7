//! The progress of the demo, read from the databases while the services run, and its display.

use std::io::Write;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::{DeadLetters, OutboxView};

use super::Result;
use super::shop::{Service, Shop};
use super::story::Story;

/// Counts from the three databases. Read one after the other, so they are exact only when the services are idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) placed: u64,
    pub(super) unpaid: u64,
    pub(super) effects: u64,
    /// Committed and not yet published.
    pub(super) in_outboxes: u64,
    /// Dead letters that need an operator.
    pub(super) parked: u64,
    /// Dead letters that are redriving, or wait behind another one.
    pub(super) moving: u64,
}

impl Progress {
    pub(super) async fn read(shop: &Shop) -> Result<Self> {
        let orders = shop.database(Service::Orders).pool();
        let count = "SELECT coalesce(max(number), 0), (SELECT count(*) FROM orders WHERE paid_at IS NULL) FROM orders";
        let (placed, unpaid): (u32, u32) = sqlx::query_as(count).fetch_one(orders).await?;
        let mut progress = Self { placed: placed.into(), unpaid: unpaid.into(), ..Self::default() };
        for service in Service::ALL {
            let database = shop.database(service);
            let effects = sqlx::query_scalar::<_, i64>("SELECT coalesce(max(rowid), 0) FROM effects");
            progress.effects += effects.fetch_one(database.pool()).await?.unsigned_abs();
            let outbox = database.stats().await?;
            progress.in_outboxes += outbox.pending + outbox.retrying + outbox.parked;
            let dead_letters = database.dead_letter_stats().await?;
            progress.parked += dead_letters.parked;
            progress.moving += dead_letters.waiting + dead_letters.redriving;
        }
        Ok(progress)
    }

    /// Returns whether all orders are placed and paid and nothing is in flight.
    pub(super) fn has_drained(&self, story: Story) -> bool {
        let open = self.unpaid + self.in_outboxes + self.parked + self.moving;
        self.placed >= u64::from(story.orders) && open == 0
    }

    /// Returns whether every unpaid order waits for a redrive.
    pub(super) fn needs_repair(&self, story: Story) -> bool {
        let all_placed = self.placed >= u64::from(story.orders);
        all_placed && self.parked > 0 && self.unpaid == self.parked + self.moving
    }

    /// Returns the finished share of the work, from 0 to 1: each order is placed and then has three effects.
    pub(super) fn share(&self, story: Story) -> f64 {
        if self.has_drained(story) {
            return 1.0;
        }
        (self.placed + self.effects) as f64 / (4 * u64::from(story.orders)) as f64
    }

    /// Describes the open work, for the timeout error.
    pub(super) fn describe_stall(&self, story: Story) -> String {
        let Self { placed, unpaid, in_outboxes, parked, moving, .. } = self;
        format!(
            "{placed} of {} orders are placed and {unpaid} of them unpaid; {in_outboxes} messages are in an outbox, \
             {parked} dead letters are parked and {moving} are waiting or redriving",
            story.orders
        )
    }
}

/// Output on stderr: text lines, and on a terminal a progress bar below them.
#[derive(Debug)]
pub(crate) struct Screen {
    bar: ProgressBar,
}

impl Screen {
    /// Draws no bar if stderr is not a terminal.
    pub(crate) fn new(story: Story) -> Self {
        let bar = ProgressBar::new(3 * u64::from(story.orders));
        if let Ok(style) = ProgressStyle::with_template("  {wide_bar:.cyan/blue} {percent:>3} %  {msg}  {elapsed}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    pub(crate) fn print(&self, text: &str) {
        // A closed stderr does not stop the demo: the account is on stdout.
        self.bar.suspend(|| drop(writeln!(std::io::stderr(), "{text}")));
    }

    pub(super) fn show(&self, progress: &Progress, crashes: u64) {
        let Progress { placed, effects, parked, .. } = *progress;
        self.bar.set_position(effects);
        self.bar.set_message(format!(
            "{} placed · {} effects · {crashes} crashes · {parked} parked",
            HumanCount(placed),
            HumanCount(effects),
        ));
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORY: Story = Story { orders: 100, seed: 1 };

    #[test]
    fn drained_means_nothing_is_left() {
        let done = Progress { placed: 100, effects: 300, ..Progress::default() };
        assert!(done.has_drained(STORY));
        for rest in [
            Progress { placed: 99, ..done },
            Progress { unpaid: 1, ..done },
            Progress { in_outboxes: 1, ..done },
            Progress { parked: 1, ..done },
            Progress { moving: 1, ..done },
        ] {
            assert!(!rest.has_drained(STORY), "{rest:?}");
        }
    }

    #[test]
    fn repair_is_due_when_all_unpaid_orders_wait_for_it() {
        let stuck = Progress { placed: 100, unpaid: 5, parked: 2, moving: 3, ..Progress::default() };
        assert!(stuck.needs_repair(STORY));
        assert!(!Progress { unpaid: 6, ..stuck }.needs_repair(STORY), "one is still in flight");
        assert!(!Progress { placed: 99, ..stuck }.needs_repair(STORY));
        assert!(!Progress { unpaid: 3, parked: 0, ..stuck }.needs_repair(STORY));
    }
}

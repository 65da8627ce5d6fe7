//! Builds a relay and checks its options.

use std::sync::Arc;

use landfall_core::{CompetingQueue, Leases, OutboxQueue, Publisher, Result};

use super::{Options, Relay};

/// Collects the parts of a [`Relay`]. Made by [`Relay::builder`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use landfall::{CompetingQueue, Leases, OutboxQueue, Publisher};
/// use landfall::relay::{Options, Relay};
///
/// # fn example<D>(database: D, publisher: Arc<dyn Publisher>) -> landfall::Result<()>
/// # where D: OutboxQueue + CompetingQueue + Leases + 'static {
/// let options = Options { batch: 200, ..Options::default() };
/// let relay = Relay::builder(database, publisher).options(options).unordered().build()?;
/// # drop(relay);
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<D> {
    queue: Arc<D>,
    competing: Option<Arc<dyn CompetingQueue>>,
    leases: Arc<dyn Leases>,
    publisher: Arc<dyn Publisher>,
    options: Options,
}

impl<D: OutboxQueue + 'static> Builder<D> {
    pub(super) fn new(queue: Arc<D>, leases: Arc<dyn Leases>, publisher: Arc<dyn Publisher>) -> Self {
        Self { queue, competing: None, leases, publisher, options: Options::default() }
    }

    /// Replaces the default options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Gives up the order of keys: the relay competes with any number of others for due messages.
    ///
    /// It never holds keys, whatever [`Options::failed_holds_key`] says. While an ordered relay works on the same
    /// outbox, it waits.
    pub fn unordered(mut self) -> Self
    where
        D: CompetingQueue,
    {
        self.competing = Some(self.queue.clone());
        self
    }

    /// Checks the options and returns the relay. Connects to nothing.
    ///
    /// Fails with kind `Invalid` if an option is out of range.
    pub fn build(self) -> Result<Relay> {
        let Self { queue, competing, leases, publisher, mut options } = self;
        options.check()?;
        // Without order no message waits for a parked one.
        options.failed_holds_key &= competing.is_none();
        Ok(Relay { queue, competing, leases, publisher, options })
    }
}

impl<D> std::fmt::Debug for Builder<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

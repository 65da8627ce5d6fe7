//! Wake-ups: from a commit to the relay that waits for one, in this process and, through `LISTEN`/`NOTIFY`, in others.
//!
//! A wake-up is only a hint; the relay polls as well. So nothing here ever fails a caller, and `NOTIFY` is never sent
//! inside a writer's transaction, where it would take a lock around every commit: a background task sends it
//! afterwards, at most one at a time and never two within [`SPACING_FIRST`].
//!
//! Both tasks start when they are first needed, have connections of their own (an application's pool that is busy
//! delays no wake-up) and end with the last clone of the adapter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_core::TablePrefix;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::background::Background;

/// Between two notifications, at first, and at most while there is no pause between the commits: a relay that has found
/// something looks again within a few milliseconds anyway.
const SPACING_FIRST: Duration = Duration::from_millis(5);
const SPACING_CAP: Duration = Duration::from_millis(40);
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_CAP: Duration = Duration::from_secs(10);

pub(crate) struct Signals {
    shared: Arc<Shared>,
    listener: Background,
    notifier: Background,
}

/// What the tasks keep alive. They never hold [`Signals`] itself, whose end is theirs.
struct Shared {
    pool: PgPool,
    channel: String,
    /// Sent with every notification, so that this instance does not wake itself a second time.
    sender: String,
    arrived: Notify,
    leaving: Notify,
    /// Whether something was committed since the last notification.
    unannounced: AtomicBool,
    /// Whether others can be heard: a connection that is shared by the transaction hears nobody.
    hears: bool,
}

impl Signals {
    pub(crate) fn new(target: &PgConnectOptions, prefix: &TablePrefix, hears: bool) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(RECONNECT_CAP)
            .max_lifetime(None)
            .connect_lazy_with(target.clone());
        let shared = Shared {
            pool,
            channel: format!("{}outbox", prefix.bare()),
            sender: Uuid::now_v7().to_string(),
            arrived: Notify::new(),
            leaving: Notify::new(),
            unannounced: AtomicBool::new(false),
            hears,
        };
        Self { shared: Arc::new(shared), listener: Background::default(), notifier: Background::default() }
    }

    /// Something was committed here: tells the relay in this process now, and those in others soon.
    pub(crate) fn wake(&self) {
        self.shared.announce();
        if !self.shared.unannounced.swap(true, Ordering::AcqRel) {
            self.shared.leaving.notify_one();
        }
        self.notifier.ensure(|| notify(self.shared.clone()));
    }

    pub(crate) async fn wait(&self, at_most: Duration) {
        if self.shared.hears {
            self.listener.ensure(|| listen(self.shared.clone()));
        }
        // Running out of time is as good a reason to look as a wake-up.
        let _ = tokio::time::timeout(at_most, self.shared.arrived.notified()).await;
    }
}

impl Shared {
    /// Wakes everybody who waits, and whoever comes next: a relay between its last look and its wait must not miss it.
    fn announce(&self) {
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }
}

/// Sends what `wake` asked for. Wake-ups that arrive during the pause become one.
async fn notify(shared: Arc<Shared>) {
    let mut spacing = SPACING_FIRST;
    loop {
        shared.leaving.notified().await;
        shared.unannounced.store(false, Ordering::Release);
        if let Err(error) = send(&shared).await {
            tracing::debug!(channel = shared.channel, %error, "a wake-up was not sent");
        }
        tokio::time::sleep(spacing).await;
        let is_busy = shared.unannounced.load(Ordering::Acquire);
        spacing = if is_busy { (spacing * 2).min(SPACING_CAP) } else { SPACING_FIRST };
    }
}

/// Without waiting for the disk: `NOTIFY` takes a transaction id, so its commit would be one more sync among the
/// writers', for a hint that nobody misses after a crash.
async fn send(shared: &Shared) -> sqlx::Result<()> {
    let text = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    let notify = sqlx::query(text).persistent(shared.hears).bind(&shared.channel).bind(&shared.sender);
    if shared.hears {
        notify.execute(&shared.pool).await?;
        return Ok(());
    }
    // A pooler that shares connections by the transaction must see one.
    let mut transaction = shared.pool.begin().await?;
    notify.execute(&mut *transaction).await?;
    transaction.commit().await
}

async fn listen(shared: Arc<Shared>) {
    let mut pause = RECONNECT_FIRST;
    loop {
        if let Err(error) = hear(&shared, &mut pause).await {
            tracing::warn!(channel = shared.channel, %error, "wake-ups are not heard until the connection is back");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_CAP);
    }
}

/// Passes notifications on until the connection is lost.
async fn hear(shared: &Shared, pause: &mut Duration) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(&shared.pool).await?;
    listener.eager_reconnect(false);
    listener.listen(&shared.channel).await?;
    *pause = RECONNECT_FIRST;
    // What was committed before `LISTEN` took effect told nobody here.
    shared.announce();
    while let Some(notification) = listener.try_recv().await? {
        if notification.payload() != shared.sender {
            shared.announce();
        }
    }
    Ok(())
}

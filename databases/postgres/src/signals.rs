//! Wake-ups: a commit wakes relays in this process directly and relays in other processes through `LISTEN`/`NOTIFY`.
//!
//! A wake-up is a hint; the relay polls as well. So no call fails because of one. `NOTIFY` is never sent inside a
//! writer's transaction, where it would take a lock around every commit: a background task sends it afterwards, one at
//! a time and never two within [`SPACING_FIRST`].
//!
//! Both tasks start when they are first needed, and end with the last clone of the adapter. They use their own
//! connections, so that a busy application pool delays no wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_core::TablePrefix;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::background::Background;

/// Time between two notifications: initially, and at most during uninterrupted commits. A relay that has found messages
/// polls again within a few milliseconds anyway.
const SPACING_FIRST: Duration = Duration::from_millis(5);
const SPACING_CAP: Duration = Duration::from_millis(40);
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_CAP: Duration = Duration::from_secs(10);

pub(crate) struct Signals {
    shared: Arc<Shared>,
    listener: Background,
    notifier: Background,
}

/// State of the tasks. They never hold [`Signals`], whose drop ends them.
struct Shared {
    pool: PgPool,
    channel: String,
    /// Payload of every notification, so that this instance does not wake itself a second time.
    sender: String,
    arrived: Notify,
    pending: Notify,
    /// Whether there was a commit since the last notification.
    unannounced: AtomicBool,
    /// False behind a pooler in transaction mode, where `LISTEN` receives nothing.
    can_listen: bool,
}

impl Signals {
    pub(crate) fn new(target: &PgConnectOptions, prefix: &TablePrefix, can_listen: bool) -> Self {
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
            pending: Notify::new(),
            unannounced: AtomicBool::new(false),
            can_listen,
        };
        Self { shared: Arc::new(shared), listener: Background::default(), notifier: Background::default() }
    }

    /// After a commit: wakes relays of this process now, and those of others soon.
    pub(crate) fn wake(&self) {
        self.shared.announce();
        if !self.shared.unannounced.swap(true, Ordering::AcqRel) {
            self.shared.pending.notify_one();
        }
        self.notifier.ensure(|| notify(self.shared.clone()));
    }

    pub(crate) async fn wait(&self, at_most: Duration) {
        if self.shared.can_listen {
            self.listener.ensure(|| listen(self.shared.clone()));
        }
        // A timeout makes the relay poll, as a wake-up does.
        let _ = tokio::time::timeout(at_most, self.shared.arrived.notified()).await;
    }
}

impl Shared {
    /// Wakes every waiting relay and the next one to wait: a relay between its last poll and its wait must not miss it.
    fn announce(&self) {
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }
}

/// Sends notifications. Wake-ups during the pause after one are combined.
async fn notify(shared: Arc<Shared>) {
    let mut spacing = SPACING_FIRST;
    loop {
        shared.pending.notified().await;
        shared.unannounced.store(false, Ordering::Release);
        if let Err(error) = send(&shared).await {
            tracing::debug!(channel = shared.channel, %error, "wake-up not sent");
        }
        tokio::time::sleep(spacing).await;
        let is_busy = shared.unannounced.load(Ordering::Acquire);
        spacing = if is_busy { (spacing * 2).min(SPACING_CAP) } else { SPACING_FIRST };
    }
}

/// Sends one notification without waiting for the disk. `NOTIFY` takes a transaction id, so its commit would add a sync
/// to those of the writers. After a crash the hint is worthless.
async fn send(shared: &Shared) -> sqlx::Result<()> {
    let text = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    let notify = sqlx::query(text).persistent(shared.can_listen).bind(&shared.channel).bind(&shared.sender);
    if shared.can_listen {
        notify.execute(&shared.pool).await?;
        return Ok(());
    }
    // A pooler in transaction mode needs a transaction.
    let mut transaction = shared.pool.begin().await?;
    notify.execute(&mut *transaction).await?;
    transaction.commit().await
}

async fn listen(shared: Arc<Shared>) {
    let mut pause = RECONNECT_FIRST;
    loop {
        if let Err(error) = receive(&shared, &mut pause).await {
            tracing::warn!(channel = shared.channel, %error, "lost the connection for wake-ups, reconnecting");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_CAP);
    }
}

/// Wakes relays for every notification until the connection is lost.
async fn receive(shared: &Shared, pause: &mut Duration) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(&shared.pool).await?;
    listener.eager_reconnect(false);
    listener.listen(&shared.channel).await?;
    *pause = RECONNECT_FIRST;
    // Commits before `LISTEN` took effect have not been announced here.
    shared.announce();
    while let Some(notification) = listener.try_recv().await? {
        if notification.payload() != shared.sender {
            shared.announce();
        }
    }
    Ok(())
}

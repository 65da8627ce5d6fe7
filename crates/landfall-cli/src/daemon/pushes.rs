//! The subscriptions, beside the relay: one task for each.

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::push::Delivery;
use crate::stores::Database;
use crate::stores::broker::Outlet;

pub(super) struct Pushes {
    running: Vec<BoxFuture<'static, landfall::Result<()>>>,
    stop: CancellationToken,
}

impl Pushes {
    pub(super) fn new(
        database: &Database,
        broker: &dyn Outlet,
        deliveries: Vec<Delivery>,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let begin = |delivery| database.push(broker.broker(), delivery, stop.clone());
        let running = deliveries.into_iter().map(begin).collect();
        Self { running, stop }
    }

    /// Works until it is told to stop, or until one of them meets something that no waiting mends; then all of them end.
    pub(super) async fn run(self) -> Result<()> {
        let mut tasks: JoinSet<_> = self.running.into_iter().collect();
        let mut result = Ok(());
        while let Some(ended) = tasks.join_next().await {
            let ended = match ended {
                Ok(ended) => ended.map_err(Error::from),
                Err(error) => Err(Error::not_so(format!("a subscription broke down: {error}"))),
            };
            if ended.is_err() && result.is_ok() {
                result = ended;
                self.stop.cancel();
            }
        }
        if result.is_ok() {
            self.stop.cancelled().await;
        }
        result
    }
}

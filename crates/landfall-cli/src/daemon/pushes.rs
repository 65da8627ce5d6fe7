//! Runs the subscriptions next to the relay: one task each.

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::push::Delivery;
use crate::stores::Database;
use crate::stores::broker::OpenBroker;

pub(super) struct Pushes {
    running: Vec<BoxFuture<'static, landfall::Result<()>>>,
    stop: CancellationToken,
}

impl Pushes {
    pub(super) fn new(
        database: &Database,
        broker: &dyn OpenBroker,
        deliveries: Vec<Delivery>,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let begin = |delivery| database.push(broker.broker(), delivery, stop.clone());
        let running = deliveries.into_iter().map(begin).collect();
        Self { running, stop }
    }

    /// Runs until `stop`. If one subscription fails permanently, all of them stop and the error is returned.
    pub(super) async fn run(self) -> Result<()> {
        let mut tasks: JoinSet<_> = self.running.into_iter().collect();
        let mut result = Ok(());
        while let Some(ended) = tasks.join_next().await {
            let ended = match ended {
                Ok(ended) => ended.map_err(Error::from),
                Err(error) => Err(Error::failed(format!("a subscription task panicked: {error}"))),
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

//! A consumer in small.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use landfall_core::{Delivery, Subscriber};
use tokio::sync::Notify;

use super::account::Account;

/// So many acknowledgements may be under way while it goes on.
const IN_HAND: usize = 16;

pub(super) struct Consumer {
    subscriber: Box<dyn Subscriber>,
    account: Arc<Account>,
    told: Arc<Notify>,
}

impl Consumer {
    pub(super) fn new(subscriber: Box<dyn Subscriber>, account: Arc<Account>) -> Self {
        Self { subscriber, account, told: Arc::default() }
    }

    /// Told to leave with this.
    pub(super) fn told(&self) -> Arc<Notify> {
        self.told.clone()
    }

    pub(super) async fn run(self) {
        let account = self.account.clone();
        if let Err(why) = self.consume().await {
            account.breaks(why);
        }
    }

    /// A subscriber comes back by itself, whatever happens to its broker: an error is one too many.
    async fn consume(self) -> Result<(), String> {
        let Self { mut subscriber, account, told } = self;
        let mut finishing = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = told.notified() => break,
                Some(finished) = finishing.next() => {
                    // It comes again then, and the inbox knows it.
                    let _: landfall_core::Result<()> = finished;
                }
                next = subscriber.next(), if finishing.len() < IN_HAND => {
                    let delivery = next.map_err(|error| format!("a subscriber gave up: {error}"))?;
                    let Some(delivery) = delivery else { return Err("a subscriber came to its end".into()) };
                    finishing.push(handle(delivery, &account)?);
                }
            }
        }
        while finishing.next().await.is_some() {}
        subscriber.close().await.map_err(|error| format!("a consumer cannot leave: {error}"))
    }
}

/// The effect first, and then its acknowledgement.
fn handle(
    delivery: Delivery,
    account: &Account,
) -> Result<impl Future<Output = landfall_core::Result<()>> + Send + use<>, String> {
    let (message, _, acknowledge) = delivery.into_parts();
    let message = message.map_err(|error| format!("what arrived is no message: {error}"))?;
    account.handles(&message);
    Ok(async move { acknowledge.ack().await })
}

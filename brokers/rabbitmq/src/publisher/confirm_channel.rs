//! A channel with publisher confirms, used by one batch at a time.
//!
//! One at a time because of returned messages: the client attaches a returned message to the next confirm, not to its
//! own. Once all confirms of a batch have arrived, so have its returned messages, which are identified by their ids.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::{Position, Result};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Connection, PublisherConfirm};
use tokio::time::Instant;

use crate::error;
use crate::link::Link;
use crate::publisher::confirm::{Started, start};
use crate::subscriber::warm_up::Proven;

/// How often to check whether the server has raised an alarm.
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct ConfirmChannel {
    pub(crate) connection: Arc<Connection>,
    channel: Channel,
    pub(crate) proven: Proven,
    /// A queue refused the first message that this channel sent it. After the death of its leader, such a queue was
    /// seen to refuse this channel for ever and to accept a new one. The channel seems to keep using the dead server.
    pub(crate) is_stale: bool,
    sent: u64,
}

/// One message, ready to be published.
pub(crate) struct Publication<'a> {
    pub(crate) exchange: ShortString,
    pub(crate) slot: u32,
    pub(crate) id: String,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: &'a [u8],
}

/// The server's response to one message.
#[derive(Debug)]
pub(crate) enum Confirmed {
    Accepted(Position),
    /// No queue is bound for it.
    Returned,
    Nacked,
    /// The channel or the connection ended before the confirm.
    Failed(lapin::Error),
    NotSent(lapin::Error),
    /// No confirm arrived, with the reason why the wait ended.
    TimedOut(&'static str),
}

impl ConfirmChannel {
    pub(crate) async fn open(link: &Link) -> Result<Self> {
        let connection = link.connection().await?;
        let channel = link.channel().await?;
        let confirming = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirming.map_err(|error| error::error("RabbitMQ does not confirm", error))?;
        Ok(Self { connection, channel, proven: Proven::default(), is_stale: false, sent: 0 })
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.channel.status().connected() && self.connection.status().connected()
    }

    /// Publishes `batch` in this order and waits for the confirms until `deadline`.
    pub(crate) async fn send(&mut self, batch: Vec<Publication<'_>>, deadline: Instant) -> Vec<Confirmed> {
        let (mut ids, mut waiting) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for Publication { exchange, slot, id, properties, payload } in batch {
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let slot = ShortString::from(slot.to_string());
            let publish = self.channel.basic_publish(exchange, slot, options, payload, properties);
            waiting.push(match start(publish).await {
                Started::Answered(Err(error)) => Waiting::Settled(Confirmed::NotSent(error)),
                Started::Answered(Ok(confirm)) => Waiting::Confirm(Box::pin(confirmed(async { Ok(confirm) }))),
                Started::Waiting(publish) => Waiting::Confirm(Box::pin(confirmed(publish))),
            });
            ids.push(id);
        }
        let timed_out = self.wait(&mut waiting, deadline).await;
        let mut returned: HashMap<String, usize> = HashMap::new();
        let mut confirmed = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            self.sent += 1;
            let confirm = match waiting {
                Waiting::Settled(settled) => Err(settled),
                Waiting::Confirmed(confirm) => confirm.map_err(Confirmed::Failed),
                // It may have arrived since the wait ended, perhaps with a returned message of another.
                Waiting::Confirm(confirm) => match confirm.now_or_never() {
                    Some(confirm) => confirm.map_err(Confirmed::Failed),
                    None => Err(Confirmed::TimedOut(timed_out.unwrap_or("it was not waited for"))),
                },
            };
            confirmed.push(match confirm {
                Ok(Confirm { is_accepted, returned: of }) => {
                    of.into_iter().for_each(|id| *returned.entry(id).or_default() += 1);
                    let position = Position { partition: 0, offset: self.sent };
                    if is_accepted { Confirmed::Accepted(position) } else { Confirmed::Nacked }
                }
                Err(settled) => settled,
            });
        }
        for (id, confirmed) in ids.iter().zip(&mut confirmed) {
            if let Some(times) = returned.get_mut(id).filter(|times| **times > 0) {
                *times -= 1;
                *confirmed = Confirmed::Returned;
            }
        }
        confirmed
    }

    /// Waits for every confirm. Returns why it stopped before: the deadline passed, or the server raised an alarm.
    async fn wait(&self, waiting: &mut [Waiting<'_>], deadline: Instant) -> Option<&'static str> {
        let all = async {
            for one in waiting {
                if let Waiting::Confirm(confirm) = one {
                    *one = Waiting::Confirmed(confirm.await);
                }
            }
        };
        tokio::pin!(all);
        loop {
            tokio::select! {
                biased;
                () = &mut all => return None,
                () = tokio::time::sleep_until(deadline.min(Instant::now() + TICK)) => {}
            }
            if self.connection.status().blocked() {
                return Some(error::ALARM);
            }
            if Instant::now() >= deadline {
                return Some("RabbitMQ did not confirm in time");
            }
        }
    }
}

/// A confirm, and the id of the returned message that came with it, which may be that of another message.
struct Confirm {
    is_accepted: bool,
    returned: Option<String>,
}

type Confirming<'a> = std::pin::Pin<Box<dyn Future<Output = lapin::Result<Confirm>> + Send + 'a>>;

enum Waiting<'a> {
    Settled(Confirmed),
    Confirm(Confirming<'a>),
    Confirmed(lapin::Result<Confirm>),
}

async fn confirmed(publish: impl Future<Output = lapin::Result<PublisherConfirm>>) -> lapin::Result<Confirm> {
    let confirmation = publish.await?.await?;
    let is_accepted = confirmation.is_ack();
    let returned = confirmation.take_message().map(|message| {
        let id = message.delivery.properties.message_id().as_ref().map(ToString::to_string);
        id.unwrap_or_default()
    });
    Ok(Confirm { is_accepted, returned })
}

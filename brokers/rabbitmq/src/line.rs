//! A channel that confirms, used by one batch at a time.
//!
//! One at a time because of returned messages: the client hands a returned message over with whichever confirm comes
//! next, not with the message's own. Once all confirms of a batch are there, so are all of its returned messages, and
//! they are told apart by their ids.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::{Position, Result};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Connection, PublisherConfirm};
use tokio::time::Instant;

use crate::confirm::{Started, start};
use crate::error;
use crate::link::Link;
use crate::rounds::Proven;

/// How often it is looked whether the server has stopped taking messages.
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Line {
    pub(crate) connection: Arc<Connection>,
    channel: Channel,
    pub(crate) proven: Proven,
    /// A queue turned down the first message that this channel sent it. Where its leader has just died that was
    /// seen to be for good, as if the channel went on asking the server that is gone. Another channel asks anew.
    pub(crate) is_stale: bool,
    sent: u64,
}

/// One message, ready to be sent.
pub(crate) struct Parcel<'a> {
    pub(crate) exchange: ShortString,
    pub(crate) slot: u32,
    pub(crate) id: String,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: &'a [u8],
}

/// What became of one message on this channel.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(Position),
    /// No queue is bound for it.
    Returned,
    Nacked,
    /// The channel or the connection ended before there was an answer.
    Failed(lapin::Error),
    /// It never left.
    NotSent(lapin::Error),
    /// Nothing was heard of it; why nobody waits any longer.
    Silence(&'static str),
}

impl Line {
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

    /// Sends `parcels` in this order, waits for their confirms until `deadline`, and answers for each.
    pub(crate) async fn send(&mut self, parcels: Vec<Parcel<'_>>, deadline: Instant) -> Vec<Answer> {
        let (mut ids, mut waiting) = (Vec::with_capacity(parcels.len()), Vec::with_capacity(parcels.len()));
        for Parcel { exchange, slot, id, properties, payload } in parcels {
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let slot = ShortString::from(slot.to_string());
            let publish = self.channel.basic_publish(exchange, slot, options, payload, properties);
            waiting.push(match start(publish).await {
                Started::Answered(Err(error)) => Waiting::Settled(Answer::NotSent(error)),
                Started::Answered(Ok(confirm)) => Waiting::Confirm(Box::pin(confirmed(async { Ok(confirm) }))),
                Started::Waiting(publish) => Waiting::Confirm(Box::pin(confirmed(publish))),
            });
            ids.push(id);
        }
        let silence = self.wait(&mut waiting, deadline).await;
        let mut returned: HashMap<String, usize> = HashMap::new();
        let mut answers = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            self.sent += 1;
            let said = match waiting {
                Waiting::Settled(answer) => Err(answer),
                Waiting::Confirmed(said) => said.map_err(Answer::Failed),
                // It may have come while nobody looked, and may carry what was returned of another.
                Waiting::Confirm(confirm) => match confirm.now_or_never() {
                    Some(said) => said.map_err(Answer::Failed),
                    None => Err(Answer::Silence(silence.unwrap_or("it was not waited for"))),
                },
            };
            answers.push(match said {
                Ok(Said { is_accepted, returned: of }) => {
                    of.into_iter().for_each(|id| *returned.entry(id).or_default() += 1);
                    let position = Position { partition: 0, offset: self.sent };
                    if is_accepted { Answer::Accepted(position) } else { Answer::Nacked }
                }
                Err(answer) => answer,
            });
        }
        for (id, answer) in ids.iter().zip(&mut answers) {
            if let Some(times) = returned.get_mut(id).filter(|times| **times > 0) {
                *times -= 1;
                *answer = Answer::Returned;
            }
        }
        answers
    }

    /// Waits for every confirm, unless it takes too long or the server says that it takes nothing; then why.
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

/// A confirm, and the id of the returned message that came with it, which may be another's.
struct Said {
    is_accepted: bool,
    returned: Option<String>,
}

type Confirming<'a> = std::pin::Pin<Box<dyn Future<Output = lapin::Result<Said>> + Send + 'a>>;

enum Waiting<'a> {
    Settled(Answer),
    Confirm(Confirming<'a>),
    Confirmed(lapin::Result<Said>),
}

async fn confirmed(publish: impl Future<Output = lapin::Result<PublisherConfirm>>) -> lapin::Result<Said> {
    let confirmation = publish.await?.await?;
    let is_accepted = confirmation.is_ack();
    let returned = confirmation.take_message().map(|message| {
        let id = message.delivery.properties.message_id().as_ref().map(ToString::to_string);
        id.unwrap_or_default()
    });
    Ok(Said { is_accepted, returned })
}

//! One message by itself, as often as it takes.

use std::time::{Duration, Instant};

use landfall_core::{Arrival, Delivery, Error, ErrorCode, Failure, Inbox, Message, MessageId, Position, Verdict};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, Trial, pause_unless_stopped};
use super::batch::Apart;
use super::early::Place;
use super::gate::Early;
use super::retry_lane::Route;
use super::tally::Tally;
use super::work::{Stumble, Work};

/// How the way of a message that is alone ended.
pub(super) enum End {
    /// To be acknowledged. The word is for the metrics.
    Settled(&'static str),
    /// To be delivered again after this time.
    Refused(Duration),
    /// It came too early, as only turned out now, and its lane has to go on without it.
    Early(Failure),
    /// Another group is to handle it: to be acknowledged, and nothing has happened.
    NotOurs,
}

/// How far a message has come when it begins to be alone.
pub(super) struct Way {
    pub(super) tally: Tally,
    /// How its last try ended, if that is yet to be judged.
    pub(super) failed: Option<Failure>,
    /// Whether others are behind it in a lane, which would wait for it.
    pub(super) has_lane: bool,
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Tries one message until it has taken effect, is known to have, is parked, or is in its lane; then acknowledges it.
    /// Returns early, giving the delivery back, when `stop` is cancelled; and hands it back if it turns out to wait for
    /// predecessors, which may be behind it in its lane.
    pub(super) async fn settle_apart(&self, apart: Apart, stop: &CancellationToken) -> Option<Apart> {
        let (message, position, acknowledge) = apart.delivery.into_parts();
        let settled = match &message {
            Ok(message) => {
                let has_lane = apart.failed.as_ref().is_none_or(|failure| self.early(failure).is_none());
                let way = Way { tally: Tally::default(), failed: apart.failed, has_lane };
                self.settle_message(Arrival { message, origin: Some(position) }, way, stop).await
            }
            Err(error) => self.settle_unreadable(error, position, stop).await,
        };
        if let Some(End::Early(failure)) = settled {
            return Some(Apart { delivery: Delivery::new(message, position, acknowledge), failed: Some(failure) });
        }
        self.conclude(acknowledge, settled).await;
        None
    }

    pub(super) async fn settle_message(&self, arrival: Arrival<'_>, way: Way, stop: &CancellationToken) -> Option<End> {
        let Way { mut tally, mut failed, has_lane } = way;
        let (message, arrived, mut trouble) = (arrival.message, Instant::now(), 0);
        let mut place: Option<Place<'_>> = None;
        loop {
            if let Some(failure) = failed.take() {
                trouble = 0;
                let early = self.early(&failure);
                let pause = match early {
                    Some(Early::Refuse(delay)) => return Some(End::Refused(delay)),
                    Some(Early::Park) => None,
                    Some(Early::Wait(at_most)) => {
                        let left = at_most.saturating_sub(arrived.elapsed());
                        tally.pause_after(&failure, self.backoff).map(|p| p.min(left)).filter(|_| !left.is_zero())
                    }
                    None => tally.pause_after(&failure, self.backoff),
                };
                let attempts = tally.failures.max(1);
                let Some(pause) = pause else {
                    return self.park(arrival, attempts, &failure, None, stop).await.map(End::Settled);
                };
                match self.route(message, &failure, pause) {
                    Route::Database => {
                        return self.park(arrival, attempts, &failure, Some(pause), stop).await.map(End::Settled);
                    }
                    Route::Topic(lane) if lane.take(arrival, &self.group, attempts, &failure, pause).await => {
                        tracing::warn!(message_id = %message.id, %failure, attempts, ?pause, "moved to the retry lane");
                        return Some(End::Settled("delayed"));
                    }
                    Route::Here | Route::Topic(_) => {}
                }
                let goes_on = match (early, &place) {
                    // What it waits for may have come between its try and now, so it looks once more.
                    (Some(_), None) => {
                        place = Some(self.waiting.enter(message));
                        true
                    }
                    (Some(_), Some(place)) => place.called(pause, stop).await,
                    (None, _) => {
                        let message_id = message.id;
                        tracing::warn!(%message_id, %failure, attempts, ?pause, "handler failed; trying again");
                        pause_unless_stopped(pause, stop).await
                    }
                };
                if !goes_on {
                    return None;
                }
            }
            let permit = self.running.acquire().await.ok()?;
            let trial = self.transact(&[arrival], tally.tries + 1).await;
            drop(permit);
            match trial {
                Trial::Settled(outcomes) => return outcomes.first().copied().map(End::Settled),
                Trial::Failed(Stumble { failure, .. }) if has_lane && self.early(&failure).is_some() => {
                    return Some(End::Early(failure));
                }
                Trial::Failed(stumble) => failed = Some(stumble.failure),
                Trial::Unreachable(error) | Trial::Trouble(error) => {
                    trouble += 1;
                    if !pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await {
                        return None;
                    }
                }
            }
        }
    }

    /// What is to happen to a message that failed because it came too early.
    pub(super) fn early(&self, failure: &Failure) -> Option<Early> {
        let is_early = failure.code == ErrorCode::OUT_OF_ORDER && failure.verdict == Verdict::Wait;
        self.gate.as_deref().filter(|_| is_early)?.early()
    }

    /// What stands in the broker cannot be a message: a dead letter says where it stands. Its id is made from the
    /// place, so that a redelivery finds it again.
    pub(super) async fn settle_unreadable(
        &self,
        error: &Error,
        position: Position,
        stop: &CancellationToken,
    ) -> Option<End> {
        let id = MessageId::from_position(&self.topic, position);
        let message = Message::new(self.topic.clone(), "").with_id(id);
        let arrival = Arrival { message: &message, origin: Some(position) };
        self.park(arrival, 1, &Failure::park(ErrorCode::VALIDATION, error), None, stop).await.map(End::Settled)
    }
}

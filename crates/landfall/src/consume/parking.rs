//! Out of the way and into a safe place: a dead letter, or one that is delayed until it is due.

use std::time::Duration;

use landfall_core::{Admission, Arrival, ErrorCode, ErrorKind, Failure, Hold, Inbox, Parking, Result};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, pause_unless_stopped};
use super::letter_topic::letter;
use super::options::Order;
use super::work::Work;
use crate::patience::Patience;

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Makes it a dead letter, or with a time in `again` one that is tried again after it. For as long as that takes: a
    /// message is not let go before it is in a safe place.
    pub(super) async fn park(
        &self,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
        again: Option<Duration>,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let mut trouble = 0;
        loop {
            let permit = self.running.acquire().await.ok()?;
            let parked = self.try_park(arrival, attempts, failure, again).await;
            drop(permit);
            match parked {
                Ok(outcome) => {
                    let message_id = arrival.message.id;
                    match again {
                        None => tracing::error!(%message_id, %failure, attempts, "parked; its key waits behind it"),
                        Some(pause) => tracing::warn!(%message_id, %failure, attempts, ?pause, "delayed"),
                    }
                    return Some(outcome);
                }
                Err(error) => {
                    trouble += 1;
                    if !pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await {
                        return None;
                    }
                }
            }
        }
    }

    async fn try_park(
        &self,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
        again: Option<Duration>,
    ) -> Result<&'static str> {
        let mut transaction = self.database.begin().await?;
        let admission = self.admit(&mut transaction, &[arrival]).await?.first().copied();
        match admission.unwrap_or(Admission::Fresh) {
            Admission::Duplicate => self.database.flush(transaction).await.map(|()| "duplicate"),
            Admission::Held => self.database.commit_seen(transaction).await.map(|()| "held"),
            Admission::Fresh => {
                let parking = Parking { attempts, failure, hold: self.hold(failure), again };
                self.write_letter(&mut transaction, arrival, parking).await?;
                fail::fail_point!("consume.before-park");
                self.database.commit(transaction).await?;
                if again.is_some() {
                    return Ok("delayed");
                }
                self.wake_for_letters();
                metrics::counter!("landfall_dlq_in_total").increment(1);
                Ok("parked")
            }
        }
    }

    /// Into the table, and unless it is only delayed to the topic of letters in the same transaction.
    pub(super) async fn write_letter(
        &self,
        connection: &mut D::Connection,
        arrival: Arrival<'_>,
        parking: Parking<'_>,
    ) -> Result<()> {
        let Arrival { message, origin } = arrival;
        Patience::USUAL.with(self.database.park(connection, &self.group, message, origin, parking)).await?;
        if parking.again.is_none() {
            self.send_letter(connection, arrival, parking.attempts, parking.failure).await?;
        }
        Ok(())
    }

    /// To the topic of letters, where there is one.
    pub(super) async fn send_letter(
        &self,
        connection: &mut D::Connection,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
    ) -> Result<()> {
        let Some(letters) = &self.letters else { return Ok(()) };
        let letter = letter(arrival, letters.topic().clone(), &self.group, attempts, failure);
        match Patience::USUAL.with(letters.send(&self.database, connection, letter)).await {
            // Larger than this database lets through, as what came from elsewhere may be. Nothing was written; and that it
            // cannot be told must not keep it from the table.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                tracing::error!(message_id = %arrival.message.id, %error, "a dead letter is in the table only");
                Ok(())
            }
            sent => sent,
        }
    }

    pub(super) fn wake_for_letters(&self) {
        if let Some(letters) = &self.letters {
            letters.wake(&self.database);
        }
    }

    /// A message that came too early must not keep away what it is missing, and one that is too old keeps nobody.
    pub(super) fn hold(&self, failure: &Failure) -> Hold {
        let is_too_old = self.gate.is_some() && failure.code == ErrorCode::VERSION_CONFLICT;
        let is_out_of_turn = is_too_old || failure.code == ErrorCode::OUT_OF_ORDER;
        let waits_for_nobody = self.order == Order::Unordered || is_out_of_turn;
        if waits_for_nobody { Hold::Nothing } else { Hold::Key }
    }
}

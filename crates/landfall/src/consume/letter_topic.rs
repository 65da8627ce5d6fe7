//! Dead letters as messages: what is parked also goes to `<topic>.dlq`, for whoever watches topics and not tables (D1).
//!
//! It goes through the outbox of the transaction that parks it: there is one of them if and only if there is a letter.
//! It is the same message under the same id, with what went wrong in its headers. The table remains where it is
//! redriven from; what is parked again after a redrive is sent again, with what went wrong this time.

use futures_util::future::BoxFuture;
use landfall_core::{
    Arrival, Database, Failure, GroupName, Message, OutboxWriter, Result, SystemHeader, Timestamp, TopicName,
};

/// A topic for dead letters on a database with an outbox, as an object: only who asks for it needs one.
pub(super) trait Letters<D: Database>: Send + Sync {
    fn send<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        letter: Message,
    ) -> BoxFuture<'a, Result<()>>;

    fn wake(&self, database: &D);

    fn topic(&self) -> &TopicName;
}

pub(super) struct LetterTopic(pub(super) TopicName);

impl<D: OutboxWriter> Letters<D> for LetterTopic {
    fn send<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        letter: Message,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { database.enqueue(connection, &[letter]).await })
    }

    fn wake(&self, database: &D) {
        database.wake();
    }

    fn topic(&self) -> &TopicName {
        &self.0
    }
}

/// The message as it goes to `topic`, with all that is known of its failure in `group`.
pub(super) fn letter(
    arrival: Arrival<'_>,
    topic: TopicName,
    group: &GroupName,
    attempts: u32,
    failure: &Failure,
) -> Message {
    let Arrival { message, origin } = arrival;
    let mut letter = Message { topic, ..message.clone() };
    let mut note = |header, value: &dyn std::fmt::Display| letter.headers.note(header, value);
    note(SystemHeader::Attempts, &attempts);
    note(SystemHeader::Group, group);
    note(SystemHeader::OriginalTopic, &message.topic);
    if let Some(position) = origin {
        note(SystemHeader::OriginalPartition, &position.partition);
        note(SystemHeader::OriginalOffset, &position.offset);
    }
    note(SystemHeader::ErrorCode, &failure.code);
    note(SystemHeader::Error, &failure.error);
    note(SystemHeader::FailedAt, &Timestamp::now());
    letter
}

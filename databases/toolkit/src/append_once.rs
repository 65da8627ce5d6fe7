use landfall_core::{Appended, Fingerprint, Message, MessageId, OutboxWriter, Result};

/// The table of ids that were enqueued, in the caller's transaction.
pub trait EnqueuedIds: OutboxWriter {
    /// Inserts an id and returns whether it was missing. Waits for a transaction that is inserting the same id.
    fn insert_enqueued_id(
        &self,
        connection: &mut Self::Connection,
        id: MessageId,
        fingerprint: &Fingerprint,
    ) -> impl Future<Output = Result<bool>> + Send;

    fn enqueued_fingerprint(
        &self,
        connection: &mut Self::Connection,
        id: MessageId,
    ) -> impl Future<Output = Result<Option<Vec<u8>>>> + Send;
}

/// Implements [`IdempotentAppend::append_once`](landfall_core::IdempotentAppend::append_once).
pub async fn append_once<D: EnqueuedIds>(
    database: &D,
    message: &Message,
    fingerprint: &Fingerprint,
) -> Result<Appended> {
    loop {
        let mut transaction = database.begin().await?;
        if database.insert_enqueued_id(&mut transaction, message.id, fingerprint).await? {
            database.enqueue_and_commit(transaction, std::slice::from_ref(message)).await?;
            database.wake();
            return Ok(Appended::Fresh);
        }
        let known = database.enqueued_fingerprint(&mut transaction, message.id).await?;
        database.flush(transaction).await?;
        match known {
            Some(known) if known == fingerprint => return Ok(Appended::Repeated),
            Some(_) => return Ok(Appended::Conflict),
            // It expired between the two statements.
            None => {}
        }
    }
}

use std::collections::BTreeMap;

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

    /// Inserts ids in the given order and returns for each whether it was missing. The ids are distinct and sorted, so
    /// that concurrent calls wait for each other and do not deadlock.
    fn insert_enqueued_ids(
        &self,
        connection: &mut Self::Connection,
        ids: &[(MessageId, &Fingerprint)],
    ) -> impl Future<Output = Result<Vec<bool>>> + Send {
        async move {
            let mut inserted = Vec::with_capacity(ids.len());
            for (id, fingerprint) in ids {
                inserted.push(self.insert_enqueued_id(connection, *id, fingerprint).await?);
            }
            Ok(inserted)
        }
    }

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

/// Implements [`IdempotentAppend::append_batch_once`](landfall_core::IdempotentAppend::append_batch_once).
pub async fn append_batch_once<D: EnqueuedIds>(
    database: &D,
    sends: &[(Message, Option<Fingerprint>)],
) -> Result<Vec<Appended>> {
    loop {
        let mut transaction = database.begin().await?;
        let Some(known) = known_ids(database, &mut transaction, sends).await? else {
            // An id expired between two statements.
            database.flush(transaction).await?;
            continue;
        };
        let appended: Vec<Appended> =
            sends.iter().enumerate().map(|(at, (message, print))| outcome(&known, at, message.id, print)).collect();
        let fresh: Vec<Message> = sends
            .iter()
            .zip(&appended)
            .filter(|(_, appended)| **appended == Appended::Fresh)
            .map(|((message, _), _)| message.clone())
            .collect();
        if fresh.is_empty() {
            database.flush(transaction).await?;
        } else {
            database.enqueue_and_commit(transaction, &fresh).await?;
            database.wake();
        }
        return Ok(appended);
    }
}

/// An id of a batch.
struct KnownId {
    /// The first message of the batch under this id.
    first: usize,
    /// Whether the id was missing, and the first message is to be enqueued.
    is_fresh: bool,
    /// The fingerprint that counts.
    fingerprint: Vec<u8>,
}

/// Inserts the ids of a batch and looks up those that are there already. Returns `None` if one has gone meanwhile.
async fn known_ids<D: EnqueuedIds>(
    database: &D,
    connection: &mut D::Connection,
    sends: &[(Message, Option<Fingerprint>)],
) -> Result<Option<BTreeMap<MessageId, KnownId>>> {
    let mut firsts: BTreeMap<MessageId, (usize, &Fingerprint)> = BTreeMap::new();
    for (at, (message, fingerprint)) in sends.iter().enumerate() {
        if let Some(fingerprint) = fingerprint {
            firsts.entry(message.id).or_insert((at, fingerprint));
        }
    }
    let ids: Vec<(MessageId, &Fingerprint)> = firsts.iter().map(|(id, (_, fingerprint))| (*id, *fingerprint)).collect();
    let inserted = match ids.is_empty() {
        true => Vec::new(),
        false => database.insert_enqueued_ids(connection, &ids).await?,
    };
    // All inserts come before the first read, whose snapshot then has what they waited for.
    let mut known = BTreeMap::new();
    for ((id, (first, fingerprint)), is_fresh) in firsts.into_iter().zip(inserted) {
        let fingerprint = match is_fresh {
            true => fingerprint.to_vec(),
            false => match database.enqueued_fingerprint(connection, id).await? {
                Some(fingerprint) => fingerprint,
                None => return Ok(None),
            },
        };
        known.insert(id, KnownId { first, is_fresh, fingerprint });
    }
    Ok(Some(known))
}

fn outcome(
    known: &BTreeMap<MessageId, KnownId>,
    at: usize,
    id: MessageId,
    fingerprint: &Option<Fingerprint>,
) -> Appended {
    let (Some(fingerprint), Some(known)) = (fingerprint, known.get(&id)) else { return Appended::Fresh };
    match known {
        known if known.is_fresh && known.first == at => Appended::Fresh,
        known if known.fingerprint == fingerprint => Appended::Repeated,
        _ => Appended::Conflict,
    }
}

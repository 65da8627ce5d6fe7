//! Group commit for `POST /v1/messages`: concurrent requests share a transaction and its sync.
//!
//! One task commits. While a commit is in flight, further messages queue, and form the next batch. So a lone request
//! waits for nothing, and the batch grows with the load. Each request is answered after the commit of its message.
//!
//! A batch that fails is repeated one by one: a message that the database refuses fails alone. The exception is a
//! commit whose outcome is unknown, because a repetition could enqueue a message twice.

use std::sync::Arc;

use landfall::{Appended, Error, ErrorKind, Fingerprint, IdempotentAppend, Message, OutboxQueue, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Messages of one transaction.
const BATCH: usize = 256;
/// Payload bytes of one transaction, except for a single message.
const BATCH_BYTES: usize = 4 << 20;
/// Messages that wait for the next transaction. Further requests wait until there is room.
const QUEUED: usize = 1024;

/// Commits messages in batches. The task ends when this is dropped and the queue is empty.
pub(crate) struct GroupCommit {
    queue: mpsc::Sender<Pending>,
}

/// A message that waits for its commit.
struct Pending {
    message: Message,
    /// Set if the sender chose the id, and may send the message again.
    fingerprint: Option<Fingerprint>,
    /// Dropped by a client that disconnects, which changes nothing for the message.
    done: oneshot::Sender<Result<Appended>>,
}

impl GroupCommit {
    pub(crate) fn spawn(outbox: Arc<dyn OutboxQueue>, sends: Arc<dyn IdempotentAppend>) -> Self {
        let (queue, pending) = mpsc::channel(QUEUED);
        tokio::spawn(run(Arc::new(Database { outbox, sends }), pending));
        Self { queue }
    }

    /// Commits the message and returns what became of it.
    ///
    /// Cancellation-safe: if dropped, the message is committed as if the caller still waited, or was never queued.
    pub(crate) async fn append(&self, message: Message, fingerprint: Option<Fingerprint>) -> Result<Appended> {
        let (done, answer) = oneshot::channel();
        let stopped = || Error::new(ErrorKind::Internal, "the task that commits messages has stopped; this is a bug");
        self.queue.send(Pending { message, fingerprint, done }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn run(database: Arc<Database>, mut queue: mpsc::Receiver<Pending>) {
    let mut held_back = None;
    loop {
        let first = match held_back.take() {
            Some(pending) => pending,
            None => match queue.recv().await {
                Some(pending) => pending,
                None => return,
            },
        };
        let batch = fill(first, &mut queue, &mut held_back);
        let database = database.clone();
        // In a task of its own, so that a panic costs one batch and not all later ones.
        if let Err(error) = tokio::spawn(async move { database.commit(batch).await }).await {
            tracing::error!(%error, "committing messages panicked; this is a bug");
        }
    }
}

/// Takes what is queued, without waiting. A message that makes the batch too large is held back for the next one.
fn fill(first: Pending, queue: &mut mpsc::Receiver<Pending>, held_back: &mut Option<Pending>) -> Vec<Pending> {
    let mut bytes = first.message.payload.len();
    let mut batch = vec![first];
    while batch.len() < BATCH
        && let Ok(next) = queue.try_recv()
    {
        bytes = bytes.saturating_add(next.message.payload.len());
        if bytes > BATCH_BYTES {
            *held_back = Some(next);
            break;
        }
        batch.push(next);
    }
    batch
}

struct Database {
    outbox: Arc<dyn OutboxQueue>,
    sends: Arc<dyn IdempotentAppend>,
}

impl Database {
    async fn commit(self: Arc<Self>, mut batch: Vec<Pending>) {
        if batch.len() == 1
            && let Some(Pending { message, fingerprint, done }) = batch.pop()
        {
            let _ = done.send(self.append(message, fingerprint).await);
            return;
        }
        let (sends, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Pending { message, fingerprint, done }| ((message, fingerprint), done)).unzip();
        match self.sends.append_batch_once(&sends).await {
            Ok(appended) => {
                for (done, appended) in waiting.into_iter().zip(appended) {
                    let _ = done.send(Ok(appended));
                }
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {
                for done in waiting {
                    let _ = done.send(Err(Error::new(ErrorKind::Unknown, error.to_string())));
                }
            }
            Err(error) => {
                tracing::debug!(%error, messages = sends.len(), "batch failed, committing its messages one by one");
                self.commit_singly(sends, waiting).await;
            }
        }
    }

    /// Commits each message in its own transaction, all at once: one that waits for a lock delays no other.
    async fn commit_singly(
        self: Arc<Self>,
        sends: Vec<(Message, Option<Fingerprint>)>,
        waiting: Vec<oneshot::Sender<Result<Appended>>>,
    ) {
        let mut tasks = JoinSet::new();
        for ((message, fingerprint), done) in sends.into_iter().zip(waiting) {
            let database = self.clone();
            tasks.spawn(async move {
                let _ = done.send(database.append(message, fingerprint).await);
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Commits one message. One without an id of its sender cannot have been sent before, and costs no lookup.
    async fn append(&self, message: Message, fingerprint: Option<Fingerprint>) -> Result<Appended> {
        match fingerprint {
            Some(fingerprint) => self.sends.append_once(&message, &fingerprint).await,
            None => self.outbox.append(&[message]).await.map(|()| Appended::Fresh),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use landfall::sqlite::{Options, Sqlite};
    use landfall::{Limits, OutboxView, Schema, TopicName};

    use super::*;

    /// A database that counts the messages of each batch.
    struct Counting {
        database: Sqlite,
        batches: Mutex<Vec<usize>>,
    }

    impl Counting {
        fn batches(&self) -> Vec<usize> {
            self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    #[async_trait]
    impl IdempotentAppend for Counting {
        async fn append_once(&self, message: &Message, fingerprint: &Fingerprint) -> Result<Appended> {
            self.database.append_once(message, fingerprint).await
        }

        async fn append_batch_once(&self, sends: &[(Message, Option<Fingerprint>)]) -> Result<Vec<Appended>> {
            self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(sends.len());
            self.database.append_batch_once(sends).await
        }
    }

    async fn group_commit() -> (GroupCommit, Arc<Counting>) {
        let limits = Limits { payload_bytes: BATCH_BYTES };
        let database = Sqlite::open("sqlite::memory:", Options { limits, ..Options::default() }).await.unwrap();
        database.migrate().await.unwrap();
        let counting = Arc::new(Counting { database: database.clone(), batches: Mutex::default() });
        (GroupCommit::spawn(Arc::new(database), counting.clone()), counting)
    }

    fn message(bytes: usize) -> Message {
        Message::new(TopicName::new("orders").unwrap(), vec![b'x'; bytes])
    }

    // On one thread, requests are queued before the task runs.
    #[tokio::test]
    async fn queued_messages_share_transactions_within_bounds() {
        let (commits, counting) = group_commit().await;
        let print = |n: usize| n.is_multiple_of(2).then_some([1; 32]);
        let sends = join_all((0..BATCH + 50).map(|n| commits.append(message(n), print(n)))).await;
        assert!(sends.iter().all(|sent| matches!(sent, Ok(Appended::Fresh))), "{sends:?}");
        let batches = counting.batches();
        assert!(batches.len() < 6 && batches.iter().all(|size| *size <= BATCH), "{batches:?}");
        let large = join_all((0..3).map(|_| commits.append(message(BATCH_BYTES / 2), None))).await;
        assert!(large.iter().all(Result::is_ok), "{large:?}");
        assert_eq!(counting.batches()[batches.len()..], [2], "the third large message is a batch of its own");
        assert_eq!(counting.database.stats().await.unwrap().pending, BATCH as u64 + 53);
    }

    #[tokio::test]
    async fn refused_message_fails_alone() {
        let (commits, counting) = group_commit().await;
        let bad = Message { payload: vec![0; BATCH_BYTES + 1].into(), ..message(0) };
        let repeated = message(3);
        let sends = [
            commits.append(bad, Some([1; 32])),
            commits.append(message(1), None),
            commits.append(repeated.clone(), Some([1; 32])),
            commits.append(repeated.clone(), Some([2; 32])),
            commits.append(repeated, Some([1; 32])),
        ];
        let sent = join_all(sends).await;
        assert_eq!(sent[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
        let rest: Vec<_> = sent.into_iter().skip(1).map(Result::unwrap).collect();
        assert_eq!(rest, [Appended::Fresh, Appended::Fresh, Appended::Conflict, Appended::Repeated]);
        assert_eq!(counting.database.stats().await.unwrap().pending, 2);
    }

    #[tokio::test]
    async fn dropped_request_neither_fails_its_batch_nor_loses_its_message() {
        let (commits, counting) = group_commit().await;
        let (stays, stays_too) = (commits.append(message(1), None), commits.append(message(2), Some([1; 32])));
        {
            let mut dropped = Box::pin(commits.append(message(3), None));
            assert!(futures_util::poll!(&mut dropped).is_pending());
        }
        let (one, two) = tokio::join!(stays, stays_too);
        assert_eq!((one.unwrap(), two.unwrap()), (Appended::Fresh, Appended::Fresh));
        assert_eq!(counting.batches(), [3]);
        assert_eq!(counting.database.stats().await.unwrap().pending, 3);
    }
}

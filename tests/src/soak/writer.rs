//! The producing service of a soak: everything that makes an outbox hard.
//!
//! Several writers in several processes write for the same accounts. They get a transaction id early and write late;
//! write early and commit late; wait for each other's locks, sometimes in a deadlock; enqueue several messages at once,
//! through the library and with plain SQL, as bytes or as text; and roll back at the very end.
//!
//! A commit with an unknown outcome is looked up under the lock of its account. A transaction that is still running
//! holds that lock, so an operation that is not found then was not committed. The writer repeats it only after the
//! lookup.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall::produce::Outbox;
use landfall::{ErrorKind, Key, Message, MessageId, OutboxWriter, Result, TopicName};
use rand::Rng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use super::handler::payload;
use super::ledger::{Entry, Ledger};
use super::planted_bug::SoakBug;
use super::process_config::account;
use crate::handler::Behaviour;
use crate::history::Event;
use crate::setup::TOPIC;

pub struct SoakWriter<D> {
    pub database: D,
    pub random: StdRng,
    pub accounts: u32,
    pub hold_ms: u64,
    pub planted_bug: Option<SoakBug>,
}

/// One operation of the service: done once, in one or more transactions.
struct Operation {
    messages: Vec<Planned>,
    /// How long the transaction has a transaction id before its first write, if it gets one early.
    before: Option<Duration>,
    /// How long the transaction stays open after its last write.
    after: Option<Duration>,
    enqueue: Enqueue,
    rolls_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enqueue {
    Library,
    PlainSql { is_text: bool },
}

struct Planned {
    token: MessageId,
    account: String,
    behaviour: Behaviour,
}

impl<D: Ledger + OutboxWriter> SoakWriter<D> {
    /// Writes until `stop`; finishes an operation that has started.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let operation = self.plan();
            self.execute(&operation).await;
            // Simulates the load of a service: bursts with quiet periods between them.
            let pause = if self.random.random_bool(0.3) { 0 } else { self.random.random_range(5..80) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Leaves transactions open for a long time, with a transaction id and without messages. No other transaction may
    /// wait for them, and no row may be skipped because of them.
    pub async fn hold_transactions_open(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let length = Duration::from_millis(self.random.random_range(1_000..15_000));
            if let Ok(mut transaction) = self.database.begin().await
                && self.database.touch(&mut transaction).await.is_ok()
            {
                tokio::select! { () = tokio::time::sleep(length) => {}, () = stop.cancelled() => {} }
            }
            self.pause().await;
        }
    }

    /// Writes one plain message for each account.
    pub async fn run_once(mut self) {
        for number in 0..self.accounts {
            let messages =
                vec![Planned { token: MessageId::new(), account: account(number), behaviour: Behaviour::Plain }];
            let operation =
                Operation { messages, before: None, after: None, enqueue: Enqueue::Library, rolls_back: false };
            self.execute(&operation).await;
        }
    }

    fn plan(&mut self) -> Operation {
        let accounts = self.accounts;
        let random = &mut self.random;
        // Two accounts in random order: writers that lock them in opposite order deadlock.
        let names: Vec<String> = match random.random_range(0..10) {
            0 => (0..2).map(|_| account(random.random_range(0..accounts))).collect(),
            1..=2 => vec![account(random.random_range(0..accounts)); random.random_range(2..6)],
            _ => vec![account(random.random_range(0..accounts))],
        };
        let plan = |account| Planned { token: MessageId::new(), account, behaviour: Behaviour::random(random, true) };
        let messages = names.into_iter().map(plan).collect();
        let mut hold = |share: f64| {
            let long = if self.random.random_bool(0.03) { 8 } else { 1 };
            let length = Duration::from_millis(self.random.random_range(0..=self.hold_ms * long));
            self.random.random_bool(share).then_some(length)
        };
        let (before, after) = (hold(0.3), hold(0.3));
        let enqueue = match self.random.random_range(0..10) {
            number @ 0..4 => Enqueue::PlainSql { is_text: number % 2 == 0 },
            _ => Enqueue::Library,
        };
        Operation { messages, before, after, enqueue, rolls_back: self.random.random_bool(0.1) }
    }

    /// Repeats the operation until it is committed, or rolled back on purpose.
    async fn execute(&mut self, operation: &Operation) {
        loop {
            print_each(operation, |id, key| Event::Invoke { id, key });
            match self.transact(operation).await {
                Ok(true) => return print_each(operation, |id, _| Event::Ok { id }),
                Ok(false) => return print_each(operation, |id, _| Event::Failed { id }),
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    print_each(operation, |id, _| Event::Unknown { id });
                    if self.planted_bug != Some(SoakBug::RetryBlindly) {
                        let committed = self.is_committed(operation).await;
                        print_each(operation, |id, _| Event::Resolved { id, committed });
                        if committed {
                            return;
                        }
                    }
                }
                // Any other error means that it was not committed.
                Err(_) => print_each(operation, |id, _| Event::Failed { id }),
            }
            self.pause().await;
        }
    }

    async fn transact(&mut self, operation: &Operation) -> Result<bool> {
        let outbox = Outbox::new(self.database.clone());
        let mut transaction = outbox.begin().await?;
        if let Some(before) = operation.before {
            self.database.touch(&mut transaction).await?;
            tokio::time::sleep(before).await;
        }
        let mut next: BTreeMap<&str, i64> = BTreeMap::new();
        for planned in &operation.messages {
            let account = planned.account.as_str();
            if !next.contains_key(account) {
                let all = operation.messages.iter().filter(|other| other.account == account).count() as i64;
                next.insert(account, self.database.lock(&mut transaction, account, all).await? - all + 1);
            }
        }
        let mut messages = Vec::with_capacity(operation.messages.len());
        for Planned { token, account, behaviour } in &operation.messages {
            let number = next.get_mut(account.as_str()).map_or(0, |next| std::mem::replace(next, *next + 1));
            let sent = Entry { token: *token, account: account.clone(), number };
            self.database.record_sent(&mut transaction, &sent).await?;
            let payload = payload(*behaviour, *token, number);
            if let Enqueue::PlainSql { is_text } = operation.enqueue {
                self.database.insert_with_plain_sql(&mut transaction, TOPIC, account, &payload, is_text).await?;
            } else {
                messages.push(Message::new(TopicName::new(TOPIC)?, payload).with_key(Key::new(account)?));
            }
        }
        if !messages.is_empty() {
            outbox.enqueue_all(&mut transaction, &messages).await?;
        }
        if let Some(after) = operation.after {
            tokio::time::sleep(after).await;
        }
        if operation.rolls_back {
            // Dropping the transaction rolls it back at the last moment: everything but the commit is done.
            return Ok(false);
        }
        outbox.commit(transaction).await?;
        Ok(true)
    }

    /// Whether the operation was committed; retries until the database responds.
    async fn is_committed(&mut self, operation: &Operation) -> bool {
        loop {
            match self.look_up(operation).await {
                Ok(committed) => return committed,
                Err(_) => self.pause().await,
            }
        }
    }

    async fn look_up(&self, operation: &Operation) -> Result<bool> {
        let Some(first) = operation.messages.first() else { return Ok(false) };
        let mut transaction = self.database.begin().await?;
        self.database.lock(&mut transaction, &first.account, 0).await?;
        let sent = self.database.count_sent(&mut transaction, first.token).await?;
        // The result must still hold after a crash of the server.
        self.database.flush(transaction).await?;
        Ok(sent > 0)
    }

    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.random.random_range(5..60))).await;
    }
}

fn print_each(operation: &Operation, event: impl Fn(MessageId, String) -> Event) {
    for planned in &operation.messages {
        event(planned.token, planned.account.clone()).print();
    }
}

impl<D> std::fmt::Debug for SoakWriter<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoakWriter").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

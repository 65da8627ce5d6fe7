//! The producing service of a soak: everything that makes an outbox hard.
//!
//! Several writers, in several processes, write for the same accounts. They take a transaction's number early and
//! write late; write early and commit late; wait for each other's locks, and now and then for one another (a
//! deadlock); send several messages at once, by Landfall's call and by plain SQL; and roll back at the very end.
//!
//! A commit that broke off is looked up, under the lock of its account: whoever still works on it holds that lock, so
//! what is not there then never will be. Then it is done, or it is done again; never again without having looked.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall::produce::Outbox;
use landfall::{ErrorKind, Key, Message, MessageId, OutboxWriter, Result, TopicName};
use rand::Rng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use super::handler::payload;
use super::ledger::{Entry, Ledger};
use super::part::account;
use super::plant::SoakPlant;
use crate::handler::Temper;
use crate::history::Event;
use crate::setup::TOPIC;

pub struct SoakWriter<D> {
    pub database: D,
    pub random: StdRng,
    pub accounts: u32,
    pub hold_ms: u64,
    pub plant: Option<SoakPlant>,
}

/// One operation of the service: done once, however many transactions it takes.
struct Operation {
    messages: Vec<Planned>,
    /// How long the transaction has its number before it writes anything, if it does it this way.
    before: Option<Duration>,
    /// How long everything is written before it commits.
    after: Option<Duration>,
    by_plain_sql: bool,
    rolls_back: bool,
}

struct Planned {
    token: MessageId,
    account: String,
    temper: Temper,
}

impl<D: Ledger + OutboxWriter> SoakWriter<D> {
    /// Writes until `stop`; an operation that was begun is brought to its end.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let operation = self.plan();
            self.carry_out(&operation).await;
            // The load of a service, not a wait for something: bursts with quiet moments between them.
            let pause = if self.random.random_bool(0.3) { 0 } else { self.random.random_range(5..80) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Leaves transactions open for a long time, with a number of their own and nothing to send: nobody may have to wait
    /// for them, and nothing may be passed over because of them.
    pub async fn dawdle(mut self, stop: CancellationToken) {
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

    /// One message for each account, as plainly as can be.
    pub async fn run_once(mut self) {
        for number in 0..self.accounts {
            let messages = vec![Planned { token: MessageId::new(), account: account(number), temper: Temper::Plain }];
            let operation = Operation { messages, before: None, after: None, by_plain_sql: false, rolls_back: false };
            self.carry_out(&operation).await;
        }
    }

    fn plan(&mut self) -> Operation {
        let accounts = self.accounts;
        let random = &mut self.random;
        // Two accounts in any order: two writers that lock them the other way round wait for one another.
        let names: Vec<String> = match random.random_range(0..10) {
            0 => (0..2).map(|_| account(random.random_range(0..accounts))).collect(),
            1..=2 => vec![account(random.random_range(0..accounts)); random.random_range(2..6)],
            _ => vec![account(random.random_range(0..accounts))],
        };
        let plan = |account| Planned { token: MessageId::new(), account, temper: Temper::pick(random, true) };
        let messages = names.into_iter().map(plan).collect();
        let mut hold = |share: f64| {
            let long = if self.random.random_bool(0.03) { 8 } else { 1 };
            let length = Duration::from_millis(self.random.random_range(0..=self.hold_ms * long));
            self.random.random_bool(share).then_some(length)
        };
        let (before, after) = (hold(0.3), hold(0.3));
        let (by_plain_sql, rolls_back) = (self.random.random_bool(0.4), self.random.random_bool(0.1));
        Operation { messages, before, after, by_plain_sql, rolls_back }
    }

    /// Until it is committed, or rolled back on purpose.
    async fn carry_out(&mut self, operation: &Operation) {
        loop {
            tell(operation, |id, key| Event::Invoke { id, key });
            match self.transact(operation).await {
                Ok(true) => return tell(operation, |id, _| Event::Ok { id }),
                Ok(false) => return tell(operation, |id, _| Event::Failed { id }),
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    tell(operation, |id, _| Event::Unknown { id });
                    if self.plant != Some(SoakPlant::RetryBlindly) {
                        let committed = self.look(operation).await;
                        tell(operation, |id, _| Event::Resolved { id, committed });
                        if committed {
                            return;
                        }
                    }
                }
                // Anything else means that it did not happen.
                Err(_) => tell(operation, |id, _| Event::Failed { id }),
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
        for Planned { token, account, temper } in &operation.messages {
            let number = next.get_mut(account.as_str()).map_or(0, |next| std::mem::replace(next, *next + 1));
            let sent = Entry { token: *token, account: account.clone(), number };
            self.database.record_sent(&mut transaction, &sent).await?;
            let payload = payload(*temper, *token, number);
            if operation.by_plain_sql {
                self.database.insert_plainly(&mut transaction, TOPIC, account, payload.as_bytes()).await?;
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
            // Dropping it rolls back, after everything was written and before nothing but the commit.
            return Ok(false);
        }
        outbox.commit(transaction).await?;
        Ok(true)
    }

    /// Whether it was committed; asks until the database answers.
    async fn look(&mut self, operation: &Operation) -> bool {
        loop {
            match self.look_once(operation).await {
                Ok(committed) => return committed,
                Err(_) => self.pause().await,
            }
        }
    }

    async fn look_once(&self, operation: &Operation) -> Result<bool> {
        let Some(first) = operation.messages.first() else { return Ok(false) };
        let mut transaction = self.database.begin().await?;
        self.database.lock(&mut transaction, &first.account, 0).await?;
        let sent = self.database.count_sent(&mut transaction, first.token).await?;
        // What was found has to stay.
        self.database.flush(transaction).await?;
        Ok(sent > 0)
    }

    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.random.random_range(5..60))).await;
    }
}

fn tell(operation: &Operation, event: impl Fn(MessageId, String) -> Event) {
    for planned in &operation.messages {
        event(planned.token, planned.account.clone()).say();
    }
}

impl<D> std::fmt::Debug for SoakWriter<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoakWriter").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

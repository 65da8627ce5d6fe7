//! A relay and consumers as Landfall has them, as small as they can be, and the account of what they did.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, Message, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::history::{History, check};
use tokio::task::JoinSet;

use super::{group, keyed, topic};

const KEYS: i64 = 12;
/// Within this everything must have drained.
const DRAINED: Duration = Duration::from_secs(45);

/// What was sent and what took effect, and how the sender was answered.
#[derive(Debug, Default)]
struct Account {
    history: History,
    /// The inbox: each id takes effect once.
    inbox: HashSet<landfall_core::MessageId>,
    accepted: usize,
    unknown: usize,
    refused: usize,
}

#[derive(Debug)]
pub(crate) struct Load {
    account: Arc<Mutex<Account>>,
    total: usize,
    tasks: JoinSet<()>,
}

impl Load {
    /// One relay on `sending`, and a consumer on each of `receiving`.
    pub(crate) fn start(sending: Arc<dyn Broker>, receiving: Vec<Arc<dyn Broker>>, total: i64) -> Self {
        let account = Account { history: History::new(["stock"]), ..Account::default() };
        let account = Arc::new(Mutex::new(account));
        let mut tasks = JoinSet::new();
        let outbox: VecDeque<Message> = (0..total).map(|n| keyed(&format!("key-{}", n % KEYS), n / KEYS + 1)).collect();
        tasks.spawn(relay(sending, outbox, Arc::clone(&account)));
        for broker in receiving {
            tasks.spawn(consume(broker, Arc::clone(&account)));
        }
        Self { account, total: total as usize, tasks }
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(Counts) -> bool) {
        eventually(DRAINED, what, async || condition(self.counts())).await;
    }

    pub(crate) fn counts(&self) -> Counts {
        let account = self.account.lock().unwrap();
        let Account { accepted, unknown, refused, inbox, .. } = &*account;
        Counts { accepted: *accepted, unknown: *unknown, refused: *refused, effects: inbox.len() }
    }

    /// Waits until everything took effect, and judges.
    pub(crate) async fn drain(mut self) -> Counts {
        let total = self.total;
        self.until("everything took effect", |counts| counts.effects == total && counts.accepted == total).await;
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        check(&self.account.lock().unwrap().history).assert_clean();
        self.counts()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) accepted: usize,
    pub(crate) unknown: usize,
    pub(crate) refused: usize,
    pub(crate) effects: usize,
}

/// Takes what is there in order, and keeps what was not accepted for the next time.
async fn relay(broker: Arc<dyn Broker>, mut outbox: VecDeque<Message>, account: Arc<Mutex<Account>>) {
    let publisher = broker.publisher();
    while !outbox.is_empty() {
        let batch: Vec<Message> = outbox.iter().take(60).cloned().collect();
        for message in &batch {
            account.lock().unwrap().history.invoke(message.id, message.key.clone(), message.sequence);
        }
        let outcomes = publisher.publish(&batch).await;
        assert_eq!(outcomes.len(), batch.len());
        let mut done = HashSet::new();
        {
            let mut account = account.lock().unwrap();
            for (message, outcome) in batch.iter().zip(outcomes) {
                match outcome {
                    Outcome::Accepted(_) => {
                        account.history.ok(message.id);
                        account.accepted += 1;
                        done.insert(message.id);
                    }
                    Outcome::Unknown(_) => {
                        account.history.unknown(message.id);
                        account.unknown += 1;
                    }
                    Outcome::Refused(refusal) => {
                        assert!(refusal.retriable, "{refusal:?}");
                        account.history.failed(message.id);
                        account.refused += 1;
                    }
                }
            }
        }
        outbox.retain(|message| !done.contains(&message.id));
        if done.len() < batch.len() {
            // As a relay does after a failure.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn consume(broker: Arc<dyn Broker>, account: Arc<Mutex<Account>>) {
    let mut subscriber = loop {
        match broker.subscribe(&topic("orders"), &group("stock")).await {
            Ok(subscriber) => break subscriber,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    };
    loop {
        let delivery = subscriber.next().await.unwrap().expect("the broker is not closed");
        {
            let message = delivery.message.as_ref().unwrap();
            let mut account = account.lock().unwrap();
            if account.inbox.insert(message.id) {
                account.history.effect("stock", message.id, message.key.clone());
            }
        }
        delivery.ack().await.unwrap();
    }
}

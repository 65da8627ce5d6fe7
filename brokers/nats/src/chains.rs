//! Key by key: many keys at once, and of each key one message when the one before it has been acknowledged.
//!
//! The answers to one call come in over one subscription of its own, each under the number of its message: a future, a
//! timer and an entry in the client's table of requests for each of a thousand messages cost more than sending them.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;

use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use landfall_core::{ErrorCode, Key, Outcome, Position};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::answer::{self, NO_ANSWER};
use crate::error::{SendError, denied};
use crate::send::{Destination, Fate, Ready, Sent};

/// Messages of one call without an answer. The client drops answers that nobody has taken once there are many more.
const UNDER_WAY: usize = 10_000;

/// Sends all of them; of each key in the order given.
pub(crate) async fn in_chains(to: Destination<'_>, messages: Vec<Ready<'_>>) -> Vec<Sent> {
    if messages.is_empty() {
        return Vec::new();
    }
    let watch = to.connection.denials.watch();
    let client = to.connection.client();
    let inbox = client.new_inbox();
    let listening = timeout(to.connection.timeout(), client.subscribe(format!("{inbox}.*"))).await;
    let mut chains = Chains::new(to, client, messages);
    match listening {
        Ok(Ok(answers)) => chains.run(&inbox, answers, watch).await,
        _ => chains.give_up(),
    }
    chains.sent()
}

/// One message: waiting for its turn, under way, or with its fate.
struct Link<'a> {
    ready: Ready<'a>,
    /// The next one of its key.
    next: Option<usize>,
    is_under_way: bool,
    fate: Fate,
}

struct Chains<'a, 't> {
    to: Destination<'t>,
    client: Client,
    links: Vec<Link<'a>>,
    /// What may go now, by number.
    turns: VecDeque<usize>,
    under_way: usize,
}

impl<'a, 't> Chains<'a, 't> {
    fn new(to: Destination<'t>, client: Client, messages: Vec<Ready<'a>>) -> Self {
        let mut links: Vec<Link<'a>> = Vec::with_capacity(messages.len());
        let mut last_of: HashMap<&'a Key, usize> = HashMap::with_capacity(messages.len());
        let mut turns = VecDeque::with_capacity(messages.len());
        for (number, ready) in messages.into_iter().enumerate() {
            match ready.message.key.as_ref().and_then(|key| last_of.insert(key, number)) {
                Some(before) => links[before].next = Some(number),
                None => turns.push_back(number),
            }
            links.push(Link { ready, next: None, is_under_way: false, fate: None });
        }
        Self { to, client, links, turns, under_way: 0 }
    }

    async fn run(&mut self, inbox: &str, mut answers: Subscriber, mut watch: crate::connection::Watch) {
        let patience = self.to.connection.timeout();
        let mut heard = Instant::now();
        let mut alarm: Pin<Box<Sleep>> = Box::pin(sleep_until(heard + patience));
        loop {
            while self.under_way < UNDER_WAY
                && let Some(number) = self.turns.pop_front()
            {
                if self.under_way == 0 {
                    heard = Instant::now();
                }
                if timeout(patience, self.send(inbox, number)).await.is_err() {
                    // While there is no connection the client takes only so much.
                    self.turns.push_front(number);
                    self.give_up();
                }
            }
            if self.under_way == 0 {
                return;
            }
            tokio::select! {
                biased;
                answer = answers.next() => match answer {
                    Some(message) => {
                        heard = Instant::now();
                        if let Some(number) = answer::number(&message) {
                            self.answered(number, answer::read(&message));
                        }
                    }
                    None => self.end_all(|| SendError::Unknown(NO_ANSWER.into())),
                },
                subject = watch.next_denied() => self.denied(&subject),
                () = &mut alarm => match heard + patience {
                    // Answers come, if slowly.
                    later if later > Instant::now() => alarm.as_mut().reset(later),
                    _ => self.end_all(|| SendError::Unknown(NO_ANSWER.into())),
                },
            }
        }
    }

    async fn send(&mut self, inbox: &str, number: usize) {
        let Self { to: Destination { topic, .. }, client, links, under_way, .. } = self;
        let link = &mut links[number];
        let (subject, reply) = (topic.subject(link.ready.shard), format!("{inbox}.{number}"));
        let payload = link.ready.message.payload.clone();
        let headers = std::mem::take(&mut link.ready.headers);
        match client.publish_with_reply_and_headers(subject, reply, headers, payload).await {
            Ok(()) => {
                link.is_under_way = true;
                *under_way += 1;
            }
            Err(error) => {
                let reason = format!("not sent: {error}");
                link.fate = Some(Err(SendError::NotStored(Outcome::retry_later(ErrorCode::UNAVAILABLE, reason))));
            }
        }
    }

    fn answered(&mut self, number: usize, answer: Result<u64, SendError>) {
        let Some(link) = self.links.get_mut(number).filter(|link| link.is_under_way) else { return };
        link.is_under_way = false;
        self.under_way -= 1;
        if answer.is_ok() {
            self.turns.extend(link.next);
        }
        let partition = link.ready.shard;
        link.fate = Some(answer.map(|offset| Position { partition, offset }));
    }

    /// Nothing of what is under way to `subject` was taken, and no answer will come.
    fn denied(&mut self, subject: &str) {
        let topic = self.to.topic;
        for number in 0..self.links.len() {
            if topic.subject(self.links[number].ready.shard).as_str() == subject {
                self.answered(number, Err(denied(subject)));
            }
        }
    }

    fn end_all(&mut self, trouble: impl Fn() -> SendError) {
        (0..self.links.len()).for_each(|number| self.answered(number, Err(trouble())));
    }

    /// What has not been sent by now will not be.
    fn give_up(&mut self) {
        for number in std::mem::take(&mut self.turns) {
            self.links[number].fate = Some(Err(SendError::NotStored(self.to.connection.not_sent())));
        }
    }

    fn sent(self) -> Vec<Sent> {
        self.links.into_iter().map(|link| (link.ready.place, link.fate)).collect()
    }
}

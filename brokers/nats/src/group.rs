//! A membership in a group: shards are taken, read, given away and left behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use landfall_core::{GroupName, Result, TopicName};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::broker::Nats;
use crate::claim::{Claim, Claiming, claims};
use crate::members::{Members, Word};
use crate::plan::{MemberName, plan};
use crate::shard::{Queue, Shard};
use crate::topic::Topic;
use crate::worker;

/// A shard that was lost so often at the same place does not get on.
const STUCK: usize = 2;

#[derive(Debug)]
pub(crate) struct Membership {
    broker: Nats,
    topic: TopicName,
    group: GroupName,
    me: MemberName,
    members: Members,
    queue: Queue,
    room: Arc<Semaphore>,
    owned: BTreeMap<u32, Owned>,
    /// A shard was taken away, or something was lost on its way.
    look: Arc<Notify>,
    /// How much had come when a shard was found short of what the server sent.
    short: HashMap<u32, u64>,
    /// How often a shard was lost, and how far it was finished each time.
    losses: HashMap<u32, Losses>,
    /// How far the shards were finished, by all that this member has seen.
    floors: HashMap<u32, u64>,
    /// Since when the consumer of a shard does not answer.
    silent: HashMap<u32, Instant>,
    /// When the stream was made that all of this is about.
    created: Option<i128>,
}

/// One after the other, without anything being finished in between.
#[derive(Debug, Default)]
struct Losses {
    floor: u64,
    count: usize,
}

impl Losses {
    fn add(&mut self, floor: u64) {
        let count = if self.floor == floor { self.count + 1 } else { 1 };
        *self = Self { floor, count };
    }
}

#[derive(Debug)]
struct Owned {
    shard: Arc<Shard>,
    /// Reading and acknowledging; they end with it.
    work: JoinSet<()>,
}

impl Owned {
    /// None of its work ends by itself.
    fn has_died(&mut self) -> bool {
        self.work.try_join_next().is_some()
    }
}

/// A shard that this member leaves to nobody, where it stands.
#[derive(Debug)]
struct GivenAway {
    shard: u32,
    epoch: u64,
    left_behind: Vec<String>,
    floor: u64,
}

impl Membership {
    pub(crate) fn new(broker: Nats, topic: TopicName, group: GroupName, queue: Queue) -> Self {
        let me = uuid::Uuid::now_v7().simple().to_string();
        Self {
            members: Members::new(me.clone(), broker.options.session_timeout),
            room: Arc::new(Semaphore::new(broker.options.in_flight)),
            broker,
            topic,
            group,
            me,
            queue,
            owned: BTreeMap::new(),
            look: Arc::default(),
            short: HashMap::new(),
            losses: HashMap::new(),
            floors: HashMap::new(),
            silent: HashMap::new(),
            created: None,
        }
    }

    /// Until `leave` is used or dropped.
    pub(crate) async fn run(mut self, leave: oneshot::Receiver<oneshot::Sender<()>>) {
        let mut leave = leave;
        let told = tokio::select! {
            told = &mut leave => told.ok(),
            () = self.work() => None,
        };
        self.leave().await;
        if let Some(done) = told {
            // Nobody may be waiting any more.
            let _ = done.send(());
        }
    }

    async fn work(&mut self) {
        let Ok(stream) = self.broker.names.stream(&self.topic) else { return };
        let subject = self.broker.names.members(&stream, &self.group);
        let mut heard = self.listen(&subject).await;
        self.say(Word::Hello(self.me.clone())).await;
        let every = self.broker.options.session_timeout / 4;
        let mut next = Instant::now();
        loop {
            if let Err(error) = self.round().await {
                tracing::warn!(%error, topic = %self.topic, group = %self.group, "the shards cannot be looked at; again soon");
            }
            // What comes in between is answered at once, and seldom needs a look.
            next = (next + every).max(Instant::now() + every / 2);
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => break self.say(Word::Here(self.me.clone())).await,
                    () = self.look.notified() => {
                        break tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    message = heard.next() => {
                        let Some(message) = message else {
                            // The client has come to its end.
                            break heard = self.listen(&subject).await;
                        };
                        let Some(word) = Word::parse(&message.payload) else { continue };
                        let is_news = self.members.hear(&word);
                        if matches!(&word, Word::Hello(name) if *name != self.me) {
                            self.say(Word::Here(self.me.clone())).await;
                        }
                        if is_news {
                            break;
                        }
                    }
                }
            }
        }
    }

    async fn listen(&self, subject: &str) -> async_nats::Subscriber {
        let connection = &self.broker.connection;
        loop {
            let listening = timeout(connection.timeout(), async {
                connection.connected().await;
                connection.client().subscribe(subject.to_owned()).await
            });
            match listening.await {
                Ok(Ok(heard)) => return heard,
                Ok(Err(error)) => tracing::warn!(%error, group = %self.group, "the group cannot be listened to"),
                Err(_) => tracing::warn!(group = %self.group, "there is no connection to listen to the group"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn say(&self, word: Word) {
        let Ok(stream) = self.broker.names.stream(&self.topic) else { return };
        let subject = self.broker.names.members(&stream, &self.group);
        let connection = &self.broker.connection;
        // Without a connection nobody would hear it, and the client would keep it for later.
        if !connection.is_connected() {
            return;
        }
        let client = connection.client();
        let said = client.publish(subject, word.to_text().into());
        if let Ok(Err(error)) = timeout(connection.timeout(), said).await {
            tracing::warn!(%error, "the other members of the group cannot be told anything");
        }
    }

    /// Looks at who has what, takes what should be ours, gives away what should not.
    async fn round(&mut self) -> Result<()> {
        let topic = match self.broker.topics.find_or_create(&self.topic).await {
            // A stream that elects its leader says nothing; who has what is known without it.
            Err(error) if error.is_temporary() => self.broker.topics.get(&self.topic).await?,
            topic => topic?,
        };
        self.begin_anew_with_another(&topic);
        let found = match claims(&self.broker.connection, &topic, &self.group).await {
            Ok(found) => found,
            Err(error) => {
                self.broker.topics.forget(&self.topic);
                return Err(error);
            }
        };
        self.give_up_the_silent(&found);
        self.drop_what_was_taken(&found);
        let owner = |shard: u32| match self.owned.contains_key(&shard) {
            // Also of a consumer that does not answer.
            true => Some(self.me.clone()),
            false => found.get(&shard).and_then(|claim| claim.owner.clone()),
        };
        let owners: Vec<Option<MemberName>> = (0..topic.partitions).map(owner).collect();
        let present = self.members.present(owners.iter().flatten());
        let planned = plan(&owners, &present);
        let mut wanted = Vec::new();
        let mut unwanted = Vec::new();
        let mut unheard = Vec::new();
        for (shard, (owner, planned)) in owners.iter().zip(&planned).enumerate() {
            let shard = shard as u32;
            if found.get(&shard).is_some_and(|claim| claim.is_silent) && self.silent.contains_key(&shard) {
                // Nobody knows whose it is; for a while it may come back.
                continue;
            }
            let is_mine = planned.as_ref() == Some(&self.me);
            match self.owned.contains_key(&shard) {
                true if !is_mine => unwanted.push(shard),
                false if is_mine && self.is_free(owner.as_ref(), &present) => wanted.push(shard),
                // It was given away and the server did not hear of it: while this member is there, others wait for it.
                false if !is_mine && owner.as_ref() == Some(&self.me) => {
                    unheard.extend(found.get(&shard).map(|claim| GivenAway {
                        shard,
                        epoch: claim.epoch,
                        left_behind: claim.left_behind.clone(),
                        floor: claim.floor,
                    }))
                }
                _ => {}
            }
        }
        self.give_away(&topic, &unwanted).await;
        self.tell_given_away(&topic, unheard).await;
        self.take(&topic, &found, wanted).await
    }

    /// A stream that was deleted and made again counts from the beginning: what was finished of the one before says nothing.
    fn begin_anew_with_another(&mut self, topic: &Topic) {
        if self.created.replace(topic.created).is_some_and(|before| before != topic.created) {
            tracing::warn!(topic = %self.topic, group = %self.group, "the topic was made anew; the group begins with it");
            for owned in std::mem::take(&mut self.owned).into_values() {
                owned.shard.close();
            }
            self.floors.clear();
            self.short.clear();
            self.losses.clear();
            self.silent.clear();
        }
    }

    fn is_free(&self, owner: Option<&MemberName>, present: &[MemberName]) -> bool {
        owner.is_none_or(|owner| *owner == self.me || !present.contains(owner))
    }

    /// A consumer that has not answered for so long that its member would be taken for gone, twice over, counts as nobody's:
    /// the next one is made without it.
    fn give_up_the_silent(&mut self, found: &BTreeMap<u32, Claim>) {
        let patience = self.broker.options.session_timeout * 2;
        self.silent.retain(|shard, _| found.get(shard).is_some_and(|claim| claim.is_silent));
        for (shard, claim) in found.iter() {
            if !claim.is_silent {
                let floor = self.floors.entry(*shard).or_default();
                *floor = claim.floor.max(*floor);
            } else if self.silent.entry(*shard).or_insert_with(Instant::now).elapsed() >= patience {
                tracing::warn!(shard, epoch = claim.epoch, "a consumer does not answer; the next one takes its place");
                self.silent.remove(shard);
                if let Some(owned) = self.owned.remove(shard) {
                    self.floors.insert(*shard, owned.shard.close());
                }
            }
        }
    }

    /// Others have made the next consumer of a shard; or this one was sent more than came; or nobody works on it any more.
    fn drop_what_was_taken(&mut self, found: &BTreeMap<u32, Claim>) {
        let mut short = HashMap::new();
        let (before, floors, losses) = (&self.short, &mut self.floors, &mut self.losses);
        self.owned.retain(|number, owned| {
            let has_died = owned.has_died();
            let shard = &owned.shard;
            let keep = match found.get(number).filter(|claim| claim.epoch == shard.epoch) {
                None => {
                    tracing::info!(shard = number, epoch = shard.epoch, "a shard went to another member");
                    false
                }
                Some(_) if !shard.is_ours() => false,
                Some(_) if has_died => {
                    tracing::error!(shard = number, "the work on a shard ended by itself; it is taken anew");
                    false
                }
                Some(claim) if claim.is_silent => true,
                Some(claim) => match shard.received_and_waiting().filter(|received| *received < claim.sent) {
                    // Twice in a row: it is not merely on its way.
                    Some(received) if before.get(number) == Some(&received) => {
                        tracing::warn!(shard = number, received, sent = claim.sent, "messages were lost on their way");
                        false
                    }
                    Some(received) => {
                        short.insert(*number, received);
                        true
                    }
                    None => true,
                },
            };
            if !keep {
                let floor = shard.close();
                floors.insert(*number, floor);
                losses.entry(*number).or_default().add(floor);
            }
            keep
        });
        self.short = short;
    }

    async fn take(&mut self, topic: &Arc<Topic>, found: &BTreeMap<u32, Claim>, wanted: Vec<u32>) -> Result<()> {
        let claiming = self.claiming(topic);
        let taken = join_all(wanted.into_iter().map(async |shard| {
            let claim = found.get(&shard);
            let before = claim.map(|claim| (claim.epoch, claim.left_behind.clone()));
            let floor = claim.map_or(0, |claim| claim.floor).max(self.floors.get(&shard).copied().unwrap_or_default());
            (shard, floor, claiming.next(shard, before, floor, Some(&self.me)).await)
        }));
        let mut result = Ok(());
        for (number, floor, claimed) in taken.await {
            match claimed {
                Ok(Some((epoch, consumer))) => {
                    tracing::debug!(shard = number, epoch, floor, group = %self.group, "a shard was taken");
                    let shard = Shard::new(number, epoch, floor, self.queue.clone());
                    let search = self.search(number, floor);
                    let (room, look) = (self.room.clone(), self.look.clone());
                    let work = worker::start(&self.broker, consumer, shard.clone(), room, look, search);
                    self.owned.insert(number, Owned { shard, work });
                }
                // Somebody else was faster; the next look shows who.
                Ok(None) => self.look.notify_one(),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Among how many messages one is looked for that cannot be read: none, unless the shard does not get on. Each time it
    /// still does not, one is looked for further on, as far as is ever read ahead.
    fn search(&self, shard: u32, floor: u64) -> usize {
        let (prefetch, in_flight) = (self.broker.options.prefetch, self.broker.options.in_flight);
        let losses = self.losses.get(&shard).filter(|losses| losses.floor == floor && losses.count >= STUCK);
        losses.map_or(0, |losses| (prefetch * losses.count).min(in_flight + 2 * prefetch))
    }

    /// Leaves each shard to nobody, where it stands.
    async fn give_away(&mut self, topic: &Arc<Topic>, shards: &[u32]) {
        let mut given = Vec::new();
        for shard in shards {
            if let Some(Owned { shard, .. }) = self.owned.remove(shard) {
                let floor = shard.close();
                self.floors.insert(shard.number, floor);
                given.push(GivenAway { shard: shard.number, epoch: shard.epoch, left_behind: Vec::new(), floor });
            }
        }
        self.tell_given_away(topic, given).await;
    }

    async fn tell_given_away(&self, topic: &Arc<Topic>, given: Vec<GivenAway>) {
        if given.is_empty() {
            return;
        }
        let claiming = self.claiming(topic);
        join_all(given.into_iter().map(async |GivenAway { shard, epoch, left_behind, floor }| {
            let floor = floor.max(self.floors.get(&shard).copied().unwrap_or_default());
            if let Err(error) = claiming.next(shard, Some((epoch, left_behind)), floor, None).await {
                tracing::warn!(shard, %error, "a shard was not given back; again soon");
            }
        }))
        .await;
        self.say(Word::Moved(self.me.clone())).await;
    }

    async fn leave(&mut self) {
        let shards: Vec<u32> = self.owned.keys().copied().collect();
        // Whatever happens below, nothing is worked on any more.
        for owned in self.owned.values() {
            owned.shard.close();
        }
        if let Ok(topic) = self.broker.topics.get(&self.topic).await {
            self.give_away(&topic, &shards).await;
        }
        self.say(Word::Leaving(self.me.clone())).await;
        // It goes out before the process may end.
        if self.broker.connection.is_connected() {
            let _ = timeout(Duration::from_secs(1), self.broker.connection.client().flush()).await;
        }
    }

    fn claiming<'a>(&'a self, topic: &'a Topic) -> Claiming<'a> {
        Claiming {
            connection: &self.broker.connection,
            topic,
            group: &self.group,
            ack_wait: self.broker.options.ack_wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::servers::{NatsOptions, NatsServer};
    use landfall_testkit::{current_test, eventually};
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::Options;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shard_that_nobody_works_on_any_more_is_taken_anew() {
        let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
        let options = Options { timeout: SOON, partitions: 2, ..Options::from_url(&server.url()).unwrap() };
        let broker = Nats::connect(options).await.unwrap();
        let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let mut membership = Membership::new(broker, topic, group, mpsc::unbounded_channel().0);
        membership.round().await.unwrap();
        let epochs = |of: &Membership| of.owned.values().map(|owned| owned.shard.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&membership), [1, 1]);
        let first = membership.owned.get_mut(&0).unwrap();
        first.work.abort_all();
        let closed = first.shard.clone();
        eventually(SOON, "the shard is taken anew", async || {
            membership.round().await.unwrap();
            epochs(&membership) == [2, 1]
        })
        .await;
        assert!(!closed.is_ours(), "what was delivered of it is no longer to be finished");
        assert!(!membership.owned.get_mut(&0).unwrap().has_died());
    }
}

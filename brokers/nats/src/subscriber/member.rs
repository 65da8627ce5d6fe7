//! The background task of a subscriber: it claims shards, reads them, and gives them up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use landfall_broker_toolkit::assignment;
use landfall_core::{GroupName, Result, TopicName};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::broker::Nats;
use crate::subscriber::claim::{Claim, Claiming, claims};
use crate::subscriber::peers::{Announcement, MemberName, Peers};
use crate::subscriber::shard::{Deliveries, Shard};
use crate::subscriber::worker;
use crate::topic::Topic;

/// A shard that was lost this often at the same floor is stuck.
const STUCK: usize = 2;

#[derive(Debug)]
pub(crate) struct Member {
    broker: Nats,
    topic: TopicName,
    group: GroupName,
    me: MemberName,
    peers: Peers,
    deliveries: Arc<Deliveries>,
    room: Arc<Semaphore>,
    owned: BTreeMap<u32, Owned>,
    /// A shard was lost, or messages of it: the next round is due.
    changed: Arc<Notify>,
    /// How many messages a shard had received when fewer had arrived than the server had sent.
    short: HashMap<u32, u64>,
    /// How often each shard was lost.
    losses: HashMap<u32, Losses>,
    /// How far each shard is finished, as far as this member knows.
    floors: HashMap<u32, u64>,
    /// Since when the consumer of a shard has not answered.
    silent: HashMap<u32, Instant>,
    /// When the stream was created. One that was deleted and created again is another.
    created: Option<i128>,
}

/// Losses in a row without progress in between.
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
    /// Dropping it ends the tasks.
    tasks: JoinSet<()>,
}

impl Owned {
    /// Whether a task has ended, which none does unless it panics.
    fn has_died(&mut self) -> bool {
        self.tasks.try_join_next().is_some()
    }
}

/// A shard that this member gives up at `floor`.
#[derive(Debug)]
struct Released {
    shard: u32,
    epoch: u64,
    left_behind: Vec<String>,
    floor: u64,
}

/// The task has ended, so nothing more is delivered.
impl Drop for Member {
    fn drop(&mut self) {
        drop(self.deliveries.close());
    }
}

impl Member {
    pub(crate) fn new(broker: Nats, topic: TopicName, group: GroupName, deliveries: Arc<Deliveries>) -> Self {
        let me = uuid::Uuid::now_v7().simple().to_string();
        Self {
            peers: Peers::new(me.clone(), broker.options.session_timeout),
            room: Arc::new(Semaphore::new(broker.options.in_flight)),
            broker,
            topic,
            group,
            me,
            deliveries,
            owned: BTreeMap::new(),
            changed: Arc::default(),
            short: HashMap::new(),
            losses: HashMap::new(),
            floors: HashMap::new(),
            silent: HashMap::new(),
            created: None,
        }
    }

    /// Runs until `leave` is sent or dropped.
    pub(crate) async fn run(mut self, mut leave: oneshot::Receiver<oneshot::Sender<()>>) {
        let left = tokio::select! {
            left = &mut leave => left.ok(),
            () = self.work() => None,
        };
        self.leave().await;
        if let Some(left) = left {
            // The caller may have stopped waiting.
            let _ = left.send(());
        }
    }

    async fn work(&mut self) {
        let Ok(stream) = self.broker.names.stream(&self.topic) else { return };
        let subject = self.broker.names.members(&stream, &self.group);
        let mut announcements = self.listen(&subject).await;
        self.announce(Announcement::Hello(self.me.clone())).await;
        let every = self.broker.options.session_timeout / 4;
        let mut next = Instant::now();
        loop {
            if let Err(error) = self.round().await {
                let (topic, group) = (&self.topic, &self.group);
                tracing::warn!(%error, %topic, %group, "cannot read the owners of shards, retrying");
            }
            // Announcements are answered at once, and seldom need another round.
            next = (next + every).max(Instant::now() + every / 2);
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => {
                        break self.announce(Announcement::Here(self.me.clone())).await;
                    }
                    () = self.changed.notified() => {
                        break tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    message = announcements.next() => {
                        let Some(message) = message else {
                            // The client has ended and was replaced.
                            break announcements = self.listen(&subject).await;
                        };
                        let Some(announcement) = Announcement::parse(&message.payload) else { continue };
                        let needs_round = self.peers.hear(&announcement);
                        if matches!(&announcement, Announcement::Hello(name) if *name != self.me) {
                            self.announce(Announcement::Here(self.me.clone())).await;
                        }
                        if needs_round {
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
                Ok(Ok(announcements)) => return announcements,
                Ok(Err(error)) => {
                    tracing::warn!(%error, group = %self.group, "cannot subscribe to the announcements of the group")
                }
                Err(_) => {
                    tracing::warn!(group = %self.group, "no connection to subscribe to the announcements of the group")
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn announce(&self, announcement: Announcement) {
        let Ok(stream) = self.broker.names.stream(&self.topic) else { return };
        let subject = self.broker.names.members(&stream, &self.group);
        let connection = &self.broker.connection;
        // Without a connection the client would queue it, and send it when it is out of date.
        if !connection.is_connected() {
            return;
        }
        let client = connection.client();
        let published = client.publish(subject, announcement.to_text().into());
        if let Ok(Err(error)) = timeout(connection.timeout(), published).await {
            tracing::warn!(%error, "announcement to the group failed");
        }
    }

    /// Reads the owners of all shards, claims the shards that this member should own, and releases the others.
    async fn round(&mut self) -> Result<()> {
        let topic = match self.broker.topics.find_or_create(&self.topic).await {
            // A stream that elects its leader does not answer; the owners can be read without it.
            Err(error) if error.is_temporary() => self.broker.topics.get(&self.topic).await?,
            topic => topic?,
        };
        self.reset_if_recreated(&topic);
        let found = match claims(&self.broker.connection, &topic, &self.group).await {
            Ok(found) => found,
            Err(error) => {
                self.broker.topics.forget(&self.topic);
                return Err(error);
            }
        };
        self.replace_silent(&found);
        self.drop_lost(&found);
        let owner = |shard: u32| match self.owned.contains_key(&shard) {
            // Even if its consumer does not answer.
            true => Some(self.me.clone()),
            false => found.get(&shard).and_then(|claim| claim.owner.clone()),
        };
        let owners: Vec<Option<MemberName>> = (0..topic.partitions).map(owner).collect();
        let present = self.peers.present(owners.iter().flatten());
        let mut planned = owners.clone();
        assignment::balance(&mut planned, &present);
        let mut wanted = Vec::new();
        let mut unwanted = Vec::new();
        let mut unreleased = Vec::new();
        for (shard, (owner, planned)) in owners.iter().zip(&planned).enumerate() {
            let shard = shard as u32;
            if found.get(&shard).is_some_and(|claim| claim.is_silent) && self.silent.contains_key(&shard) {
                // Its owner is unknown; the consumer may answer again soon.
                continue;
            }
            let is_mine = planned.as_ref() == Some(&self.me);
            match self.owned.contains_key(&shard) {
                true if !is_mine => unwanted.push(shard),
                false if is_mine && self.is_free(owner.as_ref(), &present) => wanted.push(shard),
                // Its release did not reach the server, and others wait for it while this member is present.
                false if !is_mine && owner.as_ref() == Some(&self.me) => {
                    unreleased.extend(found.get(&shard).map(|claim| Released {
                        shard,
                        epoch: claim.epoch,
                        left_behind: claim.left_behind.clone(),
                        floor: claim.floor,
                    }))
                }
                _ => {}
            }
        }
        self.release(&topic, &unwanted).await;
        self.store_released(&topic, unreleased).await;
        self.claim(&topic, &found, wanted).await
    }

    /// Forgets all progress if the stream was deleted and created again: its sequences start over.
    fn reset_if_recreated(&mut self, topic: &Topic) {
        if self.created.replace(topic.created).is_some_and(|before| before != topic.created) {
            let (topic, group) = (&self.topic, &self.group);
            tracing::warn!(%topic, %group, "topic recreated, the group starts at its beginning");
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

    /// A consumer that has not answered for twice the session timeout counts as having no owner: its successor is
    /// created without it.
    fn replace_silent(&mut self, found: &BTreeMap<u32, Claim>) {
        let limit = self.broker.options.session_timeout * 2;
        self.silent.retain(|shard, _| found.get(shard).is_some_and(|claim| claim.is_silent));
        for (shard, claim) in found.iter() {
            if !claim.is_silent {
                let floor = self.floors.entry(*shard).or_default();
                *floor = claim.floor.max(*floor);
            } else if self.silent.entry(*shard).or_insert_with(Instant::now).elapsed() >= limit {
                tracing::warn!(shard, epoch = claim.epoch, "consumer does not answer, replacing it");
                self.silent.remove(shard);
                if let Some(owned) = self.owned.remove(shard) {
                    self.floors.insert(*shard, owned.shard.close());
                }
            }
        }
    }

    /// Drops shards that another member has claimed, those with messages lost on their way, and those whose tasks have
    /// died.
    fn drop_lost(&mut self, found: &BTreeMap<u32, Claim>) {
        let mut short = HashMap::new();
        let (before, floors, losses) = (&self.short, &mut self.floors, &mut self.losses);
        self.owned.retain(|number, owned| {
            let has_died = owned.has_died();
            let shard = &owned.shard;
            let keep = match found.get(number).filter(|claim| claim.epoch == shard.epoch) {
                None => {
                    tracing::info!(shard = number, epoch = shard.epoch, "another member has claimed the shard");
                    false
                }
                Some(_) if !shard.is_owned() => false,
                Some(_) if has_died => {
                    tracing::error!(shard = number, "a task of the shard died, claiming it again");
                    false
                }
                Some(claim) if claim.is_silent => true,
                Some(claim) => match shard.received_and_waiting().filter(|received| *received < claim.sent) {
                    // Twice in a row: the messages are not merely in transit.
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

    async fn claim(&mut self, topic: &Arc<Topic>, found: &BTreeMap<u32, Claim>, wanted: Vec<u32>) -> Result<()> {
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
                    tracing::debug!(shard = number, epoch, floor, group = %self.group, "shard claimed");
                    let (deliveries, room) = (self.deliveries.clone(), self.room.clone());
                    let shard = Shard::new(number, epoch, floor, deliveries, room.clone());
                    let search = self.search(number, floor);
                    let changed = self.changed.clone();
                    let tasks = worker::start(&self.broker, consumer, shard.clone(), room, changed, search);
                    self.owned.insert(number, Owned { shard, tasks });
                }
                // Another member was faster; the next round finds out which.
                Ok(None) => self.changed.notify_one(),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// How many messages to search for one that cannot be read: none, unless the shard is stuck. The more often it was
    /// lost, the further the search goes, up to the most that is ever prefetched.
    fn search(&self, shard: u32, floor: u64) -> usize {
        let (prefetch, in_flight) = (self.broker.options.prefetch, self.broker.options.in_flight);
        let losses = self.losses.get(&shard).filter(|losses| losses.floor == floor && losses.count >= STUCK);
        losses.map_or(0, |losses| (prefetch * losses.count).min(in_flight + 2 * prefetch))
    }

    /// Gives up shards at their floors.
    async fn release(&mut self, topic: &Arc<Topic>, shards: &[u32]) {
        let mut released = Vec::new();
        for shard in shards {
            if let Some(Owned { shard, .. }) = self.owned.remove(shard) {
                let floor = shard.close();
                self.floors.insert(shard.number, floor);
                released.push(Released { shard: shard.number, epoch: shard.epoch, left_behind: Vec::new(), floor });
            }
        }
        self.store_released(topic, released).await;
    }

    /// Creates the next consumer of each shard without an owner, so that others claim it.
    async fn store_released(&self, topic: &Arc<Topic>, released: Vec<Released>) {
        if released.is_empty() {
            return;
        }
        let claiming = self.claiming(topic);
        join_all(released.into_iter().map(async |Released { shard, epoch, left_behind, floor }| {
            let floor = floor.max(self.floors.get(&shard).copied().unwrap_or_default());
            if let Err(error) = claiming.next(shard, Some((epoch, left_behind)), floor, None).await {
                tracing::warn!(shard, %error, "releasing the shard failed, retrying");
            }
        }))
        .await;
        self.announce(Announcement::Moved(self.me.clone())).await;
    }

    async fn leave(&mut self) {
        let shards: Vec<u32> = self.owned.keys().copied().collect();
        // Even if the rest fails, no message is settled any more.
        for owned in self.owned.values() {
            owned.shard.close();
        }
        if let Ok(topic) = self.broker.topics.get(&self.topic).await {
            self.release(&topic, &shards).await;
        }
        self.announce(Announcement::Leaving(self.me.clone())).await;
        // Flushed before the process may end.
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

    use super::*;
    use crate::config::Options;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shard_whose_tasks_died_is_claimed_again() {
        let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
        let options = Options { timeout: SOON, partitions: 2, ..Options::from_url(&server.url()).unwrap() };
        let broker = Nats::connect(options).await.unwrap();
        let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let mut member = Member::new(broker, topic, group, Arc::default());
        member.round().await.unwrap();
        let epochs = |of: &Member| of.owned.values().map(|owned| owned.shard.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&member), [1, 1]);
        let first = member.owned.get_mut(&0).unwrap();
        first.tasks.abort_all();
        let closed = first.shard.clone();
        eventually(SOON, "the shard is claimed again", async || {
            member.round().await.unwrap();
            epochs(&member) == [2, 1]
        })
        .await;
        assert!(!closed.is_owned(), "its messages settle nothing any more");
        assert!(!member.owned.get_mut(&0).unwrap().has_died());
    }
}

//! Reading what is new, in a transaction that Redis refuses when a lease has changed.
//!
//! The streams are divided between two lanes, each with a connection of its own: while one lane's answer is taken apart
//! here, Redis works on the other's. A stream belongs to one lane, and a lane asks for one thing at a time, so what comes of
//! a stream comes in order.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use redis::{Pipeline, Value};
use tokio::task::JoinHandle;

use super::CONSUMER;
use super::member::{Member, Phase, Shard, Trouble};
use crate::entry::{Entry, EntryId};
use crate::error::{self, CallError, Cause};
use crate::link::Link;

/// Entries that are read of one stream at a time.
const MOST: usize = 1_000;

pub(super) struct Lane {
    link: Arc<Link>,
    /// Closed when a lease was renewed: that changes it, and what is watched must not have changed.
    pub(super) gate: Option<Gate>,
    asked: Option<Asked>,
    /// There was something the last time.
    is_flowing: bool,
    /// There was nothing the last time.
    is_dry: bool,
}

/// The leases of these shards are watched on this connection, and were this member's when that began.
pub(super) struct Gate {
    connection: u64,
    shards: Vec<u32>,
}

struct Asked {
    /// The shards whose leases are watched.
    watched: Vec<u32>,
    /// The shards that are read, and since when they are this member's.
    chosen: Vec<(u32, u64)>,
    /// How many entries may come.
    most: usize,
    /// A task of its own: the link is shared, and whoever waits for it must not be kept waiting by somebody who has it and
    /// does not go on.
    answer: JoinHandle<Result<Answer, Trouble>>,
}

/// What came of a read, and who holds the leases now. Nothing was read if one of them is somebody else's.
struct Answer {
    executed: Option<Value>,
    watched: Vec<Value>,
    connection: u64,
}

impl Lane {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, gate: None, asked: None, is_flowing: false, is_dry: false }
    }

    /// Whether it could read more, had it room.
    fn is_idle(&self) -> bool {
        self.asked.is_none() && !self.is_dry
    }
}

impl Member {
    /// Lets every lane that has nothing to do read, as far as there is room.
    pub(super) fn read(&mut self) {
        for lane in 0..self.lanes.len() {
            let room = self.room();
            if room > 0 && self.lanes[lane].is_idle() {
                self.ask_for(lane, room.min(2 * self.few()));
            }
        }
    }

    /// How many entries may be asked for now. In few large steps; but when everything is with the consumer, whatever fits.
    pub(super) fn room(&self) -> usize {
        let (kept, waiting) = self.shelf.count();
        let asked: usize = self.asked().map(|asked| asked.most).sum();
        let room = self.options.in_flight.saturating_sub(kept + asked);
        if room >= self.few() || waiting + asked == 0 { room } else { 0 }
    }

    fn few(&self) -> usize {
        (self.options.in_flight / 4).max(1)
    }

    fn ask_for(&mut self, lane: usize, room: usize) {
        let lanes = self.lanes.len();
        let of_lane = |shard: u32| shard as usize % lanes == lane;
        let reading = self.held.iter().filter(|(shard, held)| of_lane(**shard) && matches!(held.phase, Phase::Reading));
        let reading: Vec<(u32, u64)> = reading.map(|(shard, held)| (*shard, held.since)).collect();
        if reading.is_empty() {
            self.lanes[lane].is_dry = true;
            return;
        }
        // Not more streams than there is room for, beginning with another one each time.
        self.turn = self.turn.wrapping_add(1);
        let count = reading.len().min(room);
        let chosen: Vec<(u32, u64)> = (0..count).map(|step| reading[(self.turn + step) % reading.len()]).collect();
        let each = (room / count).clamp(1, MOST);
        let watched: Vec<u32> = reading.iter().map(|(shard, _)| *shard).collect();

        let (mut watch, mut read) = (redis::pipe(), redis::pipe());
        self.watch(&mut watch, &watched);
        read.cmd("MULTI");
        read.cmd("XREADGROUP")
            .arg("GROUP")
            .arg(self.group.as_str())
            .arg(CONSUMER)
            .arg("COUNT")
            .arg(each)
            .arg("STREAMS");
        for (shard, _) in &chosen {
            read.arg(self.names.stream(&self.topic, *shard));
        }
        for _ in &chosen {
            read.arg(">");
        }
        read.cmd("EXEC");
        self.watch(&mut read, &watched);

        let token = self.token.clone();
        let lane = &mut self.lanes[lane];
        let gate = lane.gate.take().filter(|gate| gate.shards == watched).map(|gate| gate.connection);
        let answer = tokio::spawn(ask(Arc::clone(&lane.link), gate, watch, read, token));
        lane.asked = Some(Asked { watched, chosen, most: each * count, answer });
    }

    /// Takes what the first lane to answer was given; waits for ever if none was asked.
    pub(super) async fn take_answer(&mut self) -> Result<(), Trouble> {
        let (lane, answer) = poll_fn(|context| {
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                if let Some(asked) = &mut lane.asked
                    && let Poll::Ready(answer) = asked.answer.poll_unpin(context)
                {
                    return Poll::Ready((number, answer));
                }
            }
            Poll::Pending
        })
        .await;
        let Some(Asked { watched, chosen, .. }) = self.lanes[lane].asked.take() else { return Ok(()) };
        let taken = match answer {
            Ok(Ok(answer)) => self.take(lane, watched, &chosen, answer).await,
            Ok(Err(trouble)) => Err(trouble),
            Err(ended) => Err(Trouble::CallError(CallError::AfterSending(std::io::Error::other(ended).into()))),
        };
        if taken.is_err() {
            // With the answer entries may be lost that the group was given: they are found among the unfinished ones.
            chosen.iter().for_each(|(shard, _)| self.claim_again(*shard));
        }
        taken
    }

    async fn take(
        &mut self,
        lane: usize,
        watched: Vec<u32>,
        chosen: &[(u32, u64)],
        answer: Answer,
    ) -> Result<(), Trouble> {
        let is_open = self.look_at(&watched, &answer.watched)?;
        self.lanes[lane].gate = is_open.then_some(Gate { connection: answer.connection, shards: watched });
        match answer.executed {
            // Not asked for, or refused: a lease has changed.
            None | Some(Value::Nil) => Ok(()),
            Some(Value::ServerError(error)) => Err(Trouble::Answered(error)),
            Some(Value::Array(mut results)) => match results.pop() {
                Some(Value::ServerError(error)) if error::cause(&error) == Cause::NoGroup => self.restore_group().await,
                Some(Value::ServerError(error)) => Err(Trouble::Answered(error)),
                Some(Value::Array(streams)) => {
                    self.arrived(chosen, streams);
                    // It may go on like that for long, and the other lane has a right to be looked at too.
                    if std::mem::replace(&mut self.lanes[lane].is_flowing, true) {
                        self.look_again(|_| true);
                    }
                    Ok(())
                }
                _ => {
                    (self.lanes[lane].is_flowing, self.lanes[lane].is_dry) = (false, true);
                    Ok(())
                }
            },
            Some(other) => Err(Trouble::CallError(CallError::AfterSending(
                (redis::ErrorKind::UnexpectedReturnType, "EXEC was answered strangely", format!("{other:?}")).into(),
            ))),
        }
    }

    fn asked(&self) -> impl Iterator<Item = &Asked> {
        self.lanes.iter().filter_map(|lane| lane.asked.as_ref())
    }

    pub(super) fn waits_for_an_answer(&self) -> bool {
        self.asked().next().is_some()
    }

    /// Whether more would be asked for if there were room.
    pub(super) fn waits_for_room(&self) -> bool {
        let is_claiming = |held: &Shard| matches!(held.phase, Phase::Claiming(_));
        self.lanes.iter().any(Lane::is_idle) || self.held.values().any(is_claiming)
    }

    /// There may be something new in a lane that has one of these shards.
    pub(super) fn look_again(&mut self, may_have_more: impl Fn(u32) -> bool) {
        let lanes = self.lanes.len();
        for shard in self.held.keys().filter(|shard| may_have_more(**shard)) {
            self.lanes[*shard as usize % lanes].is_dry = false;
        }
    }

    fn claim_again(&mut self, shard: u32) {
        if let Some(held) = self.held.get_mut(&shard)
            && !matches!(held.phase, Phase::Leaving(_))
        {
            held.phase = Phase::Claiming(EntryId::ZERO);
        }
    }

    fn watch(&self, pipeline: &mut Pipeline, shards: &[u32]) {
        let leases: Vec<String> =
            shards.iter().map(|shard| self.names.lease(&self.topic, *shard, &self.group)).collect();
        pipeline.cmd("UNWATCH").cmd("WATCH").arg(&leases).cmd("MGET").arg(&leases);
    }

    /// Whether the leases of `shards` are this member's, by the answers to [`Member::watch`]. Those that are not are lost.
    fn look_at(&mut self, shards: &[u32], answers: &[Value]) -> Result<bool, Trouble> {
        let Some(holders) = holders(answers)? else { return Ok(false) };
        let mut is_open = true;
        for (shard, holder) in shards.iter().zip(holders) {
            if !is(holder, &self.token) {
                tracing::warn!(topic = %self.topic, group = %self.group, partition = shard, "a lease was lost");
                self.lose(*shard);
                is_open = false;
            }
        }
        Ok(is_open)
    }

    fn arrived(&mut self, chosen: &[(u32, u64)], streams: Vec<Value>) {
        let names: Vec<String> = chosen.iter().map(|(shard, _)| self.names.stream(&self.topic, *shard)).collect();
        for stream in streams {
            let Value::Array(parts) = stream else { continue };
            let Ok([Value::BulkString(name), entries]) = <[Value; 2]>::try_from(parts) else { continue };
            let Some(place) = names.iter().position(|known| known.as_bytes() == name) else { continue };
            let (shard, since) = chosen[place];
            let Some(held) = self.held.get_mut(&shard) else { continue };
            if held.since != since || !matches!(held.phase, Phase::Reading) {
                // It was lost and came back meanwhile, or it goes to another member, who will find these.
                self.claim_again(shard);
                continue;
            }
            let entries = Entry::list(entries);
            if let Some(last) = entries.last() {
                held.delivered = held.delivered.max(last.id);
            }
            self.shelf.put(shard, entries);
        }
    }
}

/// Reads if the leases are this member's: as they were when the gate was opened, which is done first if there is none.
async fn ask(
    link: Arc<Link>,
    gate: Option<u64>,
    watch: Pipeline,
    read: Pipeline,
    token: String,
) -> Result<Answer, Trouble> {
    let connection = match gate {
        Some(connection) => connection,
        None => {
            let (watched, connection) = link.ask_numbered(&watch).await.map_err(Trouble::CallError)?;
            if !holders(&watched)?.is_some_and(|holders| holders.iter().all(|holder| is(holder, &token))) {
                return Ok(Answer { executed: None, watched, connection });
            }
            connection
        }
    };
    let Some(answers) = link.ask_on_connection(&read, connection).await else {
        return Ok(Answer { executed: None, watched: Vec::new(), connection });
    };
    let mut answers = answers.map_err(Trouble::CallError)?.into_iter();
    let (_multi, queued, executed) = (answers.next(), answers.next(), answers.next());
    if let Some(Value::ServerError(error)) = queued {
        return Err(Trouble::Answered(error));
    }
    Ok(Answer { executed, watched: answers.collect(), connection })
}

/// Who holds the leases, by the answers to [`Member::watch`].
fn holders(answers: &[Value]) -> Result<Option<&[Value]>, Trouble> {
    match answers {
        [_, Value::ServerError(error), _] | [.., Value::ServerError(error)] => Err(Trouble::Answered(error.clone())),
        [.., Value::Array(holders)] => Ok(Some(holders)),
        _ => Ok(None),
    }
}

fn is(holder: &Value, token: &str) -> bool {
    matches!(holder, Value::BulkString(found) if found == token.as_bytes())
}

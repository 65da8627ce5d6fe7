//! Reads new entries in a transaction that Redis refuses if a lease has changed.
//!
//! The streams are divided between two lanes, each with its own connection: while the response of one lane is decoded,
//! Redis works on the other's. A stream belongs to one lane, and a lane has one read in flight, so the entries of a
//! stream arrive in order.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use redis::{Pipeline, Value};
use tokio::task::JoinHandle;

use super::CONSUMER;
use super::member::{LeasedShard, Member, MemberError, Phase};
use crate::entry::{Entry, EntryId};
use crate::error::{self, CallError, Cause};
use crate::link::Link;

/// The most entries read from one stream at a time.
const MAX_ENTRIES: usize = 1_000;

pub(super) struct Lane {
    link: Arc<Link>,
    /// Dropped when a lease is renewed: that changes its key, so a transaction that watches it would fail.
    pub(super) watch: Option<Watch>,
    in_flight: Option<Read>,
    /// The last read returned entries.
    had_entries: bool,
    /// The last read returned nothing.
    is_empty: bool,
}

/// The connection watches the leases of these shards, which this member held when the watch began.
pub(super) struct Watch {
    connection: u64,
    shards: Vec<u32>,
}

struct Read {
    /// The shards whose leases are watched.
    watched: Vec<u32>,
    /// The shards that are read, each with its generation.
    chosen: Vec<(u32, u64)>,
    /// The most entries that may arrive.
    most: usize,
    /// Runs as a task: a future that holds the lock of the shared link and is not polled would block other callers.
    response: JoinHandle<Result<Response, MemberError>>,
}

/// What a read returned, and the present holders of the leases. If another member holds one, nothing was read.
struct Response {
    executed: Option<Value>,
    watched: Vec<Value>,
    connection: u64,
}

impl Lane {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, watch: None, in_flight: None, had_entries: false, is_empty: false }
    }

    /// Whether it would read more if there were room.
    fn is_idle(&self) -> bool {
        self.in_flight.is_none() && !self.is_empty
    }
}

impl Member {
    /// Starts a read on every idle lane, as far as there is room.
    pub(super) fn read(&mut self) {
        for lane in 0..self.lanes.len() {
            let room = self.room();
            if room > 0 && self.lanes[lane].is_idle() {
                self.start_read(lane, room.min(2 * self.min_read()));
            }
        }
    }

    /// How many entries may be read now. Reads are few and large, except that while the consumer has everything, any
    /// room is used.
    pub(super) fn room(&self) -> usize {
        let expected: usize = self.reads().map(|read| read.most).sum();
        let room = self.options.in_flight.saturating_sub(self.deliveries.len() + expected);
        if room >= self.min_read() || self.deliveries.waiting() + expected == 0 { room } else { 0 }
    }

    fn min_read(&self) -> usize {
        (self.options.in_flight / 4).max(1)
    }

    fn start_read(&mut self, lane: usize, room: usize) {
        let lanes = self.lanes.len();
        let of_lane = |shard: u32| shard as usize % lanes == lane;
        let reading = self.held.iter().filter(|(shard, held)| of_lane(**shard) && matches!(held.phase, Phase::Reading));
        let reading: Vec<(u32, u64)> = reading.map(|(shard, held)| (*shard, held.generation)).collect();
        if reading.is_empty() {
            self.lanes[lane].is_empty = true;
            return;
        }
        // At most as many streams as there is room for, beginning with another one each time.
        self.rotation = self.rotation.wrapping_add(1);
        let count = reading.len().min(room);
        let chosen: Vec<(u32, u64)> = (0..count).map(|step| reading[(self.rotation + step) % reading.len()]).collect();
        let each = (room / count).clamp(1, MAX_ENTRIES);
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
        let connection = lane.watch.take().filter(|open| open.shards == watched).map(|open| open.connection);
        let response = tokio::spawn(read_if_held(Arc::clone(&lane.link), connection, watch, read, token));
        lane.in_flight = Some(Read { watched, chosen, most: each * count, response });
    }

    /// Waits for the first read to finish and delivers its entries; waits for ever if no read is in flight.
    pub(super) async fn finish_read(&mut self) -> Result<(), MemberError> {
        let (lane, response) = poll_fn(|context| {
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                if let Some(read) = &mut lane.in_flight
                    && let Poll::Ready(response) = read.response.poll_unpin(context)
                {
                    return Poll::Ready((number, response));
                }
            }
            Poll::Pending
        })
        .await;
        let Some(Read { watched, chosen, .. }) = self.lanes[lane].in_flight.take() else { return Ok(()) };
        let applied = match response {
            Ok(Ok(response)) => self.apply(lane, watched, &chosen, response).await,
            Ok(Err(error)) => Err(error),
            Err(ended) => Err(MemberError::CallError(CallError::AfterSending(std::io::Error::other(ended).into()))),
        };
        if applied.is_err() {
            // Redis may have given the group entries that were lost with the response: they are claimed.
            chosen.iter().for_each(|(shard, _)| self.claim_again(*shard));
        }
        applied
    }

    async fn apply(
        &mut self,
        lane: usize,
        watched: Vec<u32>,
        chosen: &[(u32, u64)],
        response: Response,
    ) -> Result<(), MemberError> {
        let holds_all = self.check_leases(&watched, &response.watched)?;
        let watch = Watch { connection: response.connection, shards: watched };
        self.lanes[lane].watch = holds_all.then_some(watch);
        match response.executed {
            // Not attempted, or refused because a lease has changed.
            None | Some(Value::Nil) => Ok(()),
            Some(Value::ServerError(error)) => Err(MemberError::Answered(error)),
            Some(Value::Array(mut results)) => match results.pop() {
                Some(Value::ServerError(error)) if error::cause(&error) == Cause::NoGroup => self.restore_group().await,
                Some(Value::ServerError(error)) => Err(MemberError::Answered(error)),
                Some(Value::Array(streams)) => {
                    self.arrived(chosen, streams);
                    // A lane that always has entries must not keep the other one from being read.
                    if std::mem::replace(&mut self.lanes[lane].had_entries, true) {
                        self.may_have_more(|_| true);
                    }
                    Ok(())
                }
                _ => {
                    (self.lanes[lane].had_entries, self.lanes[lane].is_empty) = (false, true);
                    Ok(())
                }
            },
            Some(other) => Err(MemberError::CallError(CallError::AfterSending(
                (redis::ErrorKind::UnexpectedReturnType, "unexpected answer to EXEC", format!("{other:?}")).into(),
            ))),
        }
    }

    fn reads(&self) -> impl Iterator<Item = &Read> {
        self.lanes.iter().filter_map(|lane| lane.in_flight.as_ref())
    }

    pub(super) fn has_read_in_flight(&self) -> bool {
        self.reads().next().is_some()
    }

    /// Whether more would be read if there were room.
    pub(super) fn waits_for_room(&self) -> bool {
        let is_claiming = |held: &LeasedShard| matches!(held.phase, Phase::Claiming(_));
        self.lanes.iter().any(Lane::is_idle) || self.held.values().any(is_claiming)
    }

    /// Lets the lanes of the selected shards read again: there may be new entries.
    pub(super) fn may_have_more(&mut self, selects: impl Fn(u32) -> bool) {
        let lanes = self.lanes.len();
        for shard in self.held.keys().filter(|shard| selects(**shard)) {
            self.lanes[*shard as usize % lanes].is_empty = false;
        }
    }

    fn claim_again(&mut self, shard: u32) {
        if let Some(held) = self.held.get_mut(&shard)
            && !matches!(held.phase, Phase::Draining(_))
        {
            held.phase = Phase::Claiming(EntryId::ZERO);
        }
    }

    fn watch(&self, pipeline: &mut Pipeline, shards: &[u32]) {
        let leases: Vec<String> =
            shards.iter().map(|shard| self.names.lease(&self.topic, *shard, &self.group)).collect();
        pipeline.cmd("UNWATCH").cmd("WATCH").arg(&leases).cmd("MGET").arg(&leases);
    }

    /// Whether this member holds the leases of `shards`, by the answers to [`Member::watch`]. Revokes those it lost.
    fn check_leases(&mut self, shards: &[u32], answers: &[Value]) -> Result<bool, MemberError> {
        let Some(holders) = holders(answers)? else { return Ok(false) };
        let mut holds_all = true;
        for (shard, holder) in shards.iter().zip(holders) {
            if !is_token(holder, &self.token) {
                tracing::warn!(topic = %self.topic, group = %self.group, partition = shard, "lease lost");
                self.revoke(*shard);
                holds_all = false;
            }
        }
        Ok(holds_all)
    }

    fn arrived(&mut self, chosen: &[(u32, u64)], streams: Vec<Value>) {
        let names: Vec<String> = chosen.iter().map(|(shard, _)| self.names.stream(&self.topic, *shard)).collect();
        for stream in streams {
            let Value::Array(parts) = stream else { continue };
            let Ok([Value::BulkString(name), entries]) = <[Value; 2]>::try_from(parts) else { continue };
            let Some(index) = names.iter().position(|known| known.as_bytes() == name) else { continue };
            let (shard, generation) = chosen[index];
            let Some(held) = self.held.get_mut(&shard) else { continue };
            if held.generation != generation || !matches!(held.phase, Phase::Reading) {
                // The lease was lost and acquired again, or moves to another member. Either way these entries are
                // unfinished in the group, and are claimed.
                self.claim_again(shard);
                continue;
            }
            let entries = Entry::list(entries);
            if let Some(last) = entries.last() {
                held.delivered = held.delivered.max(last.id);
            }
            self.deliver(shard, entries);
        }
    }
}

/// Reads if this member holds the leases. `watched` is the connection that watches them; without one the watch is
/// opened first.
async fn read_if_held(
    link: Arc<Link>,
    watched: Option<u64>,
    watch: Pipeline,
    read: Pipeline,
    token: String,
) -> Result<Response, MemberError> {
    let connection = match watched {
        Some(connection) => connection,
        None => {
            let (watched, connection) = link.ask_numbered(&watch).await.map_err(MemberError::CallError)?;
            if !holders(&watched)?.is_some_and(|holders| holders.iter().all(|holder| is_token(holder, &token))) {
                return Ok(Response { executed: None, watched, connection });
            }
            connection
        }
    };
    let Some(answers) = link.ask_on_connection(&read, connection).await else {
        return Ok(Response { executed: None, watched: Vec::new(), connection });
    };
    let mut answers = answers.map_err(MemberError::CallError)?.into_iter();
    let (_multi, queued, executed) = (answers.next(), answers.next(), answers.next());
    if let Some(Value::ServerError(error)) = queued {
        return Err(MemberError::Answered(error));
    }
    Ok(Response { executed, watched: answers.collect(), connection })
}

/// The holders of the leases, by the answers to [`Member::watch`].
fn holders(answers: &[Value]) -> Result<Option<&[Value]>, MemberError> {
    match answers {
        [_, Value::ServerError(error), _] | [.., Value::ServerError(error)] => {
            Err(MemberError::Answered(error.clone()))
        }
        [.., Value::Array(holders)] => Ok(Some(holders)),
        _ => Ok(None),
    }
}

fn is_token(holder: &Value, token: &str) -> bool {
    matches!(holder, Value::BulkString(found) if found == token.as_bytes())
}

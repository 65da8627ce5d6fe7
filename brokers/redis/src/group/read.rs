//! Reading what is new, in a transaction that Redis refuses when a lease has changed.

use redis::{Pipeline, Value};

use super::CONSUMER;
use super::member::{Member, Next, Phase, Trouble};
use crate::entry::{Entry, EntryId};
use crate::error::{self, Cause, Failed};

/// Entries that are read of one stream at a time.
const MOST: usize = 1_000;

/// The leases of these shards are watched on this connection, and were this member's when that began.
#[derive(Debug)]
pub(super) struct Gate {
    connection: u64,
    shards: Vec<u32>,
}

impl Member {
    pub(super) async fn read(&mut self, room: usize) -> Result<Next, Trouble> {
        let reading = self.held.iter().filter(|(_, shard)| matches!(shard.phase, Phase::Reading));
        let reading: Vec<u32> = reading.map(|(shard, _)| *shard).collect();
        if reading.is_empty() {
            return Ok(Next::WaitForMore);
        }
        let gate = match self.gate.take().filter(|gate| gate.shards == reading) {
            Some(gate) => gate,
            None => match self.open_gate(&reading).await? {
                Some(gate) => gate,
                None => return Ok(Next::Again),
            },
        };
        // Not more streams than there is room for, beginning with another one each time.
        self.turn = self.turn.wrapping_add(1);
        let count = reading.len().min(room);
        let chosen: Vec<u32> = (0..count).map(|step| reading[(self.turn + step) % reading.len()]).collect();
        let mut pipeline = redis::pipe();
        pipeline.cmd("MULTI");
        pipeline.cmd("XREADGROUP").arg("GROUP").arg(self.group.as_str()).arg(CONSUMER);
        pipeline.arg("COUNT").arg((room / count).clamp(1, MOST)).arg("STREAMS");
        for shard in &chosen {
            pipeline.arg(self.names.stream(&self.topic, *shard));
        }
        for _ in &chosen {
            pipeline.arg(">");
        }
        pipeline.cmd("EXEC");
        self.watch(&mut pipeline, &reading);
        let Some(answers) = self.link.ask_again(&pipeline, gate.connection).await else { return Ok(Next::Again) };
        let mut answers = match answers {
            Ok(answers) => answers.into_iter(),
            Err(failed) => {
                self.claim_again(&chosen);
                return Err(Trouble::Failed(failed));
            }
        };
        let (_multi, queued, executed) = (answers.next(), answers.next(), answers.next());
        if let Some(Value::ServerError(error)) = queued {
            return Err(Trouble::Answered(error));
        }
        let rest: Vec<Value> = answers.collect();
        let is_open = self.look_at(&reading, &rest)?;
        self.gate = is_open.then_some(gate);
        match executed {
            // Refused: a lease has changed.
            Some(Value::Nil) | None => Ok(Next::Again),
            Some(Value::ServerError(error)) => Err(Trouble::Answered(error)),
            Some(Value::Array(mut results)) => match results.pop() {
                Some(Value::ServerError(error)) if error::cause(&error) == Cause::NoGroup => {
                    self.restore_group().await?;
                    Ok(Next::Again)
                }
                Some(Value::ServerError(error)) => Err(Trouble::Answered(error)),
                Some(Value::Array(streams)) => Ok(self.arrived(&chosen, streams)),
                _ => Ok(Next::WaitForMore),
            },
            Some(other) => Err(Trouble::Failed(Failed::AfterSending(
                (redis::ErrorKind::UnexpectedReturnType, "EXEC was answered strangely", format!("{other:?}")).into(),
            ))),
        }
    }

    /// The answer was lost, and with it entries that the group was given: they are found among the unfinished ones.
    fn claim_again(&mut self, shards: &[u32]) {
        for shard in shards {
            if let Some(held) = self.held.get_mut(shard) {
                held.phase = Phase::Claiming(EntryId::ZERO);
            }
        }
    }

    /// Watches the leases of `shards`, and answers with nothing if one of them is not this member's.
    async fn open_gate(&mut self, shards: &[u32]) -> Result<Option<Gate>, Trouble> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("UNWATCH");
        self.watch(&mut pipeline, shards);
        let (answers, connection) = self.link.ask_numbered(&pipeline).await.map_err(Trouble::Failed)?;
        let is_open = self.look_at(shards, &answers[1..])?;
        Ok(is_open.then(|| Gate { connection, shards: shards.to_vec() }))
    }

    fn watch(&self, pipeline: &mut Pipeline, shards: &[u32]) {
        let leases: Vec<String> =
            shards.iter().map(|shard| self.names.lease(&self.topic, *shard, &self.group)).collect();
        pipeline.cmd("WATCH").arg(&leases);
        pipeline.cmd("MGET").arg(&leases);
    }

    /// Whether the leases of `shards` are this member's, by the answers to [`Member::watch`]. Those that are not are lost.
    fn look_at(&mut self, shards: &[u32], answers: &[Value]) -> Result<bool, Trouble> {
        let holders = match answers {
            [Value::ServerError(error), ..] | [_, Value::ServerError(error)] => {
                return Err(Trouble::Answered(error.clone()));
            }
            [_, Value::Array(holders)] => holders,
            _ => return Ok(false),
        };
        let mut is_open = true;
        for (shard, holder) in shards.iter().zip(holders) {
            if !matches!(holder, Value::BulkString(token) if token == self.token.as_bytes()) {
                tracing::warn!(topic = %self.topic, group = %self.group, partition = shard, "a lease was lost");
                self.lose(*shard);
                is_open = false;
            }
        }
        Ok(is_open)
    }

    fn arrived(&mut self, chosen: &[u32], streams: Vec<Value>) -> Next {
        let names: Vec<String> = chosen.iter().map(|shard| self.names.stream(&self.topic, *shard)).collect();
        for stream in streams {
            let Value::Array(parts) = stream else { continue };
            let Ok([Value::BulkString(name), entries]) = <[Value; 2]>::try_from(parts) else { continue };
            let Some(place) = names.iter().position(|known| known.as_bytes() == name) else { continue };
            let Some(held) = self.held.get_mut(&chosen[place]) else { continue };
            let entries = Entry::list(entries);
            if let Some(last) = entries.last() {
                held.delivered = held.delivered.max(last.id);
            }
            self.shelf.put(chosen[place], entries);
        }
        Next::Again
    }
}

//! Which streams are this member's: a fair share of them, each as long as its lease is renewed.

use landfall_core::{Error, ErrorKind, Result};
use redis::Value;
use tokio::time::Instant;

use super::member::{Member, Phase, Shard, Trouble};
use crate::entry::EntryId;
use crate::publisher::millis;
use crate::script::{self, HOLD, JOIN, RELEASE};
use crate::topics::number;

impl Member {
    /// Gives a sign of life, renews what is held, takes what is free and gives up what others should have.
    pub(super) async fn beat(&mut self) -> Result<(), Trouble> {
        // Renewing a lease changes it, and what is watched must not have changed.
        self.close_gates();
        let share = self.share().await?;
        self.renew().await?;
        let active = self.held.values().filter(|shard| !matches!(shard.phase, Phase::Leaving(_))).count();
        if active < share {
            self.acquire(share - active).await?;
        } else {
            self.give_up(active - share);
        }
        self.release_the_left().await?;
        self.trim().await
    }

    /// How many streams this member should have: the streams divided by the members, the first ones take the rest.
    async fn share(&mut self) -> Result<usize, Trouble> {
        let members = self.names.members(&self.topic, &self.group);
        let mut join = script::call(&JOIN, &[&members]);
        join.arg(&self.token).arg(millis(self.options.lease));
        let mut pipeline = redis::pipe();
        pipeline.add_command(join);
        pipeline.cmd("HGET").arg(self.names.topics()).arg(self.topic.as_str());
        let answers = self.ask(&pipeline).await?;
        if answers.get(1).and_then(number) != Some(self.shards) {
            if self.shards > 0 {
                tracing::error!(topic = %self.topic, "the topic was removed or made anew, or Redis has lost it");
            }
            (0..self.shards).for_each(|shard| self.lose(shard));
            self.shards = 0;
            self.look_up().await?;
        }
        let mut tokens: Vec<String> =
            answers.into_iter().next().and_then(|answer| redis::from_redis_value(answer).ok()).unwrap_or_default();
        tokens.sort();
        let rank = tokens.iter().position(|token| *token == self.token).unwrap_or(tokens.len());
        let (shards, members) = (self.shards as usize, tokens.len().max(1));
        Ok(shards / members + usize::from(rank < shards % members))
    }

    async fn renew(&mut self) -> Result<(), Trouble> {
        let held: Vec<u32> = self.held.keys().copied().collect();
        for (shard, answer) in self.hold(&held).await? {
            match answer {
                1 => {}
                // It ran out and was nobody's, at least not now: somebody may have had it in between.
                2 => self.begin(shard),
                _ => {
                    tracing::warn!(topic = %self.topic, group = %self.group, partition = shard, "a lease was lost");
                    self.lose(shard);
                }
            }
        }
        Ok(())
    }

    async fn acquire(&mut self, wanted: usize) -> Result<(), Trouble> {
        let others: Vec<u32> = (0..self.shards).filter(|shard| !self.held.contains_key(shard)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        for shard in &others {
            pipeline.cmd("EXISTS").arg(self.names.lease(&self.topic, *shard, &self.group));
        }
        let answers = self.ask(&pipeline).await?;
        let free = others.into_iter().zip(answers).filter(|(_, answer)| *answer == Value::Int(0));
        let free: Vec<u32> = free.map(|(shard, _)| shard).take(wanted).collect();
        for (shard, answer) in self.hold(&free).await? {
            if answer > 0 {
                self.begin(shard);
            }
        }
        Ok(())
    }

    /// Takes or renews the leases of `shards`; the numbers are those that the script answers with.
    async fn hold(&mut self, shards: &[u32]) -> Result<Vec<(u32, i64)>, Trouble> {
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for shard in shards {
            let lease = self.names.lease(&self.topic, *shard, &self.group);
            let mut hold = script::call(&HOLD, &[&lease]);
            hold.arg(&self.token).arg(millis(self.options.lease));
            pipeline.add_command(hold);
        }
        let answers = self.ask(&pipeline).await?;
        Ok(shards.iter().copied().zip(answers.iter().map(|answer| number(answer).unwrap_or(0))).collect())
    }

    fn begin(&mut self, shard: u32) {
        let phase = Phase::Claiming(EntryId::ZERO);
        let since = self.shelf.open(shard);
        self.held.insert(shard, Shard { phase, since, delivered: EntryId::ZERO, trimmed: Instant::now() });
    }

    /// The last ones go first; what the consumer has of them it may finish, for as long as a lease lasts.
    fn give_up(&mut self, surplus: usize) {
        let latest = Instant::now() + self.options.lease;
        let active = self.held.iter_mut().rev().filter(|(_, shard)| !matches!(shard.phase, Phase::Leaving(_)));
        for (number, shard) in active.take(surplus) {
            shard.phase = Phase::Leaving(latest);
            self.shelf.leave(*number);
        }
    }

    async fn release_the_left(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        let has_left = |number: u32, shard: &Shard| match shard.phase {
            Phase::Leaving(latest) => latest <= now || self.shelf.is_empty(number),
            _ => false,
        };
        let left: Vec<u32> =
            self.held.iter().filter(|(number, shard)| has_left(**number, shard)).map(|(number, _)| *number).collect();
        self.release(&left).await
    }

    async fn release(&mut self, shards: &[u32]) -> Result<(), Trouble> {
        if shards.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        for shard in shards {
            let lease = self.names.lease(&self.topic, *shard, &self.group);
            let mut release = script::call(&RELEASE, &[&lease]);
            release.arg(&self.token);
            pipeline.add_command(release);
        }
        shards.iter().for_each(|shard| self.lose(*shard));
        self.ask(&pipeline).await.map(drop)
    }

    /// Gives everything back, so that nobody has to wait until the leases run out.
    pub(super) async fn leave(mut self) -> Result<()> {
        let held: Vec<u32> = self.held.keys().copied().collect();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZREM").arg(self.names.members(&self.topic, &self.group)).arg(&self.token);
        let released = self.release(&held).await;
        let left = match released {
            Ok(()) => self.ask(&pipeline).await.map(drop),
            failed => failed,
        };
        left.map_err(|trouble| {
            let error = trouble.error(&self.topic);
            tracing::warn!(topic = %self.topic, group = %self.group, %error, "a member leaves without a word");
            Error::new(
                ErrorKind::Unavailable,
                "the leases of a subscriber were not given back; they run out by themselves",
            )
            .with_source(error)
        })
    }

    /// Every answer, or the first error among them.
    pub(super) async fn ask(&mut self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, Trouble> {
        let answers = self.link.ask(pipeline).await.map_err(Trouble::CallError)?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(Trouble::Answered(error.clone()));
            }
        }
        Ok(answers)
    }
}

//! Leases streams: a fair share for each member, for as long as it renews its leases.

use landfall_broker_toolkit::assignment;
use landfall_core::{Error, ErrorKind, Result};
use redis::Value;
use tokio::time::Instant;

use super::member::{LeasedShard, Member, MemberError, Phase};
use crate::entry::EntryId;
use crate::publisher::millis;
use crate::script::{self, HOLD, JOIN, RELEASE};
use crate::topics::number;

impl Member {
    /// Registers as alive, renews the leases, claims free streams and gives up what exceeds the fair share.
    pub(super) async fn beat(&mut self) -> Result<(), MemberError> {
        // Renewing a lease changes its key, so a transaction that watches it would fail.
        self.drop_watches();
        let share = self.share().await?;
        self.renew().await?;
        let active = self.held.values().filter(|shard| !matches!(shard.phase, Phase::Draining(_))).count();
        if active < share {
            self.acquire(share - active).await?;
        } else {
            self.give_up(active - share);
        }
        self.release_drained().await?;
        self.trim().await
    }

    /// How many streams this member should hold.
    async fn share(&mut self) -> Result<usize, MemberError> {
        let members = self.names.members(&self.topic, &self.group);
        let mut join = script::call(&JOIN, &[&members]);
        join.arg(&self.token).arg(millis(self.options.lease));
        let mut pipeline = redis::pipe();
        pipeline.add_command(join);
        pipeline.cmd("HGET").arg(self.names.topics()).arg(self.topic.as_str());
        let answers = self.ask(&pipeline).await?;
        if answers.get(1).and_then(number) != Some(self.shards) {
            if self.shards > 0 {
                tracing::error!(topic = %self.topic, "topic removed or recreated, or lost by Redis");
            }
            (0..self.shards).for_each(|shard| self.revoke(shard));
            self.shards = 0;
            self.look_up().await?;
        }
        let mut tokens: Vec<String> =
            answers.into_iter().next().and_then(|answer| redis::from_redis_value(answer).ok()).unwrap_or_default();
        tokens.sort();
        let rank = tokens.iter().position(|token| *token == self.token).unwrap_or(tokens.len());
        Ok(assignment::share(self.shards as usize, tokens.len(), rank))
    }

    async fn renew(&mut self) -> Result<(), MemberError> {
        let held: Vec<u32> = self.held.keys().copied().collect();
        for (shard, answer) in self.hold(&held).await? {
            match answer {
                1 => {}
                // It had expired and was free; another member may have held it in between.
                2 => self.begin(shard),
                _ => {
                    tracing::warn!(topic = %self.topic, group = %self.group, partition = shard, "lease lost");
                    self.revoke(shard);
                }
            }
        }
        Ok(())
    }

    async fn acquire(&mut self, wanted: usize) -> Result<(), MemberError> {
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

    /// Claims or renews the leases of `shards`; returns the script's answer for each.
    async fn hold(&mut self, shards: &[u32]) -> Result<Vec<(u32, i64)>, MemberError> {
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
        let generation = self.deliveries.assign(shard);
        let leased = LeasedShard { phase, generation, delivered: EntryId::ZERO, trimmed: Instant::now() };
        self.held.insert(shard, leased);
    }

    /// Drains the last `surplus` streams: the consumer may finish what it has of them, for as long as a lease lasts.
    fn give_up(&mut self, surplus: usize) {
        let latest = Instant::now() + self.options.lease;
        let active = self.held.iter_mut().rev().filter(|(_, shard)| !matches!(shard.phase, Phase::Draining(_)));
        for (number, shard) in active.take(surplus) {
            shard.phase = Phase::Draining(latest);
            self.deliveries.drain(*number);
        }
    }

    async fn release_drained(&mut self) -> Result<(), MemberError> {
        let now = Instant::now();
        let is_drained = |number: u32, shard: &LeasedShard| match shard.phase {
            Phase::Draining(latest) => latest <= now || self.deliveries.len_of(number) == 0,
            _ => false,
        };
        let drained = self.held.iter().filter(|(number, shard)| is_drained(**number, shard));
        let drained: Vec<u32> = drained.map(|(number, _)| *number).collect();
        self.release(&drained).await
    }

    async fn release(&mut self, shards: &[u32]) -> Result<(), MemberError> {
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
        shards.iter().for_each(|shard| self.revoke(*shard));
        self.ask(&pipeline).await.map(drop)
    }

    /// Deregisters and releases the leases, so that other members need not wait for them to expire.
    pub(super) async fn leave(mut self) -> Result<()> {
        let held: Vec<u32> = self.held.keys().copied().collect();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZREM").arg(self.names.members(&self.topic, &self.group)).arg(&self.token);
        let released = self.release(&held).await;
        let left = match released {
            Ok(()) => self.ask(&pipeline).await.map(drop),
            failed => failed,
        };
        left.map_err(|error| {
            let error = error.error(&self.topic);
            let (topic, group) = (&self.topic, &self.group);
            tracing::warn!(%topic, %group, %error, "deregistration failed, the leases will expire");
            let reason = "the leases of a subscriber were not released; they will expire";
            Error::new(ErrorKind::Unavailable, reason).with_source(error)
        })
    }

    /// Returns every answer, or the first error among them.
    pub(super) async fn ask(&mut self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, MemberError> {
        let answers = self.link.ask(pipeline).await.map_err(MemberError::CallError)?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(MemberError::Answered(error.clone()));
            }
        }
        Ok(answers)
    }
}

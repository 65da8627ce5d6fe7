//! Taking over what the group was given and has not finished, before anything new is read.

use redis::Value;

use super::CONSUMER;
use super::member::{Member, Phase, Shard, Trouble};
use crate::entry::{Entry, EntryId};
use crate::error::{self, Cause};
use crate::script::{self, CLAIM};

/// Entries claimed at a time.
const PAGE: usize = 200;

impl Member {
    /// The next page of each stream that came to this member of late. Answers whether there was any, and room for it.
    pub(super) async fn claim(&mut self) -> Result<bool, Trouble> {
        let room = self.room();
        let claiming = |(shard, held): (&u32, &Shard)| match held.phase {
            Phase::Claiming(from) => Some((*shard, from)),
            _ => None,
        };
        let claiming: Vec<(u32, EntryId)> = self.held.iter().filter_map(claiming).take(room).collect();
        if claiming.is_empty() {
            return Ok(false);
        }
        let page = (room / claiming.len()).clamp(1, PAGE);
        let mut pipeline = redis::pipe();
        for (shard, from) in &claiming {
            let stream = self.names.stream(&self.topic, *shard);
            let lease = self.names.lease(&self.topic, *shard, &self.group);
            let mut claim = script::call(&CLAIM, &[&stream, &lease]);
            claim.arg(&self.token).arg(self.group.as_str()).arg(CONSUMER).arg(from.to_string()).arg(page);
            pipeline.add_command(claim);
        }
        let answers = self.link.ask(&pipeline).await.map_err(Trouble::CallError)?;
        for ((shard, _), answer) in claiming.into_iter().zip(answers) {
            match answer {
                Value::ServerError(error) if error::cause(&error) == Cause::NoGroup => self.restore_group().await?,
                Value::ServerError(error) => return Err(Trouble::Answered(error)),
                Value::Array(parts) => self.claimed(shard, parts),
                // The lease is somebody else's.
                _ => self.lose(shard),
            }
        }
        Ok(true)
    }

    fn claimed(&mut self, shard: u32, parts: Vec<Value>) {
        let Ok([cursor, entries, deleted, delivered]) = <[Value; 4]>::try_from(parts) else { return };
        let Some(held) = self.held.get_mut(&shard) else { return };
        let cursor = EntryId::from_value(&cursor).unwrap_or_default();
        held.phase = if cursor == EntryId::ZERO { Phase::Reading } else { Phase::Claiming(cursor) };
        held.delivered = EntryId::from_value(&delivered).unwrap_or_default();
        if let Value::Array(deleted) = deleted
            && !deleted.is_empty()
        {
            let ids: Vec<_> = deleted.iter().filter_map(EntryId::from_value).map(|id| id.to_string()).collect();
            tracing::error!(topic = %self.topic, group = %self.group, partition = shard, ?ids,
                "somebody deleted entries that the group had not finished");
        }
        self.shelf.put(shard, Entry::list(entries));
        self.look_again(|other| other == shard);
    }

    /// The group is gone: Redis was emptied, or failed over to a server that did not know it. It begins again at the
    /// beginning, since what it had finished is not known either.
    pub(super) async fn restore_group(&mut self) -> Result<(), Trouble> {
        let made = self.make_groups().await?;
        tracing::error!(topic = %self.topic, group = %self.group, streams = made,
            "Redis has lost the group; it begins again at the beginning");
        Ok(())
    }
}

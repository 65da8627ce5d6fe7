//! Admission of a batch: one statement for its inbox rows, another for its keys.

use landfall_core::{Error, ErrorKind, GroupName, MessageId, Result};
use sqlx::MySqlConnection;
use uuid::Uuid;

use crate::MySql;
use crate::statements::ByPairs;

/// Attempts to insert while other consumers commit duplicates between two statements.
const ATTEMPTS: u32 = 10;

impl MySql {
    /// Inserts `ids` (sorted) and returns those that were new.
    ///
    /// Without RETURNING, the server only reports how many were new. Usually all are. If not, the insert is rolled
    /// back, the existing ids are listed, and the others are inserted. If another consumer inserted one of them
    /// meanwhile, this is repeated.
    pub(crate) async fn insert_new(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<MessageId>> {
        let mut inserted = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(ByPairs::MOST) {
            inserted.extend(self.insert_new_chunk(connection, group, chunk).await?);
        }
        Ok(inserted)
    }

    async fn insert_new_chunk(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<MessageId>> {
        let doing = "insert inbox rows";
        sqlx::raw_sql("SAVEPOINT landfall_admit").execute(&mut *connection).await.map_err(self.could_not(doing))?;
        let mut fresh = ids.to_vec();
        for _ in 0..ATTEMPTS {
            if fresh.is_empty() || self.insert_ids(connection, group, &fresh).await? == fresh.len() as u64 {
                return Ok(fresh);
            }
            let back = sqlx::raw_sql("ROLLBACK TO SAVEPOINT landfall_admit");
            back.execute(&mut *connection).await.map_err(self.could_not(doing))?;
            let handled = self.handled_among(connection, group, ids).await?;
            fresh = ids.iter().copied().filter(|id| handled.binary_search(id).is_err()).collect();
        }
        Err(Error::new(ErrorKind::Unavailable, "other consumers kept inserting duplicates of the batch's messages"))
    }

    async fn insert_ids(&self, connection: &mut MySqlConnection, group: &GroupName, ids: &[MessageId]) -> Result<u64> {
        let (text, bound) = self.statements().admit_batch.fit(ids);
        let mut query = sqlx::query(text);
        for id in bound {
            query = query.bind(group.as_str()).bind(id.as_uuid());
        }
        let done = query.execute(connection).await.map_err(self.could_not("insert inbox rows"))?;
        Ok(done.rows_affected())
    }

    /// Returns which of `ids` (at least one) are in the inbox, sorted.
    pub(crate) async fn handled_among(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<MessageId>> {
        let (text, bound) = self.statements().handled.fit(ids);
        let mut query = sqlx::query_scalar(text);
        for id in bound {
            query = query.bind(group.as_str()).bind(id.as_uuid());
        }
        let found: Vec<Uuid> = query.fetch_all(connection).await.map_err(self.could_not("read the inbox"))?;
        let mut found: Vec<_> = found.into_iter().map(MessageId::from).collect();
        found.sort();
        Ok(found)
    }

    /// Returns which of `names` (topic and key, sorted) are held for `group`. They are locked until the transaction
    /// ends.
    pub(crate) async fn lock_held_keys(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        names: &[(&str, &str)],
    ) -> Result<Vec<(String, String)>> {
        let mut held = Vec::new();
        for chunk in names.chunks(ByPairs::MOST) {
            let (text, bound) = self.statements().lock_held_keys.fit(chunk);
            let mut query = sqlx::query_as(text).bind(group.as_str());
            for (topic, key) in bound {
                query = query.bind(topic).bind(key);
            }
            let locked = query.fetch_all(&mut *connection).await.map_err(self.could_not("lock held keys"))?;
            held.extend::<Vec<(String, String)>>(locked);
        }
        Ok(held)
    }
}

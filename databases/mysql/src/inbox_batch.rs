//! Taking charge of a whole batch: its inbox rows as one statement, its keys as another.

use landfall_core::{Error, ErrorKind, GroupName, MessageId, Result};
use sqlx::MySqlConnection;
use uuid::Uuid;

use crate::MySql;
use crate::statements::ByPairs;

/// How often to look again for copies that others committed between two statements.
const TRIES: u32 = 10;

impl MySql {
    /// Inserts `ids` (sorted) and answers with those that were not there.
    ///
    /// There is no RETURNING, so the server only says how many were new. Mostly all are. If not, the insert is taken
    /// back, those that are there are listed, and the others are inserted: again all of them, or another copy was
    /// quicker and it is done once more.
    pub(crate) async fn take_charge(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<MessageId>> {
        let mut inserted = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(ByPairs::MOST) {
            inserted.extend(self.take_charge_of_few(connection, group, chunk).await?);
        }
        Ok(inserted)
    }

    async fn take_charge_of_few(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<MessageId>> {
        let doing = "take charge of a batch";
        sqlx::raw_sql("SAVEPOINT landfall_admit").execute(&mut *connection).await.map_err(self.could_not(doing))?;
        let mut fresh = ids.to_vec();
        for _ in 0..TRIES {
            if fresh.is_empty() || self.insert_ids(connection, group, &fresh).await? == fresh.len() as u64 {
                return Ok(fresh);
            }
            let back = sqlx::raw_sql("ROLLBACK TO SAVEPOINT landfall_admit");
            back.execute(&mut *connection).await.map_err(self.could_not(doing))?;
            let handled = self.handled_among(connection, group, ids).await?;
            fresh = ids.iter().copied().filter(|id| handled.binary_search(id).is_err()).collect();
        }
        Err(Error::new(ErrorKind::Unavailable, "copies of a batch's messages kept arriving elsewhere"))
    }

    async fn insert_ids(&self, connection: &mut MySqlConnection, group: &GroupName, ids: &[MessageId]) -> Result<u64> {
        let (text, bound) = self.statements().admit_batch.fit(ids);
        let mut query = sqlx::query(text);
        for id in bound {
            query = query.bind(group.as_str()).bind(id.as_uuid());
        }
        let done = query.execute(connection).await.map_err(self.could_not("take charge of a batch"))?;
        Ok(done.rows_affected())
    }

    /// Those of `ids` (some) that are in the inbox, sorted.
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
        let found: Vec<Uuid> = query.fetch_all(connection).await.map_err(self.could_not("look into the inbox"))?;
        let mut found: Vec<_> = found.into_iter().map(MessageId::from).collect();
        found.sort();
        Ok(found)
    }

    /// Those of `names` (topic and key, sorted) that are held for `group`; nobody else releases them before this
    /// transaction ends.
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

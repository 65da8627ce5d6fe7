//! The sequence that each entity has reached. Entities are processed in the given order, with two statements each and a
//! third one for a new sequence.

use landfall_core::adapter::EntityName;
use landfall_core::{GroupName, Result, Sequences};
use sqlx::MySqlConnection;

use crate::MySql;

impl Sequences for MySql {
    async fn reached(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        names: &[EntityName<'_>],
    ) -> Result<Vec<Option<i64>>> {
        let mut numbers = Vec::with_capacity(names.len());
        for (topic, key) in names {
            sqlx::query(self.statements().ensure_sequence.text())
                .bind(group.as_str())
                .bind(*topic)
                .bind(*key)
                .execute(&mut *connection)
                .await
                .map_err(self.could_not("read sequences"))?;
            let reached: Option<i64> = sqlx::query_scalar(self.statements().reached.text())
                .bind(group.as_str())
                .bind(*topic)
                .bind(*key)
                .fetch_one(&mut *connection)
                .await
                .map_err(self.could_not("read sequences"))?;
            numbers.push(reached);
        }
        Ok(numbers)
    }

    async fn reach(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        numbers: &[(EntityName<'_>, i64)],
    ) -> Result<()> {
        for ((topic, key), number) in numbers {
            sqlx::query(self.statements().reach.text())
                .bind(number)
                .bind(group.as_str())
                .bind(*topic)
                .bind(*key)
                .execute(&mut *connection)
                .await
                .map_err(self.could_not("write sequences"))?;
        }
        Ok(())
    }
}

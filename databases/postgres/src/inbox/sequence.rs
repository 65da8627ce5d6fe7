//! The sequence that each entity has reached.

use std::collections::HashMap;

use landfall_core::adapter::EntityName;
use landfall_core::{GroupName, Result, Sequences};
use sqlx::PgConnection;

use crate::Postgres;

impl Sequences for Postgres {
    async fn reached(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        names: &[EntityName<'_>],
    ) -> Result<Vec<Option<i64>>> {
        let (topics, keys): (Vec<_>, Vec<_>) = names.iter().copied().unzip();
        let rows: Vec<(String, String, Option<i64>)> = self
            .query_as(&self.statements().reached)
            .bind(group.as_str())
            .bind(topics)
            .bind(keys)
            .fetch_all(connection)
            .await
            .map_err(self.could_not("read sequences"))?;
        let known: HashMap<_, _> = rows.iter().map(|(topic, key, reached)| ((&**topic, &**key), *reached)).collect();
        Ok(names.iter().map(|name| known.get(name).copied().flatten()).collect())
    }

    async fn reach(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        numbers: &[(EntityName<'_>, i64)],
    ) -> Result<()> {
        let (names, numbers): (Vec<_>, Vec<_>) = numbers.iter().copied().unzip();
        let (topics, keys): (Vec<_>, Vec<_>) = names.into_iter().unzip();
        self.query(&self.statements().reach)
            .bind(group.as_str())
            .bind(topics)
            .bind(keys)
            .bind(numbers)
            .execute(connection)
            .await
            .map_err(self.could_not("write sequences"))?;
        Ok(())
    }
}

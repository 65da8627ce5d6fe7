//! The sequence that each entity has reached. The transaction holds the write lock, so no other consumer reads it
//! meanwhile.

use std::collections::HashMap;

use landfall_core::adapter::EntityName;
use landfall_core::{GroupName, Result, Sequences};
use serde_json::json;
use sqlx::SqliteConnection;

use crate::Sqlite;

impl Sequences for Sqlite {
    async fn reached(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        names: &[EntityName<'_>],
    ) -> Result<Vec<Option<i64>>> {
        let rows: Vec<(String, String, Option<i64>)> = sqlx::query_as(self.statements().reached.text())
            .bind(group.as_str())
            .bind(json!(names).to_string())
            .fetch_all(connection)
            .await
            .map_err(self.cannot("read sequences"))?;
        let known: HashMap<_, _> = rows.iter().map(|(topic, key, reached)| ((&**topic, &**key), *reached)).collect();
        Ok(names.iter().map(|name| known.get(name).copied().flatten()).collect())
    }

    async fn reach(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        numbers: &[(EntityName<'_>, i64)],
    ) -> Result<()> {
        let rows: Vec<_> = numbers.iter().map(|((topic, key), number)| json!([topic, key, number])).collect();
        sqlx::query(self.statements().reach.text())
            .bind(group.as_str())
            .bind(json!(rows).to_string())
            .execute(connection)
            .await
            .map_err(self.cannot("write sequences"))?;
        Ok(())
    }
}

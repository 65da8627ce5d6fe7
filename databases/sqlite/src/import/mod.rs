//! Moves rows of an application's own outbox into Landfall's.
//!
//! One transaction reads the rows that are present, removes or marks them, and enqueues them, under the write lock and
//! the lease's epoch. Without rows, no lock is taken.
//!
//! Names of tables and columns are validated identifiers, and quoted. Statements are built once, at the start.

mod table;

use async_trait::async_trait;
use landfall_core::adapter::{ForeignRow, Import, Imported, ImportedRow, Lease};
use landfall_core::{Database, Error, ErrorKind, ImportOrder, ImportSource, Mapping, OutboxWriter, Result};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqlSafeStr, SqlStr, SqliteConnection};

use self::table::Table;
use crate::{Sqlite, statements};

#[async_trait]
impl ImportSource for Sqlite {
    async fn prepare_import(&self, mapping: Mapping) -> Result<Box<dyn Import>> {
        mapping.check()?;
        let table = Table::inspect(self, &mapping).await?;
        let (any, read, take) = (table.any()?, table.read()?, table.take()?);
        let order = table.order();
        let enqueue = statements::fill(ENQUEUE, self.prefix());
        let [any, read, take, enqueue] = [any, read, take, enqueue].map(|text| AssertSqlSafe(text).into_sql_str());
        Ok(Box::new(Prepared { database: self.clone(), mapping, order, any, read, take, enqueue }))
    }
}

const ENQUEUE: &str =
    "INSERT INTO {p}outbox (message_id, topic, key, kind, headers, payload) VALUES (?, ?, ?, ?, ?, ?)";

struct Prepared {
    database: Sqlite,
    mapping: Mapping,
    order: ImportOrder,
    any: SqlStr,
    read: SqlStr,
    take: SqlStr,
    enqueue: SqlStr,
}

#[async_trait]
impl Import for Prepared {
    fn order(&self) -> &ImportOrder {
        &self.order
    }

    async fn import(&self, lease: &Lease, limit: usize) -> Result<Imported> {
        let any: bool = sqlx::query_scalar(self.any.clone())
            .fetch_one(self.database.pool())
            .await
            .map_err(self.database.cannot("check the table to import for rows"))?;
        if !any {
            return Ok(Imported::default());
        }
        let mut transaction = self.database.begin().await?;
        if !self.is_held(&mut transaction, lease).await? {
            return Ok(Imported::default());
        }
        let rows = self.take(&mut transaction, limit).await?;
        for row in &rows {
            self.enqueue(&mut transaction, row).await?;
        }
        self.database.commit(transaction).await?;
        self.database.wake();
        Ok(Imported { moved: rows.len(), refused: rows.iter().filter(|row| row.refused.is_some()).count() })
    }
}

impl Prepared {
    /// Returns whether the lease is held. An expired lease without a new holder counts: its epoch proves that no other
    /// session imported anything.
    async fn is_held(&self, connection: &mut SqliteConnection, lease: &Lease) -> Result<bool> {
        sqlx::query_scalar(self.database.statements().lease_is_held.text())
            .bind(&lease.name.0)
            .bind(&lease.holder.0)
            .bind(lease.epoch)
            .fetch_one(connection)
            .await
            .map_err(self.database.cannot("compare the lease of an import"))
    }

    /// Reads rows, and deletes or marks exactly those.
    async fn take(&self, connection: &mut SqliteConnection, limit: usize) -> Result<Vec<ImportedRow>> {
        let found = sqlx::query(self.read.clone())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.database.cannot("read the table to import"))?;
        let doing = "decode the table to import";
        let row_ids: Vec<i64> =
            found.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(self.database.cannot(doing))?;
        let taken = sqlx::query(self.take.clone())
            .bind(serde_json::Value::from(row_ids).to_string())
            .execute(connection)
            .await
            .map_err(self.database.cannot("remove or mark imported rows"))?;
        if taken.rows_affected() != found.len() as u64 {
            // For example, a trigger prevents it. Continuing would enqueue the same rows on every call.
            let (table, read, taken) = (&self.mapping.table, found.len(), taken.rows_affected());
            let sentence = format!(
                "of {read} rows read from {table} only {taken} could be taken; nothing was \
                 imported"
            );
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        let rows = found.iter().map(|row| Ok(self.mapping.import_row(foreign(row)?)));
        rows.collect::<sqlx::Result<_>>().map_err(self.database.cannot(doing))
    }

    async fn enqueue(&self, connection: &mut SqliteConnection, row: &ImportedRow) -> Result<()> {
        sqlx::query(self.enqueue.clone())
            .bind(row.message_id.to_string())
            .bind(row.topic.as_str())
            .bind(row.key.as_ref().map(|key| key.as_str()))
            .bind(row.kind.as_str())
            .bind(row.headers.as_str())
            .bind(&row.payload[..])
            .execute(connection)
            .await
            .map_err(self.database.cannot("insert imported rows into the outbox"))?;
        Ok(())
    }
}

fn foreign(row: &SqliteRow) -> sqlx::Result<ForeignRow> {
    Ok(ForeignRow {
        id_is_binary: row.try_get(1)?,
        id: row.try_get(2)?,
        payload: row.try_get(3)?,
        values: (4..row.len()).map(|at| row.try_get(at)).collect::<sqlx::Result<_>>()?,
    })
}

//! Moves rows of an application's own outbox into Landfall's.
//!
//! One transaction reads the rows that are present, removes or marks them, and enqueues them, under the lease's epoch.
//! It is REPEATABLE READ: it fails and is retried if another session changes the rows in between. It locks rows only
//! when it removes or marks them, so uncommitted writers delay nothing.
//!
//! Names of tables and columns are validated identifiers, and quoted. Statements are built once, at the start.

mod table;

use async_trait::async_trait;
use landfall_core::adapter::{ForeignRow, Import, Imported, ImportedRow, Lease};
use landfall_core::{Database, Error, ErrorKind, ImportOrder, ImportSource, Mapping, OutboxWriter, Result};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use self::table::Table;
use crate::{Postgres, statements};

#[async_trait]
impl ImportSource for Postgres {
    async fn prepare_import(&self, mapping: Mapping) -> Result<Box<dyn Import>> {
        mapping.check()?;
        let table = Table::inspect(self, &mapping).await?;
        let (any, read, take, order) = (table.any()?, table.read()?, table.take()?, table.order());
        let id_is_binary = table.is_binary(&mapping.id)?;
        let fill = |template| statements::fill_prefix(template, self.prefix());
        let (lease, enqueue) = (fill(LEASE), fill(ENQUEUE));
        Ok(Box::new(Prepared { database: self.clone(), mapping, order, id_is_binary, any, lease, read, take, enqueue }))
    }
}

/// Waits for a takeover in flight and then sees it; a later takeover waits for this transaction.
const LEASE: &str = "SELECT 1 FROM {p}lease WHERE name = $1 AND holder = $2 AND epoch = $3 FOR SHARE";

/// Ids are drawn in the order of the arrays.
const ENQUEUE: &str = "
    INSERT INTO {p}outbox (message_id, topic, key, kind, headers, payload)
    SELECT message_id, topic, key, kind, headers::jsonb, payload
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY
        AS given (message_id, topic, key, kind, headers, payload, ordinal)
    ORDER BY ordinal";

struct Prepared {
    database: Postgres,
    mapping: Mapping,
    order: ImportOrder,
    id_is_binary: bool,
    any: String,
    lease: String,
    read: String,
    take: String,
    enqueue: String,
}

#[async_trait]
impl Import for Prepared {
    fn order(&self) -> &ImportOrder {
        &self.order
    }

    async fn import(&self, lease: &Lease, limit: usize) -> Result<Imported> {
        // Usually there is nothing to import, which costs one round trip.
        let mut session = self.database.session().await?;
        let any: bool = sqlx::query_scalar(AssertSqlSafe(self.any.as_str()))
            .persistent(self.database.may_prepare())
            .fetch_one(session.connection())
            .await
            .map_err(self.database.could_not("check the table to import for rows"))?;
        session.finish().await.map_err(self.database.could_not("check the table to import for rows"))?;
        if !any {
            return Ok(Imported::default());
        }
        let mut transaction = self.database.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        if !self.is_held(&mut transaction, lease).await? {
            return Ok(Imported::default());
        }
        let rows = self.take(&mut transaction, limit).await?;
        self.enqueue(&mut transaction, &rows).await?;
        self.database.commit(transaction).await?;
        self.database.wake();
        Ok(Imported { moved: rows.len(), refused: rows.iter().filter(|row| row.refused.is_some()).count() })
    }
}

impl Prepared {
    async fn is_held(&self, connection: &mut PgConnection, lease: &Lease) -> Result<bool> {
        let held = sqlx::query(AssertSqlSafe(self.lease.as_str()))
            .persistent(self.database.may_prepare())
            .bind(&lease.name.0)
            .bind(&lease.holder.0)
            .bind(lease.epoch)
            .fetch_optional(connection)
            .await
            .map_err(self.database.could_not("compare the lease of an import"))?;
        Ok(held.is_some())
    }

    /// Reads rows, and deletes or marks exactly those.
    async fn take(&self, connection: &mut PgConnection, limit: usize) -> Result<Vec<ImportedRow>> {
        let found = sqlx::query(AssertSqlSafe(self.read.as_str()))
            .persistent(self.database.may_prepare())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.database.could_not("read the table to import"))?;
        let doing = "decode the table to import";
        let locations: Vec<(i64, String)> =
            found.iter().map(location).collect::<sqlx::Result<_>>().map_err(self.database.could_not(doing))?;
        let (tables, row_versions): (Vec<_>, Vec<_>) = locations.into_iter().unzip();
        let taken = sqlx::query(AssertSqlSafe(self.take.as_str()))
            .persistent(self.database.may_prepare())
            .bind(tables)
            .bind(row_versions)
            .execute(connection)
            .await
            .map_err(self.database.could_not("remove or mark imported rows"))?;
        if taken.rows_affected() != found.len() as u64 {
            // For example, a trigger prevents it. Continuing would enqueue the same rows on every call.
            let (table, read, taken) = (&self.mapping.table, found.len(), taken.rows_affected());
            let sentence = format!(
                "of {read} rows read from {table} only {taken} could be taken; nothing was \
                 imported"
            );
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        let rows = found.iter().map(|row| Ok(self.mapping.import_row(self.foreign(row)?)));
        rows.collect::<sqlx::Result<_>>().map_err(self.database.could_not(doing))
    }

    fn foreign(&self, row: &PgRow) -> sqlx::Result<ForeignRow> {
        let value =
            |at: usize| row.try_get::<Option<&str>, _>(at).map(|text| text.map(|text| text.as_bytes().to_vec()));
        Ok(ForeignRow {
            id: row.try_get(2)?,
            id_is_binary: self.id_is_binary,
            payload: row.try_get(3)?,
            values: (4..row.len()).map(value).collect::<sqlx::Result<_>>()?,
        })
    }

    async fn enqueue(&self, connection: &mut PgConnection, rows: &[ImportedRow]) -> Result<()> {
        fn column<'a, T>(rows: &'a [ImportedRow], value: impl Fn(&'a ImportedRow) -> T) -> Vec<T> {
            rows.iter().map(value).collect()
        }
        sqlx::query(AssertSqlSafe(self.enqueue.as_str()))
            .persistent(self.database.may_prepare())
            .bind(column(rows, |row| row.message_id.as_uuid()))
            .bind(column(rows, |row| row.topic.as_str()))
            .bind(column(rows, |row| row.key.as_ref().map(|key| key.as_str())))
            .bind(column(rows, |row| row.kind.as_str()))
            .bind(column(rows, |row| row.headers.as_str()))
            .bind(column(rows, |row| &row.payload[..]))
            .execute(connection)
            .await
            .map_err(self.database.could_not("insert imported rows into the outbox"))?;
        Ok(())
    }
}

/// Returns a row's table or partition and its `ctid` there, which are stable during the transaction.
fn location(row: &PgRow) -> sqlx::Result<(i64, String)> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

//! Moves rows of an application's own outbox into Landfall's.
//!
//! One transaction finds the rows that are present, locks them, removes or marks them, and enqueues them, under the
//! lease's epoch. Finding takes no locks, and locking uses only the unique index of the id: a scan would wait for every
//! uncommitted writer.
//!
//! Names of tables and columns are validated identifiers, and quoted. Statements are built once, at the start, except
//! for the number of ids in a list.

mod table;

use async_trait::async_trait;
use landfall_core::adapter::{ForeignRow, Import, Imported, ImportedRow, Lease};
use landfall_core::{Database, Error, ErrorKind, ImportOrder, ImportSource, Mapping, OutboxWriter, Result};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use self::table::{IdType, Table};
use crate::{MySql, statements};

#[async_trait]
impl ImportSource for MySql {
    async fn prepare_import(&self, mapping: Mapping) -> Result<Box<dyn Import>> {
        mapping.check()?;
        let table = Table::inspect(self, &mapping).await?;
        let (any, find, read, take) = (table.any()?, table.find()?, table.read()?, table.take()?);
        let (id_type, order) = (table.id_type()?, table.order());
        table.check_privileges(self).await?;
        let fill = |template| statements::fill(template, self.prefix());
        let (lease, enqueue) = (fill(LEASE), fill(ENQUEUE));
        let database = self.clone();
        let prepared = Prepared { database, mapping, order, id_type, any, lease, find, read, take, enqueue };
        Ok(Box::new(prepared))
    }
}

/// Waits for a takeover in flight and then sees it; a later takeover waits for this transaction.
const LEASE: &str = "SELECT 1 FROM {p}lease WHERE name = ? AND holder = ? AND epoch = ? LOCK IN SHARE MODE";

const ENQUEUE: &str =
    "INSERT INTO {p}outbox (message_id, topic, `key`, kind, headers, payload) VALUES (?, ?, ?, ?, ?, ?)";

struct Prepared {
    database: MySql,
    mapping: Mapping,
    order: ImportOrder,
    id_type: IdType,
    any: String,
    lease: String,
    find: String,
    /// With `{ids}` in place of the list, like `take`.
    read: String,
    take: String,
    enqueue: String,
}

/// An id in its column's type: with another type the server would compare floating-point numbers.
enum Id {
    Whole(i64),
    Large(u64),
    Text(String),
    Bytes(Vec<u8>),
}

#[async_trait]
impl Import for Prepared {
    fn order(&self) -> &ImportOrder {
        &self.order
    }

    async fn import(&self, lease: &Lease, limit: usize) -> Result<Imported> {
        // Usually there is nothing to import, which costs one round trip.
        let any: bool = sqlx::query_scalar(AssertSqlSafe(self.any.as_str()))
            .fetch_one(self.database.pool())
            .await
            .map_err(self.database.could_not("check the table to import for rows"))?;
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
    async fn is_held(&self, connection: &mut MySqlConnection, lease: &Lease) -> Result<bool> {
        let held = sqlx::query(AssertSqlSafe(self.lease.as_str()))
            .bind(&lease.name.0)
            .bind(&lease.holder.0)
            .bind(lease.epoch)
            .fetch_optional(connection)
            .await
            .map_err(self.database.could_not("compare the lease of an import"))?;
        Ok(held.is_some())
    }

    /// Finds, locks and reads rows, and deletes or marks exactly those.
    async fn take(&self, connection: &mut MySqlConnection, limit: usize) -> Result<Vec<ImportedRow>> {
        let found = sqlx::query(AssertSqlSafe(self.find.as_str()))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.database.could_not("read the table to import"))?;
        let ids = self.ids(&found)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = bind_all(sqlx::query(listing(&self.read, ids.len())), &ids)
            .persistent(false)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.database.could_not("read the table to import"))?;
        // Rows that another session has removed meanwhile are missing; the others are locked.
        let ids = self.ids(&rows)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let taken = bind_all(sqlx::query(listing(&self.take, ids.len())), &ids)
            .persistent(false)
            .execute(connection)
            .await
            .map_err(self.database.could_not("remove or mark imported rows"))?;
        if taken.rows_affected() != ids.len() as u64 {
            let (table, read, taken) = (&self.mapping.table, ids.len(), taken.rows_affected());
            let sentence = format!(
                "of {read} rows read from {table} only {taken} could be taken; nothing was \
                 imported"
            );
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        let imported = rows.iter().map(|row| Ok(self.mapping.import_row(self.foreign(row)?)));
        imported.collect::<sqlx::Result<_>>().map_err(self.database.could_not("decode the table to import"))
    }

    fn ids(&self, rows: &[MySqlRow]) -> Result<Vec<Id>> {
        let id = |row: &MySqlRow| {
            Ok(match self.id_type {
                IdType::Whole => Id::Whole(row.try_get(0)?),
                IdType::Large => Id::Large(row.try_get(0)?),
                IdType::Text => Id::Text(row.try_get(0)?),
                IdType::Bytes => Id::Bytes(row.try_get(0)?),
            })
        };
        let ids: sqlx::Result<_> = rows.iter().map(id).collect();
        ids.map_err(self.database.could_not("decode the ids of the table to import"))
    }

    fn foreign(&self, row: &MySqlRow) -> sqlx::Result<ForeignRow> {
        Ok(ForeignRow {
            id: row.try_get(1)?,
            id_is_binary: matches!(self.id_type, IdType::Bytes),
            payload: row.try_get(2)?,
            values: (3..row.len()).map(|at| row.try_get(at)).collect::<sqlx::Result<_>>()?,
        })
    }

    async fn enqueue(&self, connection: &mut MySqlConnection, row: &ImportedRow) -> Result<()> {
        sqlx::query(AssertSqlSafe(self.enqueue.as_str()))
            .bind(row.message_id.as_uuid())
            .bind(row.topic.as_str())
            .bind(row.key.as_ref().map(|key| key.as_str()))
            .bind(row.kind.as_str())
            .bind(row.headers.as_str())
            .bind(&row.payload[..])
            .execute(connection)
            .await
            .map_err(self.database.could_not("insert imported rows into the outbox"))?;
        Ok(())
    }
}

fn listing(template: &str, count: usize) -> AssertSqlSafe<String> {
    AssertSqlSafe(template.replace("{ids}", &vec!["?"; count].join(", ")))
}

fn bind_all<'q>(
    mut query: Query<'q, sqlx::MySql, MySqlArguments>,
    ids: &'q [Id],
) -> Query<'q, sqlx::MySql, MySqlArguments> {
    for id in ids {
        query = match id {
            Id::Whole(id) => query.bind(id),
            Id::Large(id) => query.bind(id),
            Id::Text(id) => query.bind(id),
            Id::Bytes(id) => query.bind(id),
        };
    }
    query
}

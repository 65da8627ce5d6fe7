//! PostgreSQL with one planted bug, for races that SQLite cannot have: it has one writer at a time.

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::{Key, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::PgConnection;

pub(crate) const NOTHING: usize = 0;
/// Skips rows that commit with a lower id than one already read, as a reader does that remembers the highest id.
pub(crate) const SKIPS_LATE_COMMITS: usize = 1;
/// Settles without noticing that the lease has another holder.
pub(crate) const IGNORES_THE_EPOCH: usize = 2;

const BUGS: [&[&str]; 3] = [
    &[],
    &[
        "CREATE TABLE planted_position (id bigint)",
        "CREATE FUNCTION planted_remember() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO planted_position SELECT max(id) FROM landfall_outbox; RETURN NULL; END $$",
        "CREATE TRIGGER planted_remember AFTER INSERT ON landfall_outbox_progress
            FOR EACH STATEMENT EXECUTE FUNCTION planted_remember()",
        "CREATE FUNCTION planted_skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id < (SELECT max(id) FROM planted_position) THEN
                DELETE FROM landfall_outbox WHERE id = NEW.id;
            END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER planted_skip AFTER INSERT ON landfall_outbox DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION planted_skip()",
    ],
    &[
        "DROP TRIGGER landfall_lease_changed ON landfall_lease",
        "CREATE TRIGGER landfall_lease_changed AFTER INSERT ON landfall_lease
            FOR EACH ROW EXECUTE FUNCTION landfall_lease_changed()",
    ],
];

/// A database with the bug number `BUG`, a type parameter because a fixture is created without arguments.
pub(crate) struct Planted<const BUG: usize> {
    url: String,
}

impl<const BUG: usize> DatabaseFixture for Planted<BUG> {
    type Database = Postgres;

    fn capabilities() -> DatabaseCapabilities {
        Postgres::CAPABILITIES
    }

    async fn create() -> Option<Self> {
        Some(Self { url: fresh_postgres_database().await? })
    }

    async fn open(&self) -> Postgres {
        Postgres::connect(&self.url, Options { max_connections: 4, ..Options::default() }).await.unwrap()
    }

    async fn open_keeping_sent(&self, time: Duration) -> Postgres {
        let options = Options { max_connections: 4, keep_sent: Some(time), ..Options::default() };
        Postgres::connect(&self.url, options).await.unwrap()
    }

    /// The suite calls this once, after the migration.
    async fn create_effects(&self, connection: &mut PgConnection) {
        for statement in BUGS[BUG] {
            sqlx::query(*statement).execute(&mut *connection).await.unwrap();
        }
    }

    async fn insert_effect(&self, _: &mut PgConnection, _: &Effect) {
        unreachable!("the planted cases handle no messages")
    }

    async fn effects(&self, _: &mut PgConnection) -> Vec<Effect> {
        unreachable!("the planted cases handle no messages")
    }

    async fn audit(&self, _: &mut PgConnection) -> Vec<AuditRow> {
        unreachable!("the planted cases do not read the audit trail")
    }

    async fn steal_leases(&self, connection: &mut PgConnection) {
        let take = "UPDATE landfall_lease SET holder = 'other-holder', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.unwrap();
    }

    async fn execute_text(&self, connection: &mut PgConnection, statement: &str) -> Result<(), String> {
        let statement = statement.replace("{key}", "key");
        let executed = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await;
        executed.map(drop).map_err(|error| error.to_string())
    }

    const VERSION_1_ROWS: &'static str = "";

    async fn misdate_leases(&self, connection: &mut PgConnection) {
        let misdate = "UPDATE landfall_lease SET expires_at = expires_at + interval '1 day'";
        sqlx::query(misdate).execute(connection).await.unwrap();
    }

    async fn insert_unreadable(&self, _: &mut PgConnection, _: &TopicName, _: &Key) {
        unreachable!("the planted cases do not insert unreadable rows")
    }
}

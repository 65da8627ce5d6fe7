//! The cost of idempotent work on PostgreSQL, beside the plain SQL that does as much by hand, and in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, try_join_all};
use landfall::idempotency::{
    Fingerprint, FingerprintBuilder, Idempotency, IdempotencyRecords, Identity, InTransaction, MemoryRecords,
    OnUnknown, Outcome, Policy, Scope, Snapshot, Terms, Work,
};
use landfall::postgres::Postgres;
use sqlx::{Executor, PgConnection};
use uuid::Uuid;

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal, repeat};
use crate::table::{Row, rate_rows};

/// What a hand-written record stores, and the row of the work.
const PEERS: &str = "CREATE TABLE IF NOT EXISTS bare_order (id bigserial PRIMARY KEY, text text NOT NULL);
CREATE TABLE IF NOT EXISTS bare_record (
    id bytea PRIMARY KEY, key text NOT NULL, state text NOT NULL, fingerprint bytea NOT NULL,
    expires_at timestamptz NOT NULL, body bytea)";

/// How many keys there are to replay.
const KNOWN: u8 = 200;

const ANSWER: &str = "{\"order\":4711,\"state\":\"placed\"}";

pub(crate) async fn measure(database: &Postgres, clients: usize, total: Duration) -> Result<Vec<Row>> {
    database.pool().execute(PEERS).await?;
    let suffix = format!("{clients} {}", if clients == 1 { "client" } else { "clients" });
    let mut rows = Vec::new();
    for (what, peer, ours, theirs) in [
        ("record in the transaction", "BEGIN, 2 INSERTs, COMMIT", Way::InTransaction, Way::BareTransaction),
        ("record with a lease", "INSERT; UPDATE", Way::Lease, Way::BareTwoCommits),
        ("replay", "SELECT", Way::Replay, Way::BareSelect),
    ] {
        let name = format!("idempotency, {what}, {suffix}");
        let contestant = |way| -> Box<dyn Contestant + '_> { Box::new(OnPostgres { database, clients, way }) };
        let samples = contest::compare(&name, total, &mut [contestant(ours), contestant(theirs)]).await?;
        rows.extend(rate_rows(&name, "calls/s", &[peer], &samples));
    }
    Ok(rows)
}

/// A claim and a settle in memory, beside two steps on a plain map.
pub(crate) async fn measure_memory(total: Duration) -> Result<Vec<Row>> {
    let name = "idempotency, claim and settle in memory";
    let samples = contest::compare(name, total, &mut [Box::new(InMemory), Box::new(PlainMap)]).await?;
    Ok(rate_rows(name, "calls/s", &["a map behind a mutex"], &samples))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    InTransaction,
    BareTransaction,
    Lease,
    BareTwoCommits,
    Replay,
    BareSelect,
}

struct OnPostgres<'a> {
    database: &'a Postgres,
    clients: usize,
    way: Way,
}

type Call = Arc<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

#[async_trait]
impl Contestant for OnPostgres<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let call = self.call().await?;
        let sample = repeat(self.clients, length, move || call()).await?;
        let Sample::Rate { operations, .. } = sample else { return Ok(sample) };
        let count = async |table: &str| -> Result<u64> {
            let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
            let count: i64 = sqlx::query_scalar(query).fetch_one(self.database.pool()).await?;
            Ok(count as u64)
        };
        let (orders, records) = match self.way {
            Way::InTransaction | Way::BareTransaction => (operations, operations),
            Way::Lease | Way::BareTwoCommits => (0, operations),
            Way::Replay | Way::BareSelect => (0, KNOWN.into()),
        };
        let table = match self.way {
            Way::InTransaction | Way::Lease | Way::Replay => "landfall_idempotency",
            _ => "bare_record",
        };
        ensure_equal("orders", count("bare_order").await?, orders)?;
        ensure_equal("records", count(table).await?, records)?;
        self.database.pool().execute("TRUNCATE bare_order, bare_record, landfall_idempotency").await?;
        Ok(sample)
    }
}

impl OnPostgres<'_> {
    /// Returns one call, on data that it prepares.
    async fn call(&self) -> Result<Call> {
        let (database, engine) = (self.database.clone(), Idempotency::new(Arc::new(self.database.clone())));
        Ok(match self.way {
            Way::InTransaction => {
                let orders = InTransaction::new(database);
                Arc::new(move || Box::pin(place(orders.clone())))
            }
            Way::BareTransaction => Arc::new(move || Box::pin(bare_transaction(database.clone()))),
            Way::Lease => Arc::new(move || Box::pin(run(engine.clone(), Uuid::now_v7().to_string(), false))),
            Way::BareTwoCommits => Arc::new(move || Box::pin(bare_two_commits(database.clone()))),
            Way::Replay => {
                try_join_all((0..KNOWN).map(|key| run(engine.clone(), key.to_string(), false))).await?;
                Arc::new(move || Box::pin(run(engine.clone(), known().to_string(), true)))
            }
            Way::BareSelect => {
                let mut connection = database.pool().acquire().await?;
                for key in 0..KNOWN {
                    insert_record(&mut connection, &[key; 32], "completed").await?;
                }
                Arc::new(move || Box::pin(bare_select(database.clone())))
            }
        })
    }
}

/// A key that was used before. Clients with the same one would share its answer.
fn known() -> u8 {
    rand::random_range(0..KNOWN)
}

fn identity(key: &str) -> Result<Identity> {
    Ok(Identity::new(Scope::principal("tenant-7")?, "order", key)?)
}

fn request() -> Fingerprint {
    FingerprintBuilder::new("POST /orders").part("{\"euro\":10}").finish()
}

async fn place(orders: InTransaction<Postgres>) -> Result<()> {
    let work = async |connection: &mut PgConnection| {
        connection.execute("INSERT INTO bare_order (text) VALUES ('two books')").await?;
        Ok::<_, sqlx::Error>(Snapshot::from_bytes(ANSWER))
    };
    orders.run_snapshot(&identity(&Uuid::now_v7().to_string())?, &request(), work).await?;
    Ok(())
}

async fn run(engine: Idempotency, key: String, is_replay: bool) -> Result<()> {
    let work = async |_| Work::<_, std::io::Error>::Done(Snapshot::from_bytes(ANSWER));
    let answer = engine.run_snapshot(&identity(&key)?, &request(), &Policy::new(OnUnknown::Rerun), work).await?;
    if answer.is_replayed == is_replay { Ok(()) } else { Err("the call was not what it should be".into()) }
}

async fn insert_record(connection: &mut PgConnection, id: &[u8], state: &str) -> Result<()> {
    let insert = "INSERT INTO bare_record VALUES ($1, $2, $3, $4, now() + interval '30 seconds', $5)";
    let insert = sqlx::query(insert).bind(id).bind("order-4711").bind(state).bind(&request()[..]);
    insert.bind(ANSWER.as_bytes()).execute(connection).await?;
    Ok(())
}

async fn bare_transaction(database: Postgres) -> Result<()> {
    let mut transaction = database.pool().begin().await?;
    insert_record(&mut transaction, Uuid::now_v7().as_bytes(), "completed").await?;
    transaction.execute("INSERT INTO bare_order (text) VALUES ('two books')").await?;
    Ok(transaction.commit().await?)
}

async fn bare_two_commits(database: Postgres) -> Result<()> {
    let mut connection = database.pool().acquire().await?;
    let id = Uuid::now_v7();
    insert_record(&mut connection, id.as_bytes(), "in_flight").await?;
    let update = sqlx::query("UPDATE bare_record SET state = 'completed', body = $2 WHERE id = $1");
    update.bind(&id.as_bytes()[..]).bind(ANSWER.as_bytes()).execute(&mut *connection).await?;
    Ok(())
}

async fn bare_select(database: Postgres) -> Result<()> {
    let select = sqlx::query_as("SELECT state, fingerprint, expires_at > now(), body FROM bare_record WHERE id = $1");
    let found: (String, Vec<u8>, bool, Vec<u8>) = select.bind(&[known(); 32][..]).fetch_one(database.pool()).await?;
    if found.1 == request() { Ok(()) } else { Err("another record was found".into()) }
}

struct InMemory;

#[async_trait]
impl Contestant for InMemory {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let records = Arc::new(MemoryRecords::default());
        let call = move || {
            let records = records.clone();
            async move {
                let identity = identity(&Uuid::now_v7().to_string())?;
                let claim = records.claim_record(&identity, &request(), &Terms::new(OnUnknown::Rerun)).await?;
                let landfall::idempotency::Claim::Claimed { epoch } = claim else {
                    return Err("claimed before".into());
                };
                records.settle_record(&identity, epoch, &Outcome::Done(Snapshot::from_bytes(ANSWER))).await?;
                Ok(())
            }
        };
        repeat(1, length, call).await
    }
}

struct PlainMap;

#[async_trait]
impl Contestant for PlainMap {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let records = Arc::<Mutex<HashMap<_, _>>>::default();
        let call = move || {
            let records = records.clone();
            async move {
                let id = identity(&Uuid::now_v7().to_string())?.id();
                for answer in [None, Some(ANSWER.to_owned())] {
                    records.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (request(), answer));
                }
                Ok(())
            }
        };
        repeat(1, length, call).await
    }
}

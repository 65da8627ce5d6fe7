//! The state of the shop, its routes, and what they share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use landfall::idempotency::layer::IdempotencyLayer;
use landfall::idempotency::{Idempotency, InTransaction, Locks, OnUnknown, Policy, Scope, Windows};
use landfall::sqlite::{self, Sqlite};
use landfall::{OutboxFilter, OutboxView, Schema};
use landfall_examples::Result;
use sqlx::Executor;

use crate::bank::Bank;
use crate::{orders, payments};

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) database: Sqlite,
    pub(crate) orders: InTransaction<Sqlite>,
    pub(crate) windows: Windows,
    pub(crate) locks: Locks,
    pub(crate) bank: Arc<Bank>,
    records: Idempotency,
}

const TABLES: [&str; 4] = [
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, euro INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'placed')",
    "CREATE TABLE code (phone TEXT NOT NULL)",
    "CREATE TABLE report (number INTEGER NOT NULL, token INTEGER NOT NULL)",
    "INSERT INTO report VALUES (0, 0)",
];

impl Shop {
    pub(crate) async fn open(folder: &Path) -> Result<Self> {
        let file = folder.join("shop.db").display().to_string();
        let database = Sqlite::open(&file, sqlite::Options::default()).await?;
        database.migrate().await?;
        for statement in TABLES {
            database.pool().execute(statement).await?;
        }
        let store = Arc::new(database.clone());
        Ok(Self {
            orders: InTransaction::new(database.clone()),
            windows: Windows::new(store.clone()),
            locks: Locks::new(store.clone()),
            bank: Arc::default(),
            records: Idempotency::new(store),
            database,
        })
    }

    #[allow(clippy::result_large_err, reason = "the error is the response itself")]
    pub(crate) fn router(&self) -> Router {
        // A payment that may have been made is never tried again without a person.
        let policy = Policy::new(OnUnknown::Uncertain).with_wait(Duration::from_secs(10));
        let layer = |business_type: &str| {
            let scope = |parts: &Parts| principal(&parts.headers).map_err(IntoResponse::into_response);
            IdempotencyLayer::new(self.records.clone(), business_type, policy.clone(), scope).require_key()
        };
        let by_order = |parts: &Parts| parts.uri.path().split('/').nth(2).map(str::to_owned);
        Router::new()
            .route("/orders/{id}/pay", post(payments::pay).layer(layer("payment")))
            .route("/orders/{id}/refund", post(payments::refund).layer(layer("refund").accept_tokens(by_order)))
            .route("/orders/{id}/refund-form", post(payments::open_refund_form))
            .route("/orders", post(orders::place))
            .route("/codes", post(orders::send_code))
            .route("/reports", post(orders::write_report))
            .with_state(self.clone())
    }

    pub(crate) async fn print_totals(&self) -> Result<()> {
        let count = async |query: &'static str| -> Result<i64> {
            Ok(sqlx::query_scalar(query).fetch_one(self.database.pool()).await?)
        };
        let messages = self.database.list(&OutboxFilter::default(), 100).await?.len();
        println!("orders: {}, messages: {messages}", count("SELECT count(*) FROM orders").await?);
        println!("charges at the bank: {}, refunds: {}", self.bank.charges(), self.bank.refunds());
        println!("codes: {}, reports: {}", count("SELECT count(*) FROM code").await?, {
            count("SELECT number FROM report").await?
        });
        Ok(())
    }
}

/// Whose keys a request uses. A real shop verifies the credentials first.
pub(crate) fn principal(headers: &HeaderMap) -> Result<Scope, StatusCode> {
    let credentials = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let name = credentials.and_then(|credentials| credentials.strip_prefix("Bearer "));
    name.and_then(|name| Scope::principal(name).ok()).ok_or(StatusCode::UNAUTHORIZED)
}

//! Work that calls the bank: a record with a lease, and the state of the order.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use landfall::idempotency::layer::Effect;
use landfall::idempotency::{Advanced, Identity, OneTimeTokens, StateGuard, Token};
use sqlx::pool::PoolConnection;
use sqlx::{QueryBuilder, Sqlite};

use crate::bank::Declined;
use crate::shop::{Shop, principal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderState {
    Placed,
    Paying,
    Declined,
    Paid,
}

const STATES: [(OrderState, &str); 4] = [
    (OrderState::Placed, "placed"),
    (OrderState::Paying, "paying"),
    (OrderState::Declined, "declined"),
    (OrderState::Paid, "paid"),
];

/// An order is paid once. One that was declined may be tried again, under a new key.
fn payment() -> StateGuard<OrderState> {
    StateGuard::new([OrderState::Placed, OrderState::Declined], OrderState::Paid)
        .via(OrderState::Paying)
        .falling_back_to(OrderState::Declined)
}

type Answer = Result<Response, StatusCode>;

fn internal(_: sqlx::Error) -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

/// The layer has claimed the key. The bank gets a key that is derived from it, so that a rerun is a replay there.
pub(crate) async fn pay(
    State(shop): State<Shop>,
    Path(order): Path<i64>,
    Extension(identity): Extension<Identity>,
) -> Answer {
    let mut row = Row { connection: shop.database.pool().acquire().await.map_err(internal)?, order };
    match payment().advance(&mut row, set_state, state).await.map_err(internal)? {
        Advanced::Now => {}
        Advanced::Before => return Ok("it is paid".into_response()),
        // Not final: a repeat under this key asks again.
        Advanced::InProgress => {
            return Ok((StatusCode::CONFLICT, Extension(Effect::NothingDone), "it is being paid").into_response());
        }
        Advanced::Refused(_) => return Err(StatusCode::CONFLICT),
        Advanced::Missing => return Err(StatusCode::NOT_FOUND),
    }
    let charged = shop.bank.charge(&format!("{}/{}", identity.scope(), identity.key()), order).await;
    payment().finish(&mut row, charged.is_ok(), set_state).await.map_err(internal)?;
    match charged {
        Ok(receipt) => Ok(format!("{{\"receipt\":{receipt}}}").into_response()),
        Err(Declined) => Ok((StatusCode::PAYMENT_REQUIRED, "the bank has declined it").into_response()),
    }
}

pub(crate) async fn refund(State(shop): State<Shop>, Path(order): Path<i64>) -> String {
    shop.bank.refund(order);
    "refunded".into()
}

/// The token is good for one refund of this order.
pub(crate) async fn open_refund_form(
    State(shop): State<Shop>,
    Path(order): Path<i64>,
    headers: HeaderMap,
) -> Result<String, StatusCode> {
    let unavailable = |_| StatusCode::SERVICE_UNAVAILABLE;
    let token = Token::generate().map_err(unavailable)?;
    let identity = token.identity(principal(&headers)?, "refund", &order.to_string()).map_err(unavailable)?;
    shop.database.issue_token(&identity, Duration::from_secs(300)).await.map_err(unavailable)?;
    Ok(format!("{{\"token\":\"{token}\"}}"))
}

fn name(state: OrderState) -> &'static str {
    STATES.iter().find(|(known, _)| *known == state).map_or("", |(_, name)| name)
}

/// The row of one order.
struct Row {
    connection: PoolConnection<Sqlite>,
    order: i64,
}

async fn set_state(row: &mut Row, from: &[OrderState], to: OrderState) -> sqlx::Result<u64> {
    let mut update = QueryBuilder::new("UPDATE orders SET state = ");
    update.push_bind(name(to)).push(" WHERE id = ").push_bind(row.order).push(" AND state IN (");
    let mut sources = update.separated(", ");
    for state in from {
        sources.push_bind(name(*state));
    }
    update.push(")");
    Ok(update.build().execute(&mut *row.connection).await?.rows_affected())
}

async fn state(row: &mut Row) -> sqlx::Result<Option<OrderState>> {
    let query = sqlx::query_scalar("SELECT state FROM orders WHERE id = ?").bind(row.order);
    let found: Option<String> = query.fetch_optional(&mut *row.connection).await?;
    Ok(found.and_then(|found| STATES.iter().find(|(_, name)| *name == found).map(|(state, _)| *state)))
}

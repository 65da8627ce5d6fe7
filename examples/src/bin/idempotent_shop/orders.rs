//! Work in one database: a record in its transaction, a window, a lock.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use landfall::idempotency::layer::KeyedRequest;
use landfall::idempotency::{Scope, Windowed};
use landfall::{Kind, Message, OutboxWriter, TopicName};
use landfall_examples::Result;

use crate::shop::{Shop, principal};

/// Record, row and message are one commit: a crash leaves all of them or none.
#[allow(clippy::result_large_err, reason = "the error is the response itself")]
pub(crate) async fn place(
    State(shop): State<Shop>,
    headers: HeaderMap,
    request: KeyedRequest,
) -> Result<Response, Response> {
    let scope = principal(&headers).map_err(IntoResponse::into_response)?;
    let identity = request.identity(scope, "order")?;
    let digits = request.body().iter().filter(|byte| byte.is_ascii_digit());
    let euro: i64 = digits.map(|byte| char::from(*byte)).collect::<String>().parse().unwrap_or(0);
    let placed = shop
        .orders
        .run(&identity, request.fingerprint(), async |connection| {
            let insert = sqlx::query("INSERT INTO orders (euro) VALUES (?)").bind(euro);
            let id = insert.execute(&mut *connection).await?.last_insert_rowid();
            let message = Message::new(TopicName::new("orders")?, id.to_string()).with_kind(Kind::new("OrderPlaced")?);
            shop.database.enqueue(connection, &[message]).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(id)
        })
        .await
        .map(|answer| answer.map(|order| (StatusCode::CREATED, format!("{{\"order\":{order}}}"))))
        .map_err(|error| error.map_work(|_| StatusCode::INTERNAL_SERVER_ERROR));
    Ok(request.respond(placed))
}

/// At most one code a minute and phone. A repeat gets no stored answer: there is nothing in it that it needs.
pub(crate) async fn send_code(State(shop): State<Shop>, phone: String) -> Response {
    let (pool, number) = (shop.database.pool().clone(), phone.clone());
    let insert = async move || sqlx::query("INSERT INTO code VALUES (?)").bind(number).execute(&pool).await;
    match shop.windows.run(Scope::Global, "code", &phone, Duration::from_secs(60), insert).await {
        Ok(Windowed::Ran(_)) => StatusCode::ACCEPTED.into_response(),
        Ok(Windowed::Suppressed { .. }) => (StatusCode::TOO_MANY_REQUESTS, "a code was sent").into_response(),
        Err(error) => error.map_work(|_| StatusCode::INTERNAL_SERVER_ERROR).into_response(),
    }
}

/// Reports never overlap, and a holder that was paused writes nothing late. A repeat still writes another report.
pub(crate) async fn write_report(State(shop): State<Shop>) -> Result<String, StatusCode> {
    let lock = shop.locks.lock("report", Duration::from_secs(10)).await.map_err(|_| StatusCode::CONFLICT)?;
    let write = sqlx::query("UPDATE report SET number = number + 1, token = ?1 WHERE token <= ?1");
    let written = write.bind(lock.fencing_token()).execute(shop.database.pool()).await;
    // If this fails, the lock expires by itself.
    let _ = lock.release().await;
    match written.map(|done| done.rows_affected()) {
        Ok(1) => Ok("written".into()),
        Ok(_) => Err(StatusCode::CONFLICT),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

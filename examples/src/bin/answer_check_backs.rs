//! A business service that answers check-backs over gRPC: `landfall.v1.CheckBack`, as one Rust trait.
//!
//! The coordinator (`landfall serve`) asks it about half messages with `"check_back": {"grpc": "http://this-host:1"}`
//! whose commit or rollback did not arrive. Here the program asks itself, so that it needs no daemon.
//!
//! ```text
//! cargo run -p landfall-examples --bin answer_check_backs
//! ```

use async_trait::async_trait;
use landfall::MessageId;
use landfall::check_back::Answer;
use landfall::check_back::grpc::{LocalTransactions, Question, Secrets, service};
use landfall_examples::Result;
use landfall_grpc::CheckRequest;
use landfall_grpc::check_back_client::CheckBackClient;
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

/// The orders of this service. The local transaction of a half message inserts the order.
struct Orders {
    pool: SqlitePool,
}

#[async_trait]
impl LocalTransactions for Orders {
    async fn answer(&self, question: &Question) -> Answer {
        let state = sqlx::query_scalar::<_, String>("SELECT state FROM orders WHERE id = ?");
        match state.bind(&question.business_id).fetch_optional(&self.pool).await {
            Ok(Some(state)) if state == "placed" => Answer::Committed,
            // Recorded by the code that gave the order up, so it can never be placed.
            Ok(Some(state)) if state == "given up" => Answer::RolledBack,
            // No row: the transaction may still be open. "Rolled back" would be a guess.
            Ok(_) => Answer::unknown("the order is not finished"),
            Err(error) => Answer::unknown(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // Each connection of a pool would have its own memory.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    let orders = "CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL);
                  INSERT INTO orders VALUES ('order-1', 'placed'), ('order-2', 'given up')";
    sqlx::raw_sql(orders).execute(&pool).await?;
    // The secrets of `check_back.secret`; without one, any program on the network can ask.
    let secrets = match std::env::var("CHECK_BACK_SECRET") {
        Ok(secret) => Secrets::new([secret.as_str()])?,
        Err(_) => Secrets::unsigned(),
    };
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?;
    let address = incoming.local_addr()?;
    let server = Server::builder().add_service(service(Orders { pool }, secrets)).serve_with_incoming(incoming);
    tokio::spawn(server);

    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let mut coordinator = CheckBackClient::new(channel);
    for order in ["order-1", "order-2", "order-3"] {
        let id = MessageId::from_business("order", order).to_string();
        let question = CheckRequest { id, business_type: "order".into(), business_id: order.into() };
        let reply = coordinator.check(question).await?.into_inner();
        println!("{order}: {}", reply.state().as_str_name());
    }
    Ok(())
}

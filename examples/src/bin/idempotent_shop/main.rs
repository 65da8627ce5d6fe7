//! An idempotent API with axum: orders and payments that take effect once, however often a client asks.
//!
//! | route | scheme |
//! |---|---|
//! | `POST /orders` | a record in the transaction of the order and its message |
//! | `POST /orders/{id}/pay` | a record with a lease around the bank, and a state guard on the order |
//! | `POST /orders/{id}/refund` | a one-time token |
//! | `POST /codes` | a time window |
//! | `POST /reports` | a lock with a fencing token |
//!
//! Without an argument it starts the shop behind a network that loses requests and answers. Then it runs the Python
//! client `examples/idempotent-shop/client.py` against it. With `serve` it only serves.
//!
//! ```text
//! cargo run -p landfall-examples --bin idempotent_shop
//! ```

mod bank;
mod network;
mod orders;
mod payments;
mod shop;

use std::path::Path;

use landfall_examples::Result;
use tokio::net::TcpListener;
use tokio::process::Command;

use shop::Shop;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shop = Shop::open(folder.path()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = tokio::spawn(axum::serve(listener, shop.router()).into_future());
    if std::env::args().nth(1).as_deref() == Some("serve") {
        println!("listening on http://{address}");
        return Ok(served.await??);
    }
    let lossy = network::lose_requests_and_answers(address).await?;
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("idempotent-shop/client.py");
    let client = Command::new("python3").arg(client).arg(format!("http://{lossy}")).status().await?;
    if !client.success() {
        return Err("the client failed".into());
    }
    shop.print_totals().await
}

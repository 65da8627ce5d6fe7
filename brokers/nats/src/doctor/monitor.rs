//! The server's monitoring: one question over plain HTTP.

use std::time::Duration;

use landfall_core::{ClockSkew, Error, ErrorKind, Result, Timestamp};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a server tells about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) sync_always: bool,
    pub(super) sync_interval: Duration,
    pub(super) skew: ClockSkew,
}

/// Asks the monitoring at `address`, `http://host:port`.
pub(super) async fn ask(address: &str, patience: Duration) -> Result<Server> {
    let failed = |why: &str| Error::new(ErrorKind::Unavailable, format!("the monitoring at {address} {why}"));
    let asked = Timestamp::now();
    let text = tokio::time::timeout(patience, get(address)).await.map_err(|_| failed("does not answer"))?;
    let answered = Timestamp::now();
    let text = text.map_err(|error| failed("cannot be asked").with_source(error))?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let told: Value = serde_json::from_str(body).map_err(|error| failed("answers no JSON").with_source(error))?;
    let config = &told["jetstream"]["config"];
    let now = told["now"].as_str().ok_or_else(|| failed("tells no time"))?;
    if config.is_null() {
        return Err(failed("is that of a server without JetStream"));
    }
    Ok(Server {
        sync_always: config["sync_always"].as_bool().unwrap_or_default(),
        sync_interval: Duration::from_nanos(config["sync_interval"].as_u64().unwrap_or_default()),
        skew: ClockSkew::measured(asked, now.parse()?, answered),
    })
}

async fn get(address: &str) -> std::io::Result<String> {
    let host = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

//! Reads the server's monitoring endpoint over plain HTTP.

use std::time::Duration;

use landfall_core::adapter::ClockSkew;
use landfall_core::{Error, ErrorKind, Result, Timestamp};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The sync settings and clock of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) sync_always: bool,
    pub(super) sync_interval: Duration,
    pub(super) skew: ClockSkew,
}

/// Reads the monitoring endpoint at `address`, `http://host:port`.
pub(super) async fn fetch(address: &str, timeout: Duration) -> Result<Server> {
    let failed = |why: &str| Error::new(ErrorKind::Unavailable, format!("the monitoring endpoint {address} {why}"));
    let asked = Timestamp::now();
    let text = tokio::time::timeout(timeout, get(address)).await.map_err(|_| failed("did not answer in time"))?;
    let answered = Timestamp::now();
    let text = text.map_err(|error| failed("is unreachable").with_source(error))?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let answer: Value =
        serde_json::from_str(body).map_err(|error| failed("returned invalid JSON").with_source(error))?;
    let config = &answer["jetstream"]["config"];
    let now = answer["now"].as_str().ok_or_else(|| failed("returned no time"))?;
    if config.is_null() {
        return Err(failed("belongs to a server without JetStream"));
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

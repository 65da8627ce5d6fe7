//! Private servers with the SQS API, because SQS itself does not run locally.
//!
//! [`ElasticMq`] stores messages on disk and keeps FIFO order while it runs; a restart keeps the messages and loses
//! their order. [`Moto`] keeps everything in memory, supports every queue setting, and can require credentials.

mod elasticmq;
mod moto;

pub use elasticmq::ElasticMq;
pub use moto::Moto;

use std::path::PathBuf;

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::daemon::{ProbeResult, services_folder};

/// Returns the Python interpreter that has boto3 and moto.
pub fn python_sqs() -> Result<PathBuf> {
    let python = services_folder().join("python-sqs/bin/python");
    match python.exists() {
        true => Ok(python),
        false => Err(Error::new(ErrorKind::NotFound, "boto3 is not installed; run scripts/services")),
    }
}

/// Tests whether the server on `port` responds to HTTP.
async fn probe_http(port: u16, path: &str) -> ProbeResult {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = [0; 9];
    stream.read_exact(&mut response).await?;
    match &response {
        b"HTTP/1.1 " | b"HTTP/1.0 " => Ok(()),
        other => Err(String::from_utf8_lossy(other).into()),
    }
}

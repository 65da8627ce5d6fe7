//! Private servers that speak SQS, since there is no SQS to be had on one machine.
//!
//! [`ElasticMq`] keeps messages on disk and FIFO order while it runs; after a restart it knows the messages and not
//! their order. [`Moto`] keeps everything in memory, knows every setting of a queue, and can ask for credentials.

mod elasticmq;
mod moto;

pub use elasticmq::ElasticMq;
pub use moto::Moto;

use std::path::PathBuf;

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::daemon::{Answer, services_folder};

/// The Python that has boto3 and moto.
pub fn python_sqs() -> Result<PathBuf> {
    let python = services_folder().join("python-sqs/bin/python");
    match python.exists() {
        true => Ok(python),
        false => Err(Error::new(ErrorKind::NotFound, "there is no boto3; scripts/services fetches it")),
    }
}

/// Whether whoever listens on `port` answers to HTTP at all.
async fn answers_http(port: u16, path: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await?;
    match &answer {
        b"HTTP/1.1 " | b"HTTP/1.0 " => Ok(()),
        other => Err(String::from_utf8_lossy(other).into()),
    }
}

//! A private server with the S3 API, moto, behind a proxy that injects faults.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod faults;

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Moto;
use faults::FaultyProxy;

pub use faults::StorageFault;

/// The bucket that every server has.
const BUCKET: &str = "letters";

/// An S3 server with one bucket, stopped when the process ends. Clients connect through a proxy that injects faults;
/// the methods of this type do not.
#[derive(Debug)]
pub struct S3Server {
    moto: Moto,
    proxy: FaultyProxy,
}

impl S3Server {
    /// Starts a server. Returns `None` if moto is not installed, after calling [`not_run()`](crate::not_run()) for
    /// `test`.
    pub async fn start(test: &str) -> Option<Self> {
        let moto = Moto::start(test).await?;
        let proxy = FaultyProxy::start(moto.address()).await.expect("a proxy on 127.0.0.1");
        let server = Self { moto, proxy };
        server.request("PUT", &format!("/{BUCKET}"), b"").await.expect("the bucket is created");
        Some(server)
    }

    /// Returns the URL of the bucket with a prefix, as `landfall` reads it.
    pub fn url(&self, prefix: &str) -> String {
        let endpoint = self.proxy.address();
        format!(
            "s3://{BUCKET}/{prefix}?endpoint=http://{endpoint}&region=us-east-1&access_key_id=test&\
             secret_access_key=s3cr3t"
        )
    }

    /// Injects a fault into every matching request from now on; `None` ends it.
    pub fn inject(&self, fault: Option<StorageFault>) {
        self.proxy.inject(fault);
    }

    /// Returns how many requests the fault has hit.
    pub fn hits(&self) -> u64 {
        self.proxy.hits()
    }

    /// Refuses credentials that moto does not know, which are all, from now on.
    pub async fn require_credentials(&self) {
        self.request("POST", "/moto-api/reset-auth", b"0").await.expect("moto checks credentials");
    }

    /// Returns the names of all objects, sorted.
    pub async fn objects(&self) -> Vec<String> {
        let listed = self.request("GET", &format!("/{BUCKET}?list-type=2"), b"").await.expect("the objects are listed");
        let text = String::from_utf8_lossy(&listed).into_owned();
        let keys = text.split("<Key>").skip(1).filter_map(|part| Some(part.split_once("</Key>")?.0.to_owned()));
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        keys
    }

    /// Returns the content of an object.
    pub async fn object(&self, name: &str) -> Vec<u8> {
        self.request("GET", &format!("/{BUCKET}/{name}"), b"").await.expect("the object is read")
    }

    /// Replaces the content of an object.
    pub async fn replace(&self, name: &str, content: &[u8]) {
        self.request("PUT", &format!("/{BUCKET}/{name}"), content).await.expect("the object is replaced");
    }

    async fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| Error::new(ErrorKind::Unavailable, "moto failed").with_source(error);
        let mut stream = TcpStream::connect(self.moto.address()).await.map_err(failed)?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, \
             Signature=0\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.map_err(failed)?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.map_err(failed)?;
        let head_end = faults::head_end(&response).unwrap_or(response.len());
        let head = String::from_utf8_lossy(&response[..head_end]).into_owned();
        if head.starts_with("HTTP/1.1 200") || head.starts_with("HTTP/1.0 200") {
            return Ok(response[head_end..].to_vec());
        }
        Err(Error::new(ErrorKind::Internal, format!("moto answered {head}")))
    }
}

//! An HTTP proxy that damages, loses and holds requests to object storage.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What happens to requests. All but the first two concern uploads only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageFault {
    /// Connections are closed.
    Down,
    /// A request whose path ends with the text is forwarded and never answered: `("GET", ".manifest.json")`.
    NoAnswer(&'static str, &'static str),
    /// The upload is stored, and answered with 500.
    ErrorAfterStoring,
    /// Half of the upload is stored, and answered with 200.
    Truncated,
    /// The upload is stored with a flipped bit, and answered with 200.
    FlippedBit,
}

#[derive(Debug, Default)]
struct Shared {
    fault: Mutex<(Option<StorageFault>, u64)>,
}

#[derive(Debug)]
pub(super) struct FaultyProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl FaultyProxy {
    pub(super) async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let known = shared.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = known.clone();
                // A client that disconnects is no concern of the proxy.
                tokio::spawn(async move { drop(serve(client, server, &shared).await) });
            }
        });
        Ok(Self { address, shared, accepting })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn inject(&self, fault: Option<StorageFault>) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = (fault, 0);
    }

    pub(super) fn hits(&self) -> u64 {
        self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    /// Returns the fault of a request, and counts it.
    fn fault_of(&self, method: &str, path: &str) -> Option<StorageFault> {
        let mut state = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = state.0.clone()?;
        let is_hit = match &fault {
            StorageFault::Down => true,
            StorageFault::NoAnswer(wanted, suffix) => method == *wanted && path.ends_with(suffix),
            _ => method == "PUT",
        };
        state.1 += u64::from(is_hit);
        is_hit.then_some(fault)
    }
}

/// Serves one request, and closes the connection.
async fn serve(mut client: TcpStream, server: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let Some((head, mut body)) = read_request(&mut client).await? else { return Ok(()) };
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fault = shared.fault_of(method, path.split('?').next().unwrap_or_default());
    match fault {
        Some(StorageFault::Down) => return Ok(()),
        Some(StorageFault::Truncated) => body.truncate(body.len() / 2),
        Some(StorageFault::FlippedBit) => {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        _ => {}
    }
    let answer = forward(server, &head, &body).await?;
    match fault {
        Some(StorageFault::NoAnswer(..)) => std::future::pending().await,
        Some(StorageFault::ErrorAfterStoring) => {
            client.write_all(b"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await
        }
        _ => client.write_all(&answer).await,
    }
}

/// Returns the head, without its last line break, and the body.
async fn read_request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = head_end(&bytes) {
            break end;
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned();
    let mut body = bytes.split_off(end);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    });
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((head, body)))
}

/// Sends a request with this body to the server and returns the whole answer.
async fn forward(server: SocketAddr, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let dropped = ["content-length:", "connection:"];
    let kept = head.lines().filter(|line| !dropped.iter().any(|name| line.to_ascii_lowercase().starts_with(name)));
    let mut request = kept.collect::<Vec<_>>().join("\r\n");
    request.push_str(&format!("\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()));
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(&[request.as_bytes(), body].concat()).await?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Returns where the body begins.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|place| place + 4)
}

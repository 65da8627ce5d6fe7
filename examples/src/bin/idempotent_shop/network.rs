//! A network that loses every third request, and the answer of every third one.

use std::net::SocketAddr;

use landfall_examples::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections with one request each, and returns the address in front.
pub(crate) async fn lose_requests_and_answers(shop: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for number in 0_u64.. {
            let Ok((client, _)) = listener.accept().await else { return };
            // A connection that breaks is what this network is for.
            tokio::spawn(async move { drop(forward(client, shop, number % 3).await) });
        }
    });
    Ok(address)
}

async fn forward(mut client: TcpStream, shop: SocketAddr, turn: u64) -> Result<()> {
    let request = read_request(&mut client).await?;
    if turn == 0 {
        return Ok(());
    }
    let mut server = TcpStream::connect(shop).await?;
    server.write_all(&request).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    if turn == 2 {
        client.write_all(&answer).await?;
    }
    Ok(())
}

/// Reads a head, and as many bytes after it as it says.
async fn read_request(client: &mut TcpStream) -> Result<Vec<u8>> {
    let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&read).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split_once("content-length:").and_then(|(_, rest)| rest.lines().next());
            if body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) {
                return Ok(read);
            }
        }
        match client.read(&mut chunk).await? {
            0 => return Err("the client has closed the connection".into()),
            count => read.extend_from_slice(&chunk[..count]),
        }
    }
}

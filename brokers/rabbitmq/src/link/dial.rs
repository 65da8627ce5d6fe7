//! One connection attempt that leaves nothing behind if it fails or is cancelled.
//!
//! The client spawns tasks as soon as it starts to connect. It would leak these tasks for an unreachable server, and
//! also a socket and a thread for a server that does not answer. So it receives a connected socket, which is shut down
//! if the attempt is dropped.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, RustlsConnector};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

/// Connects to the server at `uri`, and sets the connection's `name` in the server's lists.
pub(crate) async fn dial(uri: AMQPUri, tls: Option<RustlsConnector>, name: &'static str) -> lapin::Result<Connection> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = lapin::runtime::default_runtime()?;
    let stream = uri.connect_async(&runtime).await?;
    let mut guard = ShutdownOnDrop(None);
    if let AsyncTcpStream::Plain(stream) = &stream {
        guard.0 = Some(stream.get_ref().as_fd().try_clone_to_owned()?.into());
    }
    let stream = match &tls {
        Some(tls) => stream.into_rustls(tls, &uri.authority.host).await?,
        None => stream,
    };
    // Taken once: the client does not retry by default.
    let connected = Mutex::new(Some(stream));
    let take = async move |_, _| {
        let stream = connected.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let connection = Connection::connector(uri, runtime, take, properties).await?;
    guard.0 = None;
    Ok(connection)
}

/// Shuts down the client's socket when dropped, unless the connection succeeded and cleared it.
struct ShutdownOnDrop(Option<TcpStream>);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            // An error means that the socket is already closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

//! One attempt to connect, of which nothing is left if it fails.
//!
//! The client looks after a connection from the moment on at which it begins to reach for the server. Of a server that
//! is not there it would keep its tasks, and of one that says nothing the socket and a thread besides. So it begins with
//! a socket that is connected, and is hung up on when nobody waits for it any more.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, RustlsConnector};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

/// Connects to the server that `uri` names, which calls the connection `name`.
pub(crate) async fn reach(uri: AMQPUri, tls: Option<RustlsConnector>, name: &'static str) -> lapin::Result<Connection> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = lapin::runtime::default_runtime()?;
    let stream = uri.connect_async(&runtime).await?;
    let mut hang_up = HangUp(None);
    if let AsyncTcpStream::Plain(stream) = &stream {
        hang_up.0 = Some(stream.get_ref().as_fd().try_clone_to_owned()?.into());
    }
    let stream = match &tls {
        Some(tls) => stream.into_rustls(tls, &uri.authority.host).await?,
        None => stream,
    };
    // Taken once: the client tries nothing again unless it is told to.
    let reached = Mutex::new(Some(stream));
    let take = async move |_, _| {
        let stream = reached.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let connection = Connection::connector(uri, runtime, take, properties).await?;
    hang_up.0 = None;
    Ok(connection)
}

/// Ends the conversation on the socket that the client has, unless it was taken out by then.
struct HangUp(Option<TcpStream>);

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            // What is closed already is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

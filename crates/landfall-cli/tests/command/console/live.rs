//! Open pages stay true: what changes reaches them, and what can no longer be read is said.

use landfall_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::super::redrives::{park, receiver};
use super::super::support::{Daemon, Received, Receiver, Sandbox, TIMEOUT};
use super::browser::Browser;

const NOTICE: &str = "document.querySelector('.stale')";

/// The events of an open page, as text.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    async fn open(daemon: &Daemon) -> Self {
        let mut stream = TcpStream::connect(daemon.address).await.unwrap();
        let request = format!("GET /console/events HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, text: String::new() }
    }

    /// Reads up to the next event with this name.
    async fn wait(&mut self, name: &str) {
        let event = format!("event: {name}\n");
        let read = async {
            let mut buffer = [0; 1024];
            loop {
                if let Some((_, rest)) = self.text.split_once(&event) {
                    self.text = rest.to_owned();
                    return;
                }
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert!(length > 0, "the stream ended");
                self.text.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        };
        let read = tokio::time::timeout(TIMEOUT, read).await;
        read.unwrap_or_else(|_| panic!("no event {name}: {}", self.text));
    }
}

/// A dead database is announced on open pages, also on one that is opened meanwhile, until it is back.
#[tokio::test]
async fn dead_database_is_announced() {
    let Some(sandbox) = Sandbox::on_own_postgres().await else { return };
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    let mut events = Events::open(&daemon).await;
    events.wait("ready").await;
    events.wait("beat").await;
    browser.open("/").await;
    browser.wait("the verdict", "document.querySelector('.verdict.good')").await;
    assert_eq!(browser.eval(&format!("{NOTICE}.hidden")).await, true);

    sandbox.server().stop().await.unwrap();
    events.wait("stale").await;
    let text = format!("!{NOTICE}.hidden && {NOTICE}.textContent");
    browser.wait("the notice", &format!("{text}.startsWith('The daemon cannot read its database. This page')")).await;
    browser.wait("the verdict", "!document.querySelector('.verdict.good')").await;
    let mut late = Events::open(&daemon).await;
    late.wait("ready").await;
    late.wait("stale").await;

    sandbox.server().restart().await.unwrap();
    events.wait("change").await;
    browser.wait("the end of the notice", &format!("{NOTICE}.hidden")).await;
    browser.wait("the verdict", "document.querySelector('.verdict.good')").await;
}

/// A message that no relay publishes turns the verdict although nothing else happens, and ages go on.
#[tokio::test]
async fn open_page_notices_what_only_grows_old() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 1).await;
    daemon.kill().await;
    let daemon = sandbox.serve_as("console").await;
    sandbox.sql("INSERT INTO landfall_outbox (topic, payload) VALUES ('orders', x'31')").await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/").await;
    let late = "document.querySelector('.verdict').textContent.includes('has waited in the outbox for')";
    assert_eq!(browser.eval(late).await, false);
    sandbox.sql("UPDATE landfall_outbox SET created_at = created_at - 60000").await;
    browser.wait("the verdict", late).await;

    let age = "document.querySelector('[data-live=groups] .ago').textContent";
    let before = browser.eval(age).await;
    eventually(TIMEOUT, "another age", async || browser.eval(age).await != before).await;
    assert_eq!(browser.eval(&format!("{NOTICE}.hidden")).await, true);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// A refusal ends a stream for good in the browser, as that of a daemon that is not ready yet. The page opens another.
#[tokio::test]
async fn refused_stream_is_opened_again() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let address = daemon.address;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/").await;
    daemon.kill().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let starting = Receiver::refusing(socket);
    let is_stream = |request: &Received| request.header("accept") == "text/event-stream";
    let streams = || starting.requests().into_iter().filter(is_stream).count();
    eventually(TIMEOUT, "several attempts", async || streams() >= 3).await;
    browser.wait("the notice", &format!("!{NOTICE}.hidden")).await;
    drop(starting);

    let daemon = Daemon::start(sandbox.command(&["serve", "--listen", &address.to_string()])).await;
    browser.wait("the end of the notice", &format!("{NOTICE}.hidden")).await;
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let figures = "[...document.querySelectorAll('.figure')].map(figure => figure.textContent)";
    browser.wait("the figure", &format!("{figures}.some(text => text.startsWith('1published'))")).await;
}

/// Browsers open six connections to a host at most. Pages in the background leave them to the one in front.
#[tokio::test]
async fn more_tabs_open_than_the_browser_has_connections() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/").await;
    let first = browser.tab().await;
    for _ in 0..8 {
        browser.open_tab().await;
        browser.open("/").await;
    }
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let figures = "[...document.querySelectorAll('.figure')].map(figure => figure.textContent)";
    let published = format!("{figures}.some(text => text.startsWith('1published'))");
    browser.wait("the figure", &published).await;
    browser.show_tab(&first).await;
    browser.wait("the figure of the first tab", &published).await;
    assert_eq!(browser.eval(&format!("{NOTICE}.hidden")).await, true);
}

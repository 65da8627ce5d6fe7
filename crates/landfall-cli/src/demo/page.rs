//! The account as a page in the browser, until Ctrl-C.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::response::{Html, Json};
use axum::routing::get;
use indicatif::HumanCount;
use tokio::net::TcpListener;

use super::account::Account;
use super::{Result, Screen};

/// The default port of `landfall serve`.
const PORT: u16 = 7700;

/// Serves the account on loopback until Ctrl-C.
pub(crate) async fn serve_until_interrupted(account: &Account, screen: &Screen) -> Result<()> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await {
        Ok(listener) => listener,
        // The port is taken, most likely by a daemon: use any free one.
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    };
    let address: SocketAddr = listener.local_addr()?;
    let (page, json) = (Html(html(account)), Json(account.clone()));
    let router = Router::new()
        .route("/", get(async move || page.clone()))
        .route("/account.json", get(async move || json.clone()));
    screen.print(&format!("\nThe account is at http://{address}/ until you press Ctrl-C."));
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(axum::serve(listener, router).with_graceful_shutdown(stop).await?)
}

/// Renders the page. It contains only numbers and constant text, so nothing needs escaping.
fn html(account: &Account) -> String {
    let mut rows = String::new();
    for group in account.lines() {
        rows += "<tbody>";
        for (label, figure, meaning) in group {
            rows += &format!("<tr><th>{label}<td>{}<td>{meaning}", HumanCount(figure));
        }
        rows += "</tbody>";
    }
    let (verdict, seconds) = (account.verdict(), account.seconds);
    let class = if account.balances() { "good" } else { "bad" };
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Landfall demo</title><style>{STYLE}</style>
<h1>Landfall demo</h1>
<p>Three services, three databases and one log, in a process that was killed {} times.</p>
<table>{rows}</table>
<p class={class}>{verdict}</p>
<p>It took {seconds:.1} seconds. The same as <a href=/account.json>JSON</a>.</p>",
        account.crashes_injected
    )
}

const STYLE: &str = "body{font:16px/1.6 system-ui,sans-serif;max-width:48rem;margin:3rem auto;padding:0 1rem;\
color:#1c2733;background:#fff}table{border-collapse:collapse}th{text-align:left;font-weight:600}\
td,th{padding:.15rem 1rem .15rem 0}td:nth-child(2){text-align:right;font-variant-numeric:tabular-nums}\
tbody+tbody tr:first-child>*{padding-top:1rem}.good,.bad{font-size:1.25rem;font-weight:600}.good{color:#0a7a43}\
.bad{color:#b3261e}@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#11161c}.good{color:#4cc38a}\
.bad{color:#ff8a80}a{color:#79b8ff}}";

//! The web console: pages for people, under `/` and `/console/…`, with the role `console`.
//!
//! | route | file |
//! |---|---|
//! | `GET /` | [`now`] |
//! | `GET /console/failures`, `…/{fingerprint}`, `POST …/{fingerprint}/decide` | [`failures`], [`group`] |
//! | `GET /console/alerts`, `…/{id}`, `POST …/{id}/mute` | [`alerts`] |
//! | `GET /console/messages`, `…/{id}`, `…/{id}/payload` | [`messages`], [`message`], [`payload`] |
//! | `GET /console/keys`, `POST /console/keys/rule` | [`keys`], [`key_rule`] |
//! | `GET /console/redrives`, `…/{id}`, `GET /console/rehearse` | [`redrives`], [`rehearse`] |
//! | `GET /console/flow`, `…/audit`, `…/access` | [`flow`], [`audit`], [`rights`] |
//! | `POST /console/messages/{id}/…`, `POST /console/redrives…` | [`actions`] |
//! | `GET /console/events` | [`events`] |
//! | `/console/sign-in`, `/console/sign-out`, `/console/assets/…` | [`sign_in`], [`assets`] |
//!
//! Invariants: a page reads from the same ports as the API, and an action runs the code behind the API. [`access`]
//! decides about every request before its handler: the session, the role, and the token of a form. No page contains
//! an inline script or style. Everything that is inserted into a page is escaped by `maud`.

pub(super) mod access;
mod actions;
mod alerts;
mod assets;
mod audit;
mod events;
mod failures;
mod flow;
mod group;
mod key_rule;
mod keys;
mod language;
mod message;
mod messages;
mod now;
mod page;
mod payload;
mod query;
mod redrives;
mod rehearse;
mod rights;
mod session;
mod sign_in;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::routing::{MethodRouter, get, post};

use super::State;
use crate::config::{Role, Token};

/// What the console keeps besides the ports.
pub(crate) struct Console {
    sessions: session::Sessions,
    attempts: sign_in::Attempts,
    changes: events::Changes,
}

impl Console {
    /// `is_secure`: the daemon speaks TLS, so cookies are sent over TLS only.
    pub(crate) fn new(tokens: &[Token], is_secure: bool) -> landfall::Result<Self> {
        Ok(Self {
            sessions: session::Sessions::new(tokens, is_secure)?,
            attempts: sign_in::Attempts::default(),
            changes: events::Changes::default(),
        })
    }

    /// Returns the role of the session among the cookies of a request.
    pub(super) fn reader(&self, headers: &HeaderMap) -> Option<Role> {
        self.sessions.find(headers).map(|session| session.role)
    }
}

/// Returns whether the console answers this path.
pub(super) fn owns(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with("/console/")
}

/// Returns whether a person followed a link on another site, such as in a chat: a page in a tab of its own.
pub(super) fn is_followed_link(request: &Request) -> bool {
    let headers = request.headers();
    let is = |name: &str, value: &str| {
        let mut given = headers.get_all(name).iter();
        given.next().is_some_and(|given| given.as_bytes() == value.as_bytes()) && given.next().is_none()
    };
    let is_page = request.method() == Method::GET && owns(request.uri().path()) && is("sec-fetch-site", "cross-site");
    is_page
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
        && !headers.contains_key(header::ORIGIN)
}

/// Every page and action. None of them is part of the API document.
fn routes() -> [(&'static str, MethodRouter<Arc<State>>); 30] {
    [
        ("/", get(now::page)),
        ("/console", get(page::to_start)),
        ("/console/access", get(rights::page)),
        ("/console/alerts", get(alerts::page)),
        ("/console/alerts/{id}", get(alerts::one)),
        ("/console/alerts/{id}/mute", post(alerts::mute)),
        ("/console/assets/{version}/{name}", get(assets::file)),
        ("/console/audit", get(audit::page)),
        ("/console/events", get(events::stream)),
        ("/console/failures", get(failures::page)),
        ("/console/failures/{fingerprint}", get(group::page)),
        ("/console/failures/{fingerprint}/decide", post(group::decide)),
        ("/console/flow", get(flow::page)),
        ("/console/keys", get(keys::page)),
        ("/console/keys/rule", post(key_rule::change)),
        ("/console/messages", get(messages::page)),
        ("/console/messages/{id}", get(message::page)),
        ("/console/messages/{id}/discard", post(actions::discard)),
        ("/console/messages/{id}/edit", post(actions::edit)),
        ("/console/messages/{id}/ignore", post(actions::ignore)),
        ("/console/messages/{id}/payload", get(payload::download)),
        ("/console/messages/{id}/redrive", post(actions::redrive)),
        ("/console/messages/{id}/release", post(actions::release)),
        ("/console/redrives", get(redrives::list).post(actions::start)),
        ("/console/redrives/{id}", get(redrives::page)),
        ("/console/redrives/{id}/control", post(actions::control)),
        ("/console/rehearse", get(rehearse::page)),
        ("/console/sign-in", get(sign_in::page).post(sign_in::submit)),
        ("/console/sign-out", post(sign_in::sign_out)),
        ("/console/help", get(rights::help)),
    ]
}

pub(super) fn router() -> Router<Arc<State>> {
    routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
}

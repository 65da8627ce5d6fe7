//! Decides about every request of the console before its handler runs. New routes are closed by default.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use subtle::ConstantTimeEq;

use super::language::Language;
use super::session::{Session, cookies};
use super::{Console, page, sign_in};
use crate::config::Role;
use crate::http::auth::{Caller, bearer, role_of};
use crate::http::problem::{Problem, Raised};
use crate::http::{State, body};

/// The most bytes of a form: room for an edited payload, of which each byte may become three.
const BODY_LIMIT: usize = 4 * 1024 * 1024;

const LANGUAGE_COOKIE: &str = "landfall_language";

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Who looks at a page, and how.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    /// `None` before the sign-in.
    pub(super) session: Option<Session>,
    pub(super) language: Language,
    /// The daemon has no tokens: every program on this machine may do everything.
    pub(super) is_open: bool,
    /// The scheme and host that the visitor used.
    pub(super) origin: String,
    pub(super) uri: Uri,
}

/// The fields of a form, whose token is valid.
#[derive(Debug, Clone)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    pub(super) fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns a field that is not blank.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.trim().is_empty())
    }

    /// Returns a field as it was sent.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Visit {
    pub(super) fn role(&self) -> Option<Role> {
        self.session.as_ref().map(|session| session.role)
    }

    pub(super) fn may(&self, needed: Role) -> bool {
        self.role().is_some_and(|role| role >= needed)
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { role: self.role().unwrap_or(Role::Viewer) }
    }

    /// Returns the name for the audit trail.
    pub(super) fn actor(&self) -> String {
        match &self.session {
            Some(Session { person: Some(person), .. }) => person.clone(),
            _ => format!("console:{}", self.caller().role.as_str()),
        }
    }

    pub(super) fn form_token(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.form_token)
    }

    pub(super) fn say<T>(&self, english: T, chinese: T) -> T {
        self.language.pick(english, chinese)
    }
}

/// The role that a request needs.
fn needed_role(method: &Method, path: &str) -> Role {
    let only_reads = method == Method::GET || method == Method::HEAD;
    match path {
        "/console/sign-out" => Role::Viewer,
        // It runs a search over payloads, as the job would.
        "/console/rehearse" => Role::Operator,
        path if only_reads && path.ends_with("/payload") => Role::PayloadReader,
        _ if only_reads => Role::Viewer,
        _ => Role::Operator,
    }
}

/// Paths that need no session: the sign-in itself, and what its page consists of.
fn is_open(path: &str) -> bool {
    path == "/console/sign-in" || path.starts_with("/console/assets/")
}

pub(in crate::http) async fn check(
    state: Arc<State>,
    console: &Console,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let visit = visit(&state, console, &request);
    let wants_page = wants_page(request.headers());
    let is_asset = request.uri().path().starts_with("/console/assets/");
    if super::is_followed_link(&request) {
        return Ok(secured(page::follow(&visit), &visit, false));
    }
    let response = match admit(&state, &visit, &mut request).await {
        Ok(()) => {
            request.extensions_mut().insert(visit.caller());
            request.extensions_mut().insert(visit.clone());
            next.run(request).await
        }
        Err(refusal) => *refusal,
    };
    let response = match response.extensions().get::<Raised>().cloned() {
        Some(raised) if wants_page => page::problem(&visit, &raised, response),
        _ => response,
    };
    Ok(secured(response, &visit, is_asset))
}

fn visit(state: &State, console: &Console, request: &Request) -> Visit {
    let headers = request.headers();
    let session = if state.tokens.is_empty() {
        Some(console.sessions.open())
    } else {
        console.sessions.find(headers).or_else(|| {
            // A program with a token may read the pages. It has no form token, so it uses the API for changes.
            let role = role_of(&state.tokens, bearer(headers)?)?;
            Some(Session { role, person: None, expires: None, form_token: String::new() })
        })
    };
    let query = request.uri().query().unwrap_or_default();
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "lang");
    let asked = asked.and_then(|(_, code)| Language::from_code(&code));
    let kept = cookies(headers).find(|(name, _)| *name == LANGUAGE_COOKIE);
    let kept = || kept.and_then(|(_, code)| Language::from_code(code));
    let language = asked.or_else(kept).unwrap_or_else(|| Language::accepted(headers));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1:7700");
    let origin = format!("{}://{host}", if console.sessions.is_secure() { "https" } else { "http" });
    Visit { session, language, is_open: state.tokens.is_empty(), origin, uri: request.uri().clone() }
}

/// Returns the response instead of the page if the request may not pass.
async fn admit(state: &State, visit: &Visit, request: &mut Request) -> Result<(), Box<Response>> {
    let refuse = |problem: Problem| Box::new(problem.into_response());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if is_open(&path) {
        return Ok(());
    }
    let Some(role) = visit.role() else {
        return Err(Box::new(unknown_visitor(visit, &method, &path, wants_page(request.headers()))));
    };
    let needed = needed_role(&method, &path);
    if role < needed {
        let (needed, role) = (needed.as_str(), role.as_str());
        return Err(refuse(Problem::forbidden(format!("this needs the role {needed}, and you have the role {role}"))));
    }
    // There is nothing to post to at `/`; the router says so.
    if method != Method::POST || path == "/" {
        return Ok(());
    }
    let body = std::mem::take(request.body_mut());
    let body = body::read(body, BODY_LIMIT, state.request_timeout).await.map_err(refuse)?;
    let form = Form::parse(&body);
    let (given, expected) = (form.raw("form_token").unwrap_or_default(), visit.form_token());
    let is_own: bool = given.as_bytes().ct_eq(expected.as_bytes()).into();
    if expected.is_empty() || !is_own {
        let detail = "the form is not one of this session; reload the page and submit it again";
        return Err(refuse(Problem::forbidden(detail)));
    }
    request.extensions_mut().insert(form);
    Ok(())
}

fn unknown_visitor(visit: &Visit, method: &Method, path: &str, wants_page: bool) -> Response {
    if path == "/" {
        return sign_in::form(visit, "/", None).into_response();
    }
    if *method == Method::GET && wants_page && path != "/console/events" {
        let target = visit.uri.path_and_query().map_or("/", |target| target.as_str());
        let next: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        return Redirect::to(&format!("/console/sign-in?next={next}")).into_response();
    }
    Problem::unauthorized().into_response()
}

/// Programs get problems as JSON, browsers a page.
fn wants_page(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|kinds| kinds.contains("text/html"))
}

/// Adds the headers of every response of the console.
fn secured(mut response: Response, visit: &Visit, is_asset: bool) -> Response {
    let is_cached = is_asset && response.status() == StatusCode::OK;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Not `no-referrer`: with it browsers send `Origin: null` with a form, which the check of the origin refuses.
    set(header::REFERRER_POLICY, "same-origin");
    if !is_cached {
        set(header::CACHE_CONTROL, "no-store");
    }
    let asked = visit.uri.query().is_some_and(|query| query.contains("lang="));
    if asked && !is_asset {
        let code = visit.language.code();
        let cookie = format!("{LANGUAGE_COOKIE}={code}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict");
        if let Ok(value) = HeaderValue::from_str(&cookie) {
            headers.append(header::SET_COOKIE, value);
        }
    }
    response
}

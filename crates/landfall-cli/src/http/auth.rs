//! Authentication and authorization of requests.
//!
//! If tokens are configured, every route needs one except those in `OPEN`; new routes are closed by default. Without
//! tokens the daemon listens on loopback only, which `landfall serve` enforces, and answers only to loopback names.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::AsHeaderName;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;

use super::problem::Problem;
use super::{Shared, State, console};
use crate::config::{Role, Token};

/// Routes that reveal nothing about messages and must work for load balancers without a token.
const OPEN: [&str; 4] = ["/", "/healthz", "/readyz", "/openapi.json"];

/// What a request may do, for handlers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) role: Role,
}

pub(super) async fn check_token(
    axum::extract::State(state): Shared,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if let Some(own) = state.console.as_ref().filter(|_| console::owns(request.uri().path())) {
        return console::access::check(state.clone(), own, request, next).await;
    }
    let is_open = OPEN.contains(&request.uri().path());
    if state.tokens.is_empty() {
        // Only this machine reaches the daemon.
        request.extensions_mut().insert(Caller { role: Role::Admin });
        return Ok(next.run(request).await);
    }
    if is_open {
        return Ok(next.run(request).await);
    }
    let needed = needed_role(request.method(), request.uri().path());
    let role = given_role(&state, request.method(), request.headers());
    match role {
        None => Err(Problem::unauthorized()),
        Some(role) if role < needed => Err(Problem::forbidden(format!(
            "this request needs the role {}, and the token has the role {}",
            needed.as_str(),
            role.as_str()
        ))),
        Some(role) => {
            request.extensions_mut().insert(Caller { role });
            Ok(next.run(request).await)
        }
    }
}

/// Returns the role of the token, or of the session in the console: its pages link to what they show. A session reads,
/// and changes nothing here.
fn given_role(state: &State, method: &Method, headers: &HeaderMap) -> Option<Role> {
    let session = || state.console.as_ref().filter(|_| method == Method::GET)?.reader(headers);
    bearer(headers).and_then(|token| role_of(&state.tokens, token)).or_else(session)
}

/// Returns the role a request needs: viewer to read, operator to change something. A gRPC call is always a POST.
fn needed_role(method: &Method, path: &str) -> Role {
    let only_reads = method == Method::GET || method == Method::HEAD;
    #[cfg(feature = "grpc")]
    let only_reads = only_reads || super::grpc::only_reads(path);
    #[cfg(not(feature = "grpc"))]
    let _ = path;
    if only_reads { Role::Viewer } else { Role::Operator }
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the role of `given`.
pub(super) fn role_of(tokens: &[Token], given: &str) -> Option<Role> {
    find_token(tokens, given).map(|token| token.role)
}

/// Returns the token `given` with the highest role. Compares every token in constant time, so that the duration reveals
/// nothing about a guess.
pub(super) fn find_token<'a>(tokens: &'a [Token], given: &str) -> Option<&'a Token> {
    tokens.iter().fold(None, |found: Option<&Token>, token| {
        let is_it: bool = token.secret.expose().as_bytes().ct_eq(given.as_bytes()).into();
        let is_higher = found.is_none_or(|found| found.role < token.role);
        if is_it && is_higher { Some(token) } else { found }
    })
}

/// Refuses requests that a page of another site makes a browser send. Programs send neither `Origin` nor
/// `Sec-Fetch-Site`, and the daemon's own pages name this host.
///
/// A site whose name resolves to a loopback address (DNS rebinding) counts as the same origin. Without tokens the
/// daemon therefore requires a loopback name in `Host`.
pub(super) async fn refuse_other_sites(
    axum::extract::State(has_tokens): axum::extract::State<bool>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let headers = request.headers();
    if !has_tokens && !is_loopback(headers) {
        return Err(Problem::forbidden("without tokens, Host must be localhost or a loopback address; see [auth]"));
    }
    if console::is_followed_link(&request) {
        // The console answers it without a session, and leads to the same page from its own site.
        return Ok(next.run(request).await);
    }
    if !is_same_origin(headers) || is_cross_site(headers) {
        return Err(Problem::forbidden("a page of another site sent this request (Origin or Sec-Fetch-Site)"));
    }
    Ok(next.run(request).await)
}

/// Returns the value of a header that occurs once. `Some("")` if it occurs several times or is not text.
fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().unwrap_or_default();
    Some(if values.next().is_some() { "" } else { first })
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let Some(Ok(host)) = single(headers, header::HOST).map(str::parse::<Authority>) else { return false };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = single(headers, header::ORIGIN) else { return true };
    let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    site.is_some() && site == single(headers, header::HOST)
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    single(headers, "sec-fetch-site").is_some_and(|site| site == "cross-site" || site.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn only_exact_tokens_have_a_role() {
        let token = |role, text: &str| Token { role, secret: Secret::new(text.into()) };
        let tokens = [token(Role::Viewer, "aaaaaaaaaaaaaaaa"), token(Role::Operator, "bbbbbbbbbbbbbbbb")];
        assert_eq!(role_of(&tokens, "bbbbbbbbbbbbbbbb"), Some(Role::Operator));
        assert_eq!(role_of(&tokens, "aaaaaaaaaaaaaaaa"), Some(Role::Viewer));
        for wrong in ["", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaab", "AAAAAAAAAAAAAAAA"] {
            assert_eq!(role_of(&tokens, wrong), None, "{wrong:?} was accepted");
        }
    }

    #[test]
    fn cross_origin_requests_are_detected() {
        let headers = |pairs: &[(header::HeaderName, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
        };
        let host = (header::HOST, "127.0.0.1:7700");
        assert!(is_same_origin(&headers(std::slice::from_ref(&host))));
        assert!(is_same_origin(&headers(&[host.clone(), (header::ORIGIN, "http://127.0.0.1:7700")])));
        for other in ["https://example.com", "http://127.0.0.1:8000", "null", "ftp://127.0.0.1:7700"] {
            assert!(!is_same_origin(&headers(&[host.clone(), (header::ORIGIN, other)])), "{other} was accepted");
        }
        let mut twice = headers(&[host, (header::ORIGIN, "http://127.0.0.1:7700")]);
        twice.append(header::ORIGIN, "http://127.0.0.1:7700".parse().unwrap());
        assert!(!is_same_origin(&twice));
    }

    #[test]
    fn only_loopback_names_are_loopback() {
        let named = |host: &str| is_loopback(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]));
        for host in ["localhost", "LocalHost:7700", "127.0.0.1:7700", "127.8.8.8", "[::1]:7700", "[::ffff:127.0.0.1]"] {
            assert!(named(host), "{host} was refused");
        }
        for host in ["evil.example:7700", "localhost.evil.example", "10.0.0.1", "", "localhost:7700:1", "[::]:7700"] {
            assert!(!named(host), "{host} was accepted");
        }
        assert!(!is_loopback(&HeaderMap::new()));
    }

    #[test]
    fn only_bearer_authorization_is_a_token() {
        let header = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(header("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("Basic abc"), None);
        assert_eq!(header("abc"), None);
    }
}

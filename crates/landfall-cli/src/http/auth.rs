//! Who may ask for what.
//!
//! Where tokens are configured everything needs one, except what is listed as open here; what is new is closed until
//! somebody decides otherwise. Where none are, the daemon listens on loopback only (the command sees to it).

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;

use super::Shared;
use super::problem::Problem;
use crate::config::{Role, Token};

/// Tells nothing about messages, and must work for load balancers that have no token.
const OPEN: [&str; 4] = ["/", "/healthz", "/readyz", "/openapi.json"];

pub(super) async fn check_token(
    axum::extract::State(state): Shared,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let is_open = OPEN.contains(&request.uri().path());
    if is_open || state.tokens.is_empty() {
        return Ok(next.run(request).await);
    }
    let role = bearer(request.headers()).and_then(|token| role_of(&state.tokens, token));
    let needed = needed_role(request.method());
    match role {
        None => Err(Problem::unauthorized()),
        Some(role) if role < needed => Err(Problem::forbidden(format!(
            "this needs the role {}, and the token has the role {}",
            needed.as_str(),
            role.as_str()
        ))),
        Some(_) => Ok(next.run(request).await),
    }
}

/// Looking is for everybody with a token; changing something is for operators.
fn needed_role(method: &Method) -> Role {
    if method == Method::GET || method == Method::HEAD { Role::Viewer } else { Role::Operator }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The highest role that `given` has. Every token is compared, each in constant time, so that how long it takes says
/// nothing about how near a guess was.
fn role_of(tokens: &[Token], given: &str) -> Option<Role> {
    tokens.iter().fold(None, |found, token| {
        let is_it: bool = token.secret.expose().as_bytes().ct_eq(given.as_bytes()).into();
        if is_it { found.max(Some(token.role)) } else { found }
    })
}

/// A page of another site that is open in somebody's browser can send requests to loopback; the browser then names
/// that site in `Origin`. Programs send no `Origin`, and our own pages name this host.
pub(super) async fn refuse_other_sites(request: Request, next: Next) -> Result<Response, Problem> {
    if needed_role(request.method()) > Role::Viewer && !is_of_this_site(request.headers()) {
        return Err(Problem::forbidden("a page of another site sent this request; only pages of this daemon may"));
    }
    Ok(next.run(request).await)
}

fn is_of_this_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match text(header::ORIGIN) {
        None => true,
        Some(origin) => origin.split_once("://").is_some_and(|(_, site)| Some(site) == text(header::HOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn a_token_has_its_role_and_nothing_else_has_one() {
        let token = |role, text: &str| Token { role, secret: Secret::new(text.into()) };
        let tokens = [token(Role::Viewer, "aaaaaaaaaaaaaaaa"), token(Role::Operator, "bbbbbbbbbbbbbbbb")];
        assert_eq!(role_of(&tokens, "bbbbbbbbbbbbbbbb"), Some(Role::Operator));
        assert_eq!(role_of(&tokens, "aaaaaaaaaaaaaaaa"), Some(Role::Viewer));
        for wrong in ["", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaab", "AAAAAAAAAAAAAAAA"] {
            assert_eq!(role_of(&tokens, wrong), None, "{wrong:?} was accepted");
        }
    }

    #[test]
    fn a_browser_speaks_only_for_our_own_pages() {
        let headers = |pairs: &[(header::HeaderName, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
        };
        let host = (header::HOST, "127.0.0.1:7700");
        assert!(is_of_this_site(&headers(std::slice::from_ref(&host))));
        assert!(is_of_this_site(&headers(&[host.clone(), (header::ORIGIN, "http://127.0.0.1:7700")])));
        for other in ["https://example.com", "http://127.0.0.1:8000", "null"] {
            assert!(!is_of_this_site(&headers(&[host.clone(), (header::ORIGIN, other)])), "{other} was accepted");
        }
    }

    #[test]
    fn only_a_bearer_header_is_a_token() {
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

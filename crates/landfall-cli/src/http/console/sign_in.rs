//! Signs in with a token, and out.
//!
//! The form has no token of its own: before a session there is nothing to protect, and the check of `Origin` refuses
//! the forms of other sites.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;

use super::access::{Form, Visit};
use super::page::{Page, Visitor};
use super::query::Query;
use crate::http::auth::find_token;
use crate::http::problem::Problem;
use crate::http::{Shared, body};

const BODY_LIMIT: usize = 16 * 1024;

/// The longest name of a person.
const MAX_PERSON: usize = 100;

/// So many wrong tokens are compared at once, and one more every `REFILL`.
const MAX_ATTEMPTS: u32 = 10;
const REFILL: Duration = Duration::from_secs(3);

/// Limits wrong tokens. It is one limit for all visitors: behind a proxy their addresses are equal. Sessions that exist
/// and programs with a token are not affected.
#[derive(Debug)]
pub(super) struct Attempts(Mutex<(u32, Instant)>);

impl Default for Attempts {
    fn default() -> Self {
        Self(Mutex::new((0, Instant::now())))
    }
}

impl Attempts {
    /// Returns how long to wait; `None` if an attempt is allowed now.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let elapsed = now.saturating_duration_since(state.1);
        let refilled = u32::try_from(elapsed.as_millis() / REFILL.as_millis()).unwrap_or(u32::MAX);
        if refilled > 0 {
            *state = (state.0.saturating_sub(refilled), now);
        }
        (state.0 >= MAX_ATTEMPTS).then(|| REFILL.saturating_sub(now.saturating_duration_since(state.1)))
    }

    fn count_wrong(&self) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 += 1;
    }
}

pub(super) async fn page(visit: Visitor) -> Response {
    let query = Query::of(&visit.uri);
    let next = own_path(query.get("next"));
    if visit.session.is_some() {
        return Redirect::to(&next).into_response();
    }
    form(&visit, &next, None)
}

/// Returns a path of the console, so that the page leads to no other site.
fn own_path(given: Option<&str>) -> String {
    let is_own = |path: &&str| {
        let is_console = *path == "/" || path.starts_with("/?") || path.starts_with("/console/");
        is_console && !path.contains('\\') && !path.chars().any(char::is_control)
    };
    given.filter(is_own).unwrap_or("/").to_owned()
}

pub(super) fn form(visit: &Visit, next: &str, wrong: Option<&str>) -> Response {
    let main = html! {
        div.sign-in {
            h1 { (visit.say("Sign in", "登录")) }
            @if let Some(wrong) = wrong { p.problem role="alert" { (wrong) } }
            form method="post" action="/console/sign-in" {
                input type="hidden" name="next" value=(next);
                label {
                    span { (visit.say("Token", "令牌")) }
                    input type="password" name="token" required autocomplete="current-password" autofocus;
                }
                label {
                    span { (visit.say("Your name, for the audit trail (optional)", "您的姓名，用于审计（可选）")) }
                    input type="text" name="person" maxlength=(MAX_PERSON) autocomplete="username";
                }
                button type="submit" { (visit.say("Sign in", "登录")) }
            }
            p.muted { (visit.say(
                "A token from [auth] in the configuration of the daemon. The session ends after eight hours.",
                "使用守护进程配置中 [auth] 下的令牌。会话在八小时后结束。",
            )) }
        }
    };
    Page { title: visit.say("Sign in", "登录").into(), section: "", main, twin: None, command: None }.render(visit)
}

pub(super) async fn submit(
    axum::extract::State(state): Shared,
    visit: Visitor,
    request: Request,
) -> Result<Response, Problem> {
    let body = body::read(request.into_body(), BODY_LIMIT, state.request_timeout).await?;
    let (form, Some(console)) = (Form::parse(&body), &state.console) else {
        return Err(Problem::not_found(visit.uri.path()));
    };
    let next = own_path(form.get("next"));
    if state.tokens.is_empty() {
        return Ok(Redirect::to(&next).into_response());
    }
    if let Some(wait) = console.attempts.wait(Instant::now()) {
        let text = visit.say("Too many wrong tokens. Try again in some seconds.", "错误次数过多，请稍候再试。");
        let mut response = self::form(&visit, &next, Some(text));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        return Ok(response);
    }
    let Some(token) = find_token(&state.tokens, form.get("token").unwrap_or_default().trim()) else {
        console.attempts.count_wrong();
        tracing::warn!("a sign-in to the console with a wrong token was refused");
        let text = visit.say("This is not a token of this daemon.", "这不是此守护进程的令牌。");
        let mut response = self::form(&visit, &next, Some(text));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    };
    let person = form.get("person").unwrap_or_default().trim();
    if person.chars().count() > MAX_PERSON || person.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("the name must have at most {MAX_PERSON} characters on one line")));
    }
    Ok((cookie(&console.sessions.start(token, person)?)?, Redirect::to(&next)).into_response())
}

pub(super) async fn sign_out(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let Some(console) = &state.console else { return Err(Problem::not_found(visit.uri.path())) };
    Ok((cookie(&console.sessions.end())?, Redirect::to("/")).into_response())
}

fn cookie(text: &str) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(text).map_err(|_| Problem::invalid("the session cannot be a cookie"))?;
    headers.insert(header::SET_COOKIE, value);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_leads_to_no_other_site() {
        for own in ["/", "/?lang=zh", "/console/messages?topic=a"] {
            assert_eq!(own_path(Some(own)), own);
        }
        for other in
            ["//evil.example", "https://evil.example", "/\\evil", "/console/\\x", "javascript:alert(1)", "", "/v1"]
        {
            assert_eq!(own_path(Some(other)), "/", "{other}");
        }
    }

    #[test]
    fn wrong_tokens_are_limited_and_refill() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..MAX_ATTEMPTS {
            assert_eq!(attempts.wait(now), None);
            attempts.count_wrong();
        }
        assert!(attempts.wait(now + REFILL / 2).is_some());
        assert_eq!(attempts.wait(now + REFILL * 2), None);
    }
}

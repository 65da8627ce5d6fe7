//! A visitor of the console without a browser: keeps the cookie, and fills in forms.

use super::super::support::{Daemon, Response, request};

pub(super) const ROLES: [&str; 4] = ["viewer", "payload-reader", "operator", "admin"];

pub(super) fn token(role: &str) -> String {
    format!("{role}-0123456789")
}

/// The configuration of one token for each role.
pub(super) fn tokens() -> String {
    let list: Vec<_> =
        ROLES.iter().map(|role| format!("{{ role = \"{role}\", token = \"{}\" }}", token(role))).collect();
    format!("\n[auth]\ntokens = [{}]\n", list.join(", "))
}

#[derive(Debug, Clone, Default)]
pub(super) struct Visitor {
    pub(super) cookie: Option<String>,
}

impl Visitor {
    /// Signs in with the token of `role`.
    pub(super) async fn of(daemon: &Daemon, role: &str) -> Self {
        let body = encode(&[("token", &token(role)), ("person", "maria")]);
        let response = Self::default().send(daemon, "POST", "/console/sign-in", &[], body.as_bytes()).await;
        assert_eq!((response.status, response.header("location")), (303, Some("/")), "{response:?}");
        let cookie = response.header("set-cookie").unwrap();
        for flag in ["HttpOnly", "SameSite=Strict", "Max-Age=28800"] {
            assert!(cookie.contains(flag), "{cookie}");
        }
        Self { cookie: Some(cookie.split(';').next().unwrap().to_owned()) }
    }

    pub(super) async fn send(
        &self,
        daemon: &Daemon,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut all = vec![("accept", "text/html"), ("content-type", "application/x-www-form-urlencoded")];
        if let Some(cookie) = &self.cookie {
            all.push(("cookie", cookie));
        }
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend(headers);
        request(daemon.address, method, path, &all, body).await
    }

    pub(super) async fn get(&self, daemon: &Daemon, path: &str) -> Response {
        self.send(daemon, "GET", path, &[], b"").await
    }

    /// Returns the page, which must be one.
    pub(super) async fn page(&self, daemon: &Daemon, path: &str) -> String {
        let response = self.get(daemon, path).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        response.body
    }

    /// Follows one redirect.
    pub(super) async fn follow(&self, daemon: &Daemon, path: &str) -> (String, String) {
        let response = self.get(daemon, path).await;
        match response.header("location") {
            Some(target) => (target.to_owned(), self.page(daemon, target).await),
            None => (path.to_owned(), response.body),
        }
    }

    /// Submits the form with this `action` of the page at `path`, with `fields` instead of or besides its own.
    pub(super) async fn submit(&self, daemon: &Daemon, path: &str, action: &str, fields: &[(&str, &str)]) -> Response {
        let page = self.page(daemon, path).await;
        self.submit_on(daemon, &page, action, fields).await
    }

    pub(super) async fn submit_on(
        &self,
        daemon: &Daemon,
        page: &str,
        action: &str,
        fields: &[(&str, &str)],
    ) -> Response {
        let hidden = hidden_fields(page, action);
        let mut all: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        all.retain(|(name, _)| !fields.iter().any(|(other, _)| other == name));
        all.extend(fields);
        self.send(daemon, "POST", action, &[], encode(&all).as_bytes()).await
    }
}

pub(super) fn encode(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns the hidden fields of the form with this `action`.
pub(super) fn hidden_fields(page: &str, action: &str) -> Vec<(String, String)> {
    let start = page.find(&format!("action=\"{action}\"")).unwrap_or_else(|| panic!("no form {action}: {page}"));
    let form = &page[start..];
    let form = &form[..form.find("</form>").unwrap()];
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split_once(&format!(" {name}=\""))?.1;
        Some(unescape(rest.split_once('"')?.0))
    };
    let inputs = form.split("<input").skip(1).map(|rest| rest.split_once('>').unwrap().0);
    let hidden = inputs.filter(|tag| tag.contains("type=\"hidden\""));
    hidden.map(|tag| (attribute(tag, "name").unwrap(), attribute(tag, "value").unwrap())).collect()
}

pub(super) fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns the figure with this name in a receipt.
pub(super) fn figure(page: &str, name: &str) -> u64 {
    let rest = page.split_once(&format!("data-count=\"{name}\">")).unwrap_or_else(|| panic!("no {name}: {page}")).1;
    rest.split_once('<').unwrap().0.replace(',', "").parse().unwrap()
}

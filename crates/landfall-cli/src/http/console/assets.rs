//! The files of the pages, embedded. Their path contains a hash of their content, so that browsers keep them.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use maud::{Markup, PreEscaped};
use ring::digest::{SHA256, digest};

use super::session::hex;
use crate::http::problem::Problem;

const CSS: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

const FILES: [(&str, &str, &str); 3] = [
    ("console.css", "text/css; charset=utf-8", CSS),
    ("console.js", "text/javascript; charset=utf-8", SCRIPT),
    ("icon.svg", "image/svg+xml", ICON),
];

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = hex(digest(&SHA256, [CSS, SCRIPT, ICON].concat().as_bytes()).as_ref());
    hash.truncate(16);
    hash
});

/// Returns the path of a file in this version.
pub(super) fn path(name: &str) -> String {
    format!("/console/assets/{}/{name}", *VERSION)
}

/// The mark of Landfall, as markup.
pub(super) fn mark() -> Markup {
    PreEscaped(ICON.to_owned())
}

pub(super) async fn file(Path((version, name)): Path<(String, String)>) -> Result<Response, Problem> {
    let known = FILES.iter().find(|(known, ..)| version == *VERSION && *known == name);
    let Some((_, kind, text)) = known else {
        return Err(Problem::not_found(&format!("/console/assets/{version}/{name}")));
    };
    let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, *text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_contain_nothing_that_the_policy_forbids() {
        for forbidden in ["eval(", "innerHTML +=", "new Function", "style=", "document.write"] {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
        assert!(!CSS.contains("url(") && !CSS.contains("@import"));
    }
}

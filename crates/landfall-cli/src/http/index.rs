//! `GET /`, a front page with links, and `GET /openapi.json`, the OpenAPI document.

use axum::http::header;
use axum::response::{Html, IntoResponse};

const OPENAPI: &str = include_str!("openapi.json");

const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Landfall</title>\n",
    "<h1>Landfall ",
    env!("CARGO_PKG_VERSION"),
    "</h1>\n<p>Every message lands. Once.</p>\n<ul>\n",
    "<li><a href=\"/readyz\">readyz</a>: readiness</li>\n",
    "<li><a href=\"/healthz\">healthz</a>: liveness</li>\n",
    "<li><a href=\"/metrics\">metrics</a>: for Prometheus</li>\n",
    "<li><a href=\"/openapi.json\">openapi.json</a>: the API</li>\n</ul>\n",
    "<p>Send a message: <code>POST /v1/messages</code> with ",
    "<code>{\"topic\": …, \"payload\": …}</code>.</p>\n</html>\n",
);

pub(super) async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'")], Html(PAGE))
}

pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn openapi_document_matches_this_version() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn openapi_document_has_the_paths_of_the_router() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let documented: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let routed: BTreeSet<&str> = crate::http::routes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(documented, routed);
    }
}

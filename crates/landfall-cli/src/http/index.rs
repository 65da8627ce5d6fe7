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
    use super::*;

    #[test]
    fn openapi_document_matches_this_version() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        assert_eq!(paths, ["/healthz", "/metrics", "/openapi.json", "/readyz", "/v1/deliveries", "/v1/messages"]);
    }
}

//! Text that tries to become markup: in keys, kinds, headers, payloads, errors, reasons, names and parameters.

use landfall_testkit::eventually;
use serde_json::json;

use super::super::redrives::{count, receiver};
use super::super::support::{Sandbox, TIMEOUT};
use super::visitor::{Visitor, encode};

const VECTORS: [&str; 27] = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<body onload=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=javascript:alert(1)>x</a>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<style>*{background:url(//evil)}</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content=0;url=//evil>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>x",
    "<object data=//evil>",
    "<embed src=//evil>",
    "<math><mi xlink:href=javascript:alert(1)>",
    "<video><source onerror=alert(1)>",
    "<!--<img src=x onerror=alert(1)>-->",
    "<img/src=`x`onerror=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "<x onclick=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{constructor.constructor('alert(1)')()}}",
];

/// What ends the surroundings of the text.
const BREAKOUTS: [&str; 8] =
    ["", "\">", "'>", "\" onmouseover=\"alert(1)\" x=\"", "</title>", "</textarea>", "</pre>", "-->"];

fn corpus() -> Vec<String> {
    let pairs = VECTORS.iter().flat_map(|vector| BREAKOUTS.iter().map(move |breakout| format!("{breakout}{vector}")));
    pairs.collect()
}

/// Checks that the page consists of known tags and attributes only.
fn check(page: &str, about: &str) {
    const TAGS: [&str; 51] = [
        "html", "head", "meta", "title", "link", "script", "body", "a", "header", "svg", "path", "rect", "nav", "div",
        "span", "form", "input", "button", "p", "main", "h1", "h2", "h3", "section", "table", "thead", "tbody",
        "tfoot", "tr", "th", "td", "footer", "code", "pre", "dl", "dt", "dd", "ol", "li", "label", "select", "option",
        "details", "summary", "textarea", "time", "bdi", "strong", "kbd", "!doctype", "aside",
    ];
    let mut rest = page;
    let mut scripts = 0;
    while let Some((_, after)) = rest.split_once('<') {
        let after = after.strip_prefix('/').unwrap_or(after);
        let end = after.find(|c: char| c.is_whitespace() || c == '>').unwrap();
        let (tag, mut inside) = after.split_at(end);
        assert!(
            TAGS.contains(&tag.to_lowercase().as_str()) && !tag.is_empty(),
            "{about}: the tag {tag:?} of {after:.80}"
        );
        scripts += usize::from(after.starts_with("script "));
        // Attributes, whose values are quoted.
        loop {
            inside = inside.trim_start();
            if let Some(after) = inside.strip_prefix('>') {
                rest = after;
                break;
            }
            let end = inside.find(['=', '>', ' ']).unwrap();
            let name = &inside[..end];
            assert!(!name.starts_with("on") && name != "style" && name != "srcdoc", "{about}: the attribute {name}");
            inside = &inside[end..];
            if let Some(value) = inside.strip_prefix("=\"") {
                let (value, after) = value.split_once('"').unwrap();
                if ["href", "src", "action"].contains(&name) {
                    let is_own = value.is_empty()
                        || value.starts_with('#')
                        || (value.starts_with('/') && !value.starts_with("//"));
                    assert!(is_own, "{about}: {name}={value}");
                }
                assert!(!value.contains('<'), "{about}: {name}={value}");
                inside = after;
            }
        }
    }
    assert_eq!(scripts, 1, "{about}");
}

#[test]
fn checker_notices_markup() {
    let page = "<!DOCTYPE html><html><head><script src=\"/x\"></script></head><body><p>1 &lt; 2</p></body></html>";
    check(page, "a page");
    for planted in [
        "<img src=\"x\">",
        "<p onclick=\"x\">",
        "<a href=\"javascript:x\">",
        "<script src=\"/y\"></script>",
        "<p style=\"x\">",
    ] {
        let planted = page.replace("1 &lt; 2", planted);
        assert!(std::panic::catch_unwind(|| check(&planted, "")).is_err(), "{planted} was not noticed");
    }
}

#[tokio::test]
async fn text_never_becomes_markup() {
    let corpus = corpus();
    assert!(corpus.len() >= 200);
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    for text in &corpus {
        let body =
            json!({"topic": "orders", "key": text, "kind": text, "headers": {"x": text}, "payload": {text: text}});
        daemon.send(&body.to_string()).await;
    }
    let all = corpus.len() as u64;
    eventually(TIMEOUT, "the letters", async || count(&daemon, "status=parked").await == all).await;
    // What a handler reports is as little trusted as what a sender writes.
    sandbox.sql("UPDATE landfall_dead_letter SET error = key, error_code = key, causes = json_array(key)").await;

    let visitor = Visitor::default();
    let items = daemon.get("/v1/dead-letters?limit=1000").await.json()["items"].clone();
    for (index, item) in items.as_array().unwrap().iter().enumerate() {
        let (id, text) = (&item["id"], item["key"].as_str().unwrap());
        let form = ["", "?as=raw", "?as=hex"][index % 3];
        check(&visitor.page(&daemon, &format!("/console/messages/{id}{form}")).await, text);
        if index % 4 == 0 {
            let action = format!("/console/messages/{id}/ignore");
            let done = visitor.submit(&daemon, &format!("/console/messages/{id}"), &action, &[("reason", text)]).await;
            assert_eq!(done.status, 303, "{done:?}");
        }
        let query = encode(&[("topic", "orders"), ("key", text)]);
        check(&visitor.page(&daemon, &format!("/console/keys?{query}")).await, text);
        let query = encode(&[("q", text), ("status", "all")]);
        check(&visitor.page(&daemon, &format!("/console/messages?{query}")).await, text);
    }
    let group = daemon.get("/v1/dead-letter-groups").await.json()["items"][0]["fingerprint"].clone();
    let group = format!("/console/failures/{}", group.as_str().unwrap());
    for path in [
        "/",
        "/console/failures",
        "/console/alerts",
        &group,
        "/console/messages?limit=1000",
        "/console/audit",
        "/console/flow",
        "/console/redrives",
    ] {
        check(&visitor.page(&daemon, path).await, path);
    }
    // Parameters that are refused, unknown ones, and paths.
    for text in &corpus {
        let value: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in [
            "messages?topic=",
            "messages?status=",
            "failures?fingerprint=",
            "failures/",
            "alerts/",
            "audit?from=",
            "keys?topic=",
            "messages?",
        ] {
            check(&visitor.get(&daemon, &format!("/console/{path}{value}")).await.body, text);
        }
        let path = value.replace('+', "%20");
        check(&visitor.get(&daemon, &format!("/console/messages/{path}")).await.body, text);
        check(&visitor.get(&daemon, &format!("/console/{path}")).await.body, text);
    }
    let reasons: Vec<_> = corpus.iter().step_by(40).collect();
    for reason in reasons {
        let mut path = None;
        // The redrives before this one run, so the count may change in between, which is a conflict.
        eventually(TIMEOUT, "the redrive", async || {
            let (_, page) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
            let fields = [("reason", reason.as_str()), ("rate", "1")];
            let started = visitor.submit_on(&daemon, &page, "/console/redrives", &fields).await;
            path = started.header("location").map(str::to_owned);
            if path.is_none() {
                assert_eq!(started.status, 409, "{started:?}");
                check(&started.body, reason);
            }
            path.is_some()
        })
        .await;
        check(&visitor.page(&daemon, &path.unwrap()).await, reason);
    }
    check(&visitor.page(&daemon, "/console/redrives").await, "reasons");
}

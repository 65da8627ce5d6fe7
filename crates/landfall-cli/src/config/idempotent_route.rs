//! `[[idempotent_route]]`: requests that the daemon forwards to a service once per `Idempotency-Key`.

use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderName;
use landfall::idempotency::{Identity, OnUnknown, Scope, Terms};

use super::fields::Fields;
use super::push::receiver_url;
use super::value::{Problem, Value};
use crate::proxy::{PathParameter, Pattern};

/// Requests of one kind, and the service that answers them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdempotentRoute {
    pub(crate) pattern: Pattern,
    /// The base URL of the service.
    pub(crate) upstream: Uri,
    pub(crate) business_type: String,
    pub(crate) needs_key: bool,
    pub(crate) scope: RouteScope,
    /// Asked before every run and every replay.
    pub(crate) authorize: Option<Uri>,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_body_bytes: usize,
    /// The parameter of the path that is the business id of a one-time token; `None` if tokens are not accepted.
    pub(crate) token_business_id: Option<PathParameter>,
}

/// Whose keys a request uses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RouteScope {
    /// Those of its `Authorization`, which is hashed.
    Authorization,
    /// Those of a header that a trusted proxy in front sets.
    Header(HeaderName),
    /// Those of a header in the answer of `authorize`.
    Authorized(HeaderName),
    Global,
}

const FIELDS: [&str; 12] = [
    "match",
    "upstream",
    "business_type",
    "key",
    "scope",
    "authorize",
    "on_unknown",
    "lease_ms",
    "wait_ms",
    "timeout_ms",
    "max_body_bytes",
    "token_business_id",
];

/// Reads `idempotent_route`: one TOML table each.
pub(super) fn read(value: &Value<'_>) -> Result<Vec<IdempotentRoute>, Problem> {
    let array = value.tables("[[idempotent_route]] and below it match, upstream, business_type and on_unknown")?;
    let mut routes: Vec<IdempotentRoute> = Vec::with_capacity(array.len());
    for (index, entry) in array.iter().enumerate() {
        let about = |Problem(rest): Problem| Problem(format!("[{index}]{rest}"));
        let route = read_one(Fields::read(entry, value, &FIELDS).map_err(about)?).map_err(about)?;
        if let Some(other) = routes.iter().position(|other| other.pattern.is_same_as(&route.pattern)) {
            let text = format!(".match {:?} takes the same requests as that of [{other}]", route.pattern.to_string());
            return Err(about(Problem(text)));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn read_one(fields: Fields<'_>) -> Result<IdempotentRoute, Problem> {
    let required = |name: &str| fields.text(name)?.ok_or_else(|| Problem(format!(" needs a {name}")));
    let pattern = Pattern::parse(required("match")?).map_err(|why| Problem(format!(".match {why}")))?;
    let business_type = required("business_type")?.to_owned();
    Identity::new(Scope::Global, business_type.clone(), "key")
        .map_err(|error| Problem(format!(".business_type: {error}")))?;
    let authorize = url(&fields, "authorize")?;
    let scope = scope(fields.text("scope")?.unwrap_or("authorization"))?;
    if matches!(scope, RouteScope::Authorized(_)) && authorize.is_none() {
        return Err(Problem(".scope is taken from the answer of authorize, which is not given".into()));
    }
    let ceiling = Terms::CEILING.as_millis() as u64;
    let token_business_id = fields.text("token_business_id")?.map(|name| business_id(&pattern, name)).transpose()?;
    Ok(IdempotentRoute {
        pattern,
        upstream: upstream(url(&fields, "upstream")?.ok_or_else(|| Problem(" needs an upstream".into()))?)?,
        business_type,
        needs_key: needs_key(fields.text("key")?.unwrap_or("required"))?,
        scope,
        authorize,
        on_unknown: on_unknown(fields.text("on_unknown")?)?,
        lease: Duration::from_millis(fields.whole("lease_ms", Terms::LEASE.as_millis() as u64, 100, ceiling)?),
        wait: Duration::from_millis(fields.whole("wait_ms", 2000, 0, 60_000)?),
        timeout: fields.millis("timeout_ms", 30_000, ceiling)?,
        max_body_bytes: fields.whole("max_body_bytes", 1 << 20, 0, 64 << 20)? as usize,
        token_business_id,
    })
}

fn url(fields: &Fields<'_>, name: &str) -> Result<Option<Uri>, Problem> {
    let text = fields.resolved(name)?;
    text.map(|text| receiver_url(&text).map_err(|what| Problem(format!(".{name} {what}")))).transpose()
}

fn upstream(url: Uri) -> Result<Uri, Problem> {
    match url.query() {
        None => Ok(url),
        Some(_) => Err(Problem(".upstream is a base URL, and must have no query".into())),
    }
}

fn business_id(pattern: &Pattern, text: &str) -> Result<PathParameter, Problem> {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    name.and_then(|name| pattern.parameter(name)).ok_or_else(|| {
        let example = "one parameter of match, such as {id} of /orders/{id}";
        Problem(format!(".token_business_id must be {example}, not {text:?}"))
    })
}

fn needs_key(text: &str) -> Result<bool, Problem> {
    match text {
        "required" => Ok(true),
        "optional" => Ok(false),
        other => Err(Problem(format!(".key must be required or optional, not {other:?}"))),
    }
}

fn on_unknown(text: Option<&str>) -> Result<OnUnknown, Problem> {
    const MEANING: &str = "uncertain (a person decides) or rerun (the next request runs)";
    match text {
        Some("uncertain") => Ok(OnUnknown::Uncertain),
        Some("rerun") => Ok(OnUnknown::Rerun),
        Some(other) => Err(Problem(format!(".on_unknown must be {MEANING}, not {other:?}"))),
        None => Err(Problem(format!(" needs an on_unknown, which has no default: {MEANING}"))),
    }
}

fn scope(text: &str) -> Result<RouteScope, Problem> {
    let header =
        |name: &str| HeaderName::try_from(name).map_err(|_| Problem(format!(".scope names no valid header: {name:?}")));
    match text.split_once(':') {
        None if text == "authorization" => Ok(RouteScope::Authorization),
        None if text == "global" => Ok(RouteScope::Global),
        Some(("header", name)) => header(name).map(RouteScope::Header),
        Some(("authorized", name)) => header(name).map(RouteScope::Authorized),
        _ => {
            let text = format!(".scope must be authorization, header:NAME, authorized:NAME or global, not {text:?}");
            Err(Problem(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Environment;
    use super::super::value::Given;
    use super::*;

    fn read(lines: &str) -> Result<Vec<IdempotentRoute>, String> {
        let document: toml::Table = toml::from_str(lines).unwrap();
        let given = Given::Toml(document["idempotent_route"].clone());
        let environment = Environment::new([("ORDERS".to_owned(), "http://10.0.0.7:8080/shop".to_owned())]);
        super::read(&Value { given: &given, environment: &environment }).map_err(|Problem(rest)| rest)
    }

    const LEAST: &str = "[[idempotent_route]]\nmatch = \"POST /orders\"\nupstream = \"env:ORDERS\"\n\
                         business_type = \"order\"\non_unknown = \"rerun\"\n";

    #[test]
    fn route_needs_four_fields() {
        let one = read(LEAST).unwrap().remove(0);
        assert_eq!((one.pattern.to_string().as_str(), one.upstream.path()), ("POST /orders", "/shop"));
        assert_eq!((one.needs_key, one.scope, one.authorize), (true, RouteScope::Authorization, None));
        assert_eq!((one.lease.as_secs(), one.wait.as_secs(), one.timeout.as_secs()), (30, 2, 30));
        for field in ["match", "upstream", "business_type", "on_unknown"] {
            let lines: String = LEAST
                .lines()
                .filter(|line| !line.starts_with(field))
                .fold(String::new(), |all, line| all + line + "\n");
            let refusal = read(&lines).unwrap_err();
            assert!(refusal.starts_with("[0] needs a") && refusal.contains(field), "{refusal}");
        }
    }

    #[test]
    fn every_route_field_is_read() {
        let lines = "key = \"optional\"\nscope = \"authorized:X-Tenant\"\nauthorize = \"https://auth.internal/check\"\n\
                     lease_ms = 500\nwait_ms = 0\ntimeout_ms = 700\nmax_body_bytes = 10\n";
        let one = read(&format!("{LEAST}{lines}")).unwrap().remove(0);
        assert_eq!((one.needs_key, one.max_body_bytes), (false, 10));
        assert_eq!(one.scope, RouteScope::Authorized(HeaderName::from_static("x-tenant")));
        assert_eq!((one.lease.as_millis(), one.wait.as_millis(), one.timeout.as_millis()), (500, 0, 700));
        let routed = LEAST.replace("/orders", "/shops/{shop}/orders/{id}");
        let one = read(&format!("{routed}token_business_id = \"{{id}}\"\n")).unwrap().remove(0);
        assert_eq!(one.token_business_id.unwrap().of("/shops/1/orders/%C3%A4").unwrap(), "ä");
    }

    #[test]
    fn route_errors_name_the_field() {
        let twice = LEAST.to_owned() + LEAST;
        for (lines, expected) in [
            ("scop = \"global\"", "[0] has the unknown key \"scop\"; did you mean \"scope\"?"),
            ("scope = \"tenant\"", "[0].scope must be authorization, header:NAME, authorized:NAME or global"),
            ("scope = \"header:a b\"", "[0].scope names no valid header"),
            ("scope = \"authorized:x\"", "[0].scope is taken from the answer of authorize"),
            ("token_business_id = \"{id}\"", "[0].token_business_id must be one parameter of match"),
            ("key = \"maybe\"", "[0].key must be required or optional"),
            ("timeout_ms = 600001", "[0].timeout_ms must be a whole number from 1 to 600000"),
            ("authorize = \"ftp://x\"", "[0].authorize must begin with https:// or http://"),
        ] {
            let refusal = read(&format!("{LEAST}{lines}\n")).unwrap_err();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
        assert_eq!(read(&twice).unwrap_err(), "[1].match \"POST /orders\" takes the same requests as that of [0]");
        let other = LEAST.replace("\"rerun\"", "\"retry\"");
        assert!(read(&other).unwrap_err().contains("uncertain (a person decides) or rerun"));
        let query = LEAST.replace("env:ORDERS", "http://orders/?a=1");
        assert!(read(&query).unwrap_err().contains("must have no query"));
    }
}

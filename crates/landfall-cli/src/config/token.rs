//! `[auth]`: the tokens that may call the daemon, and their roles.

use landfall::Error;

use super::Secret;
use super::key::closest;
use super::value::{Given, Problem, Value, type_of};

/// Minimum length of a token; shorter ones can be guessed over the network.
const SHORTEST: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) role: Role,
    pub(crate) secret: Secret,
}

/// The rights of a token; each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Metrics and lists.
    Viewer,
    /// Also the contents of messages.
    PayloadReader,
    /// Also sending and redriving.
    Operator,
    Admin,
}

impl Role {
    pub(crate) const ALL: [Role; 4] = [Role::Viewer, Role::PayloadReader, Role::Operator, Role::Admin];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::PayloadReader => "payload-reader",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> landfall::Result<Self> {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| {
            Error::invalid(format!("unknown role {text:?}; the roles are viewer, payload-reader, operator, admin"))
        })
    }
}

/// Reads `auth.tokens`. No error repeats a token, not even a misplaced one.
pub(super) fn read(value: &Value<'_>) -> Result<Vec<Token>, Problem> {
    let wrong = || Problem(r#" must be an array such as [{ role = "operator", token = "env:NAME" }]"#.into());
    let array = match value.given {
        Given::Toml(toml::Value::Array(array)) => array.clone(),
        Given::Toml(_) => return Err(wrong()),
        Given::Text(text) => {
            let document: toml::Table = toml::from_str(&format!("tokens = {text}")).map_err(|_| wrong())?;
            document.get("tokens").and_then(toml::Value::as_array).cloned().ok_or_else(wrong)?
        }
    };
    array.iter().enumerate().map(|(index, entry)| read_one(index, entry, value)).collect()
}

fn read_one(index: usize, entry: &toml::Value, value: &Value<'_>) -> Result<Token, Problem> {
    let about = |rest: String| Problem(format!("[{index}]{rest}"));
    let toml::Value::Table(table) = entry else {
        return Err(about(format!(" must be a table with role and token, not {}", type_of(entry))));
    };
    const FIELDS: [&str; 2] = ["role", "token"];
    if let Some(unknown) = table.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let meant = closest(unknown, FIELDS.into_iter(), |known| strsim::jaro_winkler(unknown, known));
        let hint = meant.map_or(" a token has role and token".into(), |name| format!(" did you mean {name:?}?"));
        return Err(about(format!(" has the unknown key {unknown:?};{hint}")));
    }
    let field = |name: &str| -> Result<String, Problem> {
        let given = table.get(name).ok_or_else(|| about(format!(" needs a {name}")))?;
        let given = Given::Toml(given.clone());
        let value = Value { given: &given, environment: value.environment };
        value.resolved().map_err(|Problem(rest)| about(format!(".{name}{rest}")))
    };
    let role = field("role")?
        .parse()
        .map_err(|_| about(".role must be one of viewer, payload-reader, operator, admin".into()))?;
    let secret = field("token")?;
    if secret.chars().count() < SHORTEST {
        return Err(about(format!(".token must have at least {SHORTEST} characters")));
    }
    Ok(Token { role, secret: Secret::new(secret) })
}

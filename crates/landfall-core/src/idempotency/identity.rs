//! What is done once: a scope, a business type and a key.

use std::fmt;
use std::str::FromStr;

use ring::digest;
use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// Whose keys they are. Two tenants may choose the same key, so every identity has a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One key space for all callers. Only for callers that trust each other.
    Global,
    /// The keys of one authenticated principal, such as a tenant or an account; made by [`Scope::principal`].
    Principal(PrincipalName),
}

/// The validated name of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrincipalName(String);

/// The identity of work that is done once. Its parts are hashed with their lengths, so that no two identities collide.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    kind: IdentityKind,
    scope: Scope,
    business_type: String,
    key: String,
}

/// What an identity is used for. Identities of different kinds never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityKind {
    /// A key that the caller chose.
    Record,
    /// A one-time token that was issued.
    Token,
    /// A time window within which repeats are suppressed.
    Window,
}

/// The primary key of a record: the hash of its [`Identity`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

/// The text of [`Scope::Global`].
const GLOBAL: &str = "*";

impl Scope {
    /// The longest name of a principal, in characters.
    pub const MAX_CHARACTERS: usize = 250;

    /// Makes the scope of one principal. Fails with kind `Invalid` unless the name has 1 to 250 characters without
    /// control characters, and is not `*`.
    pub fn principal(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        check("scope", &name, Self::MAX_CHARACTERS)?;
        if name == GLOBAL {
            return Err(Error::invalid("scope \"*\" means every caller; write Scope::Global if that is intended"));
        }
        Ok(Self::Principal(PrincipalName(name)))
    }

    /// Returns the name of the principal, or `*`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Global => GLOBAL,
            Self::Principal(PrincipalName(name)) => name,
        }
    }
}

/// Parses `*` as [`Scope::Global`] and any other text as a principal.
impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == GLOBAL { Ok(Self::Global) } else { Self::principal(text) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Identity {
    /// The longest business type, in characters.
    pub const MAX_BUSINESS_TYPE_CHARACTERS: usize = 250;
    /// The longest key, in characters.
    pub const MAX_KEY_CHARACTERS: usize = 255;

    /// Makes the identity of a record. Fails with kind `Invalid` if a part is empty, too long, or contains a control
    /// character.
    pub fn new(scope: Scope, business_type: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        Self::of_kind(IdentityKind::Record, scope, business_type.into(), key.into())
    }

    /// Makes the identity of a time window.
    pub fn window(scope: Scope, business_type: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        Self::of_kind(IdentityKind::Window, scope, business_type.into(), key.into())
    }

    pub(super) fn of_kind(kind: IdentityKind, scope: Scope, business_type: String, key: String) -> Result<Self> {
        check("business_type", &business_type, Self::MAX_BUSINESS_TYPE_CHARACTERS)?;
        check("key", &key, Self::MAX_KEY_CHARACTERS)?;
        Ok(Self { kind, scope, business_type, key })
    }

    pub fn kind(&self) -> IdentityKind {
        self.kind
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn business_type(&self) -> &str {
        &self.business_type
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the hash under which the record is stored. It must not change between releases.
    pub fn id(&self) -> RecordId {
        let scope = match &self.scope {
            Scope::Global => None,
            Scope::Principal(PrincipalName(name)) => Some(name.as_bytes()),
        };
        let parts = [
            Some("landfall idempotency".as_bytes()),
            Some(self.kind.as_str().as_bytes()),
            scope,
            Some(self.business_type.as_bytes()),
            Some(self.key.as_bytes()),
        ];
        RecordId(hash(parts))
    }
}

/// Formats `business type/key (scope)` for people.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} (scope {})", self.business_type, self.key, self.scope)
    }
}

impl IdentityKind {
    pub const ALL: [Self; 3] = [Self::Record, Self::Token, Self::Window];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Token => "token",
            Self::Window => "window",
        }
    }
}

impl FromStr for IdentityKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| Error::invalid(format!("kind {text:?} is none of record, token, window")))
    }
}

impl RecordId {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Formats 64 hexadecimal digits.
impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

impl FromStr for RecordId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("the id of an idempotency record has 64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for RecordId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn check(what: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.chars().count() > most {
        return Err(Error::invalid(format!("{what} of an idempotency record must have 1 to {most} characters")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} of an idempotency record contains a control character; remove it")));
    }
    Ok(())
}

/// Hashes parts with their lengths in front. A missing part differs from an empty one.
pub(super) fn hash<'a>(parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        context.update(part.unwrap_or_default());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tenant(name: &str) -> Scope {
        Scope::principal(name).unwrap()
    }

    #[test]
    fn identities_with_other_parts_have_other_ids() {
        let identities = [
            Identity::new(tenant("a"), "order", "1"),
            Identity::new(tenant("b"), "order", "1"),
            Identity::new(Scope::Global, "order", "1"),
            Identity::new(tenant("a"), "orde", "r1"),
            Identity::new(tenant("ao"), "rder", "1"),
            Identity::new(tenant("a"), "order", "11"),
            Identity::window(tenant("a"), "order", "1"),
        ];
        let ids: HashSet<RecordId> = identities.iter().map(|identity| identity.as_ref().unwrap().id()).collect();
        assert_eq!(ids.len(), identities.len());
    }

    #[test]
    fn id_never_changes() {
        let id = Identity::new(tenant("shop"), "order", "42").unwrap().id();
        assert_eq!(id.to_string(), "3f473787d0cce1987e27e34c93259200fa7597d564c6450a8ac0f538f7cab0b0");
        assert_eq!(id.to_string().parse::<RecordId>().unwrap(), id);
        for wrong in ["", "3f", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<RecordId>().is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn parts_are_bounded_and_printable() {
        let long = |length: usize| "ä".repeat(length);
        for (business_type, key) in [("", "1"), ("order", ""), ("or\nder", "1"), ("order", "\u{0}")] {
            assert!(Identity::new(Scope::Global, business_type, key).is_err(), "{business_type:?} {key:?}");
        }
        assert!(Identity::new(Scope::Global, "order", long(255)).is_ok());
        assert!(Identity::new(Scope::Global, "order", long(256)).is_err());
        assert!(Identity::new(Scope::Global, long(251), "1").is_err());
        assert!(Scope::principal("").is_err() && Scope::principal("*").is_err());
        assert_eq!("*".parse::<Scope>().unwrap(), Scope::Global);
        assert_eq!("shop".parse::<Scope>().unwrap().as_str(), "shop");
    }
}

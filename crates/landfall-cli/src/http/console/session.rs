//! Sessions: a signed cookie that names no token and reveals none.
//!
//! The cookie is `EXPIRES.NONCE.PERSON.MAC`. Its key is derived from the one token that signed in, so every daemon with
//! that token accepts it, a removed token ends its sessions, and the holder of one token cannot forge the role of
//! another. Nothing is stored, so a session that signs out is forgotten by the browser and not revoked.

use axum::http::{HeaderMap, header};
use landfall::{Error, ErrorKind, Timestamp};
use ring::hmac::{HMAC_SHA256, Key, sign};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::config::{Role, Token};

const COOKIE: &str = "landfall_session";

/// How long a session lasts: one shift.
const LIFETIME_MS: i64 = 8 * 60 * 60 * 1000;

pub(super) struct Sessions {
    keys: Vec<(Role, Key)>,
    /// Signs the forms while there are no tokens. Ends with the process.
    open: Key,
    is_secure: bool,
}

/// A session whose signature is valid and whose time is not over.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) role: Role,
    /// The name that the person gave, for the audit trail.
    pub(super) person: Option<String>,
    pub(super) expires: Option<Timestamp>,
    /// What every form of this session must contain.
    pub(super) form_token: String,
}

impl Sessions {
    pub(super) fn new(tokens: &[Token], is_secure: bool) -> landfall::Result<Self> {
        let derive = |token: &Token| {
            let master = Key::new(HMAC_SHA256, token.secret.expose().as_bytes());
            (token.role, Key::new(HMAC_SHA256, sign(&master, b"landfall console session 1").as_ref()))
        };
        let mut keys: Vec<_> = tokens.iter().map(derive).collect();
        // Equal secrets mean the highest of their roles, as in the API.
        keys.sort_by_key(|(role, _)| std::cmp::Reverse(*role));
        Ok(Self { keys, open: Key::new(HMAC_SHA256, &random()?), is_secure })
    }

    pub(super) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the session of a daemon without tokens.
    pub(super) fn open(&self) -> Session {
        let form_token = mac(&self.open, &["form", "open"]);
        Session { role: Role::Admin, person: None, expires: None, form_token }
    }

    /// Returns the cookie of a new session for a token that was just compared.
    pub(super) fn start(&self, token: &Token, person: &str) -> landfall::Result<String> {
        let own = Self::new(std::slice::from_ref(token), self.is_secure)?;
        let Some((_, key)) = own.keys.first() else { return Err(no_random()) };
        let expires = (Timestamp::now().as_millis() + LIFETIME_MS).to_string();
        let (nonce, person) = (hex(&random()?), hex(person.as_bytes()));
        let signature = mac(key, &["session", &expires, &nonce, &person]);
        Ok(self.cookie(&format!("{expires}.{nonce}.{person}.{signature}"), LIFETIME_MS / 1000))
    }

    /// Returns the cookie that ends the session.
    pub(super) fn end(&self) -> String {
        self.cookie("", 0)
    }

    /// Returns the valid session among the cookies of a request.
    pub(super) fn find(&self, headers: &HeaderMap) -> Option<Session> {
        cookies(headers).filter(|(name, _)| *name == COOKIE).find_map(|(_, value)| self.verify(value))
    }

    fn verify(&self, value: &str) -> Option<Session> {
        let parts: Vec<&str> = value.split('.').collect();
        let [expires, nonce, person, given] = parts.as_slice() else { return None };
        let mut found = None;
        for (role, key) in &self.keys {
            let expected = mac(key, &["session", expires, nonce, person]);
            let is_it: bool = expected.as_bytes().ct_eq(given.as_bytes()).into();
            if is_it && found.is_none() {
                found = Some((*role, key));
            }
        }
        let (role, key) = found?;
        let expires = Timestamp::from_millis(expires.parse().ok()?);
        if expires <= Timestamp::now() {
            return None;
        }
        let person = String::from_utf8(unhex(person)?).ok().filter(|name| !name.is_empty());
        Some(Session { role, person, expires: Some(expires), form_token: mac(key, &["form", nonce]) })
    }

    fn cookie(&self, value: &str, seconds: i64) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }
}

/// Returns the cookies of a request by name.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// Returns the signature of `parts`. None of them contains a line break.
fn mac(key: &Key, parts: &[&str]) -> String {
    hex(sign(key, parts.join("\n").as_bytes()).as_ref())
}

fn random() -> landfall::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| no_random())?;
    Ok(bytes)
}

fn no_random() -> Error {
    Error::new(ErrorKind::Internal, "the operating system returned no random numbers")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn token(role: Role, secret: &str) -> Token {
        Token { role, secret: Secret::new(secret.to_owned()) }
    }

    fn with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("a=b; {}", cookie.split(';').next().unwrap()).parse().unwrap());
        headers
    }

    #[test]
    fn session_is_valid_on_every_daemon_with_its_token() {
        let (viewer, admin) = (token(Role::Viewer, "viewer-0123456789"), token(Role::Admin, "admin-0123456789"));
        let both = [viewer.clone(), admin.clone()];
        let sessions = Sessions::new(&both, true).unwrap();
        let cookie = sessions.start(&viewer, "maria").unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        assert!(!cookie.contains("viewer-0123456789"));
        let other = Sessions::new(&both, false).unwrap();
        let (first, second) = (sessions.find(&with(&cookie)).unwrap(), other.find(&with(&cookie)).unwrap());
        assert_eq!((second.role, second.person.as_deref()), (Role::Viewer, Some("maria")));
        assert_eq!(first.form_token, second.form_token);
        assert!(Sessions::new(&[admin], false).unwrap().find(&with(&cookie)).is_none(), "a removed token");
    }

    #[test]
    fn changed_session_is_refused() {
        let admin = token(Role::Admin, "admin-0123456789");
        let sessions = Sessions::new(std::slice::from_ref(&admin), false).unwrap();
        let cookie = sessions.start(&admin, "").unwrap();
        assert!(sessions.find(&with(&cookie)).is_some());
        let value = cookie.split(';').next().unwrap();
        for (from, to) in [("=1", "=9"), (".", ".0"), ("landfall_session", "landfall_sessiom")] {
            assert!(sessions.find(&with(&value.replacen(from, to, 1))).is_none(), "{from}");
        }
        let (mut changed, last) = (value.to_owned(), value.chars().last().unwrap());
        changed.pop();
        changed.push(if last == '0' { '1' } else { '0' });
        for wrong in [changed.as_str(), "landfall_session=", "landfall_session=1.2.3.4", "landfall_session=...."] {
            assert!(sessions.find(&with(wrong)).is_none(), "{wrong}");
        }
    }

    #[test]
    fn expired_session_is_refused() {
        let admin = token(Role::Admin, "admin-0123456789");
        let sessions = Sessions::new(std::slice::from_ref(&admin), false).unwrap();
        let signed = |expires: i64| {
            let expires = expires.to_string();
            let mac = mac(&sessions.keys[0].1, &["session", &expires, "ab", ""]);
            format!("landfall_session={expires}.ab..{mac}")
        };
        let now = Timestamp::now().as_millis();
        assert!(sessions.find(&with(&signed(now + 60_000))).is_some());
        assert!(sessions.find(&with(&signed(now - 1))).is_none());
    }
}

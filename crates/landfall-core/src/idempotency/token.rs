//! One-time tokens: 128 random bits that are stored as a hash.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};

use super::identity::hash;
use super::{Identity, IdentityKind, Scope};
use crate::{Error, ErrorKind, Result};

/// A one-time token, as its caller sends it. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl Token {
    /// Makes a random token.
    pub fn generate() -> Result<Self> {
        let mut bytes = [0; 16];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the operating system supplies no random numbers"))?;
        Ok(Self(bytes))
    }

    /// Returns the identity of this token's record. It is bound to a scope, a business type and a business id, so that
    /// a token for one business is unknown to every other. Only a hash of the token is in it.
    pub fn identity(&self, scope: Scope, business_type: &str, business_id: &str) -> Result<Identity> {
        if business_id.is_empty() || business_id.chars().count() > Identity::MAX_KEY_CHARACTERS {
            let most = Identity::MAX_KEY_CHARACTERS;
            return Err(Error::invalid(format!("business_id of a token must have 1 to {most} characters")));
        }
        let bytes = hash([Some("landfall token".as_bytes()), Some(business_id.as_bytes()), Some(&self.0)]);
        let mut key = String::with_capacity(64);
        for byte in bytes {
            let _ = write!(key, "{byte:02x}");
        }
        Identity::of_kind(IdentityKind::Token, scope, business_type.to_owned(), key)
    }
}

/// Formats 32 hexadecimal digits.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("a token has 32 hexadecimal digits");
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 16];
        for (byte, at) in bytes.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_bound_to_its_business_and_hidden() {
        let token = Token::generate().unwrap();
        assert_ne!(token, Token::generate().unwrap());
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        let id = |kind: &str, id: &str| token.identity(Scope::Global, kind, id).unwrap().id();
        assert_eq!(id("order", "1"), id("order", "1"));
        assert_ne!(id("order", "1"), id("order", "2"));
        assert_ne!(id("order", "1"), id("refund", "1"));
        let shown = format!("{token:?} {:?}", token.identity(Scope::Global, "order", "1").unwrap());
        assert!(!shown.contains(&token.to_string()), "{shown}");
        for wrong in ["", "0", &"g".repeat(32), &"é".repeat(16)] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong:?} was accepted");
        }
    }
}

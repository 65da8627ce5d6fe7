//! What makes two requests under one key equal.

use std::fmt;

use ring::digest;

use super::Fingerprint;

/// Hashes the parts of a request, each with its length, so that moved boundaries change the result.
///
/// ```
/// use landfall_core::idempotency::FingerprintBuilder;
///
/// let pay = |amount: &str| FingerprintBuilder::new("payment").part("POST /pay").part(amount).finish();
/// assert_eq!(pay("10"), pay("10"));
/// assert_ne!(pay("10"), pay("11"));
/// ```
///
/// The first byte is the version of the algorithm. Stored fingerprints are compared with new ones, so version 1 must
/// not change between releases.
pub struct FingerprintBuilder(digest::Context);

const VERSION: u8 = 1;

impl FingerprintBuilder {
    /// Begins a fingerprint. `domain` separates fingerprints of different origin.
    pub fn new(domain: &str) -> Self {
        Self(digest::Context::new(&digest::SHA256)).part(domain)
    }

    /// Returns the fingerprint of requests without content: all of them are equal.
    pub fn empty() -> Fingerprint {
        Self::new("").finish()
    }

    #[must_use]
    pub fn part(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    /// Adds a part that may be missing. A missing part differs from an empty one.
    #[must_use]
    pub fn optional(mut self, part: Option<impl AsRef<[u8]>>) -> Self {
        match part {
            Some(part) => self.part(part),
            None => {
                self.0.update(&u64::MAX.to_be_bytes());
                self
            }
        }
    }

    pub fn finish(self) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        fingerprint.copy_from_slice(self.0.finish().as_ref());
        fingerprint[0] = VERSION;
        fingerprint
    }
}

impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintBuilder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_boundaries_and_missing_parts_change_the_fingerprint() {
        let of =
            |parts: &[&str]| parts.iter().fold(FingerprintBuilder::new("x"), |hash, part| hash.part(part)).finish();
        let none = FingerprintBuilder::new("x").optional(None::<&str>).finish();
        let all =
            [of(&[]), of(&[""]), of(&["ab"]), of(&["a", "b"]), of(&["b", "a"]), none, FingerprintBuilder::empty()];
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert!(all.iter().all(|fingerprint| fingerprint[0] == 1), "the first byte is the version");
        assert_eq!(of(&["ab"]), FingerprintBuilder::new("x").optional(Some("ab")).finish());
    }
}

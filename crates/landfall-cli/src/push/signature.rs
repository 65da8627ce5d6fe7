//! Standard Webhooks: a receiver that knows the secret can tell that a request is from here, whole, and recent.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The secret of a subscription: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone)]
pub(crate) struct SigningKey {
    bytes: Vec<u8>,
}

impl SigningKey {
    /// The error is the rest of a sentence and does not repeat the text.
    pub(crate) fn new(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "must be whsec_ and 24 to 64 bytes in base64";
        let bytes = STANDARD.decode(text.strip_prefix("whsec_").ok_or(WANTED)?).map_err(|_| WANTED)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(WANTED);
        }
        Ok(Self { bytes })
    }

    fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.bytes));
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign().as_ref()))
    }
}

/// The value of `webhook-signature`: one signature for each key, so that a receiver may change its secret at its leisure.
pub(super) fn of(keys: &[SigningKey], id: &str, seconds: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = keys.iter().map(|key| key.sign(id, seconds, body)).collect();
    signatures.join(" ")
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn signs_as_the_specification_does() {
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed =
            of(std::slice::from_ref(&key), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let twice = of(&[key.clone(), key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(twice, format!("{signed} {signed}"));
    }

    #[test]
    fn a_secret_that_is_none_is_refused_and_never_shown() {
        for text in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(SigningKey::new(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()), "***");
    }
}

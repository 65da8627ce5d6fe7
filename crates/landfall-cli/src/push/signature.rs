//! Standard Webhooks signatures: with the secret, a receiver verifies the origin, integrity and age of a request.

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
    /// Parses a secret. The error is the end of a sentence and does not repeat the text.
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

/// Returns the value of `webhook-signature`: one signature per key, so that a receiver can rotate its secret.
pub(crate) fn header_value(keys: &[SigningKey], id: &str, seconds: i64, body: &[u8]) -> String {
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

    /// The example from the specification's own libraries.
    #[test]
    fn signature_matches_the_standard_webhooks_example() {
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = header_value(
            std::slice::from_ref(&key),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let twice = header_value(
            &[key.clone(), key],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(twice, format!("{signed} {signed}"));
    }

    #[test]
    fn invalid_secret_is_refused_and_never_printed() {
        for text in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(SigningKey::new(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()), "***");
    }
}

use crate::{Error, Message, Result};

/// What a sender may ask for; checked before any driver sees the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub payload_bytes: usize,
}

impl Default for Limits {
    /// 1 MiB: what Kafka and NATS take without being told to take more.
    fn default() -> Self {
        Self { payload_bytes: 1024 * 1024 }
    }
}

impl Limits {
    pub fn check(&self, message: &Message) -> Result<()> {
        let (length, limit) = (message.payload.len(), self.payload_bytes);
        if length > limit {
            return Err(Error::invalid(format!(
                "the payload is {length} bytes and the limit is {limit}; store large content elsewhere and send a \
                 reference to it"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicName;

    #[test]
    fn two_mebibytes_are_too_much_and_one_is_not() {
        let message = |bytes: usize| Message::new(TopicName::new("t").unwrap(), vec![0; bytes]);
        assert!(Limits::default().check(&message(1024 * 1024)).is_ok());
        assert!(Limits::default().check(&message(2 * 1024 * 1024)).is_err());
    }
}

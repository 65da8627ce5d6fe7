use crate::{Error, Message, Result};

/// Size limits of a message, checked before the driver is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub payload_bytes: usize,
}

impl Default for Limits {
    /// 1 MiB: the default limit of Kafka and NATS.
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
    fn payload_over_one_mebibyte_is_refused() {
        let message = |bytes: usize| Message::new(TopicName::new("t").unwrap(), vec![0; bytes]);
        assert!(Limits::default().check(&message(1024 * 1024)).is_ok());
        assert!(Limits::default().check(&message(2 * 1024 * 1024)).is_err());
    }
}

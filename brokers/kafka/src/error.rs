//! Maps Kafka's error codes: one table to publish outcomes, one to error kinds for all other calls.

use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Returns the outcome of a message whose delivery report has this error.
/// It is a refusal only if the cluster rejected this very message, or the client did so before sending it.
/// After any other error it is unknown whether the cluster stored the message.
pub(crate) fn outcome(code: Code) -> Outcome {
    let reason = || format!("Kafka: {code}");
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Outcome::refuse(ErrorCode::TOO_LARGE, reason())
        }
        Code::InvalidRecord | Code::InvalidMessage | Code::InvalidTopic => {
            Outcome::refuse(ErrorCode::VALIDATION, reason())
        }
        // A retry has another timestamp: that of sending.
        Code::InvalidTimestamp => Outcome::retry_later(ErrorCode::VALIDATION, reason()),
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication => Outcome::retry_later(ErrorCode::DENIED, reason()),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId => {
            Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, reason())
        }
        Code::KafkaStorageError => Outcome::retry_later(ErrorCode::STORAGE_FULL, reason()),
        Code::NotEnoughReplicas | Code::QueueFull | Code::ThrottlingQuotaExceeded | Code::PolicyViolation => {
            Outcome::retry_later(ErrorCode::UNAVAILABLE, reason())
        }
        Code::ProducerFenced | Code::Fenced | Code::InvalidProducerEpoch => {
            Outcome::retry_later(ErrorCode::FENCED, reason())
        }
        _ => Outcome::Unknown(reason()),
    }
}

/// Returns the outcome of messages that were never sent because a preceding request failed.
pub(crate) fn unsent(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::NotFound => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, error.to_string()),
        ErrorKind::Invalid => Outcome::refuse(ErrorCode::VALIDATION, error.to_string()),
        ErrorKind::Conflict => Outcome::retry_later(ErrorCode::DENIED, error.to_string()),
        _ => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
    }
}

/// The error of a call that concerns no single message.
pub(crate) fn error(what: impl Into<String>, error: KafkaError) -> Error {
    Error::new(kind_of(&error), what).with_source(error)
}

pub(crate) fn kind_of(error: &KafkaError) -> ErrorKind {
    let code = match error {
        // `rdkafka_error_code` returns `None` for these.
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    };
    code.map_or(ErrorKind::Internal, kind)
}

pub(crate) fn kind(code: Code) -> ErrorKind {
    match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId => {
            ErrorKind::NotFound
        }
        Code::InvalidTopic
        | Code::InvalidConfig
        | Code::InvalidPartitions
        | Code::InvalidArgument
        | Code::InvalidGroupId => ErrorKind::Invalid,
        Code::TopicAlreadyExists
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication
        | Code::PolicyViolation => ErrorKind::Conflict,
        Code::FencedInstanceId | Code::UnreleasedInstanceId => ErrorKind::InUse,
        Code::UnsupportedVersion | Code::UnsupportedFeature | Code::NotImplemented => ErrorKind::Unsupported,
        Code::BadMessage | Code::BadCompression => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_explicit_rejections_are_refusals() {
        let refused = [
            (Code::MessageSizeTooLarge, ErrorCode::TOO_LARGE, false),
            (Code::InvalidRecord, ErrorCode::VALIDATION, false),
            (Code::TopicAuthorizationFailed, ErrorCode::DENIED, true),
            (Code::UnknownTopicOrPartition, ErrorCode::UNKNOWN_TOPIC, true),
            (Code::KafkaStorageError, ErrorCode::STORAGE_FULL, true),
            (Code::QueueFull, ErrorCode::UNAVAILABLE, true),
        ];
        for (code, expected, retriable) in refused {
            let Outcome::Refused(refusal) = outcome(code) else { panic!("{code:?} is a refusal") };
            assert_eq!((refusal.code, refusal.retriable), (expected, retriable), "{code:?}");
        }
        // A purged message may already have been sent, and so may one that follows a fatal error.
        for code in [Code::MessageTimedOut, Code::PurgeInflight, Code::PurgeQueue, Code::Fatal, Code::RequestTimedOut] {
            assert!(matches!(outcome(code), Outcome::Unknown(_)), "{code:?}");
        }
    }

    #[test]
    fn unsent_messages_distinguish_denied_from_missing_topic() {
        for (code, expected) in [
            (Code::TopicAuthorizationFailed, ErrorCode::DENIED),
            (Code::UnknownTopicOrPartition, ErrorCode::UNKNOWN_TOPIC),
            (Code::BrokerTransportFailure, ErrorCode::UNAVAILABLE),
            // The cluster also answers this while all nodes are briefly fenced.
            (Code::InvalidReplicationFactor, ErrorCode::UNAVAILABLE),
        ] {
            for cause in [KafkaError::MetadataFetch(code), KafkaError::AdminOp(code)] {
                let error = error("no", cause);
                let Outcome::Refused(refusal) = unsent(&error) else { panic!("{code:?} is a refusal") };
                assert_eq!((refusal.code, refusal.retriable), (expected.clone(), true), "{code:?}");
            }
        }
    }
}

//! Maps errors of SQS and of the connection to it to publish outcomes and error kinds.

use std::error::Error as StdError;
use std::io;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};
use tokio_rustls::rustls;

/// Why a call, or one entry of a batch call, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) effect: Effect,
    pub(crate) code: ErrorCode,
    text: String,
}

/// Whether a failed call had an effect, and whether to retry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None; a retry may succeed.
    Retriable,
    /// None; a retry fails too.
    Permanent,
    /// It may have had an effect.
    Unknown,
}

impl CallError {
    pub(crate) fn new(effect: Effect, code: ErrorCode, text: impl Into<String>) -> Self {
        Self { effect, code, text: text.into() }
    }

    /// The answer of a batch call omits this entry.
    pub(crate) fn unanswered() -> Self {
        Self::new(Effect::Unknown, ErrorCode::UNKNOWN, "SQS's answer omits this message")
    }

    /// Converts an unknown effect into a retriable one, for calls before any message was sent.
    pub(crate) fn before_sending(mut self) -> Self {
        if self.effect == Effect::Unknown {
            (self.effect, self.code) = (Effect::Retriable, ErrorCode::UNAVAILABLE);
        }
        self
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.code == ErrorCode::UNKNOWN_TOPIC
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self.effect {
            Effect::Retriable => Outcome::retry_later(self.code, self.text),
            Effect::Permanent => Outcome::refuse(self.code, self.text),
            Effect::Unknown => Outcome::Unknown(self.text),
        }
    }

    /// Converts into an [`Error`], for calls that do not concern a single message.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let kind = match (self.effect, &self.code) {
            (_, code) if *code == ErrorCode::UNKNOWN_TOPIC => ErrorKind::NotFound,
            (Effect::Retriable, _) => ErrorKind::Unavailable,
            (Effect::Unknown, _) => ErrorKind::Unknown,
            (Effect::Permanent, _) => ErrorKind::Invalid,
        };
        Error::new(kind, format!("{what}: {}", self.text))
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl<E: StdError + ProvideErrorMetadata + 'static> From<SdkError<E, HttpResponse>> for CallError {
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        match &error {
            SdkError::ServiceError(answer) => {
                let meta = answer.err().meta();
                let code = meta.code().unwrap_or("no code");
                let fault = match answer.raw().status().as_u16() {
                    401 | 403 => Fault::Account,
                    status if status >= 500 => Fault::Service,
                    _ => Fault::Unclear,
                };
                from_code(code, meta.message().unwrap_or_default(), fault)
            }
            SdkError::ConstructionFailure(_) => Self::new(
                Effect::Retriable,
                ErrorCode::UNAVAILABLE,
                format!("the request could not be built: {}", chain(&error)),
            ),
            SdkError::DispatchFailure(_) if is_untrusted(&error) => {
                let reason = "SQS is not trusted: no trusted CA signed its certificate (set ca= to trust another)";
                Self::new(Effect::Retriable, ErrorCode::UNAVAILABLE, format!("{reason}: {}", chain(&error)))
            }
            SdkError::DispatchFailure(failure) if failure.is_user() || never_sent(&error) => {
                Self::new(Effect::Retriable, ErrorCode::UNAVAILABLE, format!("SQS is unreachable: {}", chain(&error)))
            }
            SdkError::DispatchFailure(failure) if failure.is_other() && never_dispatched(&error) => Self::new(
                Effect::Retriable,
                ErrorCode::DENIED,
                format!("the request cannot be signed: {}", chain(&error)),
            ),
            _ => Self::new(Effect::Unknown, ErrorCode::UNKNOWN, format!("SQS did not answer: {}", chain(&error))),
        }
    }
}

impl From<&BatchResultErrorEntry> for CallError {
    /// A failed entry had no effect, whatever the cause.
    fn from(entry: &BatchResultErrorEntry) -> Self {
        let fault = if entry.sender_fault { Fault::Sender } else { Fault::Unclear };
        from_code(&entry.code, entry.message().unwrap_or_default(), fault).before_sending()
    }
}

/// Who caused an error with an unknown code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Sender,
    Service,
    /// The service rejects this account.
    Account,
    Unclear,
}

/// Maps SQS's error codes, which may be prefixed with the service's name.
fn from_code(code: &str, message: &str, fault: Fault) -> CallError {
    let short = code.rsplit(['#', '.']).next().unwrap_or(code);
    let (effect, meaning) = match short {
        "QueueDoesNotExist" | "NonExistentQueue" => (Effect::Retriable, ErrorCode::UNKNOWN_TOPIC),
        // The queue cannot be created again for a minute.
        "QueueDeletedRecently" => (Effect::Retriable, ErrorCode::UNAVAILABLE),
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthFailure"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "RequestExpired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => (Effect::Retriable, ErrorCode::DENIED),
        "KmsAccessDenied" | "KmsDisabled" | "KmsInvalidKeyUsage" | "KmsInvalidState" | "KmsNotFound"
        | "KmsOptInRequired" => (Effect::Retriable, ErrorCode::DENIED),
        "KmsThrottled"
        | "OverLimit"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "TooManyRequestsException" => (Effect::Retriable, ErrorCode::RATE_LIMITED),
        "BatchRequestTooLong" | "MessageTooLong" => (Effect::Permanent, ErrorCode::TOO_LARGE),
        // The service has no separate code for this.
        "InvalidParameterValue" | "InvalidAttributeValue"
            if message.contains("must be shorter than") || message.contains("MessageTooLong") =>
        {
            (Effect::Permanent, ErrorCode::TOO_LARGE)
        }
        "InvalidMessageContents"
        | "InvalidParameterValue"
        | "InvalidParameterCombination"
        | "InvalidAttributeName"
        | "InvalidAttributeValue"
        | "MissingParameter"
        | "UnsupportedOperation"
        | "ValidationError"
        | "ReceiptHandleIsInvalid"
        | "InvalidIdFormat"
        | "MessageNotInflight" => (Effect::Permanent, ErrorCode::VALIDATION),
        "InternalError" | "InternalFailure" | "ServiceUnavailable" => (Effect::Unknown, ErrorCode::UNKNOWN),
        _ => match fault {
            Fault::Sender => (Effect::Permanent, ErrorCode::VALIDATION),
            Fault::Service => (Effect::Unknown, ErrorCode::UNKNOWN),
            Fault::Account => (Effect::Retriable, ErrorCode::DENIED),
            Fault::Unclear => (Effect::Retriable, ErrorCode::UPSTREAM_4XX),
        },
    };
    CallError::new(effect, meaning, if message.is_empty() { short.to_owned() } else { format!("{short}: {message}") })
}

/// Whether the connection was never established, so that SQS received nothing.
fn never_sent(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
    })
}

/// Whether the server's certificate is not trusted.
fn is_untrusted(error: &(dyn StdError + 'static)) -> bool {
    let mut handshakes = causes(error).filter_map(handshake);
    handshakes.any(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// Returns the TLS error inside an error. `source` of an I/O error skips the error that it wraps, which may be another
/// I/O error.
fn handshake<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => handshake(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// Whether the HTTP client was never called, because there were no credentials to sign with.
fn never_dispatched(error: &(dyn StdError + 'static)) -> bool {
    !causes(error).any(|cause| cause.is::<hyper_util::client::legacy::Error>())
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The error chain in one line, outermost first.
fn chain(error: &(dyn StdError + 'static)) -> String {
    causes(error).skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_effects() {
        let too_long = "One or more parameters are invalid. Reason: Message must be shorter than 262144 bytes.";
        for (code, message, effect, meaning) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", Effect::Retriable, ErrorCode::UNKNOWN_TOPIC),
            ("com.amazonaws.sqs#QueueDoesNotExist", "", Effect::Retriable, ErrorCode::UNKNOWN_TOPIC),
            ("AWS.SimpleQueueService.QueueDeletedRecently", "", Effect::Retriable, ErrorCode::UNAVAILABLE),
            ("AccessDenied", "", Effect::Retriable, ErrorCode::DENIED),
            ("InvalidClientTokenId", "", Effect::Retriable, ErrorCode::DENIED),
            ("KMS.KmsDisabled", "", Effect::Retriable, ErrorCode::DENIED),
            ("RequestThrottled", "", Effect::Retriable, ErrorCode::RATE_LIMITED),
            ("AWS.SimpleQueueService.BatchRequestTooLong", "", Effect::Permanent, ErrorCode::TOO_LARGE),
            ("InvalidParameterValue", too_long, Effect::Permanent, ErrorCode::TOO_LARGE),
            ("InvalidParameterValue", "no", Effect::Permanent, ErrorCode::VALIDATION),
            ("InternalFailure", "", Effect::Unknown, ErrorCode::UNKNOWN),
        ] {
            let error = from_code(code, message, Fault::Unclear);
            assert_eq!((error.effect, &error.code), (effect, &meaning), "{code}: {error}");
        }
    }

    #[test]
    fn unknown_error_is_permanent_only_by_sender_fault() {
        let effect = |fault| from_code("Surprise", "", fault).effect;
        assert_eq!(
            [Fault::Sender, Fault::Service, Fault::Unclear].map(effect),
            [Effect::Permanent, Effect::Unknown, Effect::Retriable]
        );
    }

    #[test]
    fn failed_batch_entry_had_no_effect() {
        let entry = BatchResultErrorEntry::builder().id("0").code("InternalError").sender_fault(false).build().unwrap();
        let error = CallError::from(&entry);
        assert_eq!((error.effect, error.code), (Effect::Retriable, ErrorCode::UNAVAILABLE));
    }
}

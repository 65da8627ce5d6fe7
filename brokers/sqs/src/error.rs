//! What the service or the way to it answers in place of success, and what that means.

use std::error::Error as StdError;
use std::io;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};
use tokio_rustls::rustls;

/// Why a call, or one entry of it, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) fate: Fate,
    pub(crate) code: ErrorCode,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It did not happen, and may later.
    Later,
    /// It did not happen, and never will.
    Never,
    /// It may have happened.
    Unknown,
}

impl Trouble {
    pub(crate) fn new(fate: Fate, code: ErrorCode, text: impl Into<String>) -> Self {
        Self { fate, code, text: text.into() }
    }

    /// The request was sent, and its answer says nothing about this entry.
    pub(crate) fn unanswered() -> Self {
        Self::new(Fate::Unknown, ErrorCode::UNKNOWN, "SQS answered and left this message out")
    }

    /// The same, where it is certain that no message had been sent yet.
    pub(crate) fn before_sending(mut self) -> Self {
        if self.fate == Fate::Unknown {
            (self.fate, self.code) = (Fate::Later, ErrorCode::UNAVAILABLE);
        }
        self
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.code == ErrorCode::UNKNOWN_TOPIC
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self.fate {
            Fate::Later => Outcome::retry_later(self.code, self.text),
            Fate::Never => Outcome::refuse(self.code, self.text),
            Fate::Unknown => Outcome::Unknown(self.text),
        }
    }

    /// As the error of a port, for what is not about a single message.
    pub(crate) fn error(self, what: &str) -> Error {
        let kind = match (self.fate, &self.code) {
            (_, code) if *code == ErrorCode::UNKNOWN_TOPIC => ErrorKind::NotFound,
            (Fate::Later, _) => ErrorKind::Unavailable,
            (Fate::Unknown, _) => ErrorKind::Unknown,
            (Fate::Never, _) => ErrorKind::Invalid,
        };
        Error::new(kind, format!("{what}: {}", self.text))
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl<E: StdError + ProvideErrorMetadata + 'static> From<SdkError<E, HttpResponse>> for Trouble {
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        match &error {
            SdkError::ServiceError(answer) => {
                let meta = answer.err().meta();
                let code = meta.code().unwrap_or("no code");
                let whose = match answer.raw().status().as_u16() {
                    401 | 403 => Whose::Account,
                    status if status >= 500 => Whose::Theirs,
                    _ => Whose::Unclear,
                };
                of_answer(code, meta.message().unwrap_or_default(), whose)
            }
            SdkError::ConstructionFailure(_) => {
                Self::new(Fate::Later, ErrorCode::UNAVAILABLE, format!("the request was not made: {}", chain(&error)))
            }
            SdkError::DispatchFailure(_) if is_unbelieved(&error) => {
                let sentence = "SQS is not believed: nobody who is trusted here vouches for its certificate";
                let hint = "ca= in the broker URL says who is trusted";
                Self::new(Fate::Later, ErrorCode::UNAVAILABLE, format!("{sentence} ({hint}): {}", chain(&error)))
            }
            SdkError::DispatchFailure(failure) if failure.is_user() || never_sent(&error) => {
                Self::new(Fate::Later, ErrorCode::UNAVAILABLE, format!("SQS cannot be reached: {}", chain(&error)))
            }
            SdkError::DispatchFailure(failure) if failure.is_other() && never_handed_over(&error) => {
                Self::new(Fate::Later, ErrorCode::DENIED, format!("the request cannot be signed: {}", chain(&error)))
            }
            _ => Self::new(Fate::Unknown, ErrorCode::UNKNOWN, format!("SQS did not answer: {}", chain(&error))),
        }
    }
}

impl From<&BatchResultErrorEntry> for Trouble {
    /// An entry that is named as failed was not done, whoever is to blame.
    fn from(entry: &BatchResultErrorEntry) -> Self {
        let whose = if entry.sender_fault { Whose::Ours } else { Whose::Unclear };
        of_answer(&entry.code, entry.message().unwrap_or_default(), whose).before_sending()
    }
}

/// Whose fault it is, where the code does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
    /// The service does not want to talk to this account, for whatever reason it gives.
    Account,
    Unclear,
}

/// The table. Codes come with and without the name of the service before them.
fn of_answer(code: &str, message: &str, whose: Whose) -> Trouble {
    let short = code.rsplit(['#', '.']).next().unwrap_or(code);
    let (fate, meaning) = match short {
        "QueueDoesNotExist" | "NonExistentQueue" => (Fate::Later, ErrorCode::UNKNOWN_TOPIC),
        // For a minute nobody can make it again.
        "QueueDeletedRecently" => (Fate::Later, ErrorCode::UNAVAILABLE),
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
        | "UnrecognizedClientException" => (Fate::Later, ErrorCode::DENIED),
        "KmsAccessDenied" | "KmsDisabled" | "KmsInvalidKeyUsage" | "KmsInvalidState" | "KmsNotFound"
        | "KmsOptInRequired" => (Fate::Later, ErrorCode::DENIED),
        "KmsThrottled"
        | "OverLimit"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "TooManyRequestsException" => (Fate::Later, ErrorCode::RATE_LIMITED),
        "BatchRequestTooLong" | "MessageTooLong" => (Fate::Never, ErrorCode::TOO_LARGE),
        // The service has no code of its own for it.
        "InvalidParameterValue" | "InvalidAttributeValue"
            if message.contains("must be shorter than") || message.contains("MessageTooLong") =>
        {
            (Fate::Never, ErrorCode::TOO_LARGE)
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
        | "MessageNotInflight" => (Fate::Never, ErrorCode::VALIDATION),
        "InternalError" | "InternalFailure" | "ServiceUnavailable" => (Fate::Unknown, ErrorCode::UNKNOWN),
        _ => match whose {
            Whose::Ours => (Fate::Never, ErrorCode::VALIDATION),
            Whose::Theirs => (Fate::Unknown, ErrorCode::UNKNOWN),
            Whose::Account => (Fate::Later, ErrorCode::DENIED),
            Whose::Unclear => (Fate::Later, ErrorCode::UPSTREAM_4XX),
        },
    };
    Trouble::new(fate, meaning, if message.is_empty() { short.to_owned() } else { format!("{short}: {message}") })
}

/// Whether the connection was never made, so that nothing can have been heard.
fn never_sent(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
    })
}

/// Whether the connection came about and its other end showed a certificate that does not count here.
fn is_unbelieved(error: &(dyn StdError + 'static)) -> bool {
    let mut handshakes = causes(error).filter_map(handshake);
    handshakes.any(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// What went wrong in a handshake: what an I/O error was made of is not among its causes, and may be one itself.
fn handshake<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => handshake(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// Whether the HTTP client was never asked: there was no identity to sign with.
fn never_handed_over(error: &(dyn StdError + 'static)) -> bool {
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

/// What went wrong, from the outside to the inside, in one line.
fn chain(error: &(dyn StdError + 'static)) -> String {
    causes(error).skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_meaning() {
        let too_long = "One or more parameters are invalid. Reason: Message must be shorter than 262144 bytes.";
        for (code, message, fate, meaning) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", Fate::Later, ErrorCode::UNKNOWN_TOPIC),
            ("com.amazonaws.sqs#QueueDoesNotExist", "", Fate::Later, ErrorCode::UNKNOWN_TOPIC),
            ("AWS.SimpleQueueService.QueueDeletedRecently", "", Fate::Later, ErrorCode::UNAVAILABLE),
            ("AccessDenied", "", Fate::Later, ErrorCode::DENIED),
            ("InvalidClientTokenId", "", Fate::Later, ErrorCode::DENIED),
            ("KMS.KmsDisabled", "", Fate::Later, ErrorCode::DENIED),
            ("RequestThrottled", "", Fate::Later, ErrorCode::RATE_LIMITED),
            ("AWS.SimpleQueueService.BatchRequestTooLong", "", Fate::Never, ErrorCode::TOO_LARGE),
            ("InvalidParameterValue", too_long, Fate::Never, ErrorCode::TOO_LARGE),
            ("InvalidParameterValue", "no", Fate::Never, ErrorCode::VALIDATION),
            ("InternalFailure", "", Fate::Unknown, ErrorCode::UNKNOWN),
        ] {
            let trouble = of_answer(code, message, Whose::Unclear);
            assert_eq!((trouble.fate, &trouble.code), (fate, &meaning), "{code}: {trouble}");
        }
    }

    #[test]
    fn what_nobody_has_seen_before_condemns_no_message_unless_it_is_to_blame() {
        let fate = |whose| of_answer("Surprise", "", whose).fate;
        assert_eq!([Whose::Ours, Whose::Theirs, Whose::Unclear].map(fate), [Fate::Never, Fate::Unknown, Fate::Later]);
    }

    #[test]
    fn an_entry_that_is_named_as_failed_was_not_done() {
        let entry = BatchResultErrorEntry::builder().id("0").code("InternalError").sender_fault(false).build().unwrap();
        let trouble = Trouble::from(&entry);
        assert_eq!((trouble.fate, trouble.code), (Fate::Later, ErrorCode::UNAVAILABLE));
    }
}

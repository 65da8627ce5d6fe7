//! The counter of results by business type. Its name is part of Landfall's contract.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The most business types with a label of their own, so that callers cannot create metrics without limit.
const MOST_BUSINESS_TYPES: usize = 200;

static KNOWN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Executed,
    Replayed,
    Waited,
    Conflict,
    Mismatch,
    Uncertain,
    Fenced,
    StoreError,
}

impl Counted {
    fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Waited => "waited",
            Self::Conflict => "conflict",
            Self::Mismatch => "mismatch",
            Self::Uncertain => "uncertain",
            Self::Fenced => "fenced",
            Self::StoreError => "store_error",
        }
    }
}

pub(crate) fn count(result: Counted, business_type: &str) {
    let business_type = label(business_type);
    metrics::counter!("landfall_idempotency_total", "result" => result.as_str(), "business_type" => business_type)
        .increment(1);
}

fn label(business_type: &str) -> String {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if !known.contains(business_type) {
        if known.len() >= MOST_BUSINESS_TYPES {
            return "other".to_owned();
        }
        known.insert(business_type.to_owned());
    }
    business_type.to_owned()
}

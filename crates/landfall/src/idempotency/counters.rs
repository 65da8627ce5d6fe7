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
    const ALL: [Self; 8] = [
        Self::Executed,
        Self::Replayed,
        Self::Waited,
        Self::Conflict,
        Self::Mismatch,
        Self::Uncertain,
        Self::Fenced,
        Self::StoreError,
    ];

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
    increment(result, register(business_type), 1);
}

/// Exports all results of a business type, from 0, when a process first sees it. Returns its label.
///
/// A counter whose first sample is 1 has no increase in Prometheus, so an alert would miss the first violation. Call
/// this before the work, so that a scrape can see the 0.
pub(crate) fn register(business_type: &str) -> String {
    let (label, is_new) = label(business_type);
    if is_new {
        Counted::ALL.into_iter().for_each(|result| increment(result, label.clone(), 0));
    }
    label
}

fn increment(result: Counted, label: String, by: u64) {
    metrics::counter!("landfall_idempotency_total", "result" => result.as_str(), "business_type" => label)
        .increment(by);
}

/// Returns the label of a business type, and whether it is seen for the first time.
fn label(business_type: &str) -> (String, bool) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.contains(business_type) {
        return (business_type.to_owned(), false);
    }
    let label = if known.len() < MOST_BUSINESS_TYPES { business_type } else { "other" };
    (label.to_owned(), known.insert(label.to_owned()))
}

//! The gauge of the most frequent error codes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

const NAME: &str = "landfall_dlq_top_error_code";

/// The most codes that this process ever uses as a label; those of further ones are added up as `other`.
const MAX_CODES: usize = 50;

/// A gauge per error code. A code that is no longer among the reported ones falls to zero.
#[derive(Clone, Default)]
pub(super) struct CodeGauge(Arc<Mutex<BTreeSet<String>>>);

impl CodeGauge {
    pub(super) const TOP: usize = 10;

    pub(super) fn set(&self, reported: Vec<(String, u64)>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut gone, mut other) = (known.clone(), 0);
        for (code, count) in reported {
            gone.remove(&code);
            if known.contains(&code) || known.len() < MAX_CODES {
                metrics::gauge!(NAME, "code" => code.clone()).set(count as f64);
                known.insert(code);
            } else {
                other += count;
            }
        }
        gone.iter().for_each(|code| metrics::gauge!(NAME, "code" => code.clone()).set(0.0));
        if other > 0 || known.len() == MAX_CODES {
            metrics::gauge!(NAME, "code" => "other").set(other as f64);
        }
    }
}

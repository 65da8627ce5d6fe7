//! Gauges with the labels topic and group, set from a query that reports only pairs with a value.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A gauge per topic and group. A pair that is no longer reported falls to zero, and does not keep its last value.
#[derive(Clone)]
pub(super) struct PairGauge {
    name: &'static str,
    known: Arc<Mutex<BTreeSet<[String; 2]>>>,
}

impl PairGauge {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, known: Arc::default() }
    }

    /// Sets the gauge of every reported pair, and of all earlier ones to zero.
    pub(super) fn set(&self, reported: impl IntoIterator<Item = ([String; 2], f64)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = known.clone();
        for (pair, value) in reported {
            gone.remove(&pair);
            self.set_one(&pair, value);
            known.insert(pair);
        }
        gone.iter().for_each(|pair| self.set_one(pair, 0.0));
    }

    fn set_one(&self, [topic, group]: &[String; 2], value: f64) {
        metrics::gauge!(self.name, "topic" => topic.clone(), "group" => group.clone()).set(value);
    }
}

//! The fingerprint of a value: equal for equal values, whatever the order of their maps.

use landfall_core::idempotency::{Fingerprint, FingerprintBuilder};
use landfall_core::{Error, Result};
use serde::Serialize;
use serde_json::Value;

/// Hashes a value as JSON whose objects are sorted by name. Lists keep their order.
///
/// ```
/// use std::collections::HashMap;
///
/// use landfall::idempotency::fingerprint_of;
///
/// let ordered = |names: [&str; 2]| fingerprint_of(&HashMap::from(names.map(|name| (name.to_owned(), 1))));
/// assert_eq!(ordered(["a", "b"])?, ordered(["b", "a"])?);
/// assert_ne!(fingerprint_of(&["a", "b"])?, fingerprint_of(&["b", "a"])?);
/// # Ok::<_, landfall::Error>(())
/// ```
pub fn fingerprint_of<T: Serialize + ?Sized>(value: &T) -> Result<Fingerprint> {
    let value = serde_json::to_value(value).map_err(|error| {
        Error::invalid("what makes two calls equal cannot be serialized as JSON").with_source(error)
    })?;
    Ok(push(FingerprintBuilder::new("value"), &value).finish())
}

fn push(hash: FingerprintBuilder, value: &Value) -> FingerprintBuilder {
    match value {
        Value::Null => hash.part("null"),
        Value::Bool(bool) => hash.part("bool").part(if *bool { "true" } else { "false" }),
        Value::Number(number) => hash.part("number").part(number.to_string()),
        Value::String(text) => hash.part("text").part(text),
        Value::Array(items) => items.iter().fold(hash.part("list").part(items.len().to_string()), push),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            let hash = hash.part("object").part(fields.len().to_string());
            fields.into_iter().fold(hash, |hash, (name, value)| push(hash.part(name), value))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn different_values_have_different_fingerprints() {
        let values = [
            json!(null),
            json!("null"),
            json!([]),
            json!({}),
            json!([[1], 2]),
            json!([[1, 2]]),
            json!({"a": {"b": 1}}),
            json!({"a": "b", "c": 1}),
            json!(1),
            json!("1"),
            json!(true),
        ];
        let prints: std::collections::HashSet<_> = values.iter().map(|value| fingerprint_of(value).unwrap()).collect();
        assert_eq!(prints.len(), values.len());
    }
}

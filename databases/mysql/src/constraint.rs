//! Recognises the constraint that a statement of the caller violated.

use landfall_core::Constraints;

use crate::MySql;

impl Constraints for MySql {
    fn is_violation_of(error: &(dyn std::error::Error + 'static), constraint: &str) -> bool {
        let Some(sqlx::Error::Database(answer)) = error.downcast_ref::<sqlx::Error>() else { return false };
        // "Duplicate entry '…' for key 'name'", or 'table.name' on MySQL. The entry itself can contain any text.
        let named = answer.message().rsplit_once(" for key ").map(|(_, key)| key.trim_matches('\''));
        let named = named.map(|key| key.rsplit_once('.').map_or(key, |(_, name)| name));
        answer.is_unique_violation() && named == Some(constraint)
    }
}

//! Recognises the constraint that a statement of the caller violated.

use landfall_core::Constraints;

use crate::Sqlite;

impl Constraints for Sqlite {
    fn is_violation_of(error: &(dyn std::error::Error + 'static), constraint: &str) -> bool {
        let Some(sqlx::Error::Database(answer)) = error.downcast_ref::<sqlx::Error>() else { return false };
        // SQLite names the columns, not the constraint.
        answer.is_unique_violation() && answer.message().split(": ").nth(1) == Some(constraint)
    }
}

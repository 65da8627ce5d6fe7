//! Recognises the constraint that a statement of the caller violated.

use landfall_core::Constraints;

use crate::Postgres;

impl Constraints for Postgres {
    fn is_violation_of(error: &(dyn std::error::Error + 'static), constraint: &str) -> bool {
        let Some(sqlx::Error::Database(answer)) = error.downcast_ref::<sqlx::Error>() else { return false };
        answer.is_unique_violation() && answer.constraint() == Some(constraint)
    }
}

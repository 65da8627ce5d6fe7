//! The call of the SQL function `outbox_settle`, whose arguments are passed by name.

use landfall_core::RowId;
use landfall_core::adapter::Epoch;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use super::window::ShardLease;

/// Declares the arguments of an SQL function: the fields, their notation by name, and how they are bound.
macro_rules! arguments {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($field:ident: $kind:ty $(= $cast:literal)?,)* }) => {
        $(#[$doc])*
        $vis struct $name {
            $($vis $field: $kind,)*
        }

        impl $name {
            /// Returns `name => $1, …` for the statement that [`bind`](Self::bind) serves.
            $vis fn notation() -> String {
                let names = [$(concat!(stringify!($field), " => $n", $($cast)?),)*];
                let numbered = names.iter().zip(1..).map(|(name, n)| name.replace("$n", &format!("${n}")));
                numbered.collect::<Vec<_>>().join(", ")
            }

            $vis fn bind<'q>(
                self,
                query: Query<'q, sqlx::Postgres, PgArguments>,
            ) -> Query<'q, sqlx::Postgres, PgArguments> {
                $(let query = query.bind(self.$field);)*
                query
            }
        }
    };
}

arguments! {
    /// The arguments of `outbox_settle`. An SQL array holds one column of a list of composite values.
    #[derive(Default)]
    pub(crate) struct SettleArguments {
        lease_names: Vec<String>,
        lease_holders: Vec<String>,
        lease_epochs: Vec<Epoch>,
        life: Option<Uuid>,
        places: String = "::text::jsonb",
        durable: bool,
        keep: bool,
        aside: Vec<RowId>,
        waited: Vec<RowId>,
        retried: Vec<RowId>,
        retry_seconds: Vec<f64>,
        retry_errors: Vec<String>,
        retry_waits: Vec<bool>,
        parked: Vec<RowId>,
        park_codes: Vec<String>,
        park_errors: Vec<String>,
        park_holds: Vec<bool>,
        park_waits: Vec<bool>,
    }
}

/// A message to be retried later.
pub(crate) struct Retry {
    pub(crate) id: RowId,
    pub(crate) seconds: f64,
    pub(crate) error: String,
    /// Whether it is a row of the waiting table.
    pub(crate) waits: bool,
}

/// A message that becomes a dead letter.
pub(crate) struct Park {
    pub(crate) id: RowId,
    pub(crate) code: String,
    pub(crate) error: String,
    pub(crate) holds_key: bool,
    /// Whether it is a row of the waiting table.
    pub(crate) waits: bool,
}

impl SettleArguments {
    pub(crate) fn with_leases(self, leases: &[ShardLease]) -> Self {
        Self {
            lease_names: leases.iter().map(ShardLease::name).collect(),
            lease_holders: leases.iter().map(|lease| lease.holder.clone()).collect(),
            lease_epochs: leases.iter().map(|lease| lease.epoch).collect(),
            ..self
        }
    }

    pub(crate) fn with_retries(self, retries: &[Retry]) -> Self {
        Self {
            retried: retries.iter().map(|retry| retry.id).collect(),
            retry_seconds: retries.iter().map(|retry| retry.seconds).collect(),
            retry_errors: retries.iter().map(|retry| retry.error.clone()).collect(),
            retry_waits: retries.iter().map(|retry| retry.waits).collect(),
            ..self
        }
    }

    pub(crate) fn with_parks(self, parks: &[Park]) -> Self {
        Self {
            parked: parks.iter().map(|park| park.id).collect(),
            park_codes: parks.iter().map(|park| park.code.clone()).collect(),
            park_errors: parks.iter().map(|park| park.error.clone()).collect(),
            park_holds: parks.iter().map(|park| park.holds_key).collect(),
            park_waits: parks.iter().map(|park| park.waits).collect(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_by_name_and_numbered_in_the_order_of_binding() {
        let notation = SettleArguments::notation();
        assert!(notation.starts_with("lease_names => $1, lease_holders => $2, "), "{notation}");
        assert!(
            notation.contains("places => $5::text::jsonb, ") && notation.ends_with("park_waits => $18"),
            "{notation}"
        );
    }
}

//! [`Timestamp`] as `timestamptz`: microseconds since 2000 in eight bytes, encoded without a date library.

use landfall_core::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// Milliseconds from 1970, the epoch of [`Timestamp`], to 2000, the epoch of PostgreSQL.
const EPOCH_DIFFERENCE_MS: i64 = 946_684_800_000;

/// A [`Timestamp`] as a parameter or column. Microseconds that SQL writers stored are cut to milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampTz(pub(crate) Timestamp);

impl Type<Postgres> for TimestampTz {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for TimestampTz {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for TimestampTz {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let micros = self.0.as_millis().saturating_sub(EPOCH_DIFFERENCE_MS).saturating_mul(1000);
        buffer.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for TimestampTz {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(Timestamp::from_millis(micros.div_euclid(1000) + EPOCH_DIFFERENCE_MS)))
    }
}

//! [`Timestamp`] as `timestamptz`: eight bytes of microseconds since 2000, read and written without any date library.

use landfall_core::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// Milliseconds from 1970, where [`Timestamp`] starts, to 2000, where PostgreSQL does.
const EPOCH_DIFFERENCE_MS: i64 = 946_684_800_000;

/// A [`Timestamp`] on its way to or from the server. Microseconds that SQL writers stored are cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let micros = self.0.as_millis().saturating_sub(EPOCH_DIFFERENCE_MS).saturating_mul(1000);
        buffer.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(Timestamp::from_millis(micros.div_euclid(1000) + EPOCH_DIFFERENCE_MS)))
    }
}

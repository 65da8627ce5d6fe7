//! [`Timestamp`] as `DATETIME(6)` in UTC. Written as text, which the server reads without a time zone; read as
//! milliseconds since 1970.

use landfall_core::Timestamp;

/// The range of `DATETIME`: years 1000 to 9999.
const RANGE: std::ops::RangeInclusive<i64> = -30_610_224_000_000..=253_402_300_799_999;

/// Formats a timestamp for the server: `2026-11-15 08:40:00.123`.
pub(crate) fn text(time: Timestamp) -> String {
    let millis = time.as_millis().clamp(*RANGE.start(), *RANGE.end());
    let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}", of_day % 1000)
}

/// Returns the date `days` after 1970-01-01, counted in eras of 400 years that begin in March.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_formatted_as_date_and_time() {
        for (millis, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (-1, "1969-12-31 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (1_794_732_000_123, "2026-11-15 08:40:00.123"),
            (4_107_542_399_999, "2100-02-28 23:59:59.999"),
            (i64::MAX, "9999-12-31 23:59:59.999"),
            (i64::MIN, "1000-01-01 00:00:00.000"),
        ] {
            assert_eq!(text(Timestamp::from_millis(millis)), expected);
        }
    }
}

//! Names and URLs of test databases.

use std::time::Duration;

use landfall_core::Timestamp;

/// The prefix of database names; a UUIDv7 follows, which contains the time of creation.
pub(super) const PREFIX: &str = "landfall_test_";
/// No test takes that long: an older database is a leftover.
const LEFTOVER_AFTER: Duration = Duration::from_secs(3600);

pub(super) fn fresh() -> String {
    format!("{PREFIX}{}", uuid::Uuid::now_v7().simple())
}

/// Whether `name` is an old test database. Only generated names qualify, so that the `DROP` statement is safe.
pub(super) fn is_leftover(name: &str, now: Timestamp) -> bool {
    let id = name.strip_prefix(PREFIX).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let created = id.and_then(|id| uuid::Uuid::try_parse(id).ok()).and_then(|id| id.get_timestamp());
    created.is_some_and(|created| {
        let created = Timestamp::from_millis(created.to_unix().0 as i64 * 1000);
        created.elapsed_since(now) > LEFTOVER_AFTER
    })
}

/// Returns `url` with another database; parameters stay.
pub(super) fn with_database(url: &str, name: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(address, rest)| (address, Some(rest)));
    let authority = address.find("://").map_or(0, |scheme| scheme + 3);
    let end = address[authority..].find('/').map_or(address.len(), |slash| authority + slash);
    match parameters {
        Some(parameters) => format!("{}/{name}?{parameters}", &address[..end]),
        None => format!("{}/{name}", &address[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_database_replaces_only_the_database() {
        for (url, expected) in [
            ("postgres://u:p@h:1/x", "postgres://u:p@h:1/new"),
            ("mysql://h", "mysql://h/new"),
            ("postgres://h/x?sslmode=require", "postgres://h/new?sslmode=require"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[test]
    fn only_old_test_databases_are_leftovers() {
        let name = fresh();
        let later = |seconds: i64| Timestamp::from_millis(Timestamp::now().as_millis() + seconds * 1000);
        assert!(!is_leftover(&name, later(60)));
        assert!(is_leftover(&name, later(7200)));
        for other in ["landfall_test_", "landfall_test_mine", "production", &format!("{name};"), &name[1..]] {
            assert!(!is_leftover(other, later(7200)), "{other}");
        }
    }
}

//! The names of the databases that tests make, and their URLs.

use std::time::Duration;

use landfall_core::Timestamp;

/// What the databases' names begin with; a UUIDv7 follows, and so the time they were made.
pub(super) const PREFIX: &str = "landfall_test_";
/// No test takes that long, so what is older was left behind.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(3600);

pub(super) fn fresh() -> String {
    format!("{PREFIX}{}", uuid::Uuid::now_v7().simple())
}

/// Only names that were made here qualify, and so only letters and digits reach the statement that removes it.
pub(super) fn is_left_behind(name: &str, now: Timestamp) -> bool {
    let id = name.strip_prefix(PREFIX).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let made = id.and_then(|id| uuid::Uuid::try_parse(id).ok()).and_then(|id| id.get_timestamp());
    made.is_some_and(|made| {
        let made = Timestamp::from_millis(made.to_unix().0 as i64 * 1000);
        made.elapsed_since(now) > LEFT_BEHIND_AFTER
    })
}

/// `url` with its database replaced and its parameters kept.
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
    fn a_url_keeps_everything_but_its_database() {
        for (url, expected) in [
            ("postgres://u:p@h:1/x", "postgres://u:p@h:1/new"),
            ("mysql://h", "mysql://h/new"),
            ("postgres://h/x?sslmode=require", "postgres://h/new?sslmode=require"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[test]
    fn only_old_databases_of_our_own_are_left_behind() {
        let name = fresh();
        let later = |seconds: i64| Timestamp::from_millis(Timestamp::now().as_millis() + seconds * 1000);
        assert!(!is_left_behind(&name, later(60)));
        assert!(is_left_behind(&name, later(7200)));
        for other in ["landfall_test_", "landfall_test_mine", "production", &format!("{name};"), &name[1..]] {
            assert!(!is_left_behind(other, later(7200)), "{other}");
        }
    }
}

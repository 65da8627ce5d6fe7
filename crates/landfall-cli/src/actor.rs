//! Who a person at the command line is, for the audit table.

/// The name that was given, else the user's.
pub(crate) fn actor(given: Option<String>) -> String {
    given.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned())
}

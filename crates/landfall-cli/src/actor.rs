//! The name under which a command is recorded in the audit table.

/// Returns `--actor` if given, else `$USER`, else `unknown`.
pub(crate) fn actor(given: Option<String>) -> String {
    given.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned())
}

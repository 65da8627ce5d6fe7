//! Variables and status of the server, by name. Variables that a server does not have are missing.

use std::collections::BTreeMap;

use landfall_core::Result;

use super::{Checkup, text};

pub(super) struct Variables(BTreeMap<String, String>);

/// The session's values, which for most variables are the server's.
const VARIABLES: &str = "SHOW VARIABLES WHERE Variable_name IN (
    'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'innodb_flush_method',
    'version', 'binlog_format', 'autocommit', 'read_only', 'super_read_only', 'max_connections',
    'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN (
    'Threads_connected', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')";

impl Variables {
    pub(super) async fn read(checkup: &mut Checkup<'_>) -> Result<Self> {
        let mut all = BTreeMap::new();
        for question in [VARIABLES, STATUS] {
            for row in checkup.ask(question).await?.unwrap_or_default() {
                all.insert(text(&row, 0).to_ascii_lowercase(), text(&row, 1));
            }
        }
        Ok(Self(all))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !["OFF", "0", "NO", ""].contains(&value.to_ascii_uppercase().as_str()))
    }

    pub(super) fn is_off(&self, name: &str) -> bool {
        self.get(name).is_some() && !self.is_on(name)
    }
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Variables {
    fn from(all: &[(&str, &str)]) -> Self {
        Self(all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

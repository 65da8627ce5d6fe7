//! Settings of the server, the database and the roles.

use landfall_core::{Finding, Rank, Result};

use super::Checkup;

const FSYNC: (&str, Rank) = ("postgres.fsync", Rank::Loss);
const FULL_PAGES: (&str, Rank) = ("postgres.full-page-writes", Rank::Loss);
const COMMIT: (&str, Rank) = ("postgres.synchronous-commit", Rank::Loss);
const AUTOVACUUM: (&str, Rank) = ("postgres.autovacuum", Rank::Latency);

/// Settings with which a power cut loses committed data.
pub(super) async fn durability(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT name, setting, source FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names')";
    let settings: Vec<(String, String, String)> = checkup.ask(sqlx::query_as(question)).await?;
    let has_synchronous_standbys =
        settings.iter().any(|(name, value, _)| name == "synchronous_standby_names" && !value.trim().is_empty());
    let judge = |(name, value, source): &(String, String, String)| {
        let set = |name: &str| format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();");
        match (name.as_str(), value.as_str()) {
            ("fsync", "off") => Some(Finding::new(
                FSYNC,
                "fsync",
                "fsync is off: a crash of the machine can lose committed transactions and damage the rest",
                set("fsync"),
            )),
            ("full_page_writes", "off") => Some(Finding::new(
                FULL_PAGES,
                "full_page_writes",
                "full_page_writes is off: a page that is half written in a crash cannot be recovered",
                set("full_page_writes"),
            )),
            // Settings of databases and roles are reported by `commits_of_roles`, for every role.
            ("synchronous_commit", _) if matches!(source.as_str(), "database" | "user" | "database user") => None,
            ("synchronous_commit", value) => {
                let what = weak_commit(value, has_synchronous_standbys)?;
                let mend = match source.as_str() {
                    "session" | "client" => {
                        "remove SET synchronous_commit and `options=-c synchronous_commit=…` from what opens \
                         connections"
                            .to_owned()
                    }
                    _ => set("synchronous_commit"),
                };
                Some(Finding::new(COMMIT, "synchronous_commit", what, mend))
            }
            _ => None,
        }
    };
    Ok(settings.iter().filter_map(judge).collect())
}

/// Writers can have their own roles with their own settings; every role that may write to this database is checked.
pub(super) async fn commits_of_roles(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT quote_ident(role.rolname), quote_ident(base.datname), substr(config, length('synchronous_commit=') + 1),
               current_setting('synchronous_standby_names') <> ''
        FROM pg_db_role_setting setting
        CROSS JOIN LATERAL unnest(setting.setconfig) config
        LEFT JOIN pg_roles role ON role.oid = setting.setrole
        LEFT JOIN pg_database base ON base.oid = setting.setdatabase
        WHERE config LIKE 'synchronous\\_commit=%' AND (setting.setdatabase = 0 OR base.datname = current_database())
        ORDER BY 1, 2";
    let rows: Vec<(Option<String>, Option<String>, String, bool)> = checkup.ask(sqlx::query_as(question)).await?;
    let judge = |(role, database, value, has_synchronous_standbys): (Option<String>, Option<String>, String, bool)| {
        let what = weak_commit(&value, has_synchronous_standbys)?;
        let (about, reset) = match (role, database) {
            (Some(role), Some(database)) => {
                (format!("role {role} in database {database}"), format!("ALTER ROLE {role} IN DATABASE {database}"))
            }
            (Some(role), None) => (format!("role {role}"), format!("ALTER ROLE {role}")),
            (None, Some(database)) => (format!("database {database}"), format!("ALTER DATABASE {database}")),
            (None, None) => ("all roles".to_owned(), "ALTER ROLE ALL".to_owned()),
        };
        Some(Finding::new(COMMIT, about, what, format!("{reset} RESET synchronous_commit;")))
    };
    Ok(rows.into_iter().filter_map(judge).collect())
}

fn weak_commit(value: &str, has_synchronous_standbys: bool) -> Option<String> {
    match value.trim_matches('\'') {
        "off" | "false" | "no" | "0" => Some(
            "synchronous_commit is off: commits return before they are on disk, and a crash loses the last ones: \
             messages, and effects that were already acknowledged to the broker"
                .to_owned(),
        ),
        "local" if has_synchronous_standbys => Some(
            "synchronous_commit is local: commits do not wait for the synchronous standbys, and are lost if one of \
             them takes over before it has received them"
                .to_owned(),
        ),
        _ => None,
    }
}

pub(super) async fn vacuum(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "SELECT name FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off'";
    let off: Vec<(String,)> = checkup.ask(sqlx::query_as(question)).await?;
    let judge = |(name,): (String,)| {
        Finding::new(
            AUTOVACUUM,
            name.clone(),
            format!(
                "{name} is off: the inbox, the dead letters and the leases keep their dead rows and get slower and \
                 slower"
            ),
            format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"),
        )
    };
    Ok(off.into_iter().map(judge).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_commit_that_can_be_lost_is_weak() {
        for (value, standbys) in [("off", false), ("'off'", true), ("local", true)] {
            assert!(weak_commit(value, standbys).is_some(), "{value}");
        }
        for (value, standbys) in [("on", true), ("local", false), ("remote_write", true), ("remote_apply", true)] {
            assert!(weak_commit(value, standbys).is_none(), "{value}");
        }
    }
}

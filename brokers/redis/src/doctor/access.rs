//! Who can reach the server.

use landfall_core::{Finding, Rank};

use super::finding;
use super::seen::Seen;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    open_to_all(seen).into_iter().collect()
}

fn open_to_all(seen: &Seen) -> Option<Finding> {
    let is_loopback = |address: &str| {
        let address = address.trim_start_matches('-');
        address.starts_with("127.") || address == "::1" || address == "localhost"
    };
    let is_open = seen.default_user.as_ref()?.iter().any(|flag| flag == "nopass");
    let listens = !seen.setting("bind")?.split_whitespace().all(is_loopback) || seen.setting("bind")?.is_empty();
    (is_open && listens && seen.setting("protected-mode")? == "no").then(|| {
        finding(
            "redis.password",
            Rank::Loss,
            "default",
            "the default account has no password and the server listens beyond this machine: anybody can remove messages",
            "requirepass, or ACL SETUSER default off and an account for Landfall",
        )
    })
}

//! Checks of network access.

use landfall_core::{Finding, Rank};

use super::finding;
use super::state::ServerState;

pub(super) fn check(state: &ServerState) -> Vec<Finding> {
    open_to_all(state).into_iter().collect()
}

fn open_to_all(state: &ServerState) -> Option<Finding> {
    let is_loopback = |address: &str| {
        let address = address.trim_start_matches('-');
        address.starts_with("127.") || address == "::1" || address == "localhost"
    };
    let is_open = state.default_user.as_ref()?.iter().any(|flag| flag == "nopass");
    let is_exposed = !state.setting("bind")?.split_whitespace().all(is_loopback) || state.setting("bind")?.is_empty();
    (is_open && is_exposed && state.setting("protected-mode")? == "no").then(|| {
        finding(
            "redis.password",
            Rank::Loss,
            "default",
            "the default account has no password and the server is reachable: any client can delete messages",
            "requirepass, or ACL SETUSER default off and an account for Landfall",
        )
    })
}

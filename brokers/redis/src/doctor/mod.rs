//! Doctor checks: settings and state of a live Redis that can lose, reorder, duplicate or delay messages.

mod access;
mod durability;
mod memory;
mod replication;
mod state;
mod streams;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Result};

use crate::broker::Redis;
use state::ServerState;

#[async_trait]
impl Diagnose for Redis {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let state = ServerState::fetch(&self.link).await?;
        let mut findings = state.hidden();
        findings.extend(durability::check(&state));
        findings.extend(replication::check(&state, &self.options));
        findings.extend(memory::check(&state));
        findings.extend(access::check(&state));
        findings.extend(streams::check(self, &state).await?);
        findings.sort_by(|one, other| (one.rank, one.check, &one.about).cmp(&(other.rank, other.check, &other.about)));
        Ok(findings)
    }
}

fn finding(
    check: &'static str,
    rank: Rank,
    about: impl Into<String>,
    what: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    Finding { check, rank, about: about.into(), what: what.into(), mend: mend.into() }
}

//! What the doctor looks at: every setting and state of a live Redis that can lose, reorder or double messages.

mod access;
mod durability;
mod memory;
mod replication;
mod seen;
mod streams;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Finding, Rank, Result};

use crate::broker::Redis;
use seen::Seen;

#[async_trait]
impl Diagnose for Redis {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let seen = Seen::look(&self.link).await?;
        let mut findings = seen.hidden();
        findings.extend(durability::check(&seen));
        findings.extend(replication::check(&seen, &self.options));
        findings.extend(memory::check(&seen));
        findings.extend(access::check(&seen));
        findings.extend(streams::check(self, &seen).await?);
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

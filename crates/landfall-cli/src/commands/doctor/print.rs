//! Prints a diagnosis as text or JSON.

use landfall::Rank;

use super::Diagnosis;
use crate::error::Result;
use crate::output::{Output, escaped};

pub(super) fn print(diagnosis: &Diagnosis, json: bool) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.json(diagnosis)?;
        return output.flush();
    }
    for finding in &diagnosis.findings {
        output.line(&format!("{:10}  {}  ({})", finding.rank, escaped(&finding.about), finding.check))?;
        output.line(&format!("{:10}  {}", "", escaped(&finding.what)))?;
        output.line(&format!("{:10}  → {}", "", escaped(&finding.mend)))?;
        output.line("")?;
    }
    output.line(&format!("Examined: {}.", diagnosis.examined.join(", ")))?;
    output.line(&summary(diagnosis))?;
    output.flush()
}

fn summary(diagnosis: &Diagnosis) -> String {
    if diagnosis.healthy {
        return "Healthy: nothing was found that loses, reorders, duplicates or delays a message.".to_owned();
    }
    let counts = Rank::ALL.map(|rank| (rank, diagnosis.findings.iter().filter(|found| found.rank == rank).count()));
    let counts: Vec<_> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(rank, count)| format!("{count} {rank}")).collect();
    format!("Found: {}.", counts.join(", "))
}

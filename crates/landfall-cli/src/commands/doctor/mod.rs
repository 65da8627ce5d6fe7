//! `landfall doctor`: checks the live database, the live broker and the configuration.

mod backlog;
mod check_backs;
mod configuration;
mod print;
mod receivers;

use clap::Args;
use landfall::adapter::Demands;
use landfall::{Diagnose, Finding, Rank};
use serde::Serialize;

use super::sources::Sources;
use crate::config::{Address, Config};
use crate::error::{Error, Result};
use crate::stores::{broker, database, shards};

/// Find every way this setup can lose, reorder, duplicate or delay messages, and how to fix it.
///
/// Checks the live database, the live broker, the configuration and what waits in the tables. Each finding has a rank
/// (loss, order, duplicates, latency; the worst first), the cause and the fix. Changes nothing, and works beside a
/// running daemon. Exit code 1 if a message can be lost, else 0: findings of the other ranks may be intended.
/// docs/operate/doctor.md lists every check.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall doctor
  landfall doctor --database-url postgres://shop@db/shop --broker-url kafka://broker:9092
  landfall doctor --json | jq -r '.findings[] | select(.rank == \"loss\") | .mend'")]
pub(crate) struct Doctor {
    /// Print one JSON object: healthy, examined, and findings with check, rank, about, what, mend.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: Sources,
}

/// The object that `--json` prints: part of the command's contract.
#[derive(Debug, Serialize)]
struct Diagnosis {
    /// Whether there are no findings of any rank.
    healthy: bool,
    examined: Vec<String>,
    /// The worst first.
    findings: Vec<Finding>,
}

impl Doctor {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.sources.load()?;
        let diagnosis = diagnose(&config).await?;
        print::print(&diagnosis, self.json)?;
        match diagnosis.findings.iter().filter(|finding| finding.rank == Rank::Loss).count() {
            0 => Ok(()),
            1 => Err(Error::failed("a message can be lost")),
            ways => Err(Error::failed(format!("a message can be lost in {ways} ways"))),
        }
    }
}

async fn diagnose(config: &Config) -> Result<Diagnosis> {
    let demands = Demands { window: config.retention_plan().needed() };
    let mut findings = configuration::diagnose(config);
    let mut database = database::open_existing(config).await;
    if let Ok(database) = &mut database
        && database.schema.check().await.is_ok()
    {
        findings.extend(backlog::diagnose(database).await?);
        findings.extend(half_messages(config, database).await?);
    }
    let database = database.map(|database| database.doctor);
    findings.extend(findings_of("database.unreachable", &config.database.url, database, &demands).await?);
    findings.extend(receivers::diagnose(config).await?);
    findings.extend(check_backs::diagnose(config).await?);
    let broker = broker::open_to_diagnose(config).await;
    findings.extend(findings_of("broker.unreachable", &config.broker.url, broker, &demands).await?);
    findings.sort_by(|a, b| (a.rank, a.check, &a.about).cmp(&(b.rank, b.check, &b.about)));
    let examined = vec![
        "the configuration".to_owned(),
        format!("database {}", config.database.url),
        format!("broker {}", config.broker.url),
    ];
    Ok(Diagnosis { healthy: findings.is_empty(), examined, findings })
}

/// Checks the half messages of all shards.
async fn half_messages(config: &Config, database: &mut database::Database) -> Result<Vec<Finding>> {
    match shards::open_existing(config, database).await {
        Ok(()) => {
            let mut findings = check_backs::waiting(&database.half.half_message_stats().await?);
            findings.extend(check_backs::stored_targets(config, &*database.half).await?);
            Ok(findings)
        }
        Err(Error::Failed(text) | Error::Outage(text) | Error::InUse(text)) => Ok(vec![Finding::new(
            ("check-back.shard", Rank::Latency),
            "check_back.shard",
            format!("a database of half messages cannot be used, so decisions are refused: {text}"),
            "make sure that it runs and has its tables (`landfall migrate`)",
        )]),
        Err(error) => Err(error),
    }
}

/// Runs the checks of one server. An unreachable server is itself a finding of rank loss, since nothing proves it
/// safe; an invalid URL is a usage error.
async fn findings_of(
    unreachable: &'static str,
    url: &Address,
    opened: Result<std::sync::Arc<dyn Diagnose>>,
    demands: &Demands,
) -> Result<Vec<Finding>> {
    let text = match opened {
        Ok(server) => match server.diagnose(demands).await {
            Ok(findings) => return Ok(findings),
            Err(error) => error.to_string(),
        },
        Err(Error::Failed(text) | Error::Outage(text) | Error::InUse(text)) => text,
        Err(error) => return Err(error),
    };
    Ok(vec![Finding {
        check: unreachable,
        rank: Rank::Loss,
        about: url.to_string(),
        what: format!("it could not be checked, so it may lose messages: {text}"),
        mend: "make sure that it runs and accepts this account, then run the doctor again".to_owned(),
    }])
}

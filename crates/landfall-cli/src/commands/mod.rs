//! The subcommands, one file or folder each.

mod alerts;
mod demo;
mod dlq;
mod doctor;
mod half;
mod idempotency;
mod migrate;
mod outbox;
mod serve;
mod sources;
mod topic;
mod trace;

use clap::Subcommand;

use crate::error::Result;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Migrate(migrate::Migrate),
    Doctor(doctor::Doctor),
    Outbox(outbox::Outbox),
    Dlq(Box<dlq::Dlq>),
    Half(half::Half),
    Idempotency(idempotency::Idempotency),
    Alerts(alerts::Alerts),
    Topic(topic::Topic),
    Trace(trace::Trace),
    #[command(hide = true)]
    DemoWorld(demo::DemoWorld),
}

impl Command {
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Serve(serve) => serve.run().await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::Doctor(doctor) => doctor.run().await,
            Self::Outbox(outbox) => outbox.run().await,
            Self::Dlq(dlq) => dlq.run().await,
            Self::Half(half) => half.run().await,
            Self::Idempotency(idempotency) => idempotency.run().await,
            Self::Alerts(alerts) => alerts.run().await,
            Self::Topic(topic) => topic.run().await,
            Self::Trace(trace) => trace.run().await,
            Self::DemoWorld(world) => world.run().await,
        }
    }
}

//! The subcommands, one file or folder each.

mod demo;
mod dlq;
mod doctor;
mod migrate;
mod outbox;
mod serve;
mod sources;
mod topic;

use clap::Subcommand;

use crate::error::Result;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Migrate(migrate::Migrate),
    Doctor(doctor::Doctor),
    Outbox(outbox::Outbox),
    Dlq(dlq::Dlq),
    Topic(topic::Topic),
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
            Self::Topic(topic) => topic.run().await,
            Self::DemoWorld(world) => world.run().await,
        }
    }
}

//! `landfall half`: half messages.

mod check;
mod decide;
mod list;
mod show;

use std::sync::Arc;

use clap::{Args, Subcommand};
use landfall::{HalfMessageFilter, HalfMessageRow, HalfMessages, HalfVerdict, MessageId};

use super::sources::Sources;
use crate::error::{Error, Result};
use crate::http::sender_id;
use crate::stores::shards;

/// List, inspect and decide half messages: messages that wait for the verdict on a local transaction.
///
/// The coordinator asks for the verdict of a prepared message (role check-back of `landfall serve`). After the last
/// unanswered question it is parked, and an operator decides. The first verdict is final.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall half list --state parked
  landfall half show 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10
  landfall half check 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10
  landfall half commit 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --actor ann")]
pub(crate) struct Half {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    /// Publish a half message: its local transaction has committed.
    Commit(decide::Decide),
    /// Discard a half message: its local transaction was rolled back and can never commit.
    Rollback(decide::Decide),
    /// Acknowledge a contradiction: a later decision than the first one was the opposite, and you have dealt with it.
    Acknowledge(decide::Acknowledge),
    Check(check::Check),
}

impl Half {
    pub(crate) async fn run(self) -> Result<()> {
        let mut database = self.sources.open_database().await?;
        shards::open_existing(&self.sources.load()?, &mut database).await?;
        let store = database.half;
        match self.action {
            Action::List(list) => list.run(&*store).await,
            Action::Show(show) => show.run(&*store).await,
            Action::Commit(decide) => decide.run(store, HalfVerdict::Committed).await,
            Action::Rollback(decide) => decide.run(store, HalfVerdict::RolledBack).await,
            Action::Acknowledge(acknowledge) => acknowledge.run(&*store).await,
            Action::Check(check) => check.run(&self.sources.load()?, store).await,
        }
    }
}

/// An id as its sender gave it: a UUID, or any other text.
#[derive(Debug, Clone, Copy)]
struct HalfId(MessageId);

impl std::str::FromStr for HalfId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sender_id(text).map(Self).map_err(|why| format!("the id {why}"))
    }
}

async fn find(store: &dyn HalfMessages, id: MessageId) -> Result<HalfMessageRow> {
    let filter = HalfMessageFilter { id: Some(id), ..HalfMessageFilter::default() };
    store
        .find_half_messages(&filter, 1)
        .await?
        .pop()
        .ok_or_else(|| Error::failed(format!("there is no half message {id}; it may have been decided and removed")))
}

type Store = Arc<dyn HalfMessages>;

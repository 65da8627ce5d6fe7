//! `landfall idempotency`: the records of idempotent requests.

mod list;
mod resolve;
mod show;

use clap::{Args, Subcommand};
use landfall::idempotency::{OneTimeTokens, RecordFilter, RecordId, RecordRow};

use super::sources::Sources;
use crate::error::{Error, Result};

/// List, inspect and resolve idempotency records: the keys of requests that take effect once.
///
/// A record is uncertain if its work may have been done and could not say so: its process crashed, or it reported an
/// unknown outcome. Find out what happened, then complete it with the answer that repeats get, or release it so that
/// the next request runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples, where ID is the id from the list:
  landfall idempotency list --state uncertain
  landfall idempotency list --scope tenant-7 --business-type payment --key order-42
  landfall idempotency show ID
  landfall idempotency release ID --actor ann
  landfall idempotency complete ID --response '{\"paid\":true}'")]
pub(crate) struct Idempotency {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Release(resolve::Release),
    Complete(resolve::Complete),
}

impl Idempotency {
    pub(crate) async fn run(self) -> Result<()> {
        let database = self.sources.open_database().await?;
        let store = &*database.records;
        match self.action {
            Action::List(list) => list.run(store).await,
            Action::Show(show) => show.run(store).await,
            Action::Release(release) => release.run(store).await,
            Action::Complete(complete) => complete.run(store).await,
        }
    }
}

async fn find(store: &dyn OneTimeTokens, id: RecordId) -> Result<RecordRow> {
    let filter = RecordFilter { id: Some(id), ..RecordFilter::default() };
    let missing = || Error::failed(format!("there is no idempotency record {id}; it may have expired"));
    store.find_records(&filter, 1).await?.pop().ok_or_else(missing)
}

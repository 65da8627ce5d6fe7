//! The director: starts the services, kills them, redrives parked messages, and waits until everything has drained.
//!
//! It affects the services only from outside: with signals, and through the dead letters.

use std::time::{Duration, Instant};

use super::account::Account;
use super::crashes::{Crashes, World};
use super::folder::Folder;
use super::progress::{Progress, Screen};
use super::repair::repair;
use super::shop::{Service, Shop};
use super::unread::unread;
use super::{Result, payment, stock};
use crate::error::Error;

/// The interval between two reads of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The share of the work after which the first repair runs; the second runs at the end.
const FIRST_REPAIR: f64 = 0.5;

/// Runs the demo in `folder`, from its current state to the end, and computes the account.
pub(crate) async fn run(folder: &Folder, screen: &Screen) -> Result<Account> {
    let started = Instant::now();
    let shop = Shop::open(folder.path()).await?;
    stock::insert_catalogue(shop.database(Service::Stock)).await?;
    payment::open_accounts(shop.database(Service::Payment)).await?;

    if Progress::read(&shop).await?.has_drained(folder.story()) {
        screen.print("The demo in this folder is already finished; only its account is computed again.");
    } else {
        let longest = longest(folder);
        match tokio::time::timeout(longest, play(folder, screen, &shop)).await {
            Ok(played) => played?,
            Err(_) => {
                let stuck = Progress::read(&shop).await?.describe_stall(folder.story());
                let seconds = longest.as_secs();
                return Err(Error::failed(format!("the demo has not drained within {seconds} s: {stuck}")).into());
            }
        }
    }
    screen.clear();
    Account::take(folder, &shop, started).await
}

/// The time limit of a run: two minutes, and more for many orders. Reached only if something is stuck.
fn longest(folder: &Folder) -> Duration {
    Duration::from_secs(120) + Duration::from_millis(50) * folder.story().orders
}

async fn play(folder: &Folder, screen: &Screen, shop: &Shop) -> Result<()> {
    let story = folder.story();
    let mut crashes = Crashes::plan(story);
    let mut killed = folder.crashes()?;
    let mut repaired_once = false;
    let mut world = World::start(folder, killed)?;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        world.check(folder)?;
        let progress = Progress::read(shop).await?;
        let share = progress.share(story);
        screen.show(&progress, killed);

        if let Some(delay) = crashes.due(share) {
            tokio::time::sleep(delay).await;
            world.kill().await?;
            folder.record_crash()?;
            killed += 1;
            screen.print(&format!("  kill -9 number {killed}, with {:.0} % of the work done", share * 100.0));
            world = World::start(folder, killed)?;
        } else if progress.needs_repair(story) || (!repaired_once && share > FIRST_REPAIR && progress.parked > 0) {
            let redriven = repair(shop).await?;
            repaired_once = true;
            screen.print(&format!("  repaired the catalogue; parked orders redriven: {redriven}"));
        } else if progress.has_drained(story) && crashes.are_over() && unread(folder.path()).await? == 0 {
            return world.stop(folder).await;
        }
    }
}

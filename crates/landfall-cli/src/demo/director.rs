//! The director: starts the world, kills it, repairs what was parked, and waits until everything has drained.
//!
//! It touches the services only as anybody outside could: through signals, and through the dead letters.

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

/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);
/// The share of the work after which what is parked so far is repaired; the rest is repaired at the end.
const FIRST_REPAIR: f64 = 0.5;

/// Plays the story in `folder` to its end, from wherever it stands, and takes the account.
pub(crate) async fn direct(folder: &Folder, screen: &Screen) -> Result<Account> {
    let started = Instant::now();
    let shop = Shop::open(folder.path()).await?;
    stock::fill_shelves(shop.database(Service::Stock)).await?;
    payment::open_accounts(shop.database(Service::Payment)).await?;

    if Progress::read(&shop).await?.has_drained(folder.story()) {
        screen.say("The story in this folder was told to its end before; its account is taken again.");
    } else {
        let longest = longest(folder);
        match tokio::time::timeout(longest, play(folder, screen, &shop)).await {
            Ok(played) => played?,
            Err(_) => {
                let stuck = Progress::read(&shop).await?.what_is_stuck(folder.story());
                let seconds = longest.as_secs();
                return Err(Error::not_so(format!("not everything has drained within {seconds} s: {stuck}")).into());
            }
        }
    }
    screen.clear();
    Account::take(folder, &shop, started).await
}

/// Two minutes, and more for long stories: reached only when something is stuck.
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
        tokio::time::sleep(LOOK).await;
        world.check(folder)?;
        let progress = Progress::read(shop).await?;
        let share = progress.share(story);
        screen.show(&progress, killed);

        if let Some(delay) = crashes.due(share) {
            tokio::time::sleep(delay).await;
            world.kill().await?;
            folder.note_crash()?;
            killed += 1;
            screen.say(&format!("  kill -9 number {killed}, with {:.0} % of the work done", share * 100.0));
            world = World::start(folder, killed)?;
        } else if progress.waits_for_repair(story) || (!repaired_once && share > FIRST_REPAIR && progress.parked > 0) {
            let redriven = repair(shop).await?;
            repaired_once = true;
            screen.say(&format!("  repaired the catalogue; parked orders redriven: {redriven}"));
        } else if progress.has_drained(story) && crashes.are_over() && unread(folder.path()).await? == 0 {
            return world.stop(folder).await;
        }
    }
}

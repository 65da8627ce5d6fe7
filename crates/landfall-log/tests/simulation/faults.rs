//! Disk faults while the log is running: a failed sync, a failed write, a full disk.

use landfall_core::{GroupName, Message, Outcome, ProducerName, Publisher, TopicName};
use landfall_log::{Options, TopicSettings};
use landfall_testkit::VIOLATION;

use crate::disk::{Faults, ModelDisk};
use crate::events::Call;
use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::{Failure, Session};
use crate::tree::Tree;
use crate::workload::History;
use crate::{runtime, shared_failpoints};

const RUNS: u64 = 12;

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

fn message(n: usize) -> Message {
    Message::new(topic(), vec![n as u8; 1 + n * 37 % 700])
}

fn options() -> Options {
    Options { partitions: 2, segment_bytes: 4096, ..Options::default() }
}

async fn new_log() -> Result<Session, Failure> {
    let mut session = Session::open(ModelDisk::new(Tree::default()), Reference::new(options()), options()).await?;
    for n in 0..6 {
        session.publish(vec![message(n), message(n + 1)]).await?;
    }
    Ok(session)
}

fn check_stopped(session: &Session, outcomes: &[Outcome]) -> Result<(), String> {
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(refusal) if refusal.retriable);
    match session.log.health().is_err() && outcomes.iter().all(is_refused) {
        true => Ok(()),
        false => Err(format!("the log continues after a failure: {outcomes:?}")),
    }
}

/// Publishes until the disk fails. Afterwards the log accepts nothing, and readers see exactly what was acknowledged.
async fn fail(session: &mut Session, faults: Faults) -> Result<(), Failure> {
    session.set_faults(faults);
    let acknowledged = loop {
        let before = session.reference.clone();
        let outcomes = session.publish(vec![message(3), message(40), message(5)]).await?;
        if !outcomes.iter().all(Outcome::is_accepted) {
            break before;
        }
    };
    acknowledged.compare(&session.content().await?)?;
    let outcomes = session.log.publish(&[message(1), message(2)]).await;
    check_stopped(session, &outcomes)?;
    Ok(acknowledged.compare(&session.content().await?)?)
}

/// A log whose disk fails at some operation, with crashes at every point; then the log is reopened and used.
fn check_fault(run: u64, faults: Faults) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::for_part(seed(), run));
    let journal = explorer.runtime().block_on(async {
        let mut session = new_log().await?;
        let disk = session.disk.clone();
        fail(&mut session, faults).await?;
        session.kill(None).await?.check_usable().await?;
        Ok::<_, Failure>(disk.take_journal())
    })?;
    let history = History { base: Tree::default(), before: Reference::new(options()), journal, options: options() };
    explorer.explore(
        &history,
        Effort { images_per_crash_point: 1, exhaustive_tears: 0, continued_percent: 100, crashed_again_percent: 0 },
    )
}

#[test]
fn after_a_failed_sync_the_log_refuses_until_reopened() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        let faults = Faults { fail_sync_after: Some(run), ..Faults::default() };
        check_fault(run, faults)
            .unwrap_or_else(|failure| panic!("{VIOLATION} LANDFALL_SEED={}, sync {run}: {failure}", seed()));
    }
}

#[test]
fn after_a_failed_write_the_log_refuses_until_reopened() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        let faults = Faults { fail_write_after: Some(run), ..Faults::default() };
        check_fault(run, faults)
            .unwrap_or_else(|failure| panic!("{VIOLATION} LANDFALL_SEED={}, write {run}: {failure}", seed()));
    }
}

async fn fill_disk_and_recover(free_bytes: u64) -> Result<(), Failure> {
    let mut session = new_log().await?;
    // The group exists before the disk is full, because creating it needs space.
    session.consume(&GroupName::new("stock")?, &topic(), |_| false).await?;
    let capacity = Some(session.disk.tree().file_bytes() + free_bytes);
    session.set_faults(Faults { capacity, ..Faults::default() });
    let refused = loop {
        let outcomes = session.publish(vec![message(3), message(40), message(5)]).await?;
        if let Some(outcome) = outcomes.into_iter().find(|outcome| !outcome.is_accepted()) {
            break outcome;
        }
    };
    if !matches!(&refused, Outcome::Refused(refusal) if refusal.retriable) {
        return Err(format!("a full disk is reported as {refused:?}").into());
    }
    // Other calls that need space fail, and do not stop the log.
    let compact = TopicSettings { compact: true, retention_bytes: Some(4000), ..TopicSettings::default() };
    let other = TopicName::new("payments")?;
    let _ = session.log.create_topic(&other, None, compact).await;
    let _ = session.log.delete_topic(&other).await;
    let _ = session.log.producer(&ProducerName::new("relay")?).await;
    let _ = session.log.maintain().await;
    session.log.health()?;
    // Readers continue, in a group and without one.
    session.reference.compare(&session.content().await?)?;
    session.consume(&GroupName::new("stock")?, &topic(), |_| false).await?;
    session.set_faults(Faults::default());
    let outcomes = session.publish(vec![message(3), message(40), message(5)]).await?;
    if !outcomes.iter().all(Outcome::is_accepted) {
        return Err(format!("space is free again, but the log does not accept messages: {outcomes:?}").into());
    }
    session.reference.compare(&session.content().await?)?;
    session.change(Call::Configure(topic(), compact)).await?;
    session.maintain().await?;
    session.check_usable().await.map(drop)
}

#[test]
fn log_on_a_full_disk_refuses_and_recovers_with_free_space() {
    let _shared = shared_failpoints();
    for free_bytes in (0..6000).step_by(311) {
        let failure = runtime().block_on(fill_disk_and_recover(free_bytes)).map_err(String::from);
        failure.unwrap_or_else(|failure| panic!("{free_bytes} free bytes: {failure}"));
    }
}

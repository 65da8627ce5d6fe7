//! A disk that fails while the log is running: a sync, a write, no room.

use landfall_core::{GroupName, Message, Outcome, ProducerName, Publisher, TopicName};
use landfall_log::{Options, TopicSettings};

use crate::disk::{Faults, ModelDisk};
use crate::explore::{Effort, Explorer};
use crate::marks::Call;
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::{Session, Verdict};
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

async fn new_log() -> Result<Session, Verdict> {
    let mut session = Session::open(ModelDisk::new(Tree::default()), Reference::new(options()), options()).await?;
    for n in 0..6 {
        session.publish(vec![message(n), message(n + 1)]).await?;
    }
    Ok(session)
}

fn stopped(session: &Session, outcomes: &[Outcome]) -> Result<(), String> {
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(refusal) if refusal.retriable);
    match session.log.health().is_err() && outcomes.iter().all(is_refused) {
        true => Ok(()),
        false => Err(format!("the log goes on after a failure: {outcomes:?}")),
    }
}

/// Publishes until the disk fails: from then on nothing is taken, and what is shown is exactly what was acknowledged.
async fn fail(session: &mut Session, faults: Faults) -> Result<(), Verdict> {
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
    stopped(session, &outcomes)?;
    Ok(acknowledged.compare(&session.content().await?)?)
}

/// A log whose disk fails at some place, with crashes at every moment of it; then opened again and gone on with.
fn survives(run: u64, faults: Faults) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::of(seed(), run));
    let journal = explorer.runtime().block_on(async {
        let mut session = new_log().await?;
        let disk = session.disk.clone();
        fail(&mut session, faults).await?;
        session.kill(None).await?.goes_on().await?;
        Ok::<_, Verdict>(disk.take_journal())
    })?;
    let history = History { base: Tree::default(), before: Reference::new(options()), journal, options: options() };
    explorer
        .explore(&history, Effort { images_per_moment: 1, torn_at_every_byte: 0, gone_on_with: 100, crashed_again: 0 })
}

#[test]
fn after_a_failed_sync_nothing_is_taken_until_the_log_is_reopened() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        let faults = Faults { fail_sync_after: Some(run), ..Faults::default() };
        survives(run, faults).unwrap_or_else(|verdict| panic!("LANDFALL_SEED={}, sync {run}: {verdict}", seed()));
    }
}

#[test]
fn after_a_failed_write_nothing_is_taken_until_the_log_is_reopened() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        let faults = Faults { fail_write_after: Some(run), ..Faults::default() };
        survives(run, faults).unwrap_or_else(|verdict| panic!("LANDFALL_SEED={}, write {run}: {verdict}", seed()));
    }
}

async fn runs_full_and_recovers(room: u64) -> Result<(), Verdict> {
    let mut session = new_log().await?;
    // The group is known before, since that has to be written down.
    session.consume(&GroupName::new("stock")?, &topic(), |_| false).await?;
    let capacity = Some(session.disk.tree().file_bytes() + room);
    session.set_faults(Faults { capacity, ..Faults::default() });
    let refused = loop {
        let outcomes = session.publish(vec![message(3), message(40), message(5)]).await?;
        if let Some(outcome) = outcomes.into_iter().find(|outcome| !outcome.is_accepted()) {
            break outcome;
        }
    };
    if !matches!(&refused, Outcome::Refused(refusal) if refusal.retriable) {
        return Err(format!("a full disk is told as {refused:?}").into());
    }
    // Whatever else does not fit is told, and nothing of it stops the log.
    let compact = TopicSettings { compact: true, retention_bytes: Some(4000), ..TopicSettings::default() };
    let other = TopicName::new("payments")?;
    let _ = session.log.create_topic(&other, None, compact).await;
    let _ = session.log.delete_topic(&other).await;
    let _ = session.log.producer(&ProducerName::new("relay")?).await;
    let _ = session.log.maintain().await;
    session.log.health()?;
    // Readers go on, in a group and without one.
    session.reference.compare(&session.content().await?)?;
    session.consume(&GroupName::new("stock")?, &topic(), |_| false).await?;
    session.set_faults(Faults::default());
    let outcomes = session.publish(vec![message(3), message(40), message(5)]).await?;
    if !outcomes.iter().all(Outcome::is_accepted) {
        return Err(format!("there is room again, and the log does not go on: {outcomes:?}").into());
    }
    session.reference.compare(&session.content().await?)?;
    session.change(Call::Configure(topic(), compact)).await?;
    session.maintain().await?;
    session.goes_on().await.map(drop)
}

#[test]
fn a_full_disk_is_told_to_the_publisher_and_forgotten_when_there_is_room() {
    let _shared = shared_failpoints();
    for room in (0..6000).step_by(311) {
        let verdict = runtime().block_on(runs_full_and_recovers(room)).map_err(String::from);
        verdict.unwrap_or_else(|verdict| panic!("room for {room} bytes: {verdict}"));
    }
}

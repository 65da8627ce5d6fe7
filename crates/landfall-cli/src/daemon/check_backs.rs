//! Runs the role check-back: the coordinator, and the consumer of its topic if one is configured.

use landfall::check_back::Coordinator;
use tokio_util::sync::CancellationToken;

use crate::check_back::{self, topic::Intake};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::stores::Database;
use crate::stores::broker::OpenBroker;
use crate::stores::database::Pushing;

pub(super) struct CheckBacks {
    coordinator: Option<Coordinator>,
    intake: Option<Pushing>,
    stop: CancellationToken,
}

impl CheckBacks {
    pub(super) fn new(
        config: &Config,
        has_role: bool,
        database: &Database,
        broker: &dyn OpenBroker,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let stop = stop.child_token();
        let coordinator = has_role.then(|| check_back::coordinator(config, database.half.clone())).transpose()?;
        let intake = match &config.check_back.topic {
            Some(topic) if has_role => {
                let (immunity, limits) = (config.check_back.immunity, config.limits);
                let intake = Intake { topic: topic.clone(), immunity, limits };
                Some(database.take_half_messages(broker.broker(), intake, stop.clone()))
            }
            _ => None,
        };
        Ok(Self { coordinator, intake, stop })
    }

    /// Runs until `stop`. If one part fails permanently, both stop and the error is returned.
    pub(super) async fn run(self) -> Result<()> {
        let Self { coordinator, intake, stop } = self;
        let coordinate = async {
            let Some(coordinator) = coordinator else { return Ok(()) };
            coordinator.run(stop.clone()).await.inspect_err(|_| stop.cancel())
        };
        let take = async {
            let Some(intake) = intake else { return Ok(()) };
            intake.await.inspect_err(|_| stop.cancel())
        };
        let (coordinated, taken) = tokio::join!(coordinate, take);
        coordinated.and(taken).map_err(Error::from)?;
        stop.cancelled().await;
        Ok(())
    }
}

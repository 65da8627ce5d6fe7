//! Deliveries that failed and are attempted again, for operators.

use async_trait::async_trait;
use landfall_core::adapter::Retry;
use landfall_core::{
    Deliveries, DeliveryFilter, GroupName, Message, MessageId, Result, RetryingDelivery, Timestamp, TopicName,
};
use landfall_sql_toolkit::{DeliveryColumns, admissions, delivery_counts, push_delivery_filter, retrying_delivery};
use sqlx::QueryBuilder;

use crate::housekeeping::seconds;
use crate::{Postgres, row};

#[async_trait]
impl Deliveries for Postgres {
    async fn record_retry(&self, group: &GroupName, message: &Message, retry: Retry<'_>) -> Result<()> {
        let query = self
            .query(&self.statements().record_retry)
            .bind(group.as_str())
            .bind(message.topic.as_str())
            .bind(message.id.as_uuid())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(i32::try_from(retry.attempts).unwrap_or(i32::MAX))
            .bind(row::storable(retry.failure.code.as_str()))
            .bind(row::storable(&retry.failure.error))
            .bind(seconds(retry.after));
        self.rows("record a failed delivery", query).await.map(drop)
    }

    async fn clear_retry(&self, group: &GroupName, message: &Message) -> Result<()> {
        let query = self
            .query(&self.statements().clear_retry)
            .bind(group.as_str())
            .bind(message.topic.as_str())
            .bind(message.id.as_uuid());
        self.rows("remove the record of a delivery", query).await.map(drop)
    }

    async fn retrying(&self, filter: &DeliveryFilter, limit: usize) -> Result<Vec<RetryingDelivery>> {
        let doing = "list failed deliveries";
        let mut query = QueryBuilder::new(self.statements().retrying.as_str());
        push_delivery_filter(&mut query, filter, limit, "key", |id| id.as_uuid());
        let mut session = self.session().await?;
        let rows: Vec<DeliveryColumns> = query
            .build_query_as()
            .persistent(self.may_prepare())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        rows.into_iter().map(retrying_delivery).collect()
    }

    async fn retrying_counts(&self) -> Result<Vec<(TopicName, GroupName, u64)>> {
        let doing = "count failed deliveries";
        let mut session = self.session().await?;
        let counts = self
            .query_as(&self.statements().retrying_counts)
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        delivery_counts(counts)
    }

    async fn admitted_by(&self, id: MessageId) -> Result<Vec<(GroupName, Timestamp)>> {
        let doing = "read the inbox";
        let mut session = self.session().await?;
        let rows = self
            .query_as(&self.statements().admitted_by)
            .bind(id.as_uuid())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        admissions(rows)
    }
}

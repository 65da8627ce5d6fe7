//! Deliveries that failed and are attempted again, for operators.

use async_trait::async_trait;
use landfall_core::adapter::Retry;
use landfall_core::{
    Deliveries, DeliveryFilter, GroupName, Message, MessageId, Result, RetryingDelivery, Timestamp, TopicName,
};
use landfall_sql_toolkit::{DeliveryColumns, admissions, delivery_counts, push_delivery_filter, retrying_delivery};
use sqlx::QueryBuilder;

use crate::connection::retry::retry_deadlocks;
use crate::outbox::settle::micros;
use crate::{MySql, row};

#[async_trait]
impl Deliveries for MySql {
    async fn record_retry(&self, group: &GroupName, message: &Message, retry: Retry<'_>) -> Result<()> {
        let record = async || {
            sqlx::query(self.statements().record_retry.text())
                .bind(group.as_str())
                .bind(message.topic.as_str())
                .bind(message.id.as_uuid())
                .bind(message.key.as_ref().map(|key| key.as_str()))
                .bind(retry.attempts)
                .bind(retry.failure.code.as_str())
                .bind(row::storable(&retry.failure.error))
                .bind(micros(retry.after))
                .execute(self.pool())
                .await
                .map(drop)
                .map_err(self.could_not("record a failed delivery"))
        };
        retry_deadlocks(record).await
    }

    async fn clear_retry(&self, group: &GroupName, message: &Message) -> Result<()> {
        let clear = async || {
            sqlx::query(self.statements().clear_retry.text())
                .bind(group.as_str())
                .bind(message.topic.as_str())
                .bind(message.id.as_uuid())
                .execute(self.pool())
                .await
                .map(drop)
                .map_err(self.could_not("remove the record of a delivery"))
        };
        retry_deadlocks(clear).await
    }

    async fn retrying(&self, filter: &DeliveryFilter, limit: usize) -> Result<Vec<RetryingDelivery>> {
        let mut query = QueryBuilder::new(self.statements().retrying.as_str());
        push_delivery_filter(&mut query, filter, limit, "`key`", |id| id.as_uuid());
        let rows: Vec<DeliveryColumns> = query
            .build_query_as()
            .persistent(false)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("list failed deliveries"))?;
        rows.into_iter().map(retrying_delivery).collect()
    }

    async fn retrying_counts(&self) -> Result<Vec<(TopicName, GroupName, u64)>> {
        let counts = sqlx::query_as(self.statements().retrying_counts.text())
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("count failed deliveries"))?;
        delivery_counts(counts)
    }

    async fn admitted_by(&self, id: MessageId) -> Result<Vec<(GroupName, Timestamp)>> {
        let rows = sqlx::query_as(self.statements().admitted_by.text())
            .bind(id.as_uuid())
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("read the inbox"))?;
        admissions(rows)
    }
}

//! Deliveries that failed and are attempted again, for operators.

use async_trait::async_trait;
use landfall_core::adapter::Retry;
use landfall_core::{
    Database, Deliveries, DeliveryFilter, GroupName, Message, MessageId, Result, RetryingDelivery, Timestamp, TopicName,
};
use landfall_sql_toolkit::{DeliveryColumns, admissions, delivery_counts, push_delivery_filter, retrying_delivery};
use sqlx::QueryBuilder;

use crate::Sqlite;
use crate::outbox::settle::millis;

#[async_trait]
impl Deliveries for Sqlite {
    async fn record_retry(&self, group: &GroupName, message: &Message, retry: Retry<'_>) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query(self.statements().record_retry.text())
            .bind(group.as_str())
            .bind(message.topic.as_str())
            .bind(message.id.to_string())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(i64::from(retry.attempts))
            .bind(retry.failure.code.as_str())
            .bind(&retry.failure.error)
            .bind(millis(retry.after))
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("record a failed delivery"))?;
        self.commit(transaction).await
    }

    async fn clear_retry(&self, group: &GroupName, message: &Message) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query(self.statements().clear_retry.text())
            .bind(group.as_str())
            .bind(message.topic.as_str())
            .bind(message.id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("remove the record of a delivery"))?;
        self.commit(transaction).await
    }

    async fn retrying(&self, filter: &DeliveryFilter, limit: usize) -> Result<Vec<RetryingDelivery>> {
        let mut query = QueryBuilder::new(self.statements().retrying.as_str());
        push_delivery_filter(&mut query, filter, limit, "key", |id| id.to_string());
        let rows: Vec<DeliveryColumns> = query
            .build_query_as()
            .persistent(false)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("list failed deliveries"))?;
        rows.into_iter().map(retrying_delivery).collect()
    }

    async fn retrying_counts(&self) -> Result<Vec<(TopicName, GroupName, u64)>> {
        let counts = sqlx::query_as(self.statements().retrying_counts.text())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("count failed deliveries"))?;
        delivery_counts(counts)
    }

    async fn admitted_by(&self, id: MessageId) -> Result<Vec<(GroupName, Timestamp)>> {
        let rows = sqlx::query_as(self.statements().admitted_by.text())
            .bind(id.to_string())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("read the inbox"))?;
        admissions(rows)
    }
}

//! The check that a record is rolled back with the transaction of its work.

use landfall_core::idempotency::{
    FingerprintBuilder, IdempotencyRecords, Identity, Opened, RecordFilter, RecordWriter, Scope,
};

/// Asserts that a record which was opened in a transaction is rolled back with it. The store has no other record.
///
/// # Panics
///
/// If it outlives the transaction: a retry would then be a duplicate of work that never happened.
pub async fn assert_rollback_leaves_no_record<D: RecordWriter + IdempotencyRecords>(database: &D) {
    let identity = Identity::new(Scope::Global, "order", "rolled back").unwrap();
    let mut transaction = database.begin().await.unwrap();
    let request = FingerprintBuilder::empty();
    let opened = database.open_record(&mut transaction, &identity, &request).await.unwrap();
    assert_eq!(opened, Opened::Fresh);
    database.flush(transaction).await.unwrap();
    assert_eq!(database.find_records(&RecordFilter::default(), 10).await.unwrap(), []);
}

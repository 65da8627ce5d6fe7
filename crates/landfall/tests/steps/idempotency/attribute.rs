//! The attribute `#[idempotent]`.

use std::sync::Arc;

use landfall::idempotency::{
    Error, Idempotency, IdempotencyRecords, MemoryRecords, OnUnknown, Policy, RecordFilter, Scope, idempotent,
};
use serde::Serialize;

use super::Effects;

#[derive(Clone)]
struct Shop {
    engine: Idempotency,
    paid: Effects,
}

#[derive(Debug, Clone, Serialize)]
struct Order {
    id: String,
    amount: u32,
}

/// A payment that fails for large amounts.
#[idempotent(
    engine = shop.engine,
    scope = Scope::principal(tenant.clone())?,
    business_type = "payment",
    key = &order.id,
    fingerprint = (&tenant, &order),
    policy = Policy::new(OnUnknown::Uncertain),
    on_error = nothing_done,
)]
async fn pay(shop: Shop, tenant: String, order: Order) -> Result<String, String> {
    let number = shop.paid.add();
    if order.amount > 100 {
        return Err(format!("{tenant} has not enough money"));
    }
    Ok(format!("receipt {number}"))
}

struct Refunds {
    shop: Shop,
}

impl Refunds {
    #[idempotent(
        engine = self.shop.engine,
        scope = Scope::Global,
        business_type = "refund",
        key = id.to_string(),
        fingerprint = (),
        policy = Policy::new(OnUnknown::Uncertain)
    )]
    async fn refund(self: Arc<Self>, id: u32) -> Result<u32, String> {
        self.shop.paid.add();
        Err(format!("the bank did not answer about {id}"))
    }
}

fn shop() -> (Shop, MemoryRecords) {
    let records = MemoryRecords::default();
    (Shop { engine: Idempotency::new(Arc::new(records.clone())), paid: Effects::default() }, records)
}

#[tokio::test]
async fn annotated_function_runs_once_per_key() {
    let (shop, records) = shop();
    let order = |amount| Order { id: "1".into(), amount };
    let call = async |tenant: &str, amount| pay(shop.clone(), tenant.to_owned(), order(amount)).await;
    // Failed work did nothing, so a corrected call runs.
    assert!(matches!(call("a", 200).await, Err(Error::Work(text)) if text == "a has not enough money"));
    for _ in 0..3 {
        assert_eq!(call("a", 10).await.unwrap(), "receipt 2");
    }
    assert!(matches!(call("a", 11).await, Err(Error::Mismatch)));
    assert_eq!(call("b", 10).await.unwrap(), "receipt 3", "another tenant has its own keys");
    assert!(matches!(call("", 10).await, Err(Error::Store(_))), "an invalid scope is refused");
    let found = records.find_records(&RecordFilter::default(), 10).await.unwrap();
    assert_eq!((found.len(), shop.paid.count()), (2, 3), "{found:?}");
}

#[tokio::test]
async fn error_of_an_annotated_function_is_unknown_by_default() {
    let (shop, _) = shop();
    let refunds = Arc::new(Refunds { shop: shop.clone() });
    assert!(matches!(refunds.clone().refund(7).await, Err(Error::Work(_))));
    assert!(matches!(refunds.refund(7).await, Err(Error::Uncertain)));
    assert_eq!(shop.paid.count(), 1);
}

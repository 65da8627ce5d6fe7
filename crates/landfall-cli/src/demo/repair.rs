//! The operator's part: fixes the cause of parked messages and redrives them.

use landfall::{DeadLetterFilter, DeadLetterStatus, DeadLetters};

use super::Result;
use super::shop::{Service, Shop};
use super::stock;
use super::story::Order;

/// The actor in the audit trail.
const ACTOR: &str = "demo";
/// Dead letters handled by one call.
const PAGE: usize = 100;

/// Adds the missing articles to the catalogue and redrives the orders for them. Works beside the running services, as
/// `landfall dlq redrive` does. Returns the number of redriven messages.
pub(super) async fn repair(shop: &Shop) -> Result<usize> {
    let database = shop.database(Service::Stock);
    let parked = DeadLetterFilter {
        status: Some(DeadLetterStatus::Parked),
        error_code: Some(stock::UNKNOWN_SKU.to_owned()),
        ..DeadLetterFilter::default()
    };
    let mut redriven = 0;
    for letter in database.find(&parked, PAGE).await? {
        let order: Order = serde_json::from_slice(&letter.payload)?;
        stock::add_to_catalogue(database, &order.sku).await?;
        let this = DeadLetterFilter { id: Some(letter.id), ..DeadLetterFilter::default() };
        redriven += database.redrive(&this, ACTOR).await?.redriven.len();
    }
    Ok(redriven)
}

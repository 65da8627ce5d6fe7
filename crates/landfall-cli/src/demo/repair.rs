//! The person on call: finds out why messages were parked, repairs it, and sends them on their way.

use landfall::{DeadLetterFilter, DeadLetterStatus, DeadLetters};

use super::Result;
use super::shop::{Service, Shop};
use super::stock;
use super::story::Order;

/// Who did it, for the audit trail.
const ACTOR: &str = "demo";
/// As many as a person would look at in one go.
const PAGE: usize = 100;

/// Puts what was missing into the catalogue and redrives the orders for it. Works beside the running world, as
/// `landfall dlq redrive` would. Answers with how many were redriven.
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

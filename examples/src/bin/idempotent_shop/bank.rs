//! The bank: a system outside of the shop's database, with idempotency keys of its own.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Declines the first payment of order 3.
#[derive(Debug, Default)]
pub(crate) struct Bank {
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    /// Receipts by key, `None` for a payment that was declined.
    receipts: HashMap<String, Option<usize>>,
    refunds: usize,
}

#[derive(Debug)]
pub(crate) struct Declined;

impl Bank {
    /// Charges once per key, and returns the receipt.
    pub(crate) async fn charge(&self, key: &str, order: i64) -> Result<usize, Declined> {
        // A bank is far away.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let mut accounts = self.lock();
        let number = accounts.charges() + 1;
        let has_declined = accounts.receipts.values().any(Option::is_none);
        let receipt = if order == 3 && !has_declined { None } else { Some(number) };
        accounts.receipts.entry(key.to_owned()).or_insert(receipt).ok_or(Declined)
    }

    pub(crate) fn refund(&self, _order: i64) {
        self.lock().refunds += 1;
    }

    pub(crate) fn charges(&self) -> usize {
        self.lock().charges()
    }

    pub(crate) fn refunds(&self) -> usize {
        self.lock().refunds
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    fn charges(&self) -> usize {
        self.receipts.values().flatten().count()
    }
}

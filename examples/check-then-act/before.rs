//! Check, then act.

use crate::bank::Bank;
use claimdb::Store;
use std::error::Error;

/// Charges for `order`, unless there is a receipt.
pub fn pay(store: &Store, bank: &Bank, order: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    let receipts = store.kv("receipts");
    if let Some(receipt) = receipts.get_value(order)? {
        return Ok(receipt);
    }
    let receipt = bank.charge(order, None)?;
    receipts.put_value(order, &receipt)?;
    Ok(receipt)
}

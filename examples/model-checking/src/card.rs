//! What stands for the company that charges cards: it is called over the network, and no store can undo what it did.

use crate::sync::Mutex;
use claimdb::Token;
use std::collections::HashMap;

/// The company. For each order it remembers the greatest token that it has seen, and refuses older ones.
#[derive(Debug, Default)]
pub struct Cards(Mutex<HashMap<String, Account>>);

#[derive(Debug, Default)]
struct Account {
    greatest: Option<Token>,
    receipts: Vec<String>,
}

/// A newer request was here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOld;

impl Cards {
    /// Charges `cents` for `order` and gives the receipt. Asked twice, it charges twice.
    ///
    /// # Errors
    /// If a greater token was seen.
    #[cfg_attr(loom, track_caller)]
    pub fn charge(&self, order: &str, cents: u64, token: Token) -> Result<String, TooOld> {
        #[cfg(loom)]
        claimdb::Steps::note(format!("asks for {cents} cents"));
        self.account(order, token, |account| {
            let receipt = format!("{cents} cents, charge {}", account.receipts.len() + 1);
            account.receipts.push(receipt.clone());
            receipt
        })
    }

    /// The receipt of a charge that was made for `order`. From here on, older tokens are refused.
    ///
    /// # Errors
    /// If a greater token was seen.
    pub fn charged(&self, order: &str, token: Token) -> Result<Option<String>, TooOld> {
        self.account(order, token, |account| account.receipts.first().cloned())
    }

    /// How often `order` was charged.
    pub fn charges(&self, order: &str) -> usize {
        let accounts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        accounts.get(order).map_or(0, |account| account.receipts.len())
    }

    fn account<T>(&self, order: &str, token: Token, act: impl FnOnce(&mut Account) -> T) -> Result<T, TooOld> {
        let mut accounts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let account = accounts.entry(order.to_owned()).or_default();
        if account.greatest > Some(token) {
            return Err(TooOld);
        }
        account.greatest = Some(token);
        Ok(act(account))
    }
}

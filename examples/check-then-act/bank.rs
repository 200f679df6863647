//! What stands for the company that charges cards: a file that only grows, one line for each time it is asked. What
//! stands there has happened, whatever becomes of the process that asked.

use claimdb::Token;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The company. For each order it knows the greatest token that came, and refuses older ones.
pub struct Bank {
    path: PathBuf,
    file: Mutex<File>,
}

impl Bank {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Charges for `order` and gives the receipt. Asked twice, it charges twice.
    pub fn charge(&self, order: &str, token: Option<Token>) -> io::Result<String> {
        self.ask("charge", order, token, |charges| format!("{order}, charge {}", charges + 1))
    }

    /// The receipt of the charge that was made for `order`, if one was. From here on, older tokens are refused.
    pub fn charged(&self, order: &str, token: Token) -> io::Result<Option<String>> {
        self.ask("ask", order, Some(token), |charges| (charges > 0).then(|| format!("{order}, charge 1")))
    }

    fn ask<T>(
        &self,
        what: &str,
        order: &str,
        token: Option<Token>,
        answer: impl FnOnce(usize) -> T,
    ) -> io::Result<T> {
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let asked = read(&self.path)?;
        let earlier: Vec<&Asked> = asked.iter().filter(|line| line.order == order).collect();
        let token = token.map_or(0, Token::get);
        if earlier.iter().any(|line| line.token > token) {
            return Err(io::Error::other(format!("the token {token} for {order} is an old one")));
        }
        // One write, so that a process that is killed leaves the whole line or none.
        file.write_all(format!("{what} {order} {token}\n").as_bytes())?;
        file.sync_data()?;
        if what == "charge" {
            println!("charged {order}");
        }
        Ok(answer(earlier.iter().filter(|line| line.is_charge).count()))
    }
}

/// A line of the file.
pub struct Asked {
    pub is_charge: bool,
    pub order: String,
    token: u64,
}

/// All lines of the file, in their order.
pub fn read(path: &Path) -> io::Result<Vec<Asked>> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let is_charge = words.next()? == "charge";
        Some(Asked { is_charge, order: words.next()?.to_owned(), token: words.next()?.parse().ok()? })
    };
    let text = fs::read_to_string(path)?;
    text.lines()
        .map(|line| parse(line).ok_or_else(|| io::Error::other(format!("no line of ours: {line}"))))
        .collect()
}

//! What a completion writes, for floors that write as much.

use crate::{Keys, VALUE};
use claimdb::backend::{Backend as _, Mem};
use claimdb::{Durability, Request, Store};
use std::ops::ControlFlow;

/// A record and its entry in the retention index, as they are stored for a name of [`Keys`].
pub struct Written {
    key: Vec<u8>,
    entry: Vec<u8>,
    pub record: Vec<u8>,
}

impl Written {
    pub fn new() -> Self {
        let (memory, name) = (Mem::new(), Keys::new(1).fresh());
        let store = Store::builder(memory.clone()).open().unwrap();
        let request = Request::new(&name).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
        store.close().unwrap();
        let mut all = Vec::new();
        let mut show = |key: &[u8], value: &[u8]| {
            if key.ends_with(name.as_bytes()) {
                all.push((key.to_vec(), value.to_vec()));
            }
            ControlFlow::Continue(())
        };
        memory.open().unwrap().scan(&[], None, &mut show).unwrap();
        let [(key, record), (entry, _)] = all.try_into().expect("a completion writes a record and an entry");
        Self { key, entry, record }
    }

    /// The bytes under which the record of `name` is stored.
    pub fn key(&self, name: &str) -> Vec<u8> {
        named(&self.key, name)
    }

    /// Its entry in the index. They come in the order of their `end`s.
    pub fn entry(&self, end: u64, name: &str) -> Vec<u8> {
        let mut entry = named(&self.entry, name);
        entry[1..9].copy_from_slice(&end.to_be_bytes());
        entry
    }
}

fn named(like: &[u8], name: &str) -> Vec<u8> {
    let mut key = like.to_vec();
    let start = key.len() - name.len();
    key[start..].copy_from_slice(name.as_bytes());
    key
}

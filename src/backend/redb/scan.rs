//! Reading redb's table in the order of its keys.

use super::Bytes;
use ::redb::{Error, ReadOnlyTable};
use std::ops::Bound;

/// A scan reads so many pairs, or bytes, before it shows them. No read transaction is held meanwhile: one that is
/// held keeps every page that is replaced since.
const PAGE_PAIRS: usize = 64;
const PAGE_BYTES: usize = 1 << 20;

pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// Adds the first pairs of `prefix` after `after` to `page`, which is empty, as far as they can be read.
///
/// redb looks at no checksum here. On a damaged page keys can come again, so that a walk would never end, or be others, so
/// that it would go on behind them or end too soon. So the last pair counts only if the next one comes after it.
pub(super) fn read_page(
    table: &ReadOnlyTable<Bytes, Bytes>,
    prefix: &[u8],
    after: Option<&[u8]>,
    page: &mut Vec<Pair>,
) -> Result<(), Error> {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let out_of_order = || Err(Error::Corrupted("its keys are out of order".to_owned()));
    let (mut pairs, mut bytes) = (table.range::<&[u8]>((from, Bound::Unbounded))?, 0);
    while let Some(pair) = pairs.next() {
        let (key, value) = pair?;
        let before = page.last().map(|(key, _)| key.as_slice()).or(after);
        if before.is_some_and(|before| key.value() <= before) {
            page.pop();
            return out_of_order();
        }
        if page.len() == PAGE_PAIRS || bytes >= PAGE_BYTES {
            return Ok(());
        }
        if !key.value().starts_with(prefix) {
            let next = pairs.next().transpose()?;
            let ends = next.is_none_or(|(next, _)| key.value() < next.value());
            return if ends { Ok(()) } else { out_of_order() };
        }
        bytes += key.value().len() + value.value().len();
        page.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok(())
}

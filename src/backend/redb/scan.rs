//! Reading redb's table in the order of its keys.

use super::Bytes;
use ::redb::{AccessGuard, Error, Range, ReadOnlyTable};
use std::ops::Bound;

/// So many pairs, or bytes, are read before they are shown.
const PAGE_PAIRS: usize = 64;
const PAGE_BYTES: usize = 1 << 20;

/// What is said of keys that are not in their order.
pub(super) fn out_of_order<T>() -> Result<T, Error> {
    Err(Error::Corrupted("its keys are out of order".to_owned()))
}

/// Whether the keys on either side of `key`, which is there, are others.
pub(super) fn is_alone(table: &ReadOnlyTable<Bytes, Bytes>, key: &[u8]) -> Result<bool, Error> {
    let mut behind = table.range::<&[u8]>(key..)?;
    let (first, second) = (behind.next().transpose()?, behind.next().transpose()?);
    let mut before = table.range::<&[u8]>(..=key)?;
    let (last, earlier) = (before.next_back().transpose()?, before.next_back().transpose()?);
    let is_it =
        |pair: Option<_>| pair.is_some_and(|(found, _): (AccessGuard<'_, Bytes>, _)| found.value() == key);
    Ok(is_it(first) && !is_it(second) && is_it(last) && !is_it(earlier))
}

pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// The pairs behind a place, in order.
///
/// redb looks at no checksum here. On a damaged page keys can come again, so that a walk would never end, or be others, so
/// that it would go on behind them or end too soon. So the last pair counts only if the next one comes after it.
pub(super) struct Pairs {
    range: Range<'static, Bytes, Bytes>,
    /// Read already, to see that it comes after the last that was shown.
    ahead: Option<Pair>,
    /// The last key that was shown, or behind which it began.
    after: Option<Vec<u8>>,
}

impl Pairs {
    /// Those of `prefix` behind `after`.
    pub(super) fn behind(
        table: &ReadOnlyTable<Bytes, Bytes>,
        prefix: &[u8],
        after: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = table.range::<&[u8]>((from, Bound::Unbounded))?;
        Ok(Self { range, ahead: None, after: after.map(<[u8]>::to_vec) })
    }

    /// Adds the next pairs of `prefix` to `page`, which is empty, as far as they can be read; tells whether they are the last.
    pub(super) fn read_page(&mut self, prefix: &[u8], page: &mut Vec<Pair>) -> Result<bool, Error> {
        let mut bytes = 0;
        while let Some((key, value)) = self.next()? {
            let before = page.last().map(|(key, _)| key).or(self.after.as_ref());
            if before.is_some_and(|before| key <= *before) {
                page.pop();
                return out_of_order();
            }
            if page.len() == PAGE_PAIRS || bytes >= PAGE_BYTES {
                self.after = page.last().map(|(key, _)| key.clone());
                self.ahead = Some((key, value));
                return Ok(false);
            }
            if !key.starts_with(prefix) {
                let ends = self.next()?.is_none_or(|(next, _)| key < next);
                return if ends { Ok(true) } else { out_of_order() };
            }
            bytes += key.len() + value.len();
            page.push((key, value));
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Pair>, Error> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let pair = self.range.next().transpose()?;
        Ok(pair.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
    }
}

//! Reading redb's table in the order of its keys.

use super::Bytes;
use ::redb::{AccessGuard, Error, Range, ReadOnlyTable};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Whether a search for `key`, which is not there, has ended where it should: a page in another's place leads it astray.
pub(super) fn is_absent(table: &ReadOnlyTable<Bytes, Bytes>, key: &[u8]) -> Result<bool, Error> {
    let Some(next) = table.range::<&[u8]>(key..)?.next().transpose()? else { return Ok(true) };
    let next = next.0.value().to_vec();
    Ok(key < next.as_slice() && last_before(table, key) == last_before(table, &next))
}

/// The last key before `place`, as far as it can be read.
fn last_before(table: &ReadOnlyTable<Bytes, Bytes>, place: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let read = || table.range::<&[u8]>(..place).ok()?.next_back().transpose().ok();
    let last = catch_unwind(AssertUnwindSafe(read)).map_err(drop)?.ok_or(())?;
    Ok(last.map(|(key, _)| key.value().to_vec()))
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
    /// The first key behind those of the prefix.
    end: Option<Vec<u8>>,
}

/// From where on what is of `prefix` and behind `after` is read.
fn begin<'a>(prefix: &'a [u8], after: Option<&'a [u8]>) -> Bound<&'a [u8]> {
    match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    }
}

impl Pairs {
    /// Those of `prefix` behind `after`.
    pub(super) fn behind(
        table: &ReadOnlyTable<Bytes, Bytes>,
        prefix: &[u8],
        after: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let range = table.range::<&[u8]>((begin(prefix, after), Bound::Unbounded))?;
        Ok(Self { range, ahead: None, after: after.map(<[u8]>::to_vec), end: None })
    }

    /// The key behind the last page.
    pub(super) fn next_key(&self) -> Option<&[u8]> {
        self.ahead.as_ref().map(|(key, _)| key).or(self.end.as_ref()).map(Vec::as_slice)
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
                self.end = Some(key);
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

/// Looks whether searches lead where a walk does.
///
/// A page that lies in another's place is sound in itself. A walk comes upon its keys, and if they are greater than what is
/// behind it passes over all that, as it seems in order: up to where smaller keys come, or the prefix ends. But a search for one of
/// its keys leads to the page itself, before which there are others than in the walk. The other way round it is where a key of a
/// page above is damaged: searches go astray, and the walk is in order to its end.
pub(super) struct Search {
    table: ReadOnlyTable<Bytes, Bytes>,
    /// Where the walk begins.
    begin: Bound<Vec<u8>>,
    is_first_page: bool,
    /// Whether the walk is known to be in order to its end.
    is_in_order: bool,
}

impl Search {
    pub(super) fn beside(table: ReadOnlyTable<Bytes, Bytes>, prefix: &[u8], after: Option<&[u8]>) -> Self {
        let begin = begin(prefix, after).map(<[u8]>::to_vec);
        Self { table, begin, is_first_page: true, is_in_order: false }
    }

    /// Leaves of a page of the walk, with the key that comes behind it, what a search finds there as well; tells whether that is all.
    pub(super) fn agrees(&mut self, page: &mut Vec<Pair>, next: Option<&[u8]>) -> bool {
        if self.is_in_order {
            return true;
        }
        let keys: Vec<&[u8]> = page.iter().map(|(key, _)| key.as_slice()).chain(next).collect();
        let found = self.found(&keys);
        self.is_first_page = false;
        if found == keys.len() || self.walk_is_in_order() {
            return true;
        }
        page.truncate(found);
        false
    }

    /// How many of these keys, which a walk has come upon one behind the other, a search finds so.
    fn found(&self, keys: &[&[u8]]) -> usize {
        if self.is_first_page && keys.first().is_some_and(|first| !self.begins_with(first)) {
            return 0;
        }
        let mut found = keys.len();
        while let Some(last) = found.checked_sub(1) {
            let Ok(mut back) = self.table.range::<&[u8]>(..=keys[last]) else { return 0 };
            let mut is_next = |key: &&&[u8]| {
                let next = catch_unwind(AssertUnwindSafe(|| back.next_back()));
                matches!(next, Ok(Some(Ok((found, _)))) if found.value() == **key)
            };
            let same = keys[..found].iter().rev().take_while(|key| is_next(key)).count();
            match found - same {
                0 => break,
                _ if same == 0 => found = last,
                less => found = less,
            }
        }
        found
    }

    fn begins_with(&self, first: &[u8]) -> bool {
        let behind = match &self.begin {
            Bound::Included(begin) => begin.clone(),
            // The least key behind it.
            Bound::Excluded(begin) => [begin, &[0][..]].concat(),
            Bound::Unbounded => Vec::new(),
        };
        last_before(&self.table, &behind) == last_before(&self.table, first)
    }

    fn walk_is_in_order(&mut self) -> bool {
        let walk = || -> Result<bool, Error> {
            let (begin, mut last) = (self.begin.as_ref().map(Vec::as_slice), None::<Vec<u8>>);
            for pair in self.table.range::<&[u8]>((begin, Bound::Unbounded))? {
                let key = pair?.0;
                if last.as_deref().is_some_and(|last| key.value() <= last) {
                    return Ok(false);
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key.value());
            }
            Ok(true)
        };
        // Where it cannot be read nobody knows.
        self.is_in_order = matches!(catch_unwind(AssertUnwindSafe(walk)), Ok(Ok(true)));
        self.is_in_order
    }
}

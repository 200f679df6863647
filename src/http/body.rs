//! Bodies: some frames that are there, and then the rest of another body.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of requests and responses behind the layer: what was buffered or stored, and then whatever is left of the
/// body `B`.
pub struct Body<B: http_body::Body> {
    front: VecDeque<Result<Frame<Bytes>, B::Error>>,
    rest: Option<Pin<Box<B>>>,
}

// Nothing in it is pinned but what is in the box.
impl<B: http_body::Body> Unpin for Body<B> {}

impl<B: http_body::Body> Body<B> {
    /// `B` as it is.
    pub(super) fn passing(body: B) -> Self {
        let rest = if body.is_end_stream() { None } else { Some(Box::pin(body)) };
        Self { front: VecDeque::new(), rest }
    }

    /// `whole` and no more.
    pub(super) fn whole(whole: Whole) -> Self {
        let mut front = VecDeque::with_capacity(2);
        if !whole.data.is_empty() {
            front.push_back(Ok(Frame::data(whole.data)));
        }
        if let Some(trailers) = whole.trailers {
            front.push_back(Ok(Frame::trailers(trailers)));
        }
        Self { front, rest: None }
    }

    pub(super) fn of_bytes(data: impl Into<Bytes>) -> Self {
        Self::whole(Whole { data: data.into(), trailers: None })
    }
}

impl<B: http_body::Body> Default for Body<B> {
    fn default() -> Self {
        Self { front: VecDeque::new(), rest: None }
    }
}

impl<B: http_body::Body> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.front.pop_front() {
            return Poll::Ready(Some(frame));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let frame = std::task::ready!(next_frame(rest, context));
        if frame.is_none() {
            this.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.front.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let (mut more, mut trailers) = (0, false);
        for frame in self.front.iter().flatten() {
            match frame.data_ref() {
                Some(data) => more += data.len() as u64,
                None => trailers = true,
            }
        }
        let upper = hint.upper().and_then(|upper| upper.checked_add(more));
        let lower = hint.lower().saturating_add(more);
        // A body of known length is sent without trailers.
        hint = SizeHint::new();
        hint.set_lower(lower);
        if let Some(upper) = upper.filter(|_| !trailers) {
            hint.set_upper(upper);
        }
        hint
    }
}

fn next_frame<B: http_body::Body>(
    body: &mut Pin<Box<B>>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    // Free of cost if the data is `Bytes` already.
    let bytes = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
    body.as_mut().poll_frame(context).map(|frame| frame.map(|frame| frame.map(bytes)))
}

impl<B: http_body::Body> fmt::Debug for Body<B> {
    /// Shows the length, not the content: bodies do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("size", &http_body::Body::size_hint(self)).finish_non_exhaustive()
    }
}

/// A body that was read to its end.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) data: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

/// A body that was not read to its end: what was read, and the rest.
pub(super) struct Cut<B: http_body::Body> {
    pub(super) body: Body<B>,
    pub(super) why: CutBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutBy {
    /// It has more bytes than the limit.
    Length,
    /// It was not there in time.
    Time,
    /// It ended in an error.
    Error,
}

/// Reads `body` to its end, if it has at most `limit` bytes and is there before `late` is ready.
pub(super) async fn read<B: http_body::Body>(
    body: B,
    limit: usize,
    late: impl Future<Output = ()>,
) -> Result<Whole, Cut<B>> {
    let limit = limit as u64;
    if body.size_hint().lower() > limit {
        return Err(Cut { body: Body::passing(body), why: CutBy::Length });
    }
    let (mut body, mut late) = (Box::pin(body), std::pin::pin!(late));
    let (mut data, mut trailers, mut error) = (Joined::default(), None, None);
    let why = loop {
        let next = poll_fn(|context| match next_frame(&mut body, context) {
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
        });
        match next.await {
            None => break CutBy::Time,
            Some(None) => return Ok(Whole { data: data.into_bytes(), trailers }),
            Some(Some(Err(broken))) => {
                error = Some(Err(broken));
                break CutBy::Error;
            }
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(more) => {
                    data.push(more);
                    if data.len() as u64 > limit {
                        break CutBy::Length;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
            },
        }
    };
    let Body { mut front, .. } = Body::<B>::whole(Whole { data: data.into_bytes(), trailers });
    front.extend(error);
    Err(Cut { body: Body { front, rest: Some(body) }, why })
}

/// Data in one piece, so that many small frames take no more memory than their bytes. A single one is not copied.
#[derive(Default)]
struct Joined {
    first: Bytes,
    more: BytesMut,
}

impl Joined {
    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&data);
    }

    fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    fn into_bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

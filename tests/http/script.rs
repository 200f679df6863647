//! A handler that does what it is told, and counts how often it ran.

use bytes::Bytes;
use claimdb::http::{ClaimHandle, Disposition};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tower_service::Service;

/// A body of given frames, whose length is known or not, and which may never end.
#[derive(Debug, Default)]
pub struct Frames {
    pub frames: VecDeque<Result<Frame<Bytes>, Broken>>,
    pub unknown_length: bool,
    /// What follows the frames is waited for.
    pub then: Option<Gate>,
}

#[derive(Debug)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken on purpose")
    }
}

impl std::error::Error for Broken {}

impl Frames {
    pub fn of(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        let frames = if data.is_empty() { VecDeque::new() } else { [Ok(Frame::data(data))].into() };
        Self { frames, ..Self::default() }
    }
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        match &mut self.then {
            Some(gate) => Pin::new(gate).poll(context).map(|()| None),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && !self.unknown_length && self.then.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.unknown_length || self.then.is_some() {
            return SizeHint::new();
        }
        let data = self.frames.iter().flatten().filter_map(Frame::data_ref);
        SizeHint::with_exact(data.map(|data| data.len() as u64).sum())
    }
}

/// What is waited for until it is opened.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1.push(context.waker().clone());
        Poll::Pending
    }
}

/// How the next requests are answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// `{n}` stands for the number of the run, `{body}` for the request's body.
    pub body: String,
    pub trailers: Vec<(String, String)>,
    pub disposition: Option<Disposition>,
    pub unknown_length: bool,
    /// Each byte of the body is a frame of its own, with an empty one before it.
    pub piecewise: bool,
    /// Saved as progress before anything else.
    pub checkpoint: Option<String>,
    /// Waited for before the answer.
    pub hold: Option<Gate>,
    /// Waited for before the end of the body.
    pub stall: Option<Gate>,
    pub fails: Option<Fails>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    Error,
    Panic,
    Body,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            body: "run {n}".to_owned(),
            trailers: Vec::new(),
            disposition: None,
            unknown_length: false,
            piecewise: false,
            checkpoint: None,
            hold: None,
            stall: None,
            fails: None,
        }
    }
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn held(gate: &Gate) -> Self {
        Self { hold: Some(gate.clone()), ..Self::default() }
    }
}

/// What a run saw.
#[derive(Debug, Clone)]
pub struct Run {
    pub body: Vec<u8>,
    pub handle: Option<ClaimHandle>,
}

/// The handler. Clones share what they do and what they have done.
#[derive(Debug, Clone, Default)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answer: Answer,
    runs: Vec<Run>,
}

impl Script {
    pub fn answer(&self, answer: Answer) {
        self.0.lock().unwrap().answer = answer;
    }

    pub fn runs(&self) -> usize {
        self.0.lock().unwrap().runs.len()
    }

    /// What the last run saw.
    pub fn last(&self) -> Run {
        self.0.lock().unwrap().runs.last().cloned().expect("it ran")
    }

    /// Runs once; the body is read to its end.
    pub async fn run<B, E>(self, request: Request<B>) -> Result<Response<Frames>, E>
    where
        B: http_body::Body + Send,
        E: Failure,
    {
        let (parts, body) = request.into_parts();
        let (body, _) = collect(body).await;
        let handle = parts.extensions.get::<ClaimHandle>().cloned();
        let (answer, number) = {
            let mut state = self.0.lock().unwrap();
            state.runs.push(Run { body: body.clone(), handle: handle.clone() });
            (state.answer.clone(), state.runs.len())
        };
        if let (Some(progress), Some(handle)) = (&answer.checkpoint, &handle) {
            handle.checkpoint_async(progress).await.unwrap();
        }
        if let Some(gate) = answer.hold {
            gate.await;
        }
        match answer.fails {
            Some(Fails::Error) => return Err(E::on_purpose()),
            Some(Fails::Panic) => std::panic::resume_unwind(Box::new("on purpose")),
            Some(Fails::Body) | None => {}
        }
        let text = answer.body.replace("{n}", &number.to_string());
        let mut frames = Frames::of(text.replace("{body}", &String::from_utf8_lossy(&body)));
        frames.unknown_length = answer.unknown_length || answer.piecewise;
        if answer.piecewise {
            let pieces = text.bytes().flat_map(|byte| [Bytes::new(), Bytes::copy_from_slice(&[byte])]);
            frames.frames = pieces.map(|piece| Ok(Frame::data(piece))).collect();
        }
        frames.then = answer.stall;
        if answer.fails == Some(Fails::Body) {
            frames.frames.push_back(Err(Broken));
            frames.unknown_length = true;
        }
        if !answer.trailers.is_empty() {
            frames.unknown_length = true;
            frames.frames.push_back(Ok(Frame::trailers(headers(&answer.trailers))));
        }
        let mut response = Response::new(frames);
        *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
        *response.headers_mut() = headers(&answer.headers);
        if let Some(disposition) = answer.disposition {
            response.extensions_mut().insert(disposition);
        }
        Ok(response)
    }
}

/// The error that a script fails with: one that tests can name, and none for axum.
pub trait Failure: Send + 'static {
    fn on_purpose() -> Self;
}

impl Failure for Broken {
    fn on_purpose() -> Self {
        Self
    }
}

impl Failure for std::convert::Infallible {
    fn on_purpose() -> Self {
        panic!("axum's services do not fail")
    }
}

/// The script as a service with an error `E`, which must be asked whether it is ready before it is called.
#[derive(Debug)]
pub struct Handler<E> {
    script: Script,
    ready: bool,
    error: std::marker::PhantomData<fn() -> E>,
}

impl<E> Handler<E> {
    pub fn new(script: &Script) -> Self {
        Self { script: script.clone(), ready: false, error: std::marker::PhantomData }
    }
}

impl<E> Clone for Handler<E> {
    /// A clone is not ready, whatever the original is.
    fn clone(&self) -> Self {
        Self::new(&self.script)
    }
}

impl<B, E> Service<Request<B>> for Handler<E>
where
    B: http_body::Body + Send + 'static,
    E: Failure,
{
    type Response = Response<Frames>;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Frames>, E>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "a service was called that had not said it is ready");
        Box::pin(self.script.clone().run(request))
    }
}

pub fn headers(pairs: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

/// All of a body's data, and its trailers.
pub async fn collect<B: http_body::Body>(body: B) -> (Vec<u8>, Option<HeaderMap>) {
    let (mut body, mut data, mut trailers) = (pin!(body), Vec::new(), None);
    while let Some(Ok(frame)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame.into_data() {
            Ok(more) => bytes::BufMut::put(&mut data, more),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (data, trailers)
}

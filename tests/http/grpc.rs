//! A unary call of tonic through the layer. What each `grpc-status` comes to is in `vectors/grpc.json`.

use crate::script::{Frames, collect};
use bytes::{Buf, BufMut};
use claimdb::Store;
use claimdb::backend::Mem;
use claimdb::http::{Idempotency, Scope};
use http::{HeaderMap, Request, Response};
use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tower_layer::Layer;
use tower_service::Service;

/// Messages are bytes, so that no code has to be generated.
#[derive(Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// Charges what it is asked to; declines `poor`, and is not there for `down`.
#[derive(Clone, Default)]
struct Charge(Arc<AtomicUsize>);

impl UnaryService<Vec<u8>> for Charge {
    type Response = Vec<u8>;
    type Future = Ready<Result<tonic::Response<Vec<u8>>, Status>>;
    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let run = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ready(match request.get_ref().as_slice() {
            b"poor" => Err(Status::failed_precondition(format!("declined in run {run}"))),
            b"down" => Err(Status::unavailable("later")),
            other => Ok(tonic::Response::new([other, format!(" in run {run}").as_bytes()].concat())),
        })
    }
}

/// The server that code generation would make.
#[derive(Clone)]
struct Server(Charge);

impl<B> Service<Request<B>> for Server
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let charge = self.0.clone();
        Box::pin(async move { Ok(Grpc::new(Plain).unary(charge, request).await) })
    }
}

/// What a gRPC client sees: the message, and the status wherever it is.
struct Told {
    message: Vec<u8>,
    head: HeaderMap,
    status: String,
}

#[test]
fn a_call_of_tonic_is_replayed_with_its_message_and_its_status() {
    let store = Store::builder(Mem::new()).open().unwrap();
    let charge = Charge::default();
    let layer = Idempotency::tokio(&store, Scope::global()).build().unwrap();
    let service = layer.layer(Server(charge.clone()));
    let call = async |key: &str, message: &[u8]| {
        let mut service = service.clone();
        let framed = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat();
        let request = Request::post("/pay.Payments/Charge").header("idempotency-key", key);
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let request = request.body(Frames::of(framed)).unwrap();
        poll_fn(|context| Service::<Request<Frames>>::poll_ready(&mut service, context)).await.unwrap();
        let (parts, body) = service.call(request).await.unwrap().into_parts();
        let (data, trailers) = collect(body).await;
        let status =
            trailers.unwrap_or_default().get("grpc-status").or(parts.headers.get("grpc-status")).cloned();
        let status = status.expect("a call ends with a status").to_str().unwrap().to_owned();
        Told { message: data.get(5..).unwrap_or_default().to_vec(), head: parts.headers, status }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let first = call("k", b"1999").await;
        assert_eq!((first.status.as_str(), &first.message[..]), ("0", &b"1999 in run 1"[..]));
        let again = call("k", b"1999").await;
        assert_eq!((again.status.as_str(), &again.message), ("0", &first.message), "P8: it was not replayed");
        assert_eq!(again.head["idempotency-replayed"], "true");
        let other = call("k", b"2000").await;
        assert_eq!(
            (other.status.as_str(), &other.head["idempotency-problem"]),
            ("9", &"key-reused".parse().unwrap())
        );
        assert_eq!(charge.0.load(Ordering::SeqCst), 1, "P1: it was charged again");
        // A final refusal is stored, with its message; a passing one is not.
        for _ in 0..2 {
            let declined = call("p", b"poor").await;
            assert_eq!(declined.status, "9");
            assert_eq!(declined.head["grpc-message"], "declined%20in%20run%202");
        }
        for run in 3..5 {
            assert_eq!(call("d", b"down").await.status, "14");
            assert_eq!(charge.0.load(Ordering::SeqCst), run, "a passing failure was stored");
        }
    });
}

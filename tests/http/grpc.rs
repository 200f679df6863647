//! Unary calls of tonic through the layer: in memory, and over HTTP/2 with tonic's own client. What each `grpc-status`
//! comes to is in `vectors/grpc.json`.

use crate::listener::{block_on, http2, serve};
use crate::script::{Frames, Gate, collect};
use axum::Router;
use bytes::{Buf, BufMut};
use claimdb::Store;
use claimdb::backend::Mem;
use claimdb::http::{Idempotency, Scope};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
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

const CHARGE: &str = "/pay.Payments/Charge";

/// Charges what it is asked to; declines `poor`, is not there for `down`, and waits for its gate with `slow`.
#[derive(Clone, Default)]
struct Charge {
    runs: Arc<AtomicUsize>,
    gate: Gate,
}

impl Charge {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

impl UnaryService<Vec<u8>> for Charge {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Vec<u8>>, Status>> + Send>>;
    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let (run, gate) = (self.runs.fetch_add(1, Ordering::SeqCst) + 1, self.gate.clone());
        Box::pin(async move {
            if request.get_ref() == b"slow" {
                gate.await;
            }
            match request.get_ref().as_slice() {
                b"poor" => Err(Status::failed_precondition(format!("declined in run {run}"))),
                b"down" => Err(Status::unavailable("later")),
                other => Ok(tonic::Response::new([other, format!(" in run {run}").as_bytes()].concat())),
            }
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
        let request = Request::post(CHARGE).header("idempotency-key", key);
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
    block_on(async {
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
        assert_eq!(charge.runs(), 1, "P1: it was charged again");
        // A final refusal is stored, with its message; a passing one is not.
        for _ in 0..2 {
            let declined = call("p", b"poor").await;
            assert_eq!(declined.status, "9");
            assert_eq!(declined.head["grpc-message"], "declined%20in%20run%202");
        }
        for run in 3..5 {
            assert_eq!(call("d", b"down").await.status, "14");
            assert_eq!(charge.runs(), run, "a passing failure was stored");
        }
    });
}

#[test]
fn a_call_over_http2_is_replayed_and_refused_as_any_call_is() {
    block_on(async {
        let store = Store::builder(Mem::new()).open().unwrap();
        let charge = Charge::default();
        let layer = Idempotency::tokio(&store, Scope::global()).request_limit(100).build().unwrap();
        let routes = Router::new().route_service(CHARGE, Server(charge.clone())).layer(layer.clone());
        let address = serve(routes).await;
        let client = tonic::client::Grpc::with_origin(http2(), format!("http://{address}").parse().unwrap());
        let call = async |key: &str, message: &[u8]| {
            let mut client = client.clone();
            client.ready().await.unwrap();
            let mut request = tonic::Request::new(message.to_vec());
            request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
            client.unary(request, PathAndQuery::from_static(CHARGE), Plain).await
        };
        let problem = |told: Result<tonic::Response<Vec<u8>>, Status>| {
            let status = told.expect_err("it is refused");
            let code = status.metadata().get("idempotency-problem").expect("it is the layer that refuses");
            assert!(status.message().ends_with('.'), "a refusal says why: {status:?}");
            (status.code(), code.to_str().unwrap().to_owned())
        };

        let first = call("k", b"1999").await.expect("it is charged");
        let again = call("k", b"1999").await.expect("P8: a call that succeeded is replayed as one");
        assert_eq!(again.metadata().get("idempotency-replayed").unwrap(), "true", "P8");
        assert_eq!((again.get_ref(), charge.runs()), (first.get_ref(), 1), "P1: it was charged again");
        assert_eq!(again.get_ref(), b"1999 in run 1");
        assert_eq!(problem(call("k", b"2000").await), (Code::FailedPrecondition, "key-reused".into()), "P7");
        assert_eq!(problem(call("a b", b"1").await), (Code::InvalidArgument, "key-invalid".into()));
        assert_eq!(
            problem(call("l", &[b'1'; 101]).await),
            (Code::ResourceExhausted, "body-too-large".into())
        );

        // A stored refusal is the service's own status and message, not the layer's.
        for _ in 0..2 {
            let declined = call("p", b"poor").await.unwrap_err();
            assert_eq!(
                (declined.code(), declined.message()),
                (Code::FailedPrecondition, "declined in run 2")
            );
        }
        assert_eq!(charge.runs(), 2, "P8: a final refusal ran again");

        // One that hangs up resets its stream; the call goes on, and its retry is told.
        let slow = call("s", b"slow");
        {
            let mut slow = std::pin::pin!(slow);
            while charge.runs() < 3 {
                assert!(poll_fn(|context| Poll::Ready(slow.as_mut().poll(context))).await.is_pending());
                tokio::task::yield_now().await;
            }
            assert_eq!(problem(call("s", b"slow").await), (Code::Aborted, "in-progress".into()), "P1");
        }
        charge.gate.open();
        layer.idle().await;
        assert_eq!(
            call("s", b"slow").await.unwrap().get_ref(),
            b"slow in run 3",
            "CN-01: it was not recorded"
        );
        store.close().unwrap();
        assert_eq!(problem(call("n", b"1").await), (Code::Unavailable, "store-unavailable".into()), "P9");
        assert_eq!(charge.runs(), 3, "P1: it was charged again");
    });
}

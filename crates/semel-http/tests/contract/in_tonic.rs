//! The layer around a tonic server: gRPC passes by (H3). Its outcome stands in trailers, which an outcome has no place
//! for, and its clients do not send the header; a request with the same key runs as often as it arrives.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use semel::{Engine, Entropy, MemoryStore, OnUnknown, Policy};
use semel_http::{IdempotencyKey, KeyPolicy, Options, SemelLayer, Settings};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tower::{Service, service_fn};

/// Messages that are just bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Counts its calls. It refuses an empty message, with a status that stands in the trailers alone.
#[derive(Clone)]
struct Bank(Arc<AtomicU32>);

impl NamedService for Bank {
    const NAME: &'static str = "shop.Bank";
}

impl Service<http::Request<tonic::body::Body>> for Bank {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let runs = self.0.clone();
        let charge = service_fn(move |request: Request<Bytes>| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let guarded = IdempotencyKey::of(request.extensions()).is_some();
            std::future::ready(match request.into_inner() {
                empty if empty.is_empty() => Err(Status::failed_precondition("nothing to charge")),
                _ => Ok(Response::new(Bytes::from(format!("run {run}, guarded: {guarded}")))),
            })
        });
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(charge, request).await) })
    }
}

async fn call(channel: &Channel, message: &'static str) -> Result<Bytes, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("a connection");
    let mut request = Request::new(Bytes::from(message));
    request.metadata_mut().insert("idempotency-key", "k".parse().unwrap());
    let path = PathAndQuery::from_static("/shop.Bank/Charge");
    client.unary(request, path, Raw).await.map(Response::into_inner)
}

#[tokio::test]
async fn h3_grpc_passes_by_with_its_trailers_whatever_the_route_asks_for() {
    let runs = Arc::new(AtomicU32::new(0));
    let mut options = Options::new(Policy::new(OnUnknown::Park));
    options.key = KeyPolicy::Required;
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let layer = SemelLayer::new(engine, Settings::new(options).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(Bank(runs.clone()));
    let serving = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    assert_eq!(call(&channel, "5").await.unwrap(), "run 1, guarded: false");
    assert_eq!(call(&channel, "5").await.unwrap(), "run 2, guarded: false");
    let refused = call(&channel, "").await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "nothing to charge"));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    serving.abort();
}

//! The payment service of the demo, a process of its own. Naive: it knows no keys, and charges for every request that
//! it receives.
//!
//! 1. `POST /charges` charges some milliseconds after it arrived, also when its caller has hung up by then, as a service
//!    with a thread for each request does.
//! 2. A fault of the story happens to the first request of an order and to no other one.
//! 3. `GET /charges/ORDER` says whether an order was charged. It is the question that the gateway asks (with a fence,
//!    by which the ledger knows it).
//! 4. The ledger is this process's memory. `GET /ledger` gives it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use semel_http::SEMEL_FENCE;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::failed;
use super::ledger::{self, Arrived, Charge, Ledger, Question};
use super::story::{Kind, Random, Story};
use crate::Failure;

/// Between a request's arrival and its charge.
const CHARGES_AFTER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(60));

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub order: String,
    /// In cents.
    pub amount: u64,
}

#[derive(Debug)]
struct Service {
    story: Story,
    ledger: Mutex<Ledger>,
}

/// What the story has for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    charges: bool,
    answers_after: Option<Duration>,
}

/// Serves until it is killed.
pub fn serve(listen: SocketAddr, story: &Story) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let service = Arc::new(Service { story: story.clone(), ledger: Mutex::default() });
    runtime.map_err(failed("no runtime"))?.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(failed("the service's address"))?;
        loop {
            let (stream, _) = listener.accept().await.map_err(failed("the service's listener"))?;
            let service = service.clone();
            let answer = service_fn(move |request| answered(service.clone(), request));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    })
}

type Answered = Result<Response<Full<Bytes>>, io::Error>;

/// An error closes the connection without an answer.
async fn answered(service: Arc<Service>, request: Request<Incoming>) -> Answered {
    let (head, body) = request.into_parts();
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/charges") => {
            let body = Limited::new(body, 1 << 16).collect().await.map_err(io::Error::other)?.to_bytes();
            let Ok(asked) = serde_json::from_slice(&body) else {
                return Ok(json(StatusCode::BAD_REQUEST, &"an order and an amount"));
            };
            // A task of its own: whoever asked may go away, and the charge is made all the same.
            tokio::spawn(service.charge(asked)).await.map_err(io::Error::other)?
        }
        (&Method::GET, "/ledger") => Ok(json(StatusCode::OK, &*service.ledger())),
        (&Method::GET, "/ledger/summary") => Ok(json(StatusCode::OK, &service.ledger().summary())),
        (&Method::GET, path) => Ok(service.look(path, &head.headers)),
        _ => Ok(json(StatusCode::METHOD_NOT_ALLOWED, &"POST /charges")),
    }
}

impl Service {
    /// Whatever a panic left behind is whole: nothing but additions happens to it.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn charge(self: Arc<Service>, asked: Asked) -> Answered {
        let earlier = self.arrived(&asked);
        let (charges_after, fate) = self.fate(&asked.order, earlier);
        sleep(charges_after).await;
        let lost = || Err(io::ErrorKind::ConnectionAborted.into());
        if !fate.charges {
            return lost();
        }
        let charge = self.charged(asked);
        let Some(answers_after) = fate.answers_after else { return lost() };
        sleep(answers_after).await;
        Ok(json(StatusCode::CREATED, &charge))
    }

    /// How many requests of the order came before.
    fn arrived(&self, asked: &Asked) -> u64 {
        let mut ledger = self.ledger();
        let earlier = ledger.requests.iter().filter(|request| request.order == asked.order).count();
        ledger.requests.push(Arrived { order: asked.order.clone(), at: ledger::now() });
        earlier as u64
    }

    fn charged(&self, asked: Asked) -> Charge {
        let mut ledger = self.ledger();
        let number = ledger.charges.len() as u64 + 1;
        let charge = Charge { number, order: asked.order, amount: asked.amount, at: ledger::now() };
        ledger.charges.push(charge.clone());
        charge
    }

    fn fate(&self, order: &str, earlier: u64) -> (Duration, Fate) {
        let order = self.story.order(order);
        let mut random = Random::new(order.map_or(0, |order| order.seed).wrapping_add(earlier));
        let charges_after = random.between(CHARGES_AFTER.0, CHARGES_AFTER.1);
        let fate = match order.map(|order| order.kind) {
            Some(kind) if earlier == 0 => Fate::of(kind, &mut random),
            _ => Fate::GOOD,
        };
        (charges_after, fate)
    }

    fn look(&self, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let Some(order) = path.strip_prefix("/charges/") else {
            return json(StatusCode::NOT_FOUND, &"/charges/ORDER");
        };
        let mut ledger = self.ledger();
        let charge = ledger.charge_of(order).cloned();
        if headers.contains_key(SEMEL_FENCE) {
            let question = Question { order: order.to_owned(), charged: charge.is_some(), at: ledger::now() };
            ledger.questions.push(question);
        }
        match charge {
            Some(charge) => json(StatusCode::OK, &charge),
            None => json(StatusCode::NOT_FOUND, &"not charged"),
        }
    }
}

impl Fate {
    const GOOD: Fate = Fate { charges: true, answers_after: Some(Duration::ZERO) };

    fn of(kind: Kind, random: &mut Random) -> Fate {
        let after = |answers_after| Fate { answers_after: Some(answers_after), ..Fate::GOOD };
        match kind {
            Kind::Ordinary | Kind::PressedTwice => Fate::GOOD,
            Kind::HangsUp => after(Duration::from_millis(300)),
            Kind::Slow => after(random.between(Duration::from_millis(1_500), Duration::from_millis(2_000))),
            Kind::AnswerLost => Fate { answers_after: None, ..Fate::GOOD },
            Kind::RequestLost => Fate { charges: false, answers_after: None },
            // Longer than it takes to see that it was charged, and to kill the gateway.
            Kind::Witness => after(Duration::from_secs(3)),
        }
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // Strings, numbers and booleans: there is nothing in it that could fail to be written.
    let mut response = Response::new(Full::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

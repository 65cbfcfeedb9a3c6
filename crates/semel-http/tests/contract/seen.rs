//! What an operator sees: one line for each decision, and a count of what passed by.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::Request;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use semel_http::Body;
use tower::{Service, ServiceExt};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Shop, post, posting, with};

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

async fn all_decisions() {
    let shop = Shop::answering(201, "");
    for request in [post("secret-1"), post("secret-1"), posting("secret-1", "other"), post("secret-1 x")] {
        shop.send(with(request, "authorization", "Bearer secret-2")).await;
    }
}

#[tokio::test]
async fn each_decision_is_one_line_and_no_key_is_in_clear() {
    // A line's place in the code is known to `tracing` from its first use on. If that were another test's, at the same
    // instant, this test's subscriber could be passed over.
    all_decisions().await;
    let log = Log::default();
    let to_log =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::INFO).with_writer(log.clone());
    // The runtime of this test has one thread, so the engine's tasks write there too.
    let _logging = tracing::subscriber::set_default(to_log.finish());
    all_decisions().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let decisions: Vec<_> = lines.iter().filter(|line| line["target"] == "semel::decision").collect();
    let results: Vec<_> = decisions.iter().map(|line| line["fields"]["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["run", "replay", "mismatch", "key_malformed"]);
    let first = &decisions[0]["fields"];
    assert_eq!(
        (&first["label"], &first["status"], &first["fence"]),
        (&"POST /charges".into(), &201.into(), &1.into())
    );
    assert_eq!(first["key"], semel::Key::new("secret-1").unwrap().digest());
    assert!(!log.contains("secret"), "{log}");
}

/// Counts one counter.
#[derive(Default)]
struct Unguarded(Arc<AtomicU64>);

impl Recorder for Unguarded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "semel_unguarded_total" => Counter::from_arc(self.0.clone()),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn h04_what_passes_by_without_a_key_is_counted_and_nothing_else() {
    let recorder = Unguarded::default();
    let shop = Shop::answering(201, "");
    let mut service = shop.service.clone();
    let mut without_key = post("k");
    without_key.headers_mut().remove("idempotency-key");
    let get = Request::get("/").body(Body::empty()).unwrap();
    for request in [without_key, get, post("k")] {
        ServiceExt::<Request<Body>>::ready(&mut service).await.unwrap();
        metrics::with_local_recorder(&recorder, || service.call(request)).await.unwrap();
    }
    assert_eq!(recorder.0.load(Ordering::SeqCst), 1);
    assert_eq!(shop.runs(), 3);
}

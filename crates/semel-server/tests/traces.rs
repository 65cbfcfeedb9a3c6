//! Spans, through real sockets, to a collector that speaks OTLP over HTTP as protobuf.

mod support;

use serde_json::Value;

use rustix::process::Signal;
use support::{Call, Gateway, Launch, Plan, Reply, Service, until};

const FIRST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECOND: &str = "00-11111111111111111111111111111111-2222222222222222-01";

/// A span, of what the protocol has (opentelemetry-proto, trace/v1/trace.proto).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    /// 2 server, 3 client.
    kind: u64,
    attributes: Vec<(String, String)>,
    /// Trace and span.
    links: Vec<(String, String)>,
}

impl Span {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    fn context(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// The fields of a protobuf message: number, and either a number or bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let (value, bytes) = match tag & 7 {
            0 => (varint(&mut message), &[][..]),
            1 => (0, take(&mut message, 8)),
            2 => {
                let length = varint(&mut message);
                (0, take(&mut message, usize::try_from(length).unwrap()))
            }
            5 => (0, take(&mut message, 4)),
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value, bytes));
    }
    fields
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint without an end")
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, rest) = message.split_at(length);
    *message = rest;
    head
}

/// The parts of a message with that number.
fn parts(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.2).collect()
}

fn text(message: &[u8], number: u64) -> String {
    String::from_utf8(parts(message, number).concat()).unwrap()
}

fn hex(message: &[u8], number: u64) -> String {
    parts(message, number).concat().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(message: &[u8], number: u64) -> Vec<(String, String)> {
    let read = |pair: &&[u8]| {
        let value = parts(pair, 2).concat();
        let number = fields(&value).into_iter().find(|field| field.0 == 3).map(|field| field.1.to_string());
        (text(pair, 1), number.unwrap_or_else(|| text(&value, 1)))
    };
    parts(message, number).iter().map(read).collect()
}

/// Every span of one export.
fn spans(export: &[u8]) -> Vec<Span> {
    let scopes = parts(export, 1).into_iter().flat_map(|resource| parts(resource, 2));
    let spans = scopes.flat_map(|scope| parts(scope, 2));
    let read = |span: &[u8]| Span {
        trace: hex(span, 1),
        id: hex(span, 2),
        parent: hex(span, 4),
        name: text(span, 5),
        kind: fields(span).into_iter().find(|field| field.0 == 6).map_or(0, |field| field.1),
        attributes: attributes(span, 9),
        links: parts(span, 13).into_iter().map(|link| (hex(link, 1), hex(link, 2))).collect(),
    };
    spans.map(read).collect()
}

struct Collector(Service);

impl Collector {
    fn start() -> Collector {
        Collector(Service::doing(Plan { reply: Reply::new(200, ""), ..Plan::default() }))
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.0.address())
    }

    /// Every export so far, as it came.
    fn exports(&self) -> Vec<Vec<u8>> {
        let received = self.0.ledger().received();
        for export in &received {
            assert_eq!((export.method.as_str(), export.target.as_str()), ("POST", "/v1/traces"));
            assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
        }
        received.into_iter().map(|export| export.body).collect()
    }

    fn spans(&self) -> Vec<Span> {
        self.exports().iter().flat_map(|export| spans(export)).collect()
    }

    #[track_caller]
    fn wait(&self, count: usize) -> Vec<Span> {
        until(&format!("{count} spans"), || Some(self.spans()).filter(|spans| spans.len() >= count))
    }
}

/// A gateway that sends its spans soon.
fn launch(service: &Service, endpoint: &str) -> Launch {
    let launch = Launch::new(service.address()).args(["--otlp-endpoint", endpoint]);
    launch.env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

fn decision(gateway: &Gateway, result: &str) -> Value {
    let is_it =
        |line: &str| line.contains("semel::decision") && line.contains(&format!("\"result\":\"{result}\""));
    serde_json::from_str(&gateway.wait_for_log(is_it).expect("its line")).unwrap()
}

/// V1: two requests are two traces, and the replay's links to the run's.
#[test]
fn v1_a_replays_span_links_to_the_run_that_it_goes_back_to() {
    let (service, collector) = (Service::plain(), Collector::start());
    let gateway = launch(&service, &collector.endpoint()).start();
    let call = |trace: &str| {
        Call::post("/charges?q=secret-query", "secret-key")
            .header("traceparent", trace)
            .header("tracestate", "vendor=1")
    };
    assert!(!gateway.call(&call(FIRST)).is_replay());
    let spans = collector.wait(2);
    // It is replayed by a process that never saw the run.
    let gateway = gateway.restart();
    let replay = gateway.call(&call(SECOND));
    assert!(replay.is_replay());
    for header in ["traceparent", "tracestate", "semel-trace"] {
        assert_eq!(replay.header(header), None);
    }
    let of = |spans: &[Span], kind| spans.iter().find(|span| span.kind == kind).cloned().expect("a span");
    let (run, sent) = (of(&spans, 2), of(&spans, 3));
    let again = of(&collector.wait(3)[2..], 2);

    assert_eq!(
        (run.trace.as_str(), run.parent.as_str()),
        (&FIRST[3..35], &FIRST[36..52]),
        "the caller's child"
    );
    assert_eq!((&sent.trace, &sent.parent), (&run.trace, &run.id), "below the caller's request");
    assert_eq!((again.trace.as_str(), again.parent.as_str()), (&SECOND[3..35], &SECOND[36..52]));
    assert_eq!(run.links, []);
    assert_eq!(again.links, [(run.trace.clone(), run.id.clone())]);
    assert_eq!((run.name.as_str(), sent.name.as_str()), ("POST", "POST"));
    let said = |span: &Span| {
        ["semel.result", "http.route", "http.response.status_code", "url.path"]
            .map(|name| span.attribute(name).to_owned())
    };
    assert_eq!(said(&run), ["run", "otherwise", "201", "/charges"]);
    assert_eq!(said(&again), ["replay", "otherwise", "201", "/charges"]);
    assert_eq!(said(&sent), ["", "", "201", ""]);

    // The service belongs below the request that was sent to it.
    let received = service.ledger().received();
    let [received] = &received[..] else { panic!("it ran once") };
    assert_eq!(received.header_lines("traceparent"), [sent.context()]);
    assert_eq!(received.header_lines("tracestate"), ["vendor=1"]);

    let line = decision(&gateway, "replay");
    assert_eq!((&line["trace"], &line["original_trace"]), (&SECOND[3..35].into(), &FIRST[3..35].into()));
    for export in collector.exports() {
        assert!(!String::from_utf8_lossy(&export).contains("secret"), "no key and no query in a span");
    }
}

/// A caller without a context begins a trace, and one who does not sample is believed.
#[test]
fn v1_whether_a_trace_is_sampled_is_the_callers_choice() {
    let (service, collector) = (Service::plain(), Collector::start());
    let gateway = launch(&service, &collector.endpoint()).start();
    let unsampled = FIRST.replace("-01", "-00");
    gateway.call(&Call::post("/charges", "a").header("traceparent", &unsampled));
    gateway.call(&Call::post("/charges", "b").header("tracestate", "of=nobody"));
    let spans = collector.wait(2);
    let received = service.ledger().received();
    let first = received[0].header("traceparent").unwrap();
    assert!(first.starts_with(&FIRST[..36]) && first.ends_with("-00") && first != unsampled, "{first}");
    assert!(spans.iter().all(|span| span.trace != FIRST[3..35]), "{spans:?}");
    let run = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(run.parent, "");
    assert_eq!(received[1].header("tracestate"), None);
    assert_eq!(decision(&gateway, "run")["trace"], FIRST[3..35]);
}

/// What is in the queue is sent before the process is gone, and the run's own span ends with it.
#[test]
fn v1_a_stop_sends_what_is_left() {
    let (service, collector) = (Service::plain(), Collector::start());
    let launch = Launch::new(service.address()).args(["--otlp-endpoint", &collector.endpoint()]);
    let mut gateway = launch.env("OTEL_BSP_SCHEDULE_DELAY", "3600000").start();
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    assert_eq!(gateway.call(&Call::post("/charges", "a")).status, 502);
    gateway.send(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0));
    let spans = collector.spans();
    let sent = spans.iter().find(|span| span.kind == 3).expect("a span");
    assert_eq!(sent.attribute("error.type"), "cut");
    assert_eq!(spans.len(), 2);
}

/// Without its collector the gateway does what it did, and says so once.
#[test]
fn v1_a_collector_that_is_away_changes_nothing() {
    let (service, collector) = (Service::plain(), Collector::start());
    collector.0.refuse();
    let gateway = launch(&service, &collector.endpoint()).start();
    for number in 0..5 {
        assert_eq!(gateway.call(&Call::post("/charges", &number.to_string())).status, 201);
    }
    gateway.wait_for_log(|line| line.contains("spans could not be sent")).expect("a warning");
    assert_eq!(gateway.call(&Call::post("/charges", "0")).status, 201);
    assert_eq!(gateway.log().matches("spans could not be sent").count(), 1);
}

//! Spans by OTLP (feature `otel`): one for each caller's request, and below it one for each request to the service.
//!
//! 1. The caller's context is the parent, and the service gets the gateway's own span as its context; what the caller sent
//!    as `tracestate` goes on unchanged. Whether a trace is sampled is the caller's choice, else `OTEL_TRACES_SAMPLER`'s.
//! 2. A replay's span has a **link** to the run that it goes back to, which may be in another trace and days ago: its
//!    context stands in the kept outcome ([`semel_http::Decided`]).
//! 3. A run outlives its caller. The span of the caller's request ends with the caller, the one below it with the
//!    service's answer, however late.
//! 4. Nothing waits for the collector: spans go through a bounded queue to a thread of their own, and are dropped when it
//!    is full. A collector that is away is one line in the log, until it is back.
//! 5. No key, scope, query or header is in a span.
//!
//! What the OpenTelemetry SDK reads of its own variables holds too: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`. The endpoint is ours alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use semel_http::{Body, Decided, TraceContext};

use super::place::Place;
use super::telemetry::Class;
use crate::config::Config;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How long the collector may take.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// What of its answer is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long a stopping gateway waits for it.
const FLUSHED_WITHIN: Duration = Duration::from_secs(3);

/// Where spans will be sent, if anywhere.
#[derive(Debug)]
pub struct Exporting(Option<(Place, String)>);

/// Makes spans, if any. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Traces(Option<Arc<Making>>);

#[derive(Debug)]
struct Making {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// One span, if any. Dropped without a word it ends too.
#[derive(Debug)]
pub struct Span(Option<opentelemetry_sdk::trace::Span>);

impl Exporting {
    /// # Errors
    ///
    /// One line that says what is missing.
    pub fn new(config: &Config) -> Result<Exporting, String> {
        let Some(location) = &config.otlp_endpoint else { return Ok(Exporting(None)) };
        let mut location = location.clone();
        if location.target == "/" {
            location.target = "/v1/traces".to_owned();
        }
        let place = Place::new(&location, None, config.upstream_idle);
        let place = place.map_err(|error| format!("--otlp-endpoint {error}"))?;
        Ok(Exporting(Some((place, config.service.clone()))))
    }

    /// Within the runtime that sends them.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn start(self) -> Result<Traces, String> {
        let Some((place, service)) = self.0 else { return Ok(Traces(None)) };
        let sender =
            Sender { place, runtime: tokio::runtime::Handle::current(), away: AtomicBool::new(false) };
        let exporter = SpanExporter::builder()
            .with_http()
            // Where it goes is the sender's to know: this is only not to be looked for elsewhere.
            .with_endpoint("http://collector.invalid/v1/traces")
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(SENT_WITHIN)
            .with_http_client(sender)
            .build()
            .map_err(|error| format!("--otlp-endpoint: {error}"))?;
        let resource = Resource::builder().with_attribute(KeyValue::new("semel.service", service));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource,
            None => resource.with_service_name("semel"),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("semel");
        Ok(Traces(Some(Arc::new(Making { provider, tracer }))))
    }
}

impl Traces {
    /// The span of a caller's request, which is from here on what the request belongs to.
    pub fn serves(&self, parts: &mut Parts) -> Span {
        let Some(making) = &self.0 else { return Span(None) };
        let path = KeyValue::new("url.path", parts.uri.path().to_owned());
        let builder = named(making, &parts.method, SpanKind::Server, Some(path));
        making.begin(builder, &mut parts.headers)
    }

    /// The span of a request to the service, below that of the caller's.
    pub fn calls(&self, request: &mut Request<Body>) -> Span {
        let Some(making) = &self.0 else { return Span(None) };
        let builder = named(making, request.method(), SpanKind::Client, None);
        making.begin(builder, request.headers_mut())
    }

    /// Sends what is still in the queue.
    pub async fn flush(&self) {
        let Some(making) = self.0.clone() else { return };
        let flushed =
            tokio::task::spawn_blocking(move || making.provider.shutdown_with_timeout(FLUSHED_WITHIN));
        if let Ok(Err(error)) = flushed.await {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

fn named(making: &Making, method: &http::Method, kind: SpanKind, path: Option<KeyValue>) -> SpanBuilder {
    // Methods are known: what a caller makes up does not become a name.
    let method = match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "TRACE") => {
            known.to_owned()
        }
        _ => "_OTHER".to_owned(),
    };
    let builder = making.tracer.span_builder(method.clone()).with_kind(kind);
    builder.with_attributes(path.into_iter().chain([KeyValue::new("http.request.method", method)]))
}

impl Making {
    fn begin(&self, builder: SpanBuilder, headers: &mut HeaderMap) -> Span {
        let parent = parent(headers);
        if parent.is_none() {
            // What belongs to a context that is none goes with it (section 3.3 of Trace Context).
            headers.remove(TRACESTATE);
        }
        let parent =
            parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let span = self.tracer.build_with_context(builder, &parent);
        let context = span.span_context();
        let line = format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags());
        if let Ok(line) = HeaderValue::try_from(line) {
            headers.insert(TRACEPARENT, line);
        }
        Span(Some(span))
    }
}

/// The context of a request, with what came beside it.
fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    let context = TraceContext::of(headers)?;
    let lines = headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok());
    let state = lines.collect::<Vec<_>>().join(",").parse().unwrap_or(TraceState::NONE);
    remote(&context, state)
}

fn remote(context: &TraceContext, state: TraceState) -> Option<SpanContext> {
    let text = context.as_str();
    let trace = TraceId::from_hex(context.trace_id()).ok()?;
    let span = SpanId::from_hex(text.get(36..52)?).ok()?;
    let flags = u8::from_str_radix(text.get(53..55)?, 16).ok()?;
    Some(SpanContext::new(trace, span, TraceFlags::new(flags) & TraceFlags::SAMPLED, true, state))
}

impl Span {
    /// The caller is answered.
    pub fn answered(self, response: &mut Response<Body>) {
        let decided = response.extensions_mut().remove::<Decided>();
        let Some(mut span) = self.0 else { return };
        let status = response.status();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            span.set_status(Status::error(""));
        }
        if let Some(Decided { result, route, original }) = decided {
            span.set_attribute(KeyValue::new("semel.result", result));
            span.set_attribute(KeyValue::new("http.route", route.to_string()));
            if let Some(original) = original.and_then(|context| remote(&context, TraceState::NONE)) {
                span.add_link(original, Vec::new());
            }
        }
        span.end();
    }

    /// The service has answered, or has not.
    pub fn called(self, class: Class) {
        let Some(mut span) = self.0 else { return };
        match class {
            Class::Status(status) => {
                span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
                if status.is_client_error() || status.is_server_error() {
                    span.set_status(Status::error(""));
                }
            }
            broken => {
                span.set_attribute(KeyValue::new("error.type", broken.as_str()));
                span.set_status(Status::error(""));
            }
        }
        span.end();
    }
}

/// Sends what the SDK's thread has, on the gateway's runtime: its connections live there.
#[derive(Debug)]
struct Sender {
    place: Place,
    runtime: tokio::runtime::Handle,
    away: AtomicBool,
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let place = self.place.clone();
        let sent = self.runtime.spawn(async move {
            match tokio::time::timeout(SENT_WITHIN, send(&place, request)).await {
                Ok(sent) => sent,
                Err(elapsed) => Err(elapsed.into()),
            }
        });
        let sent = match sent.await {
            Ok(Ok(response)) if response.status().is_success() => Ok(response),
            Ok(Ok(response)) => Err(format!("the collector answered {}", response.status()).into()),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(error.into()),
        };
        let was_away = self.away.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Err(error) if !was_away => {
                tracing::warn!(%error, "spans could not be sent; said once until they can")
            }
            Ok(_) if was_away => tracing::info!("spans are sent again"),
            _ => {}
        }
        sent
    }
}

async fn send(place: &Place, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (parts, body) = request.into_parts();
    let (head, answer) = place.tell(parts.headers, body).await?.into_parts();
    let answer = Limited::new(answer, ANSWER_BYTES_MAX).collect().await?;
    Ok(Response::from_parts(head, answer.to_bytes()))
}

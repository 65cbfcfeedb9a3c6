//! The bridge's settings: flags first, then `SEMEL_…` variables, then the TOML file, then the defaults. One struct is all
//! three, as for the gateway.

use std::path::PathBuf;

use serde::Deserialize;

use super::words::{Declare, FieldWord, Forwarded, IdWord, MissingChoice};
use crate::config::{List, Location, LogLevel, One, Preset, Status, Template, UnknownChoice};
use crate::values::{Address, Size, Span};

/// What a user may set.
#[derive(Debug, Default, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The consumer's name: what it has done is known by it, so it never changes [default: the queue's name]
    #[arg(long, env = "SEMEL_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// The broker: amqp://USER:PASSWORD@HOST:5672/%2f, or amqps:// for TLS
    #[arg(long, env = "SEMEL_BROKER", value_name = "URL")]
    pub broker: Option<String>,
    /// The queue that messages come from
    #[arg(long, env = "SEMEL_QUEUE", value_name = "NAME")]
    pub queue: Option<String>,
    /// Whether the queue is made where it is not there: no, queue or single-active [default: no]
    #[arg(long, env = "SEMEL_DECLARE", value_name = "CHOICE")]
    pub declare: Option<Declare>,
    /// The queue that dead letters go to; it is made [default: NAME.dead of the queue]
    #[arg(long, env = "SEMEL_DEAD_LETTERS", value_name = "NAME")]
    pub dead_letters: Option<String>,
    /// Where each message is sent by POST: http://HOST:PORT/PATH or https://...
    #[arg(long, env = "SEMEL_TARGET", value_name = "URL")]
    pub target: Option<Location>,
    /// The only authorities that an https service is trusted by, in PEM [default: those of this system]
    #[arg(long, env = "SEMEL_TARGET_CA", value_name = "FILE")]
    pub target_ca: Option<PathBuf>,
    /// A file with the Bearer token of the requests
    #[arg(long, env = "SEMEL_TARGET_TOKEN_FILE", value_name = "FILE")]
    pub target_token_file: Option<PathBuf>,
    /// Headers of a message that its request has too [default: traceparent,tracestate]
    #[arg(long, env = "SEMEL_HEADERS", value_name = "LIST")]
    pub headers: Option<List<Forwarded>>,
    /// How long the service may take; after that nobody knows whether it took effect [default: 60s]
    #[arg(long, env = "SEMEL_TIMEOUT", value_name = "DURATION")]
    pub timeout: Option<Span>,
    /// Where a message's id stands: message-id, correlation-id, header:NAME, json:/POINTER, cloudevents; several fields
    /// are its id together [default: message-id]
    #[arg(long, env = "SEMEL_ID", value_name = "LIST")]
    pub id: Option<List<IdWord>>,
    /// What becomes of a message without an id: reject, derive, content-hash or generate [default: reject]
    #[arg(long, env = "SEMEL_MISSING", value_name = "CHOICE")]
    pub missing: Option<MissingChoice>,
    /// The fields that a missing id is made of, where missing is 'derive'
    #[arg(long, env = "SEMEL_DERIVE", value_name = "LIST")]
    pub derive: Option<List<FieldWord>>,
    /// Ids are unique only within this field's value, such as producer [default: unique among all]
    #[arg(long, env = "SEMEL_SOURCE", value_name = "FIELD")]
    pub source: Option<One<FieldWord>>,
    /// What keeps its order: messages with the same value there are sent one after the other [default: no order]
    #[arg(long, env = "SEMEL_LANE", value_name = "FIELD")]
    pub lane: Option<One<FieldWord>>,
    /// How many requests run at once [default: 16]
    #[arg(long, env = "SEMEL_IN_FLIGHT_MAX", value_name = "NUMBER")]
    pub in_flight_max: Option<u32>,
    /// How many messages are held, those that wait included [default: eight times as many as run]
    #[arg(long, env = "SEMEL_HELD_MAX", value_name = "NUMBER")]
    pub held_max: Option<u32>,
    /// The largest body that is taken; a larger one is a dead letter [default: 16MiB]
    #[arg(long, env = "SEMEL_BODY_BYTES_MAX", value_name = "SIZE")]
    pub body_bytes_max: Option<Size>,
    /// How often a message is tried [default: 10]
    #[arg(long, env = "SEMEL_ATTEMPTS_MAX", value_name = "NUMBER")]
    pub attempts_max: Option<u32>,
    /// The pause after the first attempt; it doubles, and is drawn below that [default: 200ms]
    #[arg(long, env = "SEMEL_RETRY_FIRST", value_name = "DURATION")]
    pub retry_first: Option<Span>,
    /// The longest pause [default: 30s]
    #[arg(long, env = "SEMEL_RETRY_MAX", value_name = "DURATION")]
    pub retry_max: Option<Span>,
    /// A choice of statuses: default or cautious [default: default]
    #[arg(long, env = "SEMEL_PRESET", value_name = "PRESET")]
    pub preset: Option<Preset>,
    /// Statuses that end a message: 2xx as done, others as a dead letter
    #[arg(long, env = "SEMEL_KEPT", value_name = "LIST")]
    pub kept: Option<List<Status>>,
    /// Statuses that mean that nothing took effect: tried again
    #[arg(long, env = "SEMEL_RELEASED", value_name = "LIST")]
    pub released: Option<List<Status>>,
    /// Statuses that prove nothing
    #[arg(long, env = "SEMEL_UNKNOWN", value_name = "LIST")]
    pub unknown: Option<List<Status>>,
    /// What becomes of a message that may or may not have taken effect: park, rerun or probe [default: park]
    #[arg(long, env = "SEMEL_ON_UNKNOWN", value_name = "CHOICE")]
    pub on_unknown: Option<UnknownChoice>,
    /// Where to ask whether a message took effect: /orders?key={key}, or http://HOST:PORT/orders/{key}
    #[arg(long, env = "SEMEL_PROBE", value_name = "TEMPLATE")]
    pub probe: Option<One<Template>>,
    /// Statuses of its answer that mean that it took effect
    #[arg(long, env = "SEMEL_PROBE_KEEP", value_name = "LIST")]
    pub probe_keep: Option<List<Status>>,
    /// Statuses of its answer that mean that it took none
    #[arg(long, env = "SEMEL_PROBE_RELEASE", value_name = "LIST")]
    pub probe_release: Option<List<Status>>,
    /// How long a message is unknown before it is asked about: longer than a request may be under way [default: 30s]
    #[arg(long, env = "SEMEL_PROBE_AFTER", value_name = "DURATION")]
    pub probe_after: Option<Span>,
    /// How long one question may take [default: 5s]
    #[arg(long, env = "SEMEL_PROBE_WITHIN", value_name = "DURATION")]
    pub probe_within: Option<Span>,
    /// How long after its first delivery a message is asked about; then it is a dead letter [default: 1h]
    #[arg(long, env = "SEMEL_PROBE_FOR", value_name = "DURATION")]
    pub probe_for: Option<Span>,
    /// A file with the Bearer token of the questions
    #[arg(long, env = "SEMEL_PROBE_TOKEN_FILE", value_name = "FILE")]
    pub probe_token_file: Option<PathBuf>,
    /// How long a lease lasts; it is renewed at a third of that [default: 30s]
    #[arg(long, env = "SEMEL_LEASE", value_name = "DURATION")]
    pub lease: Option<Span>,
    /// How long a message is remembered after it was done [default: 30d]
    #[arg(long, env = "SEMEL_REMEMBER_FOR", value_name = "DURATION")]
    pub remember_for: Option<Span>,
    /// How long after its first delivery a message may come again, from the broker or from the dead letters [default: 14d]
    #[arg(long, env = "SEMEL_REDELIVERED_FOR", value_name = "DURATION")]
    pub redelivered_for: Option<Span>,
    /// How long a stopping bridge waits for what runs [default: 25s]
    #[arg(long, env = "SEMEL_DRAIN_FOR", value_name = "DURATION")]
    pub drain_for: Option<Span>,
    /// Where the records are kept [default: sqlite://semel.db]
    #[arg(long, env = "SEMEL_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Refuse to start on a store whose schema is not up to date, instead of migrating it
    #[arg(long, env = "SEMEL_NO_MIGRATE", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub no_migrate: Option<bool>,
    /// Where health, readiness and metrics are served [default: 127.0.0.1:9902]
    #[arg(long, env = "SEMEL_ADMIN", value_name = "ADDRESS")]
    pub admin: Option<Address>,
    /// A file with the Bearer token of readiness and metrics; needed where the admin address is not of this machine
    #[arg(long, env = "SEMEL_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// This process's name, in records and in the log [default: host and process id]
    #[arg(long, env = "SEMEL_INSTANCE", value_name = "NAME")]
    pub instance: Option<String>,
    /// What is logged [default: info]
    #[arg(long, env = "SEMEL_LOG", value_name = "LEVEL")]
    pub log: Option<LogLevel>,
}

impl Settings {
    /// Fills what is not set here from `other`.
    #[must_use]
    pub fn or(self, other: Settings) -> Settings {
        // Taken apart field by field, so that a setting left out here does not compile.
        macro_rules! first_set {
            ($($field:ident),* $(,)?) => {{
                let Settings { $($field),* } = self;
                Settings { $($field: $field.or(other.$field)),* }
            }};
        }
        first_set!(
            name,
            broker,
            queue,
            declare,
            dead_letters,
            target,
            target_ca,
            target_token_file,
            headers,
            timeout,
            id,
            missing,
            derive,
            source,
            lane,
            in_flight_max,
            held_max,
            body_bytes_max,
            attempts_max,
            retry_first,
            retry_max,
            preset,
            kept,
            released,
            unknown,
            on_unknown,
            probe,
            probe_keep,
            probe_release,
            probe_after,
            probe_within,
            probe_for,
            probe_token_file,
            lease,
            remember_for,
            redelivered_for,
            drain_for,
            store,
            no_migrate,
            admin,
            admin_token_file,
            instance,
            log,
        )
    }
}

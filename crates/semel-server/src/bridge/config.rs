//! What the bridge's settings come to: the defaults filled in, and what does not fit together refused.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use semel::{OnUnknown, Probe};
use semel_http::Statuses;
use semel_messaging::amqp::{RabbitMq, RabbitSource};
use semel_messaging::{Builder, Consumer, Field, Id, Missing, Retry, SourceError};

use super::settings::Settings;
use super::words::{Declare, FieldWord, Forwarded, IdWord, MissingChoice};
use crate::Failure;
use crate::config::{self, List, Location, LogLevel, Preset, ProbeConfig, STORE, UnknownChoice, escaped};
use crate::values::{Address, Span};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A `Retry-After` that is longer is taken for this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Settings that fit together.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each is described at its field in `Settings`")]
pub struct Config {
    pub name: String,
    pub place: RabbitMqAt,
    pub declare: Declare,
    pub target: Location,
    pub target_ca: Option<PathBuf>,
    pub authorization: Option<HeaderValue>,
    pub headers: Vec<HeaderName>,
    pub timeout: Duration,
    pub id: Id,
    pub missing: Missing,
    pub source: Option<Field>,
    pub lane: Option<Field>,
    pub in_flight_max: u32,
    pub held_max: Option<u32>,
    pub body_bytes_max: usize,
    pub attempts_max: u32,
    pub retry: Retry,
    pub statuses: Statuses,
    pub on_unknown: OnUnknown,
    pub probe: Option<Asks>,
    pub lease: Duration,
    pub remember_for: Duration,
    pub redelivered_for: Duration,
    pub drain_for: Duration,
    pub store: String,
    pub no_migrate: bool,
    pub admin: Address,
    pub admin_token_file: Option<PathBuf>,
    pub instance: Option<String>,
    pub log: LogLevel,
}

/// A queue of a broker, and where its dead letters are.
#[derive(Debug, Clone)]
pub struct RabbitMqAt {
    /// The broker.
    pub broker: RabbitMq,
    /// The queue.
    pub queue: String,
    /// The queue of dead letters.
    pub dead_letters: String,
}

/// A probe, and when it is asked.
#[derive(Debug, Clone)]
pub struct Asks {
    /// Where, and what its answer means.
    pub config: ProbeConfig,
    /// Not before.
    pub after: Duration,
    /// Each time for so long.
    pub within: Duration,
    /// No longer.
    pub ask_for: Duration,
}

/// The settings of a command and its file, checked.
///
/// # Errors
///
/// One line that says what does not fit.
pub fn read(settings: Settings, file: Option<&Path>) -> Result<Config, Failure> {
    let settings = match file {
        Some(file) => settings.or(config::read(file).map_err(Failure::Usage)?),
        None => settings,
    };
    Config::of(settings).map_err(|error| Failure::Usage(escaped(&error)))
}

impl Config {
    fn of(settings: Settings) -> Result<Config, String> {
        let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
        let place = RabbitMqAt::of(&settings)?;
        let target =
            settings.target.clone().ok_or("--target is missing, such as http://127.0.0.1:9000/orders")?;
        let bearer = |file: &PathBuf| config::bearer("--target-token-file", file);
        let default = Retry::default();
        let config = Config {
            name: settings.name.clone().unwrap_or_else(|| place.queue.clone()),
            declare: settings.declare.unwrap_or(Declare::No),
            target_ca: settings.target_ca.clone(),
            authorization: settings.target_token_file.as_ref().map(bearer).transpose()?,
            headers: headers(settings.headers.clone())?,
            timeout: span(settings.timeout, Duration::from_secs(60)),
            id: id(settings.id.clone())?,
            missing: missing(settings.missing, settings.derive.clone())?,
            source: settings.source.clone().map(|word| word.0.0),
            lane: settings.lane.clone().map(|word| word.0.0),
            in_flight_max: settings.in_flight_max.unwrap_or(16),
            held_max: settings.held_max,
            body_bytes_max: settings.body_bytes_max.map_or(16 << 20, |size| size.0),
            attempts_max: settings.attempts_max.unwrap_or(10),
            retry: Retry {
                first: span(settings.retry_first, default.first),
                max: span(settings.retry_max, default.max),
            },
            statuses: statuses(&settings)?,
            on_unknown: on_unknown(settings.on_unknown),
            probe: Asks::of(&settings, &target)?,
            lease: span(settings.lease, Duration::from_secs(30)),
            remember_for: span(settings.remember_for, 30 * DAY),
            redelivered_for: span(settings.redelivered_for, 14 * DAY),
            drain_for: span(settings.drain_for, Duration::from_secs(25)),
            store: settings.store.clone().unwrap_or_else(|| STORE.to_owned()),
            no_migrate: settings.no_migrate.unwrap_or(false),
            admin: config::admin(
                Some(settings.admin.unwrap_or(Address(([127, 0, 0, 1], 9902).into()))),
                settings.admin_token_file.is_some(),
            )?,
            admin_token_file: settings.admin_token_file.clone(),
            instance: config::instance(settings.instance.clone())?,
            log: settings.log.unwrap_or(LogLevel::Info),
            place,
            target,
        };
        match config.timeout.is_zero() {
            true => Err("--timeout must be longer than zero".into()),
            false => Ok(config),
        }
    }

    /// The queue, not opened.
    ///
    /// # Errors
    ///
    /// Its name, or that of its dead letters, is none.
    pub fn source(&self) -> Result<RabbitSource, SourceError> {
        let RabbitMqAt { broker, queue, dead_letters } = &self.place;
        let source = broker.queue(queue)?.dead_letters(dead_letters)?;
        Ok(match self.declare {
            Declare::No => source,
            Declare::Queue => source.declare(),
            Declare::SingleActive => source.declare_single_active(),
        })
    }

    /// The consumer, as far as settings make it.
    pub fn builder(&self, probe: Option<Arc<dyn Probe>>) -> Builder {
        // What a service asks for may be longer than the consumer's own pauses.
        let asked_for = RETRY_AFTER_MAX.saturating_mul(self.attempts_max);
        let mut builder = Consumer::builder(self.name.clone(), self.on_unknown)
            .id(self.id.clone())
            .missing(self.missing.clone())
            .attempts_max(self.attempts_max)
            .retry(self.retry)
            .in_flight_max(self.in_flight_max)
            .body_bytes_max(self.body_bytes_max)
            .lease_for(self.lease)
            .remember_for(self.remember_for)
            .redelivered_for(self.redelivered_for.saturating_add(asked_for))
            .drain_for(self.drain_for);
        if let Some(source) = &self.source {
            builder = builder.source(source.clone());
        }
        if let Some(lane) = &self.lane {
            builder = builder.lane(lane.clone());
        }
        if let Some(held_max) = self.held_max {
            builder = builder.held_max(held_max);
        }
        match (probe, &self.probe) {
            (Some(probe), Some(Asks { after, within, ask_for, .. })) => {
                builder.probe(probe, *after, *within, *ask_for)
            }
            _ => builder,
        }
    }
}

impl RabbitMqAt {
    /// Where messages come from.
    ///
    /// # Errors
    ///
    /// Broker or queue is missing, or is none.
    pub fn of(settings: &Settings) -> Result<RabbitMqAt, String> {
        let url =
            settings.broker.as_deref().ok_or("--broker is missing: amqp://USER:PASSWORD@HOST:5672/%2f")?;
        let broker = RabbitMq::new(url).map_err(|error| format!("--broker: {error}"))?;
        let queue = settings.queue.clone().ok_or("--queue is missing: the queue that messages come from")?;
        if queue.is_empty() {
            return Err("--queue is empty".into());
        }
        let dead_letters = settings.dead_letters.clone().unwrap_or_else(|| format!("{queue}.dead"));
        Ok(RabbitMqAt { broker, queue, dead_letters })
    }
}

impl fmt::Display for RabbitMqAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue '{}' at {}", self.queue, self.broker)
    }
}

impl Asks {
    fn of(settings: &Settings, target: &Location) -> Result<Option<Asks>, String> {
        let span = |set: Option<Span>, seconds| set.map_or(Duration::from_secs(seconds), |span| span.0);
        let as_of_a_route = config::Settings {
            on_unknown: settings.on_unknown,
            probe: settings.probe.clone(),
            probe_keep: settings.probe_keep.clone(),
            probe_release: settings.probe_release.clone(),
            probe_token_file: settings.probe_token_file.clone(),
            ..config::Settings::default()
        };
        let Some(mut config) = ProbeConfig::of(&as_of_a_route, None)? else { return Ok(None) };
        config.template.upstream.get_or_insert_with(|| target.upstream.clone());
        Ok(Some(Asks {
            config,
            after: span(settings.probe_after, 30),
            within: span(settings.probe_within, 5),
            ask_for: span(settings.probe_for, 60 * 60),
        }))
    }
}

fn on_unknown(choice: Option<UnknownChoice>) -> OnUnknown {
    match choice.unwrap_or(UnknownChoice::Park) {
        UnknownChoice::Park => OnUnknown::Park,
        UnknownChoice::Rerun => OnUnknown::Rerun,
        UnknownChoice::Probe => OnUnknown::Probe,
    }
}

fn statuses(settings: &Settings) -> Result<Statuses, String> {
    let preset = settings.preset.unwrap_or(Preset::Default);
    if preset == Preset::Stripe {
        return Err("--preset stripe is for callers; a bridge has default and cautious".into());
    }
    let as_of_a_route = config::Settings {
        kept: settings.kept.clone(),
        released: settings.released.clone(),
        unknown: settings.unknown.clone(),
        ..config::Settings::default()
    };
    config::statuses(&as_of_a_route, preset)
}

fn headers(set: Option<List<Forwarded>>) -> Result<Vec<HeaderName>, String> {
    let set = match set {
        Some(set) => set,
        None => "traceparent,tracestate".parse()?,
    };
    Ok(set.0.into_iter().map(|header| header.0).collect())
}

fn id(words: Option<List<IdWord>>) -> Result<Id, String> {
    let words = words.map_or_else(|| vec![IdWord::Field(Field::MessageId)], |list| list.0);
    let mut fields = Vec::new();
    for word in &words {
        match word {
            IdWord::CloudEvents if words.len() == 1 => return Ok(Id::CloudEvents),
            IdWord::CloudEvents => {
                return Err("--id: 'cloudevents' is an id by itself, without other fields".into());
            }
            IdWord::Field(field) => fields.push(field.clone()),
        }
    }
    Ok(if fields.len() == 1 { Id::Field(fields.remove(0)) } else { Id::Fields(fields) })
}

fn missing(choice: Option<MissingChoice>, derive: Option<List<FieldWord>>) -> Result<Missing, String> {
    let fields = derive.map(|list| list.0.into_iter().map(|word| word.0).collect::<Vec<_>>());
    match (choice.unwrap_or(MissingChoice::Reject), fields) {
        (MissingChoice::Derive, Some(fields)) => Ok(Missing::Derive(fields)),
        (MissingChoice::Derive, None) => {
            Err("--missing derive needs --derive, such as json:/order_id".into())
        }
        (_, Some(_)) => Err("--derive counts only with --missing derive".into()),
        (MissingChoice::Reject, None) => Ok(Missing::Reject),
        (MissingChoice::ContentHash, None) => Ok(Missing::ContentHash),
        (MissingChoice::Generate, None) => Ok(Missing::Generate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "broker = \"amqp://u:secret@127.0.0.1/%2f\"\nqueue = \"orders\"\ntarget = \"http://127.0.0.1:9000/orders\"\n";

    fn config(more: &str) -> Result<Config, String> {
        Config::of(toml::from_str(&format!("{LEAST}{more}")).map_err(|error| error.message().to_owned())?)
    }

    #[test]
    fn three_lines_are_enough_and_the_rest_has_defaults() {
        let config = config("").unwrap();
        assert_eq!((config.name.as_str(), config.place.dead_letters.as_str()), ("orders", "orders.dead"));
        assert_eq!((config.on_unknown, config.declare), (OnUnknown::Park, Declare::No));
        assert!(!format!("{config:?}").contains("secret"));
        assert!(config.source().is_ok());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (more, part) in [
            ("missing = \"derive\"", "--derive"),
            ("derive = \"json:/id\"", "--missing derive"),
            ("id = [\"cloudevents\", \"message-id\"]", "by itself"),
            ("on_unknown = \"probe\"", "--probe"),
            ("probe = \"/orders/{key}\"", "--on-unknown probe"),
            ("preset = \"stripe\"", "cautious"),
            ("timeout = \"0s\"", "--timeout"),
            ("released = [404]\nunknown = [404]", "404"),
            ("admin = \"0.0.0.0:1\"", "--admin-token-file"),
            ("headers = [\"host\"]", "bridge's own"),
        ] {
            let error = config(more).map(drop).unwrap_err();
            assert!(error.contains(part), "{more}: {error}");
        }
    }

    #[test]
    fn ids_are_one_field_several_together_or_cloudevents() {
        let id = |more| config(more).unwrap().id;
        assert_eq!(id("id = \"json:/id\""), Id::Field(Field::Json("/id".into())));
        assert_eq!(
            id("id = [\"producer\", \"header:n\"]"),
            Id::Fields(vec![Field::Producer, Field::Header("n".into())])
        );
        assert_eq!(id("id = \"cloudevents\""), Id::CloudEvents);
    }
}

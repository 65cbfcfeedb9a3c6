//! What holds for the requests of one route, or for those of none.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use semel::{OnUnknown, Policy};
use semel_http::{IDEMPOTENCY_KEY, Pattern, Statuses};

use super::words::{KeyPolicy, KeySyntax, List, Preset, Sameness, Status, UnknownChoice};
use super::{Settings, Span};
use crate::values::Upstream;

/// Settings of a route that fit together.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each is described at its field in `Settings`")]
pub struct Contract {
    pub upstream: Upstream,
    pub methods: Vec<Method>,
    pub key: KeyPolicy,
    pub key_syntax: KeySyntax,
    pub key_names: Vec<HeaderName>,
    pub fingerprint: Vec<Sameness>,
    pub preset: Preset,
    pub statuses: Statuses,
    pub in_flight_status: StatusCode,
    pub mismatch_status: StatusCode,
    pub policy: Arc<Policy>,
    pub upstream_timeout: Duration,
    pub body_bytes_max: usize,
    pub kept_bytes_max: usize,
}

impl Contract {
    /// What the settings of a route, merged with those of everything else, come to.
    ///
    /// # Errors
    ///
    /// One line that says what does not fit.
    pub(super) fn of(settings: &Settings, _pattern: Option<&Pattern>) -> Result<Contract, String> {
        let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
        let status = |set: Option<Status>, default: StatusCode| set.map_or(default, |status| status.0);
        let upstream_timeout = span(settings.upstream_timeout, Duration::from_secs(30));
        let preset = settings.preset.unwrap_or(Preset::Default);
        Ok(Contract {
            upstream: settings
                .upstream
                .clone()
                .ok_or("--upstream is missing: the service behind the gateway, http://HOST:PORT")?,
            methods: methods(settings.methods.as_ref()),
            key: settings.key.unwrap_or(KeyPolicy::Optional),
            key_syntax: settings.key_syntax.unwrap_or(KeySyntax::Lenient),
            key_names: key_names(settings),
            fingerprint: settings.fingerprint.clone().map_or_else(|| vec![Sameness::Exact], |list| list.0),
            preset,
            statuses: statuses(settings, preset)?,
            in_flight_status: status(settings.in_flight_status, StatusCode::CONFLICT),
            mismatch_status: status(
                settings.mismatch_status,
                match preset {
                    Preset::Stripe => StatusCode::BAD_REQUEST,
                    Preset::Default | Preset::Cautious => StatusCode::UNPROCESSABLE_ENTITY,
                },
            ),
            policy: Arc::new(policy(settings, upstream_timeout)?),
            upstream_timeout,
            body_bytes_max: settings.body_bytes_max.map_or(1 << 20, |size| size.0),
            kept_bytes_max: settings.kept_bytes_max.map_or(1 << 20, |size| size.0),
        })
    }
}

fn policy(settings: &Settings, upstream_timeout: Duration) -> Result<Policy, String> {
    let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
    let on_unknown = match settings.on_unknown.unwrap_or(UnknownChoice::Park) {
        UnknownChoice::Park => OnUnknown::Park,
        UnknownChoice::Rerun => OnUnknown::Rerun,
        UnknownChoice::Probe => {
            return Err("--on-unknown probe is not in this version yet; use park or rerun".into());
        }
    };
    let defaults = Policy::new(on_unknown);
    let policy = Policy {
        lease_for: span(settings.lease, defaults.lease_for),
        answer_within: Some(upstream_timeout),
        late_answer_for: span(settings.late_answer_for, defaults.late_answer_for),
        replay_for: span(settings.replay_for, defaults.replay_for),
        remember_for: span(settings.remember_for, defaults.remember_for),
        attempts_max: settings.attempts_max.unwrap_or(defaults.attempts_max),
        ..defaults
    };
    policy.check().map_err(|error| error.to_string())?;
    Ok(policy)
}

fn methods(set: Option<&List<super::Guardable>>) -> Vec<Method> {
    match set {
        Some(list) => list.0.iter().map(|method| method.0.clone()).collect(),
        None => vec![Method::POST, Method::PATCH],
    }
}

fn key_names(settings: &Settings) -> Vec<HeaderName> {
    let aliases = settings.key_aliases.iter().flat_map(|list| &list.0).map(|header| header.0.clone());
    std::iter::once(IDEMPOTENCY_KEY).chain(aliases.filter(|name| *name != IDEMPOTENCY_KEY)).collect()
}

/// The preset's lists, and what was said beside them: a status that is named leaves the list that it was in.
fn statuses(settings: &Settings, preset: Preset) -> Result<Statuses, String> {
    let mut statuses = match preset {
        Preset::Default => Statuses::default(),
        Preset::Cautious => Statuses::cautious(),
        Preset::Stripe => Statuses { kept: vec![StatusCode::INTERNAL_SERVER_ERROR], ..Statuses::cautious() },
    };
    let said = |list: &Option<List<Status>>| -> Vec<StatusCode> {
        list.iter().flat_map(|list| &list.0).map(|status| status.0).collect()
    };
    let (kept, released, unknown) = (said(&settings.kept), said(&settings.released), said(&settings.unknown));
    let all = || kept.iter().chain(&released).chain(&unknown);
    if let Some(twice) = all().find(|status| all().filter(|other| other == status).count() > 1) {
        return Err(format!("the status {twice} stands twice among kept, released and unknown"));
    }
    for list in [&mut statuses.kept, &mut statuses.released, &mut statuses.unknown] {
        list.retain(|status| !all().any(|said| said == status));
    }
    statuses.kept.extend(&kept);
    statuses.released.extend(&released);
    statuses.unknown.extend(&unknown);
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(text: &str) -> Result<Contract, String> {
        let text = format!("upstream = \"http://127.0.0.1:9000\"\n{text}");
        Contract::of(&toml::from_str(&text).unwrap(), None)
    }

    #[test]
    fn a_status_that_is_named_leaves_the_presets_list() {
        let statuses = contract("kept = [409]\nreleased = [404]\nunknown = [500]").unwrap().statuses;
        assert!(statuses.kept.contains(&StatusCode::CONFLICT));
        assert!(!statuses.released.contains(&StatusCode::CONFLICT));
        assert!(statuses.released.contains(&StatusCode::NOT_FOUND));
        assert!(statuses.unknown.contains(&StatusCode::INTERNAL_SERVER_ERROR));
        assert!(!statuses.released.contains(&StatusCode::INTERNAL_SERVER_ERROR));
        assert!(statuses.unknown.contains(&StatusCode::BAD_GATEWAY));
        assert!(contract("kept = [409]\nunknown = [409]").unwrap_err().contains("409 Conflict stands twice"));
    }

    #[test]
    fn h11_the_stripe_preset_keeps_a_500_and_refuses_a_reused_key_with_400() {
        let stripe = contract("preset = \"stripe\"").unwrap();
        assert_eq!(stripe.statuses.kept, [StatusCode::INTERNAL_SERVER_ERROR]);
        assert_eq!(stripe.mismatch_status, StatusCode::BAD_REQUEST);
        assert_eq!(contract("preset = \"stripe\"\nmismatch_status = 422").unwrap().mismatch_status, 422);
    }

    #[test]
    fn h1_the_key_header_comes_first_and_once() {
        let names = contract("key_aliases = [\"X-Idempotency-Key\", \"idempotency-key\"]").unwrap().key_names;
        assert_eq!(names, ["idempotency-key", "x-idempotency-key"]);
    }
}

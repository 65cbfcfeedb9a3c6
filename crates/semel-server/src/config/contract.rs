//! What holds for the requests of one route, or for those of none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use semel::{OnUnknown, Policy};
use semel_http::{Field, IDEMPOTENCY_KEY, Keeping, Pattern, Pointer, Statuses};

use super::principals::{Callers, Location};
use super::probe::{self, ProbeConfig};
use super::words::{KeyPolicy, KeySyntax, List, Preset, Sameness, Status, StoreDown, UnknownChoice};
use super::{Settings, Span};
use crate::values::{HttpVersion, Upstream};

/// Settings of a route that fit together.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each is described at its field in `Settings`")]
pub struct Contract {
    pub upstream: Upstream,
    pub upstream_http: HttpVersion,
    pub upstream_ca: Option<PathBuf>,
    pub callers: Callers,
    pub auth_check: Option<Location>,
    pub methods: Vec<Method>,
    pub key: KeyPolicy,
    pub derive: Vec<Field>,
    pub key_syntax: KeySyntax,
    pub key_names: Vec<HeaderName>,
    pub key_field: Option<Field>,
    pub ulid: bool,
    pub fingerprint: Vec<Sameness>,
    pub ignore: Vec<Pointer>,
    pub redact: Vec<Pointer>,
    pub keep_no_body: bool,
    pub wait_max: Duration,
    pub store_down: StoreDown,
    pub observe: bool,
    pub critical: bool,
    pub preset: Preset,
    pub statuses: Statuses,
    pub in_flight_status: StatusCode,
    pub mismatch_status: StatusCode,
    pub probe: Option<ProbeConfig>,
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
    pub(super) fn of(settings: &Settings, pattern: Option<&Pattern>) -> Result<Contract, String> {
        let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
        let status = |set: Option<Status>, default: StatusCode| set.map_or(default, |status| status.0);
        let upstream_timeout = span(settings.upstream_timeout, Duration::from_secs(30));
        let preset = settings.preset.unwrap_or(Preset::Default);
        let contract = Contract {
            upstream: settings
                .upstream
                .clone()
                .ok_or("--upstream is missing: the service behind the gateway, http://HOST:PORT")?,
            upstream_http: settings.upstream_http.unwrap_or_default(),
            upstream_ca: settings.upstream_ca.clone(),
            callers: Callers::of(settings)?,
            auth_check: settings.auth_check.clone(),
            methods: methods(settings.methods.as_ref()),
            key: settings.key.unwrap_or(KeyPolicy::Optional),
            derive: settings.derive.clone().map(|list| list.0).unwrap_or_default(),
            key_syntax: settings.key_syntax.unwrap_or(KeySyntax::Lenient),
            key_field: settings.key_field.clone().map(|field| field.0),
            ulid: settings.ulid.unwrap_or(false),
            ignore: settings.ignore.clone().map(|list| list.0).unwrap_or_default(),
            redact: settings.redact.clone().map(|list| list.0).unwrap_or_default(),
            keep_no_body: settings.keep_no_body.unwrap_or(false),
            wait_max: span(settings.wait_max, Duration::ZERO),
            store_down: settings.store_down.unwrap_or(StoreDown::Refuse),
            observe: settings.observe.unwrap_or(false),
            critical: settings.critical.unwrap_or(false),
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
            probe: ProbeConfig::of(settings, pattern)?,
            policy: Arc::new(policy(settings, upstream_timeout)?),
            upstream_timeout,
            body_bytes_max: settings.body_bytes_max.map_or(1 << 20, |size| size.0),
            kept_bytes_max: settings.kept_bytes_max.map_or(1 << 20, |size| size.0),
        };
        contract.check()?;
        Ok(contract)
    }

    /// What is kept of an answer.
    pub fn keeping(&self) -> Keeping {
        match &self.redact[..] {
            _ if self.keep_no_body => Keeping::Head,
            [] => Keeping::Whole,
            pointers => Keeping::Without(pointers.to_vec()),
        }
    }

    /// The same, with the service that is asked by the route's probe. `None` without a probe.
    pub fn of_probe(&self) -> Option<Contract> {
        let probe = self.probe.as_ref()?;
        let upstream = probe.template.upstream.clone().unwrap_or_else(|| self.upstream.clone());
        Some(Contract { upstream, ..self.clone() })
    }

    /// What the route asks of the store, which is known once it is open.
    ///
    /// # Errors
    ///
    /// One line that says what does not fit.
    pub fn check_store(&self, lossy: bool) -> Result<(), String> {
        if self.critical && lossy {
            return Err("a critical route needs a store that loses nothing that it has acknowledged, and this one may: \
                 --store with sqlite://, postgres:// or mysql://"
                .into());
        }
        Ok(())
    }

    /// What the single settings cannot say of one another.
    fn check(&self) -> Result<(), String> {
        if self.key == KeyPolicy::Derive && self.derive.is_empty() {
            return Err("--key derive needs --derive, such as json:/order_id".into());
        }
        if self.key != KeyPolicy::Derive && !self.derive.is_empty() {
            return Err("--derive counts only with --key derive".into());
        }
        if self.keep_no_body && !self.redact.is_empty() {
            return Err(
                "--redact and --keep-no-body: of a body that is not kept there is nothing to redact".into()
            );
        }
        if self.critical {
            self.check_critical()?;
        }
        Ok(())
    }

    fn check_critical(&self) -> Result<(), String> {
        let refused = |what: &str| Err(format!("a critical route {what}"));
        if self.policy.on_unknown == OnUnknown::Rerun {
            return refused("cannot run again what is unknown: --on-unknown park or probe");
        }
        if self.store_down == StoreDown::Bypass {
            return refused("cannot let requests by while the store is away: --store-down refuse");
        }
        if self.observe {
            return refused("is guarded, not observed");
        }
        if matches!(self.key, KeyPolicy::Optional | KeyPolicy::Generate | KeyPolicy::Natural) {
            return refused("needs a key with every request: --key required or derive");
        }
        if self.auth_check.is_none() {
            return refused("gives replays only to whoever is still allowed: --auth-check URL");
        }
        Ok(())
    }
}

fn policy(settings: &Settings, upstream_timeout: Duration) -> Result<Policy, String> {
    let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
    let on_unknown = match settings.on_unknown.unwrap_or(UnknownChoice::Park) {
        UnknownChoice::Park => OnUnknown::Park,
        UnknownChoice::Rerun => OnUnknown::Rerun,
        UnknownChoice::Probe => OnUnknown::Probe,
    };
    let defaults = Policy::new(on_unknown);
    let (probe_after, probe_within) = probe::times(settings);
    let policy = Policy {
        probe_after: probe_after.unwrap_or(defaults.probe_after),
        probe_within: probe_within.unwrap_or(defaults.probe_within),
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

pub(super) fn methods(set: Option<&List<super::Guardable>>) -> Vec<Method> {
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
///
/// # Errors
///
/// One that stands in two lists.
pub fn statuses(settings: &Settings, preset: Preset) -> Result<Statuses, String> {
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

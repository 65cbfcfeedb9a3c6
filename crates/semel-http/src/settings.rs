//! What holds for the guarded requests of one service.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use semel::observe::Meters;
use semel::{Clock, Entropy, Key, KeyError, Policy, PolicyError, Probe, SystemClock};
use tokio::sync::Semaphore;

use crate::auth_check::AuthCheck;
use crate::body::BodyLimits;
use crate::field::Field;
use crate::fingerprint::{Comparison, ComparisonError};
use crate::json::Pointer;
use crate::jwt::Verifier;
use crate::key::{IDEMPOTENCY_KEY, Syntax};
use crate::name::KeySecret;
use crate::observe;
use crate::principal::{Principal, PrincipalError};
use crate::redact::Keeping;
use crate::request;
use crate::routes::Pattern;
use crate::scope::{Scopes, TrustedProxies};
use crate::verdict::Statuses;
use crate::weak::Weak;

/// What happens to a request of a guarded method without a key (H4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// It passes by, unguarded and counted.
    #[default]
    Optional,
    /// It is refused.
    Required,
    /// It gets a key that is made of these fields; one that is missing is refused. At least one.
    Derive(Vec<Field>),
    /// It gets a random key, so that it is on record. A retry gets another one.
    Generate,
    /// Every request passes by, with a key or without: repeating it changes nothing, by its nature.
    Natural,
}

/// The name of the route that a request belongs to, in the request's extensions, guarded or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteName(pub Arc<str>);

/// The name of what matches no route, and of a route without a name, in metrics.
const OTHERWISE: &str = "otherwise";

/// What can be chosen. Start from [`Options::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The route's name, if it has one: in the [`RouteName`] of its requests, and a label of its metrics, where one
    /// without is `otherwise`.
    pub name: Option<Arc<str>>,
    /// Which surface this is, a label of its metrics. `layer`.
    pub surface: &'static str,
    /// Which host the route is for, without a port. Every host.
    pub host: Option<String>,
    /// Which paths the route is for. Every path.
    pub pattern: Pattern,
    /// The service's name, part of every scope: two services may share a store. `default`.
    pub service: String,
    /// Who a caller may be: the first of them that a request has is part of its scope (H5). `Authorization`.
    pub principals: Vec<Principal>,
    /// Whether a request that has none of them is refused, instead of being `anonymous`. No.
    pub principal_required: bool,
    /// Whose [`Principal::Header`] is believed. Nobody's.
    pub trusted_proxies: TrustedProxies,
    /// Who verifies the tokens of [`Principal::Jwt`]. Nobody.
    pub jwt: Option<Verifier>,
    /// Who is asked before a key is looked up, so that a replay is given only to whoever is still allowed (H7).
    /// Nobody: the layer sits inside of what authenticates and authorises.
    pub auth_check: Option<Arc<dyn AuthCheck>>,
    /// What happens without a key. [`KeyPolicy::Optional`].
    pub key: KeyPolicy,
    /// The headers that carry the key; the aliases too. `Idempotency-Key`.
    pub key_names: Vec<HeaderName>,
    /// Where the key may stand in the body: a JSON, form or XML field (H1). Nowhere.
    pub key_field: Option<Field>,
    /// Whether keys of the shape of a ULID are ULIDs, whose time counts as that of a UUIDv7 does (H15). No.
    pub ulid: bool,
    /// Stores keys as HMACs of it. `None`: in clear.
    pub key_secret: Option<KeySecret>,
    /// How two requests are compared (H6). Byte for byte.
    pub comparison: Comparison,
    /// The longest wait for another attempt that a request may ask for by `Prefer: wait` (H8). Zero: none.
    pub wait_max: Duration,
    /// Whom to ask about what is unknown, where the policy says [`OnUnknown::Probe`](semel::OnUnknown::Probe).
    pub probe: Option<Arc<dyn Probe>>,
    /// Whether requests pass by unguarded while the store is away, marked `Semel-Guarded: false` and counted (H9). No.
    pub bypass: bool,
    /// Whether requests pass by, and what would have been is counted (H18). No.
    pub observe: bool,
    /// What of an answer's body is kept. All of it.
    pub keeping: Keeping,
    /// How a key may be written. [`Syntax::Lenient`].
    pub key_syntax: Syntax,
    /// The guarded methods. POST and PATCH.
    pub methods: Vec<Method>,
    /// Which answers are kept, released and unknown.
    pub statuses: Statuses,
    /// The bounds of a request's body.
    pub body: BodyLimits,
    /// The longest answer that is kept for replays, in bytes of its body. 1 MiB.
    pub kept_bytes_max: usize,
    /// The status of `in-flight`: 409, or 425.
    pub in_flight_status: StatusCode,
    /// The status of `key-reused`: 422, 400 or 409.
    pub mismatch_status: StatusCode,
    /// Where the policy is published: a URI reference. `/.well-known/semel-policy`.
    pub policy_link: String,
    /// Leases, retention, and what happens to what is unknown.
    pub policy: Arc<Policy>,
    /// By what the age of a key is judged (H15). The machine's clock.
    pub clock: Arc<dyn Clock>,
}

/// Options that fit together, made ready for requests.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) options: Options,
    pub(crate) scopes: Scopes,
    pub(crate) describedby: HeaderValue,
    pub(crate) weak: Arc<Weak>,
    pub(crate) entropy: Entropy,
    /// Places for requests that are watched at once.
    pub(crate) watched: Arc<Semaphore>,
    pub(crate) meters: Arc<Meters>,
}

/// Why options do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The service's name makes no scope.
    #[error("the service's name makes no scope: {0}")]
    Service(KeyError),
    /// Nobody could call.
    #[error("no principal is named")]
    NoPrincipals,
    /// Something in the list is no principal.
    #[error(transparent)]
    Principal(#[from] PrincipalError),
    /// The second one would never be asked.
    #[error("the principal {0} is named twice")]
    PrincipalTwice(Principal),
    /// The header would never be believed.
    #[error("the principal header:{0} counts only from trusted proxies, and none is named")]
    NoTrustedProxies(HeaderName),
    /// The token would never be believed.
    #[error("the principal {0} needs a verifier of tokens, and there is none")]
    NoVerifier(Principal),
    /// No header carries the key.
    #[error("no header is named that carries the key")]
    NoKeyNames,
    /// A header that means something else cannot carry the key.
    #[error("the header {0} cannot carry the key")]
    KeyName(HeaderName),
    /// The key can stand in a JSON, form or XML field of the body; headers are [`Options::key_names`].
    #[error("the key cannot stand in {0}: only in a json:, form: or xml: field")]
    KeyField(Field),
    /// Every request without a key would have the same one.
    #[error("a derived key needs at least one field")]
    NoFields,
    /// The path has no such variable.
    #[error("the route's pattern has no variable for the field {0}")]
    NoVariable(Field),
    /// A comparison that compares nothing.
    #[error(transparent)]
    Comparison(#[from] ComparisonError),
    /// All of the answer would be redacted.
    #[error("redacting the empty JSON pointer leaves nothing: keep the head alone")]
    RedactsAll,
    /// What is asked about needs its key.
    #[error("keys that are stored as HMACs cannot be asked about: a probe needs them in clear")]
    ProbeWithoutKeys,
    /// Nothing would be guarded.
    #[error("no method is guarded")]
    NoMethods,
    /// A status cannot be judged in two ways.
    #[error("the status {0} stands in two lists")]
    StatusTwice(StatusCode),
    /// A status that `in-flight` cannot have.
    #[error("in-flight can be 409 or 425, not {0}")]
    InFlightStatus(StatusCode),
    /// A status that `key-reused` cannot have.
    #[error("a mismatch can be 422, 400 or 409, not {0}")]
    MismatchStatus(StatusCode),
    /// The link cannot stand in a header.
    #[error("the policy's link is no URI reference")]
    PolicyLink,
    /// The times do not fit together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Options {
    /// The defaults, under a policy.
    #[must_use]
    pub fn new(policy: impl Into<Arc<Policy>>) -> Options {
        Options {
            name: None,
            surface: "layer",
            host: None,
            pattern: Pattern::any(),
            service: "default".to_owned(),
            principals: vec![Principal::Authorization],
            principal_required: false,
            trusted_proxies: TrustedProxies::default(),
            jwt: None,
            auth_check: None,
            key: KeyPolicy::Optional,
            key_names: vec![IDEMPOTENCY_KEY],
            key_field: None,
            ulid: false,
            key_secret: None,
            comparison: Comparison::default(),
            wait_max: Duration::ZERO,
            probe: None,
            bypass: false,
            observe: false,
            keeping: Keeping::Whole,
            key_syntax: Syntax::Lenient,
            methods: vec![Method::POST, Method::PATCH],
            statuses: Statuses::default(),
            body: BodyLimits::default(),
            kept_bytes_max: 1024 * 1024,
            in_flight_status: StatusCode::CONFLICT,
            mismatch_status: StatusCode::UNPROCESSABLE_ENTITY,
            policy_link: "/.well-known/semel-policy".to_owned(),
            policy: policy.into(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Settings {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first thing that does not fit.
    pub fn new(options: Options) -> Result<Settings, SettingsError> {
        options.policy.check()?;
        check_names(&options.key_names)?;
        check_key(&options)?;
        options.comparison.check()?;
        if matches!(&options.keeping, Keeping::Without(pointers) if pointers.iter().any(Pointer::is_whole)) {
            return Err(SettingsError::RedactsAll);
        }
        if options.key_secret.is_some() && options.probe.is_some() {
            return Err(SettingsError::ProbeWithoutKeys);
        }
        check_principals(&options)?;
        check_statuses(&options)?;
        if options.methods.is_empty() {
            return Err(SettingsError::NoMethods);
        }
        let scopes = Scopes::new(&options).map_err(SettingsError::Service)?;
        let describedby = describedby(&options.policy_link)?;
        // What is only watched is nobody's claim.
        let surface = if options.observe { "observe" } else { options.surface };
        let meters = Meters::new(surface, route(&options)).letting_by(options.bypass && !options.observe);
        Ok(Settings {
            options,
            scopes,
            describedby,
            weak: Arc::default(),
            entropy: Entropy::system(),
            watched: Arc::new(Semaphore::new(observe::WATCHED_MAX)),
            meters: Arc::new(meters),
        })
    }

    /// What was chosen, the defaults included: for whoever publishes the policy.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether the contract applies to a request with this head (H3). With a key policy that lets it, one without a
    /// key still passes by.
    #[must_use]
    pub fn guards(&self, parts: &Parts) -> bool {
        self.options.key != KeyPolicy::Natural && request::is_guarded(&self.options.methods, parts)
    }

    /// The label of the route's metrics.
    pub(crate) fn route(&self) -> Arc<str> {
        route(&self.options)
    }

    /// What stands in the store for a key.
    pub(crate) fn stored(&self, key: &Key) -> Key {
        match &self.options.key_secret {
            Some(secret) => secret.stored(key),
            None => key.clone(),
        }
    }
}

fn route(options: &Options) -> Arc<str> {
    options.name.clone().unwrap_or_else(|| OTHERWISE.into())
}

fn check_names(names: &[HeaderName]) -> Result<(), SettingsError> {
    if names.is_empty() {
        return Err(SettingsError::NoKeyNames);
    }
    let unfit = |name: &&HeaderName| {
        // Twice the same name would make one line look like two.
        let twice = names.iter().filter(|other| other == name).count() > 1;
        let ours = name.as_str().starts_with("semel-");
        twice || ours || [http::header::AUTHORIZATION, http::header::HOST].contains(name)
    };
    names.iter().find(unfit).map_or(Ok(()), |name| Err(SettingsError::KeyName(name.clone())))
}

fn check_principals(options: &Options) -> Result<(), SettingsError> {
    if options.principals.is_empty() {
        return Err(SettingsError::NoPrincipals);
    }
    for (at, principal) in options.principals.iter().enumerate() {
        principal.check()?;
        if options.principals[..at].contains(principal) {
            return Err(SettingsError::PrincipalTwice(principal.clone()));
        }
        match principal {
            Principal::Header(name) if options.key_names.contains(name) => {
                return Err(PrincipalError::Unfit(name.clone()).into());
            }
            Principal::Header(name) if options.trusted_proxies.is_empty() => {
                return Err(SettingsError::NoTrustedProxies(name.clone()));
            }
            Principal::Jwt { .. } if options.jwt.is_none() => {
                return Err(SettingsError::NoVerifier(principal.clone()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_key(options: &Options) -> Result<(), SettingsError> {
    if let Some(field) = options.key_field.as_ref().filter(|field| !field.is_in_body()) {
        return Err(SettingsError::KeyField(field.clone()));
    }
    let KeyPolicy::Derive(fields) = &options.key else { return Ok(()) };
    let unknown = |field: &&Field| match field {
        Field::Path(name) => !options.pattern.names().any(|other| other == name),
        _ => false,
    };
    match fields.iter().find(unknown) {
        Some(field) => Err(SettingsError::NoVariable(field.clone())),
        None if fields.is_empty() => Err(SettingsError::NoFields),
        None => Ok(()),
    }
}

fn check_statuses(options: &Options) -> Result<(), SettingsError> {
    const IN_FLIGHT: [StatusCode; 2] = [StatusCode::CONFLICT, StatusCode::TOO_EARLY];
    const MISMATCH: [StatusCode; 3] =
        [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_REQUEST, StatusCode::CONFLICT];
    if let Some(status) = options.statuses.twice() {
        return Err(SettingsError::StatusTwice(status));
    }
    if !IN_FLIGHT.contains(&options.in_flight_status) {
        return Err(SettingsError::InFlightStatus(options.in_flight_status));
    }
    if !MISMATCH.contains(&options.mismatch_status) {
        return Err(SettingsError::MismatchStatus(options.mismatch_status));
    }
    Ok(())
}

/// The whole `Link` value (RFC 8288). The target stands between angle brackets, so it holds none, and no space.
fn describedby(link: &str) -> Result<HeaderValue, SettingsError> {
    if link.is_empty() || !link.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte)) {
        return Err(SettingsError::PolicyLink);
    }
    let value = ["<", link, ">; rel=\"describedby\""].concat();
    HeaderValue::from_str(&value).map_err(|_| SettingsError::PolicyLink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::OnUnknown;

    fn refused(change: impl FnOnce(&mut Options)) -> SettingsError {
        let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
        change(&mut options);
        Settings::new(options).unwrap_err()
    }

    #[test]
    fn the_defaults_fit_together() {
        let settings = Settings::new(Options::new(Arc::new(Policy::new(OnUnknown::Park)))).unwrap();
        assert_eq!(settings.describedby, "</.well-known/semel-policy>; rel=\"describedby\"");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let authorization = http::header::AUTHORIZATION;
        assert_eq!(refused(|o| o.service.clear()), SettingsError::Service(KeyError::Empty));
        assert_eq!(refused(|o| o.principals.clear()), SettingsError::NoPrincipals);
        assert_eq!(
            refused(|o| o.principals.push(Principal::Authorization)),
            SettingsError::PrincipalTwice(Principal::Authorization)
        );
        let account = HeaderName::from_static("x-account-id");
        assert_eq!(
            refused(|o| o.principals.push(Principal::Header(account.clone()))),
            SettingsError::NoTrustedProxies(account)
        );
        let subject: Principal = "jwt:sub".parse().unwrap();
        assert_eq!(refused(|o| o.principals = vec![subject.clone()]), SettingsError::NoVerifier(subject));
        let host = Principal::Header(http::header::HOST);
        assert_eq!(
            refused(|o| o.principals.push(host)),
            SettingsError::Principal(PrincipalError::Unfit(http::header::HOST))
        );
        assert_eq!(refused(|o| o.key_names.clear()), SettingsError::NoKeyNames);
        assert_eq!(refused(|o| o.key_names.push(IDEMPOTENCY_KEY)), SettingsError::KeyName(IDEMPOTENCY_KEY));
        assert_eq!(
            refused(|o| o.key_names.push(authorization.clone())),
            SettingsError::KeyName(authorization)
        );
        assert_eq!(refused(|o| o.methods.clear()), SettingsError::NoMethods);
        assert_eq!(
            refused(|o| o.statuses.kept.push(StatusCode::BAD_GATEWAY)),
            SettingsError::StatusTwice(StatusCode::BAD_GATEWAY)
        );
        assert_eq!(
            refused(|o| o.in_flight_status = StatusCode::OK),
            SettingsError::InFlightStatus(StatusCode::OK)
        );
        assert_eq!(
            refused(|o| o.mismatch_status = StatusCode::OK),
            SettingsError::MismatchStatus(StatusCode::OK)
        );
        assert_eq!(refused(|o| o.policy_link = "a>b".to_owned()), SettingsError::PolicyLink);
        assert_eq!(refused(|o| o.policy_link.clear()), SettingsError::PolicyLink);
        let hasty = Policy { attempts_max: 0, ..Policy::new(OnUnknown::Park) };
        assert_eq!(refused(|o| o.policy = Arc::new(hasty)), SettingsError::Policy(PolicyError::NoAttempts));
    }
}

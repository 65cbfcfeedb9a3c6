//! From the configuration to the contract that [`semel_http`] keeps: one [`Options`] for each route.

use std::sync::Arc;

use semel_http::{AuthCheck, Comparison, Options, Routes, Settings};

use super::auth_check::Asked;
use super::page::POLICY_PATH;
use super::place::Place;
use super::probe::Questions;
use crate::config::{Config, Contract, KeyPolicy, KeySyntax, RouteConfig, Sameness, StoreDown};

/// The routes, in the order of the file. Without their questions they are checked, and no more.
///
/// # Errors
///
/// One line that says what does not fit, and in which route.
pub fn routes(config: &Config, questions: &Questions) -> Result<Routes, String> {
    let otherwise = settings(config, questions, &config.otherwise, None)?;
    let routes = config.routes.iter().map(|route| {
        let named = |error| format!("route {}: {error}", route.pattern);
        settings(config, questions, &route.contract, Some(route)).map_err(named)
    });
    Ok(Routes::new(routes.collect::<Result<_, String>>()?, otherwise))
}

/// What the routes ask of the store, once it is open.
///
/// # Errors
///
/// One line that says what does not fit, and in which route.
pub fn check_store(config: &Config, lossy: bool) -> Result<(), String> {
    config.otherwise.check_store(lossy)?;
    config.routes.iter().try_for_each(|route| {
        route.contract.check_store(lossy).map_err(|error| format!("route {}: {error}", route.pattern))
    })
}

fn settings(
    config: &Config,
    questions: &Questions,
    contract: &Contract,
    route: Option<&RouteConfig>,
) -> Result<Arc<Settings>, String> {
    let mut options = Options::new(contract.policy.clone());
    options.name = route.map(RouteConfig::name);
    options.surface = "gateway";
    if let Some(route) = route {
        options.pattern = route.pattern.clone();
        options.host.clone_from(&route.host);
    }
    options.service.clone_from(&config.service);
    options.principals.clone_from(&contract.callers.principals);
    options.principal_required = contract.callers.required;
    options.trusted_proxies = config.trusted_proxies.clone();
    options.jwt = config.tokens.as_ref().map(|tokens| tokens.verifier.clone());
    options.auth_check = auth_check(config, contract)?;
    options.key = match contract.key {
        KeyPolicy::Optional => semel_http::KeyPolicy::Optional,
        KeyPolicy::Required => semel_http::KeyPolicy::Required,
        KeyPolicy::Derive => semel_http::KeyPolicy::Derive(contract.derive.clone()),
        KeyPolicy::Generate => semel_http::KeyPolicy::Generate,
        KeyPolicy::Natural => semel_http::KeyPolicy::Natural,
    };
    options.key_syntax = match contract.key_syntax {
        KeySyntax::Lenient => semel_http::Syntax::Lenient,
        KeySyntax::Strict => semel_http::Syntax::Strict,
    };
    options.methods.clone_from(&contract.methods);
    options.key_names.clone_from(&contract.key_names);
    options.key_field.clone_from(&contract.key_field);
    options.ulid = contract.ulid;
    options.key_secret.clone_from(&config.key_secret);
    options.comparison = Comparison {
        json: contract.fingerprint.contains(&Sameness::Json),
        multipart: contract.fingerprint.contains(&Sameness::Multipart),
        ignore: contract.ignore.clone(),
    };
    options.keeping = contract.keeping();
    options.probe = questions.of(options.host.as_deref(), &options.pattern, contract);
    options.wait_max = contract.wait_max;
    options.bypass = contract.store_down == StoreDown::Bypass;
    options.observe = contract.observe;
    options.statuses = contract.statuses.clone();
    options.in_flight_status = contract.in_flight_status;
    options.mismatch_status = contract.mismatch_status;
    options.body.bytes_max = contract.body_bytes_max;
    options.kept_bytes_max = contract.kept_bytes_max;
    options.policy_link = POLICY_PATH.to_owned();
    Settings::new(options).map(Arc::new).map_err(|error| error.to_string())
}

/// Whoever is asked before a key is looked up.
fn auth_check(config: &Config, contract: &Contract) -> Result<Option<Arc<dyn AuthCheck>>, String> {
    let Some(location) = &contract.auth_check else { return Ok(None) };
    let place = Place::new(location, contract.upstream_ca.as_deref(), config.upstream_idle);
    let place = place.map_err(|error| format!("--auth-check {error}"))?;
    Ok(Some(Arc::new(Asked::new(place, contract.key_names.clone()))))
}

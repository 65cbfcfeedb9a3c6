//! From the configuration to the contract that [`semel_http`] keeps: one [`Options`] for each route.

use std::sync::Arc;

use semel_http::{Options, Route, Routes, Settings};

use super::statement::POLICY_PATH;
use crate::config::{Config, Contract, KeyPolicy, KeySyntax, RouteConfig};

/// The routes, in the order of the file.
///
/// # Errors
///
/// One line that says what does not fit, and in which route.
pub fn routes(config: &Config) -> Result<Routes, String> {
    let otherwise = settings(config, &config.otherwise, None)?;
    let routes = config.routes.iter().map(|route| {
        let named = |error| format!("route {}: {error}", route.pattern);
        let settings = settings(config, &route.contract, Some(route)).map_err(named)?;
        Ok(Route { pattern: route.pattern.clone(), host: route.host.clone(), settings })
    });
    Ok(Routes::new(routes.collect::<Result<_, String>>()?, otherwise))
}

fn settings(
    config: &Config,
    contract: &Contract,
    route: Option<&RouteConfig>,
) -> Result<Arc<Settings>, String> {
    let mut options = Options::new(contract.policy.clone());
    options.name = route.map(RouteConfig::name);
    options.service.clone_from(&config.service);
    options.key = match contract.key {
        KeyPolicy::Optional => semel_http::KeyPolicy::Optional,
        KeyPolicy::Required => semel_http::KeyPolicy::Required,
        KeyPolicy::Derive | KeyPolicy::Generate | KeyPolicy::Natural => {
            return Err(format!("--key {} is not in this version yet", contract.key));
        }
    };
    options.key_syntax = match contract.key_syntax {
        KeySyntax::Lenient => semel_http::Syntax::Lenient,
        KeySyntax::Strict => semel_http::Syntax::Strict,
    };
    options.methods.clone_from(&contract.methods);
    options.key_names.clone_from(&contract.key_names);
    options.statuses = contract.statuses.clone();
    options.in_flight_status = contract.in_flight_status;
    options.mismatch_status = contract.mismatch_status;
    options.body.bytes_max = contract.body_bytes_max;
    options.kept_bytes_max = contract.kept_bytes_max;
    options.policy_link = POLICY_PATH.to_owned();
    Settings::new(options).map(Arc::new).map_err(|error| error.to_string())
}

//! What settings came to, in the words in which they are written: for `semel check-config`, for the policy page and for
//! `/readyz`.

use std::collections::BTreeMap;
use std::path::Path;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Config, Contract, RouteConfig};
use crate::values::{Size, Span};

/// Settings by their names, as TOML and JSON have them.
pub type Effective = BTreeMap<&'static str, Value>;

impl Contract {
    /// What holds, the defaults included.
    pub fn effective(&self) -> Effective {
        let policy = &self.policy;
        let statuses = |list: &[StatusCode]| {
            let mut codes: Vec<u16> = list.iter().map(StatusCode::as_u16).collect();
            codes.sort_unstable();
            json!(codes)
        };
        let words = |list: &mut dyn Iterator<Item = String>| json!(list.collect::<Vec<_>>());
        let effective = BTreeMap::from([
            ("upstream", json!(self.upstream.to_string())),
            ("upstream_http", json!(self.upstream_http.to_string())),
            ("upstream_ca", json!(self.upstream_ca.as_deref().map(written))),
            ("principal", json!(self.callers.written())),
            ("auth_check", json!(self.auth_check.as_ref().map(ToString::to_string))),
            ("methods", words(&mut self.methods.iter().map(ToString::to_string))),
            ("key", json!(self.key.to_string())),
            ("key_syntax", json!(self.key_syntax.to_string())),
            ("key_aliases", words(&mut self.key_names.iter().skip(1).map(ToString::to_string))),
            ("derive", words(&mut self.derive.iter().map(ToString::to_string))),
            ("key_field", json!(self.key_field.as_ref().map(ToString::to_string))),
            ("ulid", json!(self.ulid)),
            ("ignore", words(&mut self.ignore.iter().map(ToString::to_string))),
            ("redact", words(&mut self.redact.iter().map(ToString::to_string))),
            ("keep_no_body", json!(self.keep_no_body)),
            ("wait_max", json!(Span(self.wait_max).to_string())),
            ("store_down", json!(self.store_down.to_string())),
            ("observe", json!(self.observe)),
            ("critical", json!(self.critical)),
            ("fingerprint", words(&mut self.fingerprint.iter().map(ToString::to_string))),
            ("preset", json!(self.preset.to_string())),
            ("kept", statuses(&self.statuses.kept)),
            ("released", statuses(&self.statuses.released)),
            ("unknown", statuses(&self.statuses.unknown)),
            ("in_flight_status", json!(self.in_flight_status.as_u16())),
            ("mismatch_status", json!(self.mismatch_status.as_u16())),
            ("on_unknown", json!(policy.on_unknown.as_str())),
            ("probe", json!(self.probe.as_ref().map(|probe| probe.template.to_string()))),
            ("probe_keep", statuses(self.probe.as_ref().map_or(&[], |probe| &probe.keep))),
            ("probe_release", statuses(self.probe.as_ref().map_or(&[], |probe| &probe.release))),
            (
                "probe_token_file",
                json!(self.probe.as_ref().and_then(|probe| probe.token_file.as_deref()).map(written)),
            ),
            ("probe_after", json!(Span(policy.probe_after).to_string())),
            ("probe_within", json!(Span(policy.probe_within).to_string())),
            ("attempts_max", json!(policy.attempts_max)),
            ("lease", json!(Span(policy.lease_for).to_string())),
            ("upstream_timeout", json!(Span(self.upstream_timeout).to_string())),
            ("late_answer_for", json!(Span(policy.late_answer_for).to_string())),
            ("replay_for", json!(Span(policy.replay_for).to_string())),
            ("remember_for", json!(Span(policy.remember_for).to_string())),
            ("body_bytes_max", json!(Size(self.body_bytes_max).to_string())),
            ("kept_bytes_max", json!(Size(self.kept_bytes_max).to_string())),
        ]);
        what_is_set(effective)
    }
}

impl Config {
    /// What is one for the whole gateway.
    pub fn effective(&self) -> Effective {
        let origins: Vec<&str> = self.cors_origins.iter().map(|origin| &*origin.0).collect();
        let proxies: Vec<_> = self.trusted_proxies.networks().iter().map(ToString::to_string).collect();
        let mut effective = BTreeMap::from([
            ("listen", json!(self.listen.to_string())),
            ("store", json!(without_password(&self.store))),
            ("admin", json!(self.admin.to_string())),
            ("admin_token_file", json!(self.admin_token_file.as_deref().map(written))),
            ("service", json!(self.service)),
            ("instance", json!(self.instance)),
            ("key_secret_file", json!(self.key_secret_file.as_deref().map(written))),
            ("trusted_proxies", json!(proxies)),
            ("upstream_idle", json!(Span(self.upstream_idle).to_string())),
            ("open_claims_max", json!(self.bounds.open_claims_max)),
            ("new_keys_per_second_max", json!(self.bounds.new_keys_a_second_max)),
            ("drain_for", json!(Span(self.drain_for).to_string())),
            ("workers", json!(self.workers)),
            ("log", json!(self.log.to_string())),
            ("cors_origins", json!(origins)),
            ("cors_credentials", json!(self.cors_credentials)),
            ("no_migrate", json!(self.no_migrate)),
        ]);
        if let Some(tokens) = &self.tokens {
            effective.insert("jwks", json!(tokens.source.to_string()));
            effective.insert("jwt_issuer", json!(tokens.verifier.issuer()));
            effective.insert("jwt_audience", json!(tokens.verifier.audiences()));
        }
        if let Some(tls) = &self.tls {
            effective.insert("tls_cert", json!(written(&tls.certificate)));
            effective.insert("tls_key", json!(written(&tls.key)));
            if let Some(clients) = &tls.clients {
                effective.insert("tls_client_ca", json!(written(&clients.file)));
                effective.insert("tls_client_cert", json!(clients.policy.to_string()));
            }
        }
        what_is_set(effective)
    }
}

impl RouteConfig {
    /// What holds on this route, and which route it is.
    pub fn effective(&self) -> Effective {
        let mut effective = self.contract.effective();
        effective.insert("match", json!(self.pattern.as_str()));
        if let Some(host) = &self.host {
            effective.insert("host", json!(host));
        }
        effective
    }
}

/// Without what is not set and has no default.
fn what_is_set(mut effective: Effective) -> Effective {
    effective.retain(|_, value| !value.is_null());
    effective
}

fn written(path: &Path) -> String {
    path.display().to_string()
}

/// A store's URL as it may be shown.
pub fn without_password(store: &str) -> String {
    match url::Url::parse(store) {
        Ok(mut url) if url.password().is_some() => {
            let _ = url.set_password(Some("***"));
            url.to_string()
        }
        Ok(_) => store.to_owned(),
        // Several hosts, say. What stands before the last @ may hold a password.
        Err(_) => match (store.split_once("://"), store.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://***@{rest}"),
            _ => store.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_hosts_too_the_password_is_not_shown() {
        for (store, shown) in [
            ("sqlite://semel.db", "sqlite://semel.db"),
            ("redis://:secret@one:7000/0", "redis://:***@one:7000/0"),
            (
                "redis+cluster://me:secret@one:7000,two:7001?prefix=a",
                "redis+cluster://***@one:7000,two:7001?prefix=a",
            ),
        ] {
            assert_eq!(without_password(store), shown);
        }
    }

    /// An admin address that others reach is taken only with its token's file.
    #[test]
    fn the_files_of_secrets_are_shown_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "a-secret-of-20-bytes").unwrap();
        let resolved = |text: &str| {
            let text = text.replace("{file}", file.to_str().unwrap());
            crate::config::Settings::parse(&format!("upstream = \"http://h\"\n{text}"))
                .unwrap()
                .resolve()
                .unwrap()
        };
        let open = "admin = \"0.0.0.0:9901\"\nadmin_token_file = \"{file}\"\nkey_secret_file = \"{file}\"";
        let open = resolved(open).effective();
        assert_eq!((&open["admin_token_file"], &open["key_secret_file"]), (&json!(file), &json!(file)));
        let probe = "on_unknown = \"probe\"\nprobe = \"/{key}\"\nprobe_token_file = \"{file}\"";
        assert_eq!(resolved(probe).otherwise.effective()["probe_token_file"], json!(file));
        let none = resolved("");
        assert!(!none.effective().contains_key("key_secret_file"));
        assert!(!none.otherwise.effective().contains_key("probe_token_file"));
    }

    #[test]
    fn a_stores_password_is_not_shown() {
        assert_eq!(without_password("postgres://user:secret@h/x?a=1"), "postgres://user:***@h/x?a=1");
        for text in ["sqlite://semel.db", "memory:", "postgres://user@h/x", "nonsense"] {
            assert_eq!(without_password(text), text);
        }
    }
}

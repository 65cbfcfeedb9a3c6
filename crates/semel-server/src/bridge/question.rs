//! Asking the service whether a message took effect: as the gateway asks about a request (`gateway/probe.rs`), by the same
//! template, statuses and `Semel-Outcome`.

use async_trait::async_trait;
use http::header::{self, HeaderValue};
use semel::{BoxError, Outcome, Probe, Probed, Probing};
use semel_http::SEMEL_FENCE;

use super::config::Config;
use super::service::named;
use crate::config::{Location, ProbeConfig};
use crate::gateway::place::Place;
use crate::gateway::probe::target;

use std::path::PathBuf;
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(1);

/// The question of a bridge.
#[derive(Debug)]
pub struct Question {
    config: ProbeConfig,
    /// The place that is asked, without the path.
    at: Location,
    authority: Option<PathBuf>,
    /// What stands before the source in a record's scope.
    scope: String,
}

impl Question {
    /// # Errors
    ///
    /// One line: the file of authorities cannot be read.
    pub fn new(config: &Config) -> Result<Option<Question>, String> {
        let Some(asks) = &config.probe else { return Ok(None) };
        let upstream =
            asks.config.template.upstream.clone().unwrap_or_else(|| config.target.upstream.clone());
        let host = upstream.to_string();
        let host = host.split_once("://").map_or(host.as_str(), |(_, host)| host).to_owned();
        let authority = config.target_ca.clone();
        let question = Question {
            config: asks.config.clone(),
            at: Location { upstream, host, target: "/".into() },
            authority,
            scope: format!("message:{}:", config.name),
        };
        question.place("/".into()).map(|_| Some(question))
    }

    /// A question is rare: it has a connection of its own.
    fn place(&self, target: String) -> Result<Place, String> {
        Place::new(&Location { target, ..self.at.clone() }, self.authority.as_deref(), IDLE)
    }

    async fn answered(&self, probing: &Probing) -> Result<Probed, BoxError> {
        let entry = &probing.entry;
        let source = entry.scope.as_str().strip_prefix(&self.scope);
        let path =
            target(&self.config.template, |name| (name == "key").then(|| entry.key.as_str().to_owned()));
        let place = self.place(path.ok_or("no question can be made of this message")?)?;
        let answer = place.ask(|| {
            let mut question = place.question();
            let headers = question.headers_mut();
            headers.extend(named(source, &entry.key));
            headers.insert(SEMEL_FENCE, probing.lease.fence.0.into());
            headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
            if let Some(authorization) = &self.config.authorization {
                headers.insert(header::AUTHORIZATION, authorization.clone());
            }
            question
        });
        let answer = answer.await?;
        Ok(match self.config.judge(answer.status(), answer.headers()) {
            Some(true) => Probed::Completed(Outcome::value("")),
            Some(false) => Probed::NoEffect,
            None => Probed::StillUnknown,
        })
    }
}

#[async_trait]
impl Probe for Question {
    async fn ask(&self, probing: &Probing) -> Probed {
        self.answered(probing).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a probe has no answer");
            Probed::StillUnknown
        })
    }
}

//! What must hold of a server before anything is kept there.
//!
//! 1. It is Redis 7 or later, or what says so of itself, and takes writes.
//! 2. It does not evict: a record that is evicted is a key that runs again (case C34).
//! 3. It writes to its disk: an append-only file, or at least snapshots.
//! 4. Its user may do all that the scripts do: found out by doing it.
//!
//! `?allow_loss=true` lets 2 and 3 pass, with a warning. Looked at once, at the start: what an operator changes later, or
//! what another server does that takes over, is not noticed.

use futures_util::future::try_join_all;
use redis::Value;

use super::address::Address;
use super::error::{Failure, said};
use super::layout::Layout;
use super::link::Link;
use super::scripts;

const VERSION_MIN: u32 = 7;

/// What one node says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    version: u32,
    is_replica: bool,
    is_cluster: bool,
    replicas: u32,
    policy: String,
    has_log: bool,
    /// `None` where the server does not tell.
    settings: Option<Settings>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Settings {
    snapshots: bool,
    syncs_always: bool,
}

/// Looks at every node that takes writes.
pub(super) async fn check(link: &Link, layout: &Layout, address: &Address) -> Result<(), Failure> {
    let told = link.everywhere(redis::cmd("INFO")).await?;
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("save").arg("appendfsync");
    // Refused where the server is somebody's service, or by the rights of its user.
    let settings = link.everywhere(config).await.unwrap_or_default();
    for (number, told) in told.iter().enumerate() {
        let settings = settings.get(number).map(Settings::read);
        judge(&Facts { settings, ..Facts::read(&text(told)) }, address)?;
    }
    let probe = |bucket| async move { link.write(&scripts::PROBE.call().keys(layout.probe(bucket))).await };
    let probed = try_join_all(layout.buckets().map(probe)).await;
    match probed {
        Err(Failure::Sent(error) | Failure::SentToSome(error)) => {
            Err(Failure::NotSent(format!("a trial of what the scripts do failed: {}", said(&error))))
        }
        probed => probed.map(|_| ()),
    }
}

fn judge(facts: &Facts, address: &Address) -> Result<(), Failure> {
    let refuse = |text: String| Err(Failure::NotSent(text));
    if facts.version < VERSION_MIN {
        return refuse(format!("Redis {} is too old: {VERSION_MIN} or later is needed", facts.version));
    }
    if facts.is_replica {
        return refuse("it is a replica, which takes no writes: give the primary's address".to_owned());
    }
    if facts.is_cluster && !address.is_cluster {
        return refuse("it is a node of a cluster: write redis+cluster:// in place of redis://".to_owned());
    }
    if facts.replicas < address.parameters.wait {
        let (replicas, wait) = (facts.replicas, address.parameters.wait);
        return refuse(format!("wait={wait}, but it has {replicas} replicas"));
    }
    let losses = losses(facts);
    if losses.is_empty() {
        return Ok(());
    }
    if !address.parameters.allow_loss {
        let remedy =
            "a record that is lost is an operation that runs again. ?allow_loss=true opens it all the same";
        return refuse(format!("{}; {remedy}", losses.join("; ")));
    }
    tracing::warn!(
        store = address.shown(),
        "records may be lost, and was told to allow it: {}",
        losses.join("; ")
    );
    Ok(())
}

/// What it loses without any failure of the machine, each with its remedy.
fn losses(facts: &Facts) -> Vec<String> {
    let mut losses = Vec::new();
    if facts.policy.is_empty() {
        tracing::warn!("Redis does not tell its maxmemory-policy: make sure that it is noeviction");
    } else if facts.policy != "noeviction" {
        losses.push(format!("its maxmemory-policy is {}: set noeviction", facts.policy));
    }
    match (facts.has_log, &facts.settings) {
        (true, Some(settings)) if !settings.syncs_always => {
            tracing::warn!(
                "Redis syncs its log once a second or less: a crash of its machine loses that much"
            );
        }
        (false, Some(settings)) if settings.snapshots => {
            tracing::warn!(
                "Redis keeps snapshots and no log: a crash loses what came after the last. Set appendonly yes"
            );
        }
        (false, Some(_)) => losses.push("it keeps nothing on its disk: set appendonly yes".to_owned()),
        (false, None) => {
            tracing::warn!("Redis has no append-only file, and does not tell whether it keeps snapshots")
        }
        (true, _) => {}
    }
    losses
}

impl Facts {
    fn read(info: &str) -> Facts {
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
        };
        Facts {
            version: field("redis_version")
                .split('.')
                .next()
                .and_then(|major| major.parse().ok())
                .unwrap_or(0),
            is_replica: field("role") == "slave",
            is_cluster: field("cluster_enabled") == "1",
            replicas: field("connected_slaves").parse().unwrap_or(0),
            policy: field("maxmemory_policy").to_owned(),
            has_log: field("aof_enabled") == "1",
            settings: None,
        }
    }
}

impl Settings {
    /// Names and values in turn.
    fn read(told: &Value) -> Settings {
        let words = words(told);
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name);
            at.and_then(|at| words.get(at + 1)).map(String::as_str).unwrap_or_default()
        };
        Settings { snapshots: !value("save").is_empty(), syncs_always: value("appendfsync") == "always" }
    }
}

fn words(told: &Value) -> Vec<String> {
    match told {
        Value::Array(words) => words.iter().map(text).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect(),
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Facts {
        Facts {
            version: 7,
            policy: "noeviction".to_owned(),
            has_log: true,
            settings: Some(Settings { snapshots: false, syncs_always: true }),
            ..Facts::default()
        }
    }

    fn verdict(facts: &Facts, url: &str) -> Result<(), String> {
        judge(facts, &Address::parse(url).unwrap()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn c34_a_server_that_evicts_or_keeps_nothing_is_refused_unless_told() {
        assert_eq!(verdict(&sound(), "redis://h"), Ok(()));
        for policy in ["allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl"] {
            let evicting = Facts { policy: policy.to_owned(), ..sound() };
            let said = verdict(&evicting, "redis://h").unwrap_err();
            assert!(
                said.contains(policy) && said.contains("noeviction") && said.contains("allow_loss"),
                "{said}"
            );
            assert_eq!(verdict(&evicting, "redis://h?allow_loss=true"), Ok(()));
        }
        let forgetful = Facts { has_log: false, settings: Some(Settings::default()), ..sound() };
        assert!(verdict(&forgetful, "redis://h").unwrap_err().contains("appendonly"));
        assert_eq!(verdict(&forgetful, "redis://h?allow_loss=true"), Ok(()));
    }

    #[test]
    fn what_a_server_does_not_tell_is_no_reason_to_refuse_it() {
        let silent = Facts { policy: String::new(), has_log: false, settings: None, ..sound() };
        assert_eq!(verdict(&silent, "redis://h"), Ok(()));
    }

    #[test]
    fn a_replica_an_old_server_and_a_clusters_node_are_refused_whatever_is_allowed() {
        let url = "redis://h?allow_loss=true";
        assert!(verdict(&Facts { is_replica: true, ..sound() }, url).is_err());
        assert!(verdict(&Facts { version: 6, ..sound() }, url).is_err());
        assert!(
            verdict(&Facts { is_cluster: true, ..sound() }, url).unwrap_err().contains("redis+cluster://")
        );
        assert_eq!(verdict(&Facts { is_cluster: true, ..sound() }, "redis+cluster://h"), Ok(()));
        assert!(verdict(&sound(), "redis://h?wait=1").unwrap_err().contains("0 replicas"));
    }

    #[test]
    fn what_info_says_is_read() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nconnected_slaves:2\r\n\
                    maxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:0\r\n";
        assert_eq!(Facts::read(info), Facts { replicas: 2, settings: None, ..sound() });
    }
}

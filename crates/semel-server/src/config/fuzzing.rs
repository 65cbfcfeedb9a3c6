//! The properties of configuration files, for any bytes: what the fuzz target `config` runs. The target takes these
//! modules from here, since a program is no library; an ordinary test runs it on its corpus.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use toml::{Table, Value};

use crate::config::{Config, Effective, RouteConfig, Settings, parse};

/// The values that it shows are those that files are made of.
static EXAMPLE: LazyLock<Example> =
    LazyLock::new(|| Example::read(include_str!("../../../../semel.example.toml")));

/// Where a made file has routes, and no more than these.
const ROUTES_MAX: usize = 4;

/// A file; or, behind a zero byte, which no file has, the choices that one is made of.
pub fn config(bytes: &[u8]) {
    let made = bytes.strip_prefix(b"\0").map(|choices| EXAMPLE.file(choices));
    let Some(text) = made.or_else(|| std::str::from_utf8(bytes).ok().map(str::to_owned)) else { return };
    if reaches_out(&text) {
        return;
    }
    let Some(config) = said(parse(&text).and_then(Settings::resolve)) else { return };
    let written =
        written(&config).unwrap_or_else(|error| panic!("it is not written as TOML: {error}\n{text}"));
    match parse(&written).and_then(Settings::resolve) {
        Ok(again) => assert_eq!(shown(&again), shown(&config), "{text}\nis written as\n{written}"),
        Err(error) => panic!("{error}\n{text}\nis written as\n{written}"),
    }
}

/// What was read, or nothing, where the error is as an error has to be.
fn said<T>(read: Result<T, String>) -> Option<T> {
    let error = match read {
        Ok(read) => return Some(read),
        Err(error) => error,
    };
    assert!(!error.trim().is_empty(), "an error says something");
    assert!(!error.contains(char::is_control), "an error is one line: {error:?}");
    None
}

/// Names are looked up and files are read while a configuration is checked: neither is what is tested.
fn reaches_out(text: &str) -> bool {
    let Ok(file) = text.parse::<Table>() else { return false };
    let routes = file.get("route").and_then(Value::as_array).into_iter().flatten();
    let tables = [&file].into_iter().chain(routes.filter_map(Value::as_table));
    let texts = tables.flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    texts.into_iter().any(|(name, text)| match name {
        "listen" | "admin" => {
            let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host != "localhost" && host.parse::<std::net::IpAddr>().is_err()
        }
        "key_secret_file" | "probe_token_file" => text.contains(['/', '.']),
        _ => false,
    })
}

/// Everything that holds, as it is shown.
fn shown(config: &Config) -> (Effective, Effective, Vec<Effective>) {
    let routes = config.routes.iter().map(RouteConfig::effective);
    (config.effective(), config.otherwise.effective(), routes.collect())
}

/// What is shown, as a file.
fn written(config: &Config) -> Result<String, toml::ser::Error> {
    let (process, otherwise, routes) = shown(config);
    let table = |effective: Effective| -> Result<Table, toml::ser::Error> {
        effective.iter().map(|(name, value)| Ok((name.to_string(), Value::try_from(value)?))).collect()
    };
    let mut file = table(process)?;
    file.extend(table(otherwise)?);
    let routes: Vec<Value> =
        routes.into_iter().map(|route| table(route).map(Value::Table)).collect::<Result<_, _>>()?;
    file.insert("route".to_owned(), Value::Array(routes));
    toml::to_string(&file)
}

/// The settings by their names, and what the example file shows as values.
struct Example {
    names: Vec<&'static str>,
    shown: Vec<(&'static str, Value)>,
}

impl Example {
    fn read(text: &'static str) -> Example {
        let names =
            Settings::default().names().into_iter().map(|(name, _)| name).filter(|name| *name != "route");
        let line = |line: &'static str| {
            let (name, value) = line.strip_prefix('#').unwrap_or(line).split_once(" = ")?;
            Some((name, format!("v = {value}").parse::<Table>().ok()?.remove("v")?))
        };
        Example { names: names.collect(), shown: text.lines().filter_map(line).collect() }
    }

    /// Each three bytes choose a setting, a table and a value; some values are the text behind them.
    fn file(&self, mut choices: &[u8]) -> String {
        let mut top = BTreeMap::from([("upstream", Value::from("http://127.0.0.1:9000"))]);
        let mut routes: Vec<BTreeMap<&str, Value>> = Vec::new();
        while let [name, place, value, rest @ ..] = choices {
            choices = rest;
            let name = self.names[usize::from(*name) % self.names.len()];
            let value = match value {
                255 => {
                    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
                    choices = rest.get(end + 1..).unwrap_or_default();
                    Value::from(String::from_utf8_lossy(&rest[..end]).into_owned())
                }
                value => self.value(name, usize::from(*value)),
            };
            let place = usize::from(*place) % (2 * ROUTES_MAX);
            if place < ROUTES_MAX {
                top.insert(name, value);
                continue;
            }
            while routes.len() <= place - ROUTES_MAX {
                let pattern = format!("/{}/{{id}}", routes.len());
                routes.push(BTreeMap::from([("match", Value::from(pattern))]));
            }
            routes[place - ROUTES_MAX].insert(name, value);
        }
        let table = |settings: BTreeMap<&str, Value>| -> Table {
            settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let mut file = table(top);
        if !routes.is_empty() {
            let routes = routes.into_iter().map(|route| Value::Table(table(route)));
            file.insert("route".to_owned(), Value::Array(routes.collect()));
        }
        toml::to_string(&file).expect("a table is TOML")
    }

    /// One that is shown for the setting, or, by a choice above all of those, any.
    fn value(&self, name: &str, choice: usize) -> Value {
        let own: Vec<&Value> =
            self.shown.iter().filter(|(shown, _)| *shown == name).map(|(_, value)| value).collect();
        let all = || &self.shown[choice % self.shown.len()].1;
        own.get(choice).copied().unwrap_or_else(all).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    #[test]
    fn p5_the_corpus_of_configurations_holds() {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus/config"].iter().collect();
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| super::config(&bytes)).is_err() {
                panic!("{} breaks the target config", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}

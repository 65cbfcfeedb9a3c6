//! `semel.example.toml` shows every setting there is, and each default that it shows is the real one. Which settings
//! there are is taken from the code.

use std::collections::BTreeSet;

use clap::CommandFactory;
use serde_json::Value;

use super::{Effective, Settings, Whose};

const EXAMPLE: &str = include_str!("../../../../semel.example.toml");

/// A line `name = value`, or `#name = value` where it is not set.
struct Shown {
    name: &'static str,
    value: &'static str,
    is_set: bool,
}

fn shown(text: &'static str) -> Vec<Shown> {
    let settings = text.lines().filter_map(|line| {
        let (bare, is_set) = line.strip_prefix('#').map_or((line, true), |bare| (bare, false));
        let (name, value) = bare.split_once(" = ")?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_name.then_some(Shown { name, value, is_set })
    });
    settings.collect()
}

/// What stands before the routes.
fn top() -> &'static str {
    EXAMPLE.split("\n[[route]]\n").next().unwrap()
}

fn json(shown: &Shown) -> Value {
    let table: toml::Table = format!("v = {}", shown.value).parse().unwrap_or_else(|error| {
        panic!("{}: {error}", shown.name);
    });
    serde_json::to_value(&table["v"]).unwrap()
}

/// The flags of `semel gateway` by their TOML names, with the default that their help names.
fn flags() -> Vec<(String, Option<String>)> {
    let cli = crate::cli::Cli::command();
    let gateway = cli.find_subcommand("gateway").expect("the command");
    let flags = gateway.get_arguments().filter(|arg| arg.get_long().is_some_and(|flag| flag != "config"));
    let described = flags.map(|arg| {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let default = help.split_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
        // Two words are a description.
        let default = default.map(|(default, _)| default.to_owned()).filter(|default| !default.contains(' '));
        (arg.get_id().to_string(), default.filter(|default| default != "none"))
    });
    described.collect()
}

/// Every key that the file may hold, as the deserializer has it.
fn keys() -> BTreeSet<String> {
    let refused = toml::from_str::<Settings>("no_such_key = 1").unwrap_err().to_string();
    let known = refused.split_once("expected one of").expect("a list of the keys").1;
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn defaults() -> Effective {
    let nothing = Settings::parse("upstream = \"http://127.0.0.1:9000\"").unwrap();
    let config = nothing.resolve().unwrap();
    let mut defaults = config.effective();
    defaults.extend(config.otherwise.effective());
    defaults
}

#[test]
fn the_example_can_be_started_with() {
    let config = Settings::parse(EXAMPLE).unwrap().resolve().unwrap();
    assert!(config.routes.len() >= 4);
}

#[test]
fn it_shows_every_flag_and_every_key() {
    let top: Vec<_> = shown(top()).iter().map(|shown| shown.name).collect();
    for (name, _) in flags() {
        let times = top.iter().filter(|shown| **shown == name).count();
        assert_eq!(
            times, 1,
            "{name} stands {times} times before the routes: show it there, with its default"
        );
    }
    let all: BTreeSet<_> = shown(EXAMPLE).iter().map(|shown| shown.name).collect();
    let keys = keys();
    assert!(keys.len() > 30, "{keys:?}");
    for key in keys.iter().filter(|key| *key != "route") {
        assert!(all.contains(key.as_str()), "{key} is a key and stands nowhere: show it in a route");
    }
}

/// Where a setting stands in the file is where it may stand, as the code has it.
#[test]
fn what_no_route_can_have_stands_in_the_first_part() {
    let (process, either) =
        top().split_once("\n# --- For everything that matches no route").expect("two parts");
    let names = |text| shown(text).iter().map(|shown| shown.name).collect::<BTreeSet<_>>();
    let whose = |whose| {
        let settings =
            Settings::default().settings().into_iter().filter(move |setting| setting.whose == whose);
        settings.map(|setting| setting.name).collect::<BTreeSet<_>>()
    };
    // A file says where the secret is, for the whole process, beside what it is for.
    let above: BTreeSet<_> = names(process).into_iter().chain(["route", "key_secret_file"]).collect();
    assert_eq!(above, whose(Whose::Process));
    let rest = whose(Whose::Route).into_iter().filter(|name| !["pattern", "host"].contains(name));
    assert_eq!(
        names(either).into_iter().filter(|name| *name != "key_secret_file").collect::<BTreeSet<_>>(),
        rest.collect()
    );
}

#[test]
fn each_default_that_it_shows_is_the_real_one() {
    let defaults = defaults();
    let flags = flags();
    for shown in shown(top()).iter().filter(|shown| shown.name != "upstream") {
        let name = shown.name;
        let value = json(shown);
        let default = flags.iter().find(|(flag, _)| flag == name).and_then(|(_, default)| default.as_ref());
        if let Some(default) = default {
            let bare: String = shown.value.chars().filter(|char| !"[]\" ".contains(*char)).collect();
            assert_eq!(bare, *default, "{name}: the example, and --help");
        }
        if shown.is_set || (default.is_some() && defaults.contains_key(name)) {
            let real = defaults.get(name).unwrap_or_else(|| panic!("{name} is missing in `effective`"));
            assert_eq!(value, *real, "{name}: the example, and what holds when nothing is said");
        }
    }
}

#[test]
fn what_it_does_not_set_could_be_set_as_it_stands() {
    let is_shown = |line: &str| line.strip_prefix('#').is_some_and(|bare| !shown_in(bare).is_empty());
    let text: Vec<_> = EXAMPLE.lines().map(|line| if is_shown(line) { &line[1..] } else { line }).collect();
    Settings::parse(&text.join("\n")).unwrap();
}

fn shown_in(line: &str) -> &str {
    let name = line.split_once(" = ").map_or("", |(name, _)| name);
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') { name } else { "" }
}

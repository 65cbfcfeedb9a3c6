use std::time::Duration;

use super::*;

#[test]
fn an_unknown_toml_key_names_the_nearest_and_its_line() {
    let error = Settings::parse("listen = \"127.0.0.1:1\"\nupstrem = \"http://127.0.0.1:9000\"").unwrap_err();
    assert_eq!(error, "line 2: unknown key 'upstrem'; did you mean 'upstream'?");
    let error = Settings::parse("on-unknown = \"park\"").unwrap_err();
    assert_eq!(error, "line 1: unknown key 'on-unknown'; did you mean 'on_unknown'?");
}

#[test]
fn a_bad_toml_value_says_how_it_is_written() {
    let error = Settings::parse("lease = \"30sec\"").unwrap_err();
    assert!(error.contains("line 1") && error.contains("'30s'"), "{error}");
    let error = Settings::parse("lease = 30").unwrap_err();
    assert!(error.contains("line 1") && error.contains("'30s'"), "{error}");
    assert!(Settings::parse("body_bytes_max = -1").unwrap_err().contains("a size is written"));
    assert!(Settings::parse("lease = true").unwrap_err().contains("written in quotes"));
    assert!(Settings::parse("remember_for = forever").unwrap_err().contains("a text stands in quotes"));
    assert_eq!(Settings::parse("key = [\"required\"]").unwrap_err(), "line 1: a word in quotes is wanted");
    let error = Settings::parse("[route]\nmatch = \"/a\"").unwrap_err();
    assert_eq!(error, "line 1: a route begins with [[route]], in double brackets");
    for second in ["[route]", " [ route ] # refunds"] {
        for first in ["[route]", "[[route]]"] {
            let error =
                Settings::parse(&format!("{first}\nmatch = \"/a\"\n{second}\nmatch = \"/b\"")).unwrap_err();
            let expected = "a route begins with [[route]], in double brackets";
            assert!(error.ends_with(expected), "{first} {second}: {error}");
        }
    }
    let error = Settings::parse("key = \"required\"\nkey = \"optional\"").unwrap_err();
    assert!(error.contains("line 2: duplicate key"), "{error}");
    let error = Settings::parse("on_unknown = \"parc\"").unwrap_err();
    assert!(error.contains("did you mean 'park'?"), "{error}");
}

#[test]
fn an_error_is_one_line_whatever_was_given() {
    let upstream = "upstream = \"http://127.0.0.1:9000\"\n";
    for (text, shown) in [
        ("service = \"a\\nb\"", "--service 'a\\nb'"),
        ("\"a\\nb\" = 1", "unknown key 'a\\nb'"),
        ("key_secret_file = \"a\\rb\"", "a\\rb"),
        ("principal = \"jwt:\\u001b[2J\"", "control characters"),
        ("[[route]]\nmatch = \"/a\\nb\"", "route /a\\nb: "),
    ] {
        let error = Settings::parse(&[upstream, text].concat()).and_then(Settings::resolve).unwrap_err();
        assert!(error.contains(shown) && !error.contains(char::is_control), "{text}: {error:?}");
    }
}

#[test]
fn a_flag_wins_over_the_file() {
    let flags = Settings { lease: Some(Span(Duration::from_secs(5))), ..Settings::default() };
    let file = Settings::parse("lease = \"9s\"\nservice = \"shop\"\nbody_bytes_max = 10").unwrap();
    let both = flags.or(file);
    assert_eq!(both.lease, Some(Span(Duration::from_secs(5))));
    assert_eq!(both.service.as_deref(), Some("shop"));
    assert_eq!(both.body_bytes_max, Some(Size(10)));
}

fn resolved(text: &str) -> Result<Config, String> {
    Settings::parse(&format!("upstream = \"http://127.0.0.1:9000\"\n{text}")).unwrap().resolve()
}

#[test]
fn a_route_has_what_it_sets_and_else_what_holds_for_everything() {
    let config = resolved(
        "key = \"required\"\nlease = \"9s\"\n[[route]]\nmatch = \"/a\"\nlease = \"5s\"\n\
         [[route]]\nmatch = \"/b/{id}\"\nhost = \"b.example\"\nupstream = \"http://127.0.0.1:9001\"",
    );
    let config = config.unwrap();
    assert_eq!(config.otherwise.policy.lease_for, Duration::from_secs(9));
    let [a, b] = &config.routes[..] else { panic!("two routes") };
    assert_eq!((a.contract.policy.lease_for, a.contract.key), (Duration::from_secs(5), KeyPolicy::Required));
    assert_eq!(b.contract.policy.lease_for, Duration::from_secs(9));
    assert_eq!((b.host.as_deref(), b.contract.upstream.port), (Some("b.example"), 9001));
}

#[test]
fn h11_a_route_that_chooses_a_preset_begins_with_its_statuses() {
    let above = "released = [500]\n[[route]]\nmatch = \"/a\"\npreset = \"cautious\"\nunknown = [404]\n\
                 [[route]]\nmatch = \"/b\"";
    let config = resolved(above).unwrap();
    let [a, b] = &config.routes[..] else { panic!("two routes") };
    let releases = |route: &RouteConfig| {
        route.contract.statuses.released.contains(&http::StatusCode::INTERNAL_SERVER_ERROR)
    };
    assert!(!releases(a) && releases(b));
    assert!(a.contract.statuses.unknown.contains(&http::StatusCode::NOT_FOUND));
}

#[test]
fn what_cannot_stand_in_a_route_is_named() {
    for (text, part) in [
        ("[[route]]\nkey = \"required\"", "needs 'match'"),
        ("[[route]]\nmatch = \"charges\"", "route charges: a pattern begins with '/'"),
        ("[[route]]\nmatch = \"/a\"\nlisten = \"127.0.0.1:1\"", "route /a: 'listen' is one for the whole"),
        ("[[route]]\nmatch = \"/a\"\nhost = \"h:80\"", "without a port"),
        ("[[route]]\nmatch = \"/a\"\n[[route]]\nmatch = \"/a\"", "stands twice"),
        (
            "[[route]]\nmatch = \"/v1/*\"\n[[route]]\nmatch = \"/v1/a\"",
            "route /v1/a: it is never asked, since POST,PATCH /v1/* holds first",
        ),
        ("[[route]]\nmatch = \"/a/:id\"", "did you mean '/a/{id}'?"),
        ("[[route]]\nmatch = \"/<int:id>/b\"", "did you mean '/{id}/b'?"),
        ("match = \"/a\"", "stand in a [[route]]"),
        ("[[route]]\nmatch = \"/a\"\nreplay_for = \"40d\"", "route /a: remember-for"),
    ] {
        let error = resolved(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

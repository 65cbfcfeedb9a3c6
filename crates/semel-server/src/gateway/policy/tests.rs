use super::*;

use crate::config::Settings;

fn config(text: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.toml");
    let text = format!("upstream = \"http://127.0.0.1:9000\"\nstore = \"sqlite://secret-place.db\"\n{text}");
    std::fs::write(&file, text).unwrap();
    Settings::read(&file).unwrap().resolve().unwrap()
}

const HOSTS: &str = "[[route]]\nmatch = \"/charges\"\nkey = \"required\"\nreplay_for = \"30d\"\n\
    remember_for = \"forever\"\n[[route]]\nmatch = \"/pay\"\nhost = \"pay.example\"\n\
    upstream = \"http://127.0.0.1:9001\"\n[[route]]\nmatch = \"/desk\"\nhost = \"desk.example\"";

/// A setting that is new is published or it is not: somebody must say.
#[test]
fn h10_each_setting_of_a_route_is_either_public_or_private() {
    let config = config(HOSTS);
    let all = config.routes[1].effective();
    for name in all.keys() {
        let public = PUBLIC.iter().any(|(public, _)| public == name);
        assert!(public != PRIVATE.contains(name), "{name}: put it in PUBLIC or in PRIVATE");
    }
    let known = Settings::default().names();
    for name in PUBLIC.iter().map(|(name, _)| name).chain(PRIVATE).filter(|name| **name != CALLER) {
        assert!(known.iter().any(|(known, _)| known == name), "{name} is no setting");
    }
}

#[test]
fn h10_what_operators_know_is_not_published() {
    let config = config(HOSTS);
    for host in [None, Some("pay.example")] {
        let policy = Policy::new(&config, host);
        let json = serde_json::to_string(&policy).unwrap();
        for form in [json, policy.text(), policy.html()] {
            for secret in ["127.0.0.1", "9000", "secret-place", "sqlite", "upstream\"", "desk", "\"lease\""] {
                assert!(!form.contains(secret), "{secret} in\n{form}");
            }
        }
    }
}

#[test]
fn a_host_sees_its_own_routes_and_those_of_every_host() {
    let config = config(HOSTS);
    let names = |host| {
        let policy = Policy::new(&config, host);
        policy.routes.iter().map(|route| route.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["/charges"]);
    assert_eq!(names(Some("pay.example")), ["/charges", "/pay"]);
    assert_eq!(names(Some("desk.example")), ["/charges", "/desk"]);
}

#[test]
fn each_form_says_the_same_of_a_route() {
    let policy = Policy::new(&config(HOSTS), None);
    let json = serde_json::to_value(&policy).unwrap();
    assert_eq!(json["routes"][0]["key"], "required");
    assert_eq!(json["routes"][0]["remember_for"], "forever");
    assert_eq!(json["otherwise"]["key"], "optional");
    assert_eq!(json["key"]["bytes_max"], 255);
    for form in [policy.text(), policy.html()] {
        for said in
            ["required; a request without one is refused", "forever", "/charges", "Everything else", "24h"]
        {
            assert!(form.contains(said), "{said} in\n{form}");
        }
    }
}

/// H10: one table.
#[test]
fn h10_the_refusals_are_those_of_the_table() {
    let policy = Policy::new(&config(""), None);
    assert_eq!(policy.refusals.len(), TABLE.len());
    for row in &TABLE {
        let refusal = policy.refusals.iter().find(|refusal| refusal.code == row.word).unwrap();
        assert_eq!((refusal.status, refusal.retryable), (row.status.as_u16(), row.retryable));
        for form in [policy.text(), policy.html()] {
            assert!(form.contains(row.word) && form.contains(row.title), "{} in\n{form}", row.word);
        }
    }
}

#[test]
fn what_the_configuration_holds_is_escaped() {
    let config = config("[[route]]\nmatch = \"/<script>alert('1')</script>&\\\"x\"");
    let html = Policy::new(&config, None).html();
    assert!(!html.contains("<script"), "{html}");
    assert!(html.contains("/&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;x"), "{html}");
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let html = Policy::new(&config(HOSTS), None).html();
    for part in ["<script", "src=", "href=", "url(", "@import", "onload", "http://", "https://"] {
        assert!(!html.contains(part), "{part} in\n{html}");
    }
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("<html lang=\"en\">"));
}

/// Where the guarantees end depends on what was chosen.
#[test]
fn the_limits_are_those_of_the_configuration() {
    let limits = |text: &str| Policy::new(&config(text), None).limits.join("\n");
    let plain = limits("");
    assert!(plain.contains("without one may take effect") && plain.contains("500 or 503"));
    assert!(!plain.contains("at least once"));
    let strict = limits("key = \"required\"\npreset = \"cautious\"\nremember_for = \"forever\"");
    assert!(!strict.contains("without one may") && !strict.contains("500 or 503"));
    assert!(!strict.contains("new again"));
    assert!(limits("[[route]]\nmatch = \"/a\"\non_unknown = \"rerun\"").contains("at least once"));
}

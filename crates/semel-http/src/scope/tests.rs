use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use semel::{OnUnknown, Policy};

use super::*;

#[cfg(feature = "jwt")]
mod token;

fn scopes(change: impl FnOnce(&mut Options)) -> Scopes {
    let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
    options.service = "shop".to_owned();
    options.trusted_proxies = ["10.0.0.0/8".parse::<Network>().unwrap()].into_iter().collect();
    change(&mut options);
    Scopes::new(&options).unwrap()
}

fn listed(principals: &[&str]) -> Scopes {
    scopes(|options| options.principals = principals.iter().map(|text| text.parse().unwrap()).collect())
}

fn request(lines: &[(&str, &str)]) -> Parts {
    let request =
        lines.iter().fold(Request::post("/"), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

fn from(peer: &str, lines: &[(&str, &str)]) -> Parts {
    let mut parts = request(lines);
    parts.extensions.insert(Peer(peer.parse::<IpAddr>().unwrap()));
    parts
}

fn authorized(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| ("authorization", *line)).collect();
    listed(&["authorization"]).of(&request(&lines)).unwrap().as_str().to_owned()
}

#[test]
fn h5_nobody_is_anonymous_and_somebody_is_a_digest() {
    assert_eq!(authorized(&[]), "http:shop:anonymous");
    let scope = authorized(&["Bearer sk_test_1"]);
    let digest = scope.strip_prefix("http:shop:authorization-").unwrap();
    assert_eq!(digest.len(), 64);
    assert!(digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(!scope.contains("sk_test"));
}

/// Scopes are stored: a change here is another operation for every retry that is on its way.
#[test]
fn h5_a_scope_is_made_for_ever_as_it_was_made_first() {
    let of = |principal: &str, parts: &Parts| listed(&[principal]).of(parts).unwrap().as_str().to_owned();
    assert_eq!(
        of("authorization", &request(&[("authorization", "Bearer a")])),
        "http:shop:authorization-66bf529755548910d4ece6d0130f2cd83809a9585e227e111ba64cf9f72dec70"
    );
    assert_eq!(
        of("header:x-account-id", &from("10.0.0.1", &[("x-account-id", "acme")])),
        "http:shop:header-x-account-id-4afe68ded5b4b9255e01a9141faa7876bd8f523347712da1325e87d7fb9e435d"
    );
    let mut parts = request(&[]);
    parts.extensions.insert(ClientCertificate([0xA5; 32]));
    assert_eq!(of("certificate", &parts), format!("http:shop:certificate-{}", "a5".repeat(32)));
}

#[test]
fn c58_two_principals_are_two_scopes() {
    assert_ne!(authorized(&["Bearer a"]), authorized(&["Bearer b"]));
    assert_eq!(authorized(&["Bearer a"]), authorized(&["Bearer a"]));
    assert_ne!(authorized(&[""]), authorized(&[]));
}

#[test]
fn several_lines_all_count_with_their_borders() {
    assert_ne!(authorized(&["a", "b"]), authorized(&["ab"]));
    assert_ne!(authorized(&["a", "b"]), authorized(&["a"]));
    assert_ne!(authorized(&["a", "b"]), authorized(&["b", "a"]));
}

#[test]
fn h5_the_first_principal_that_the_request_has_makes_the_scope() {
    let scopes = listed(&["header:x-account-id", "certificate", "authorization"]);
    let kind = |parts: &Parts| {
        let scope = scopes.of(parts).unwrap();
        scope.as_str().strip_prefix("http:shop:").unwrap().split('-').next().unwrap().to_owned()
    };
    let lines = [("authorization", "Bearer a"), ("x-account-id", "acme")];
    let mut parts = from("10.0.0.1", &lines);
    parts.extensions.insert(ClientCertificate([1; 32]));
    assert_eq!(kind(&parts), "header");
    parts.headers.remove("x-account-id");
    assert_eq!(kind(&parts), "certificate");
    parts.extensions.remove::<ClientCertificate>();
    assert_eq!(kind(&parts), "authorization");
    parts.headers.remove(AUTHORIZATION);
    assert_eq!(kind(&parts), "anonymous");
}

#[test]
fn h5_a_header_counts_only_from_a_trusted_proxy() {
    let scopes = listed(&["header:x-account-id"]);
    let lines = [("x-account-id", "acme")];
    let trusted = scopes.of(&from("10.9.9.9", &lines)).unwrap();
    assert_eq!(scopes.of(&from("::ffff:10.1.1.1", &lines)).unwrap(), trusted);
    assert_eq!(scopes.of(&from("11.0.0.1", &lines)).unwrap().as_str(), "http:shop:anonymous");
    assert_eq!(scopes.of(&request(&lines)), Err(NoScope::NoPeer("x-account-id".parse().unwrap())));
    assert_eq!(scopes.of(&request(&[])).unwrap().as_str(), "http:shop:anonymous");
}

#[test]
fn h5_a_header_that_cannot_be_believed_goes_no_further() {
    let options = |principal: &str, proxies: &str, observe: bool| {
        let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
        options.principals = vec![principal.parse().unwrap()];
        options.trusted_proxies = [proxies.parse::<Network>().unwrap()].into_iter().collect();
        options.observe = observe;
        options
    };
    let routes = [
        options("header:x-account-id", "10.0.0.0/8", false),
        options("header:x-account-id", "192.0.2.7", false),
        options("header:x-user", "10.0.0.0/8", false),
        options("header:x-tenant", "10.0.0.0/8", true),
        options("authorization", "172.16.0.0/12", false),
    ];
    let believed = Believed::of(routes.iter());
    let lines = [
        ("x-account-id", "acme"),
        ("x-account-id", "other"),
        ("x-user", "u"),
        ("x-tenant", "t"),
        ("x-other", "1"),
    ];
    let left = |mut parts: Parts| {
        believed.remove_untrusted(&mut parts);
        let mut names: Vec<_> = parts.headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    // By whichever route it might be believed: the service makes no difference.
    assert_eq!(left(from("10.0.0.1", &lines)), "x-account-id x-other x-tenant x-user");
    assert_eq!(left(from("192.0.2.7", &lines)), "x-account-id x-other x-tenant");
    for stranger in ["192.0.2.8", "172.16.0.1", "::1"] {
        // What is only observed is not changed.
        assert_eq!(left(from(stranger, &lines)), "x-other x-tenant");
    }
    assert_eq!(left(request(&lines)), "x-account-id x-other x-tenant x-user");
}

#[test]
fn h5_two_lines_are_refused_and_an_empty_one_names_nobody() {
    let scopes = listed(&["header:x-account-id"]);
    for second in ["acme", "other", ""] {
        let parts = from("10.0.0.1", &[("x-account-id", "acme"), ("X-Account-Id", second)]);
        assert_eq!(scopes.of(&parts), Err(NoScope::Twice("x-account-id".parse().unwrap())));
    }
    let anonymous = scopes.of(&from("10.0.0.1", &[("x-account-id", " \t")])).unwrap();
    assert_eq!(anonymous.as_str(), "http:shop:anonymous");
}

#[test]
fn h5_required_refuses_whoever_is_nobody() {
    let scopes = scopes(|options| options.principal_required = true);
    assert_eq!(scopes.of(&request(&[])), Err(NoScope::Nobody { bearer: false }));
    assert!(scopes.of(&request(&[("authorization", "a")])).is_ok());
}

#[test]
fn h5_two_kinds_and_two_names_never_collide() {
    let mut all = Vec::new();
    for principal in ["header:x-a", "header:x-a-b", "authorization"] {
        let lines = [("x-a", "v"), ("x-a-b", "v"), ("authorization", "v")];
        all.push(listed(&[principal]).of(&from("10.0.0.1", &lines)).unwrap());
    }
    // Names that look alike when they are shown: cut at the same place.
    let long = "x-".repeat(30);
    for name in [format!("{long}a"), format!("{long}b")] {
        let parts = from("10.0.0.1", &[(&name, "v")]);
        all.push(listed(&[&format!("header:{name}")]).of(&parts).unwrap());
    }
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| other != one), "{one:?} is not alone");
    }
}

#[test]
fn the_longest_service_still_makes_a_scope() {
    let service = "s".repeat(Scopes::SERVICE_BYTES_MAX);
    let name = "x-".repeat(100);
    let scopes = scopes(|options| {
        options.service.clone_from(&service);
        options.observe = true;
        options.principals = vec![format!("header:{name}").parse().unwrap()];
    });
    let scope = scopes.of(&from("10.0.0.1", &[(&name, "v")])).unwrap();
    assert_eq!(scope.as_str().len(), Scope::BYTES_MAX);
    let refused = |service: &str| {
        let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
        options.service = service.to_owned();
        Scopes::new(&options).is_err()
    };
    assert!(refused(&(service + "s")) && refused("") && refused("a\nb"));
}

use super::*;

fn error(url: &str) -> String {
    parse(url).expect_err(url).to_string()
}

#[test]
fn a_path_is_taken_as_it_is_written() {
    for (url, path) in [
        ("sqlite://semel.db", "semel.db"),
        ("sqlite://./data/semel.db", "./data/semel.db"),
        ("sqlite:///var/lib/semel.db", "/var/lib/semel.db"),
        ("sqlite://a%20b c.db", "a%20b c.db"),
        ("sqlite://file:x.db", "file:x.db"),
    ] {
        assert_eq!(parse(url).expect(url), Place::Sqlite(PathBuf::from(path)));
    }
    assert_eq!(parse("memory:").expect("a store"), Place::Memory);
}

#[test]
fn what_is_no_store_is_refused_with_what_would_be_right() {
    for (url, hint) in [
        ("semel.db", "sqlite://semel.db"),
        ("", "sqlite://semel.db"),
        ("sqlite:semel.db", "did you mean sqlite://semel.db?"),
        ("sqlite://", "names no file"),
        ("sqlite::memory:", "did you mean"),
        ("sqlite://:memory:", "memory:"),
        ("sqlite://semel.db?mode=ro", "parameters are not taken"),
        ("sqlite://data/", "names a directory"),
        ("memory:x", "nothing may follow"),
        ("sqlit://semel.db", "did you mean sqlite://?"),
        ("SQLite://semel.db", "did you mean sqlite://?"),
        ("sqlite3://semel.db", "did you mean sqlite://?"),
        ("postgre://h/db", "did you mean postgres://?"),
        ("rediss+clutser://h", "did you mean redis+cluster://?"),
        ("mem:", "did you mean memory:?"),
        ("https://h", "one of sqlite://"),
    ] {
        let error = error(url);
        assert!(error.contains(hint), "{url}: {error}");
    }
}

#[test]
fn a_server_is_known_by_each_spelling_of_its_scheme() {
    for (url, place) in [
        ("postgres://h/db", Place::Postgres as fn(String) -> Place),
        ("postgresql://h/db", Place::Postgres),
        ("mysql://h/db", Place::Mysql),
        ("mariadb://h/db", Place::Mysql),
        ("redis://h/0", Place::Redis),
        ("rediss://h/0", Place::Redis),
        ("redis+cluster://h", Place::Redis),
        ("rediss+cluster://h", Place::Redis),
    ] {
        assert_eq!(parse(url).expect(url), place(url.to_owned()));
    }
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn a_store_that_is_not_built_in_is_named_and_its_password_is_not() {
    let url = "postgres://user:secret@host/db";
    for error in [
        connect(url, &Options::default()).await.expect_err("not built"),
        migrations(url).expect_err("not built"),
    ] {
        let error = error.to_string();
        assert!(error.contains("postgres://") && error.contains("the feature `postgres`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_password_is_not_repeated() {
    assert!(!error("postgress://user:secret@host/db").contains("secret"));
}

#[tokio::test]
async fn a_store_in_memory_needs_no_schema() {
    let url = "memory:";
    assert_eq!(migrations(url).expect("a schema").pending().await.expect("none"), []);
    assert!(!connect(url, &Options::default()).await.expect("a store").shared);
}

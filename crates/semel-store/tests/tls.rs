//! Stores behind TLS: who the server is, is verified, and nothing goes over a connection that is not what was asked for.
//!
//! The certificates are made by the tests, for servers on private ports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use semel::testing::sample;
use semel_store::{Options, connect};
use semel_testbed::{Mariadb, Postgres, Redis, Settings};
use tempfile::TempDir;

/// Where the servers are, and what is on their certificates.
const HERE: &str = "127.0.0.1";
const ELSEWHERE: &str = "elsewhere.example";

/// Every URL has it, and no error may.
const PASSWORD: &str = "semel-test";

/// A server, and its URL with TLS and an authority to trust.
struct Guarded<S> {
    _server: S,
    url: Box<dyn Fn(&Path) -> String>,
}

/// Somebody whose word others take, with a folder that servers may read.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let own = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, own).expect("an authority");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("authority.pem"), issuer.pem()).expect("a file");
        Authority { issuer, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A certificate and its key, for a server that this user runs.
    fn issue(&self, host: &str, user: Option<&str>) -> [String; 2] {
        let parameters = CertificateParams::new([host.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let [shown, secret] = ["pem", "key"].map(|kind| self.folder.path().join(format!("{host}.{kind}")));
        std::fs::write(&shown, certificate.pem()).expect("a file");
        std::fs::write(&secret, key.serialize_pem()).expect("a file");
        hand_over(self.folder.path(), "755", None);
        hand_over(&secret, "600", user);
        [shown, secret].map(|file| file.display().to_string())
    }
}

/// The servers that refuse root run as users of their own, and take no key that others may read.
fn hand_over(path: &Path, mode: &str, user: Option<&str>) {
    let run = |program: &str, word: &str| {
        let done = Command::new(program).arg(word).arg(path).status().expect("it starts");
        assert!(done.success(), "{program} {word} {}", path.display());
    };
    run("chmod", mode);
    let is_root = || Command::new("id").arg("-u").output().is_ok_and(|told| told.stdout == b"0\n");
    if let Some(user) = user.filter(|_| is_root()) {
        run("chown", user);
    }
}

async fn postgres(authority: &Authority, host: &str) -> Guarded<Postgres> {
    let [certificate, key] = authority.issue(host, Some("postgres"));
    let settings = Settings::fast().set("ssl", "on").set("ssl_cert_file", &certificate);
    let server = Postgres::start_with(settings.set("ssl_key_file", &key)).await;
    let url = verified_postgres(&server);
    Guarded { _server: server, url }
}

fn verified_postgres(server: &Postgres) -> Box<dyn Fn(&Path) -> String> {
    let url = server.url();
    Box::new(move |trusted| format!("{url}?sslmode=verify-full&sslrootcert={}", trusted.display()))
}

async fn mariadb(authority: &Authority, host: &str) -> Guarded<Mariadb> {
    let [certificate, key] = authority.issue(host, Some("mysql"));
    let settings = Settings::fast().set("ssl-cert", &certificate).set("ssl-key", &key);
    let server = Mariadb::start_with(settings).await;
    let url = verified_mariadb(&server);
    Guarded { _server: server, url }
}

fn verified_mariadb(server: &Mariadb) -> Box<dyn Fn(&Path) -> String> {
    let url = server.url();
    Box::new(move |trusted| format!("{url}?require_ssl=true&ssl_ca={}", trusted.display()))
}

async fn redis(authority: &Authority, host: &str) -> Guarded<Redis> {
    let [certificate, key] = authority.issue(host, None);
    let free = std::net::TcpListener::bind((HERE, 0)).and_then(|free| free.local_addr());
    let port = free.expect("a port").port();
    let settings = Settings::fast()
        .set("tls-port", &port.to_string())
        .set("tls-cert-file", &certificate)
        .set("tls-key-file", &key)
        .set("tls-ca-cert-file", &authority.file().display().to_string())
        .set("tls-auth-clients", "no");
    let server = Redis::start_with(settings).await;
    protect(&server);
    Guarded { _server: server, url: verified_redis(port) }
}

/// Gives it a password. One that has it from its beginning would not tell the testbed that it is ready.
fn protect(server: &Redis) {
    let mut stream = TcpStream::connect(server.addr()).expect("it runs");
    writeln!(stream, "CONFIG SET requirepass {PASSWORD}\r").expect("it hears");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"+OK\r\n");
}

fn verified_redis(port: u16) -> Box<dyn Fn(&Path) -> String> {
    Box::new(move |trusted| format!("rediss://:{PASSWORD}@{HERE}:{port}/0?ca={}", trusted.display()))
}

/// Claims a key over it.
async fn works(url: &str) {
    let store = open(url, Duration::from_secs(60)).await.expect("a store").store;
    let claim = store.claim(&sample::run("k", 1)).await.expect("a claim is answered");
    assert_eq!(sample::lease(claim).attempts, 1);
}

/// Refused within its time and a little, for a reason that is said.
async fn refused(url: &str, reasons: &[&str]) {
    let begun = Instant::now();
    let Err(error) = open(url, Duration::from_secs(3)).await else { panic!("it is refused") };
    let error = error.to_string();
    assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    assert!(!error.contains(PASSWORD), "a password: {error}");
    let said = error.to_lowercase();
    assert!(reasons.iter().any(|reason| said.contains(reason)), "it says: {error}");
}

async fn open(url: &str, busy_for: Duration) -> Result<semel_store::Connected, semel_store::ConnectError> {
    connect(url, &Options { migrate: true, busy_for, ..Options::default() }).await
}

/// The right one works; another authority, another name, and a server without TLS are refused.
async fn is_verified<S>(
    start: impl AsyncFn(&Authority, &str) -> Guarded<S>,
    plain: impl AsyncFn() -> Guarded<S>,
    reasons: [&[&str]; 3],
) {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let [of_authority, of_name, of_plain] = reasons;
    let here = start(&ours, HERE).await;
    works(&(here.url)(&ours.file())).await;
    refused(&(here.url)(&others.file()), of_authority).await;
    drop(here);
    let elsewhere = start(&ours, ELSEWHERE).await;
    refused(&(elsewhere.url)(&ours.file()), of_name).await;
    drop(elsewhere);
    refused(&(plain().await.url)(&ours.file()), of_plain).await;
}

#[tokio::test]
async fn a_postgresql_behind_tls_is_verified() {
    let plain = async || {
        let server = Postgres::start().await;
        let url = verified_postgres(&server);
        Guarded { _server: server, url }
    };
    is_verified(postgres, plain, [&["certificate"], &["certificate"], &["tls", "ssl"]]).await;
}

#[tokio::test]
async fn a_mariadb_behind_tls_is_verified() {
    let plain = async || {
        let server = Mariadb::start().await;
        let url = verified_mariadb(&server);
        Guarded { _server: server, url }
    };
    is_verified(mariadb, plain, [&["certificate"], &["certificate"], &["tls", "ssl"]]).await;
}

#[tokio::test]
async fn a_redis_behind_tls_is_verified() {
    let plain = async || {
        let server = Redis::start().await;
        protect(&server);
        let url = verified_redis(server.addr().port());
        Guarded { _server: server, url }
    };
    is_verified(redis, plain, [&["certificate"], &["certificate"], &["tls", "ssl"]]).await;
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_said() {
    let nowhere = Path::new("no-such-file.pem");
    let urls = [
        format!("postgres://u:{PASSWORD}@{HERE}:1/db?sslmode=verify-full&sslrootcert={}", nowhere.display()),
        format!("rediss://:{PASSWORD}@{HERE}:1/0?ca={}", nowhere.display()),
    ];
    for url in urls {
        refused(&url, &["no-such-file.pem"]).await;
    }
}

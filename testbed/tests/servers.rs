//! The servers start, keep what was committed, come back after each kind of end, and do not outlive their process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semel_testbed::{Kind, Mariadb, Pgbouncer, Postgres, Proxy, Rabbitmq, Redis, Settings, SmallDisk};

#[tokio::test]
async fn each_caller_has_a_postgres_database_of_its_own() {
    let (one, other) = (semel_testbed::postgres().await, semel_testbed::postgres().await);
    assert_eq!(one.addr(), other.addr());
    one.run("CREATE TABLE t (n int)").await;
    other.run("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await;
    assert_eq!(one.run("SELECT count(*) FROM t").await.trim(), "0");
}

#[tokio::test]
async fn each_caller_has_a_mariadb_database_of_its_own() {
    let (one, other) = (semel_testbed::mariadb().await, semel_testbed::mariadb().await);
    assert_eq!(one.addr(), other.addr());
    one.run("CREATE TABLE t (n int)").await;
    other.run("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await;
    assert_eq!(one.run("SELECT count(*) FROM t").await.trim(), "0");
}

#[tokio::test]
async fn each_caller_has_a_redis_number_of_its_own() {
    let (one, other) = (semel_testbed::redis().await, semel_testbed::redis().await);
    assert_eq!(one.addr(), other.addr());
    other.run("SET t 7").await;
    assert_eq!((one.run("DBSIZE").await.trim(), other.run("GET t").await.trim()), ("0", "7"));
}

#[tokio::test]
async fn a_postgres_comes_back_with_what_was_committed() {
    let postgres = Postgres::start().await;
    let database = postgres.database().await;
    database.run("CREATE TABLE t (n int)").await;
    for n in 0..3 {
        database.run(&format!("INSERT INTO t VALUES ({n})")).await;
        match n {
            0 => postgres.stop().await,
            1 => postgres.kill().await,
            _ => {}
        }
        postgres.restart().await;
    }
    assert_eq!(database.run("SELECT count(*) FROM t").await.trim(), "3");
}

#[tokio::test]
async fn a_mariadb_comes_back_with_what_was_committed() {
    let mariadb = Mariadb::start().await;
    let database = mariadb.database().await;
    database.run("CREATE TABLE t (n int)").await;
    database.run("INSERT INTO t VALUES (1)").await;
    mariadb.kill().await;
    mariadb.restart().await;
    assert_eq!(database.run("SELECT count(*) FROM t").await.trim(), "1");
}

#[tokio::test]
async fn a_durable_redis_comes_back_with_what_it_acknowledged() {
    let redis = Redis::start_with(Settings::durable()).await;
    let database = redis.database().await;
    assert_eq!(database.run("CONFIG GET appendfsync").await.lines().last(), Some("always"));
    database.run("SET t 7").await;
    redis.kill().await;
    redis.restart().await;
    assert_eq!(database.run("GET t").await.trim(), "7");
}

#[tokio::test]
async fn a_paused_server_answers_when_it_goes_on() {
    let redis = Redis::start().await;
    let database = redis.database().await;
    redis.pause();
    let mut answer = tokio::spawn(async move { database.run("PING").await });
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut answer).await.is_err());
    redis.resume();
    assert_eq!(answer.await.expect("an answer").trim(), "PONG");
}

#[tokio::test]
async fn a_pooler_and_a_proxy_lead_to_the_same_postgres() {
    let postgres = Postgres::start_with(Settings::durable().set("max_connections", "30")).await;
    let pooler = Pgbouncer::before(&postgres).await;
    let database = postgres.database().await;
    database.run("CREATE TABLE t AS SELECT 7 AS n").await;
    let proxy = Proxy::before(pooler.addr());
    let through = Command::new("psql")
        .args(["--no-psqlrc", "-qtA", "-c", "SELECT n, current_setting('fsync') FROM t"])
        .args(["-d", &database.url_at(proxy.addr())])
        .output()
        .expect("psql");
    assert_eq!(String::from_utf8_lossy(&through.stdout).trim(), "7|on", "{through:?}");
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_rabbitmq_comes_back_on_the_same_port() {
    let rabbitmq = Rabbitmq::start().await;
    rabbitmq.kill().await;
    // Ready means that it spoke AMQP.
    rabbitmq.restart().await;
    let broker = semel_testbed::rabbitmq().await;
    assert!(broker.url().starts_with("amqp://") && broker.name("orders").ends_with(".orders"));
}

#[tokio::test]
async fn a_small_disk_fills_and_has_room_again() {
    let disk = SmallDisk::of_megabytes(2).await;
    let filler = disk.fill().await;
    assert!(std::fs::write(disk.path().join("file"), [0; 4096]).is_err());
    drop(filler);
    std::fs::write(disk.path().join("file"), [0; 4096]).expect("room");
}

#[tokio::test]
async fn held_connections_leave_none_for_others() {
    for (kind, setting, most) in [
        (Kind::Postgres, "max_connections", "5"),
        (Kind::Mariadb, "max-connections", "10"),
        (Kind::Redis, "maxclients", "10"),
    ] {
        let server = kind.start(Settings::fast().set(setting, most)).await;
        let database = server.database().await;
        let mut held = Vec::new();
        while let Some(one) = database.hold().await {
            held.push(one);
            assert!(held.len() < 20, "{kind:?} refuses nobody");
        }
        assert!(!held.is_empty(), "{kind:?}");
        held.clear();
        // The server notices the end of those connections in its own time.
        let started = Instant::now();
        while database.hold().await.is_none() {
            assert!(started.elapsed() < semel_testbed::DEADLINE, "{kind:?}");
        }
    }
}

/// Said to the process that [`no_server_outlives_a_killed_process`] starts of itself.
const SERVES: &str = "SEMEL_TESTBED_SERVES";

async fn serve_until_killed() {
    let (postgres, redis) = (Postgres::start().await, Redis::start().await);
    eprintln!("SERVING {} {}", postgres.addr(), redis.addr());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn no_server_outlives_a_killed_process() {
    if std::env::var_os(SERVES).is_some() {
        return serve_until_killed().await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Servers that run under another user's id look for their folders in it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("a folder for everybody");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "no_server_outlives_a_killed_process", "--nocapture"])
        .env(SERVES, "1")
        .env("TMPDIR", folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program again");
    let lines = BufReader::new(child.stderr.take().expect("its output")).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("SERVING")).expect("its servers run");
    let ports: Vec<_> = line.split_whitespace().rev().take(2).map(str::to_owned).collect();
    for address in &ports {
        std::net::TcpStream::connect(address).expect("it runs");
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    let gone = || ports.iter().all(|address| std::net::TcpStream::connect(address).is_err());
    let empty = || std::fs::read_dir(folder.path()).expect("a folder").next().is_none();
    let started = Instant::now();
    while !(gone() && empty()) {
        assert!(started.elapsed() < semel_testbed::DEADLINE, "{ports:?} {:?}", folder.path());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

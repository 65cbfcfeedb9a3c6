//! What the store is opened on, and what it says when it is not.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use semel_store::{ConnectError, Options, connect, migrations};
use semel_testbed::{Redis, Settings};

use super::{HASTY, PATIENT, control, open, open_within, tell};

async fn refusal(url: &str) -> String {
    open_within(url, PATIENT).await.err().unwrap_or_else(|| panic!("{url} is opened"))
}

#[tokio::test]
async fn c34_a_server_that_evicts_is_refused_unless_loss_is_allowed() {
    let server = Redis::start_with(Settings::fast().set("maxmemory", "50mb")).await;
    open(&server.url()).await;
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
        tell::<()>(&mut control(&server.url()), &format!("CONFIG SET maxmemory-policy {policy}"));
        let said = refusal(&server.url()).await;
        assert!(
            said.contains(policy) && said.contains("noeviction") && said.contains("allow_loss"),
            "{said}"
        );
        open(&format!("{}?allow_loss=true", server.url())).await;
    }
}

#[tokio::test]
async fn a_server_that_keeps_nothing_on_its_disk_is_refused_unless_loss_is_allowed() {
    let server = Redis::start_with(Settings::fast().set("appendonly", "no")).await;
    let said = refusal(&server.url()).await;
    assert!(said.contains("appendonly") && said.contains("allow_loss"), "{said}");
    open(&format!("{}?allow_loss=true", server.url())).await;
    let mut snapshots = ::redis::cmd("CONFIG");
    snapshots.arg("SET").arg("save").arg("3600 1").exec(&mut control(&server.url())).expect("it is set");
    open(&server.url()).await;
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (Redis::start().await, Redis::start().await);
    let (host, port) = (primary.addr().ip(), primary.addr().port());
    tell::<()>(&mut control(&replica.url()), &format!("REPLICAOF {host} {port}"));
    let said = refusal(&replica.url()).await;
    assert!(said.contains("replica"), "{said}");
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_shown() {
    let server = Redis::start().await;
    tell::<()>(&mut control(&server.url()), "CONFIG SET requirepass correct-horse");
    let at = |login: &str| server.url().replace("redis://", &format!("redis://{login}"));
    open(&at(":correct-horse@")).await;
    for login in [":battery-staple@", "nobody:battery-staple@", ""] {
        let said = refusal(&at(login)).await;
        assert!(said.contains("password") && !said.contains("battery"), "{said}");
    }
}

#[tokio::test]
async fn a_user_who_may_not_do_all_is_found_out_at_the_start() {
    let server = Redis::start().await;
    let mut admin = control(&server.url());
    tell::<()>(&mut admin, "ACL SETUSER gate on >pass ~{semel:* +@all -zadd");
    let url = server.url().replace("redis://", "redis://gate:pass@");
    let said = refusal(&url).await;
    assert!(said.contains("trial") && said.contains("can't run this command"), "{said}");
    // What it needs, and no more.
    tell::<()>(
        &mut admin,
        "ACL SETUSER gate -@all +@read +@write +@scripting +@connection +info +role +time",
    );
    open(&url).await;
    let said = refusal(&format!("{url}?prefix=other")).await;
    assert!(said.contains("NOPERM"), "{said}");
}

#[tokio::test]
async fn nobody_there_and_nobody_who_answers_are_said_within_the_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address");
    let started = Instant::now();
    let said = open_within(&format!("redis://{address}"), HASTY).await.expect_err("nobody answers");
    assert!(started.elapsed() < PATIENT && said.contains(&address.to_string()), "{said}");
    drop(silent);
    let said = open_within(&format!("redis://{address}"), PATIENT).await.expect_err("nobody is there");
    assert!(said.contains("refused"), "{said}");
    let said = open_within("redis+cluster://127.0.0.1:1", PATIENT).await.expect_err("nobody is there");
    assert!(said.contains("127.0.0.1:1"), "{said}");
}

#[tokio::test]
async fn what_is_no_redis_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let said = refusal(&format!("redis://{address}")).await;
    assert!(said.contains("protocol"), "{said}");
}

#[tokio::test]
async fn c34_a_parameter_that_is_misspelt_is_an_error_that_names_it() {
    let options = Options { busy_for: Duration::from_secs(1), ..Options::default() };
    for url in ["redis://127.0.0.1:1?alow_loss=true", "redis+cluster://127.0.0.1:1?alow_loss=true"] {
        let error = connect(url, &options).await.expect_err("it is none");
        assert!(matches!(error, ConnectError::Url(_)) && error.to_string().contains("allow_loss"), "{error}");
        assert!(migrations(url).is_err(), "before anything is opened, too");
    }
}

#[tokio::test]
async fn a_single_server_and_a_cluster_are_told_apart() {
    let single = Redis::start().await;
    let said = refusal(&single.url().replace("redis://", "redis+cluster://").replace("/0", "")).await;
    assert!(said.contains("cluster"), "{said}");
    let node = Redis::start_with(Settings::fast().set("cluster-enabled", "yes")).await;
    let said = refusal(&node.url()).await;
    assert!(said.contains("redis+cluster://"), "{said}");
}

#[tokio::test]
async fn connected_it_is_shared_and_may_lose() {
    let server = Redis::start().await;
    let options = Options { busy_for: PATIENT, ..Options::default() };
    let connected = connect(&server.url(), &options).await.expect("a store");
    assert!(connected.shared && connected.lossy, "replication is asynchronous");
}

//! Each fault of the proxy, against a server that echoes lines and counts them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel_testbed::{Fault, Plan, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Echoes what it hears; knows how many bytes it heard, and how many connections have ended.
struct Echo {
    address: SocketAddr,
    heard: Arc<AtomicU32>,
    ended: watch::Receiver<u32>,
}

impl Echo {
    async fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (heard, (ending, ended)) = (Arc::new(AtomicU32::new(0)), watch::channel(0));
        let (counting, ending) = (Arc::clone(&heard), Arc::new(ending));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, Arc::clone(&counting), Arc::clone(&ending)));
            }
        });
        Echo { address, heard, ended }
    }

    fn heard(&self) -> u32 {
        self.heard.load(Ordering::SeqCst)
    }
}

async fn echo(mut stream: TcpStream, heard: Arc<AtomicU32>, ending: Arc<watch::Sender<u32>>) {
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        heard.fetch_add(length as u32, Ordering::SeqCst);
        if stream.write_all(&chunk[..length]).await.is_err() {
            break;
        }
    }
    ending.send_modify(|ended| *ended += 1);
}

async fn before() -> (Echo, Proxy) {
    let echo = Echo::start().await;
    let proxy = Proxy::before(echo.address);
    (echo, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.addr()).await.expect("a connection")
}

/// Says it, and reads as many bytes.
async fn ask(stream: &mut TcpStream, words: &str) -> std::io::Result<String> {
    stream.write_all(words.as_bytes()).await?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8(answer).expect("text"))
}

async fn end_of(stream: &mut TcpStream) -> std::io::Result<usize> {
    tokio::time::timeout(semel_testbed::DEADLINE, stream.read(&mut [0; 16])).await.expect("it ends")
}

/// Nothing comes, for as long as an answer would surely have come. The one place where time must be the proof.
async fn silent(stream: &mut TcpStream) {
    let read = tokio::time::timeout(Duration::from_millis(300), stream.read(&mut [0; 16])).await;
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test]
async fn without_a_plan_it_passes_everything() {
    let (echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    for words in ["one", "two", "three"] {
        assert_eq!(ask(&mut stream, words).await.expect("an answer"), words);
    }
    assert_eq!((echo.heard(), proxy.accepted(), proxy.open_connections()), (11, 1, 1));
}

#[tokio::test]
async fn an_answer_reaches_a_client_that_says_no_more() {
    let (_echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    stream.write_all(b"last").await.expect("sent");
    stream.shutdown().await.expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer and the end");
    assert_eq!(answer, "last");
}

#[tokio::test]
async fn delay() {
    let (_echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::Delay(Duration::from_millis(150)));
    let started = std::time::Instant::now();
    assert_eq!(ask(&mut stream, "late").await.expect("an answer"), "late");
    assert!(started.elapsed() >= Duration::from_millis(150), "{:?}", started.elapsed());
    assert_eq!(armed.count(), 1);
}

#[tokio::test]
async fn cut_before_the_request_arrives() {
    let (mut echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::CutBeforeRequest);
    assert_eq!(ask(&mut stream, "never").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    armed.happened().await;
    echo.ended.wait_for(|ended| *ended == 1).await.expect("the server saw the end");
    assert_eq!(echo.heard(), 0);
}

#[tokio::test]
async fn cut_after_the_answer_and_before_the_client_hears_it() {
    let (echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::CutAfterAnswer);
    assert_eq!(ask(&mut stream, "done").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    armed.happened().await;
    assert_eq!(echo.heard(), 4);
}

#[tokio::test]
async fn a_blackhole_swallows_and_stays_open() {
    let (echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::Blackhole);
    stream.write_all(b"gone").await.expect("the client is not told");
    armed.happened().await;
    stream.write_all(b"gone").await.expect("the client is not told");
    silent(&mut stream).await;
    assert_eq!((echo.heard(), *echo.ended.borrow(), proxy.open_connections()), (0, 0, 1));
    let mut other = connect(&proxy).await;
    assert_eq!(ask(&mut other, "free").await.expect("only one connection was struck"), "free");
}

#[tokio::test]
async fn half_open_ends_at_the_server_alone() {
    let (mut echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::HalfOpen);
    stream.write_all(b"gone").await.expect("the client is not told");
    armed.happened().await;
    echo.ended.wait_for(|ended| *ended == 1).await.expect("the server saw the end");
    stream.write_all(b"more").await.expect("the client is not told");
    silent(&mut stream).await;
    assert_eq!(echo.heard(), 0);
}

#[tokio::test]
async fn reset_after_some_bytes_of_the_answer() {
    let (echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm(Fault::ResetAfter(3));
    stream.write_all(b"abcdef").await.expect("sent");
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    armed.happened().await;
    // A reset may overtake what was sent before it.
    assert!(b"abc".starts_with(&answer), "{answer:?}");
    assert_eq!(echo.heard(), 6);
}

#[tokio::test]
async fn a_plan_waits_for_its_bytes_even_when_they_come_in_two_parts() {
    let (_echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    let armed = proxy.arm_on(Fault::CutBeforeRequest, "key-7");
    assert_eq!(ask(&mut stream, "key-6 key-").await.expect("not this one"), "key-6 key-");
    assert!(ask(&mut stream, "7").await.is_err());
    assert_eq!(armed.count(), 1);
}

#[tokio::test]
async fn a_plan_strikes_so_often_and_no_more() {
    let (_echo, proxy) = before().await;
    let armed = proxy.arm_plan(Plan::of(Fault::CutBeforeRequest).times(2));
    for _ in 0..2 {
        assert!(ask(&mut connect(&proxy).await, "struck").await.is_err());
    }
    assert_eq!(ask(&mut connect(&proxy).await, "free").await.expect("an answer"), "free");
    armed.happened_times(2).await;
    assert_eq!(armed.count(), 2);
}

#[tokio::test]
async fn what_is_armed_for_ever_ends_when_it_is_disarmed() {
    let (_echo, proxy) = before().await;
    let armed = proxy.arm_plan(Plan::of(Fault::CutAfterAnswer).always());
    for _ in 0..3 {
        assert!(ask(&mut connect(&proxy).await, "struck").await.is_err());
    }
    proxy.disarm();
    assert_eq!(ask(&mut connect(&proxy).await, "free").await.expect("an answer"), "free");
    assert_eq!(armed.count(), 3);
}

#[tokio::test]
async fn every_connection_is_reset_at_once() {
    let (_echo, proxy) = before().await;
    let mut streams = [connect(&proxy).await, connect(&proxy).await];
    for stream in &mut streams {
        ask(stream, "here").await.expect("an answer");
    }
    proxy.cut_all();
    for stream in &mut streams {
        assert_eq!(end_of(stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(ask(&mut connect(&proxy).await, "free").await.expect("new ones are taken"), "free");
}

#[tokio::test]
async fn it_refuses_connections_and_takes_them_again() {
    let (_echo, proxy) = before().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, "here").await.expect("an answer");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.addr()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut stream, "here").await.expect("what is open stays"), "here");
    proxy.accept();
    assert_eq!(ask(&mut connect(&proxy).await, "free").await.expect("an answer"), "free");
}

#[tokio::test]
async fn it_aims_at_another_server() {
    let (first, proxy) = before().await;
    let second = Echo::start().await;
    proxy.aim(second.address);
    assert_eq!(ask(&mut connect(&proxy).await, "here").await.expect("an answer"), "here");
    assert_eq!((first.heard(), second.heard()), (0, 4));
}

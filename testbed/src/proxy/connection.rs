//! One connection through the proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Armed, Fault, SILENCE, Shared, lock};

/// How long an answer is taken before the connection is cut, if the server is never silent.
const ANSWER_AT_MOST: Duration = Duration::from_secs(1);
const CHUNK: usize = 64 * 1024;
/// How much of what a client said is remembered: bytes to wait for may be split over two reads.
const MEMORY: usize = 4096;

/// What becomes of what the server says.
#[derive(Debug, Default)]
enum Answer {
    #[default]
    Pass,
    Cut(Armed),
    Swallow,
    ResetAfter(usize, Armed),
}

/// How a connection ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Both sides read the end of the stream.
    Closed,
    /// Both sides read an error.
    Reset,
    /// The server reads the end; the client nothing.
    HalfOpen,
}

pub(super) async fn serve(shared: Arc<Shared>, mut client: TcpStream) {
    let target = *lock(&shared.target);
    let mut cut = shared.cut.subscribe();
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    shared.open.send_modify(|open| *open += 1);
    let answer = Mutex::new(Answer::default());
    let end = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            end = upward(&shared, &answer, from_client, to_server) => end,
            end = downward(&answer, from_server, to_client) => end,
            _ = cut.changed() => End::Reset,
        }
    };
    match end {
        End::Closed => {}
        End::Reset => {
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
        End::HalfOpen => {
            drop(server);
            tokio::select! { () = swallow(&mut client) => {}, _ = cut.changed() => {} }
        }
    }
    shared.open.send_modify(|open| *open -= 1);
}

/// From the client to the server.
async fn upward(
    shared: &Shared,
    answer: &Mutex<Answer>,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
) -> End {
    let (mut chunk, mut seen) = (vec![0; CHUNK], Vec::new());
    loop {
        let length = match from.read(&mut chunk).await {
            Ok(0) => {
                // Half closed: the answer to what was said may still come.
                let _ = to.shutdown().await;
                return std::future::pending().await;
            }
            Ok(length) => length,
            Err(_) => return End::Reset,
        };
        let start = seen.len();
        seen.extend_from_slice(&chunk[..length]);
        if let Some((fault, armed)) = strike(shared, &seen, start)
            && let Some(end) = suffer(fault, armed, answer).await
        {
            return end;
        }
        seen.drain(..seen.len().saturating_sub(MEMORY));
        if matches!(*lock(answer), Answer::Swallow) {
            continue;
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return End::Reset;
        }
    }
}

fn strike(shared: &Shared, seen: &[u8], start: usize) -> Option<(Fault, Armed)> {
    let plans = lock(&shared.plans).clone();
    plans.into_iter().find_map(|armed| Some((armed.strikes(seen, start)?, armed)))
}

/// What the fault does before the request is passed on. Gives the end of the connection, if it is that.
async fn suffer(fault: Fault, armed: Armed, answer: &Mutex<Answer>) -> Option<End> {
    match fault {
        Fault::Delay(by) => tokio::time::sleep(by).await,
        Fault::Blackhole => *lock(answer) = Answer::Swallow,
        Fault::CutBeforeRequest | Fault::HalfOpen => {}
        // These happen when the server answers.
        Fault::CutAfterAnswer => {
            *lock(answer) = Answer::Cut(armed);
            return None;
        }
        Fault::ResetAfter(bytes) => {
            *lock(answer) = Answer::ResetAfter(bytes, armed);
            return None;
        }
    }
    armed.happened_now();
    match fault {
        Fault::CutBeforeRequest => Some(End::Closed),
        Fault::HalfOpen => Some(End::HalfOpen),
        _ => None,
    }
}

/// From the server to the client.
async fn downward(answer: &Mutex<Answer>, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = match from.read(&mut chunk).await {
            Ok(0) => return End::Closed,
            Ok(length) => length,
            Err(_) => return End::Reset,
        };
        let mut said = &chunk[..length];
        let mut end = None;
        match &mut *lock(answer) {
            Answer::Pass => {}
            Answer::Swallow => said = &[],
            Answer::Cut(armed) => {
                said = &[];
                end = Some(armed.clone());
            }
            Answer::ResetAfter(left, armed) => {
                said = &said[..said.len().min(*left)];
                *left -= said.len();
                end = (*left == 0).then(|| armed.clone());
            }
        }
        if !said.is_empty() && to.write_all(said).await.is_err() {
            return End::Reset;
        }
        if let Some(armed) = end {
            return finish(&mut from, said.is_empty(), armed).await;
        }
    }
}

/// Lets the server finish what it says, then ends the connection.
async fn finish(from: &mut ReadHalf<'_>, cut: bool, armed: Armed) -> End {
    let mut rest = vec![0; CHUNK];
    let silence =
        async { while let Ok(Ok(1..)) = tokio::time::timeout(SILENCE, from.read(&mut rest)).await {} };
    let _ = tokio::time::timeout(ANSWER_AT_MOST, silence).await;
    armed.happened_now();
    if cut { End::Closed } else { End::Reset }
}

async fn swallow(client: &mut TcpStream) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(1..) = client.read(&mut chunk).await {}
}

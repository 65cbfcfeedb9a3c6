//! A client that speaks HTTP/2: one connection, many streams.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Answer, Call, DEADLINE};

/// A connection with prior knowledge.
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
    runtime: Runtime,
}

/// A request that has been sent, at least its head.
pub(crate) struct Sent {
    pub(crate) response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

/// A response of which more may come.
pub(crate) struct Coming {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: RecvStream,
}

impl Http2 {
    pub(crate) fn connect(address: SocketAddr) -> Http2 {
        Http2::try_connect(address).expect("a handshake")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> Result<Http2, h2::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (sender, driver) = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("it accepts");
            let (sender, connection) = h2::client::handshake(stream).await?;
            Ok::<_, h2::Error>((sender, tokio::spawn(connection)))
        })?;
        Ok(Http2 { sender, driver, runtime })
    }

    /// The head of a request, and with `end` nothing behind it.
    pub(crate) fn begin(&mut self, call: &Call, end: bool) -> Result<Sent, h2::Error> {
        let mut request = Request::builder().method(call.method()).uri(uri(call));
        for (name, value) in call.headers().iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            request = request.header(name, value);
        }
        let request = request.body(()).unwrap();
        let (response, body) = self.wait(async |sender| {
            let mut ready = sender.clone().ready().await?;
            ready.send_request(request, end)
        })?;
        Ok(Sent { response, body })
    }

    /// A whole request.
    pub(crate) fn send(&mut self, call: &Call) -> Result<Sent, h2::Error> {
        let end = call.body_bytes().is_empty();
        let mut sent = self.begin(call, end)?;
        if !end {
            sent.body.send_data(Bytes::copy_from_slice(call.body_bytes()), true)?;
        }
        Ok(sent)
    }

    /// Its response, as far as the head.
    pub(crate) fn head_of(&mut self, response: ResponseFuture) -> Result<Coming, h2::Error> {
        self.wait(async |_| response.await).map(Http2::coming)
    }

    fn coming(response: http::Response<RecvStream>) -> Coming {
        let (head, body) = response.into_parts();
        Coming { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) fn piece(&mut self, coming: &mut Coming) -> Result<Option<Bytes>, h2::Error> {
        let piece = self.wait(async |_| coming.body.data().await.transpose())?;
        if let Some(piece) = &piece {
            coming.body.flow_control().release_capacity(piece.len())?;
        }
        Ok(piece)
    }

    pub(crate) fn trailers(&mut self, coming: &mut Coming) -> Result<Option<HeaderMap>, h2::Error> {
        self.wait(async |_| coming.body.trailers().await)
    }

    /// The whole response.
    pub(crate) fn receive(&mut self, sent: Sent) -> Result<Answer, h2::Error> {
        let coming = self.head_of(sent.response)?;
        self.whole(coming)
    }

    fn whole(&mut self, mut coming: Coming) -> Result<Answer, h2::Error> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(&mut coming)? {
            body.extend_from_slice(&piece);
        }
        let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Ok(Answer { status: coming.status, headers: coming.headers.iter().map(line).collect(), body })
    }

    /// The one of two that is answered first, whole, and the other.
    pub(crate) fn receive_first(&mut self, one: Sent, other: Sent) -> Result<(Answer, Sent), h2::Error> {
        let (mut one, mut other) = (one, other);
        let (head, left) = self.wait(async |_| {
            tokio::select! {
                head = &mut one.response => Ok((head?, other)),
                head = &mut other.response => Ok((head?, one)),
            }
        })?;
        Ok((self.whole(Http2::coming(head))?, left))
    }

    pub(crate) fn call(&mut self, call: &Call) -> Result<Answer, h2::Error> {
        let sent = self.send(call)?;
        self.receive(sent)
    }

    /// A GET with this authority, and these headers beside it.
    pub(crate) fn call_with_host(
        &mut self,
        authority: &str,
        headers: &[(&str, &str)],
    ) -> Result<Answer, h2::Error> {
        let request = Request::get(format!("http://{authority}/"));
        self.call_bare(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)))
    }

    /// A CONNECT.
    pub(crate) fn connect_to(&mut self, authority: &str) -> Result<Answer, h2::Error> {
        self.call_bare(Request::connect(authority))
    }

    fn call_bare(&mut self, request: http::request::Builder) -> Result<Answer, h2::Error> {
        let request = request.body(()).unwrap();
        let (response, body) = self.wait(async |sender| {
            let mut ready = sender.clone().ready().await?;
            ready.send_request(request, true)
        })?;
        self.receive(Sent { response, body })
    }

    /// Waits until the connection has ended.
    #[track_caller]
    pub(crate) fn ended(self) -> Result<(), h2::Error> {
        let Http2 { driver, runtime, .. } = self;
        let ended = runtime.block_on(async { timeout(DEADLINE, driver).await });
        ended.expect("it ends within the deadline").expect("no panic")
    }

    #[track_caller]
    fn wait<T>(
        &mut self,
        what: impl AsyncFnOnce(&mut SendRequest<Bytes>) -> Result<T, h2::Error>,
    ) -> Result<T, h2::Error> {
        let (runtime, sender) = (&self.runtime, &mut self.sender);
        runtime.block_on(async { timeout(DEADLINE, what(sender)).await }).expect("within the deadline")
    }

    /// Lets the connection run for a while, and says whether it is open still.
    pub(crate) fn is_open_after(&self, time: Duration) -> bool {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
        !self.driver.is_finished()
    }
}

fn uri(call: &Call) -> String {
    let host = call.headers().iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map_or("shop.example", |(_, host)| host);
    format!("http://{host}{}", call.target())
}

//! A TCP proxy that injects faults.
//!
//! 1. It passes bytes on as they come, and knows no protocol. A *request* is what one read from the client gives; a
//!    fault strikes a request, and may be told to wait for one that holds certain bytes: the key, say, or `COMMIT`.
//! 2. Faults are armed at run time, once, for some requests, or for all. Each strike is counted, and can be awaited.
//!    The first plan that fits a request strikes, in the order in which they were armed.
//! 3. It runs in a thread of its own: a test that blocks, or whose runtime is busy, does not slow it.
//!
//! Limits: what is encrypted holds no bytes to wait for. On a connection where several requests are under way, the
//! answer that [`Fault::CutAfterAnswer`] waits for may be that of an earlier one; it then goes on taking what the
//! server says until that is silent for 30 ms, so that the request itself has been worked on too.

mod connection;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// How long a server must say nothing, after its answer, to be done with a request.
const SILENCE: Duration = Duration::from_millis(30);

/// What happens to a request, or to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It arrives later. What follows it on the connection waits with it.
    Delay(Duration),
    /// The connection ends before the server has heard anything of it.
    CutBeforeRequest,
    /// The server has worked on it and answered; the client hears nothing of the answer but the connection's end.
    CutAfterAnswer,
    /// It is swallowed, and so is everything later, in both directions. The connection stays open on both sides.
    Blackhole,
    /// The server's side ends, before the request; the client's stays open, and nobody answers there.
    HalfOpen,
    /// The server answers, and after so many bytes of the answer the client's connection is reset.
    ResetAfter(usize),
}

/// A fault, and whom it strikes.
#[derive(Debug, Clone)]
pub struct Plan {
    fault: Fault,
    needle: Vec<u8>,
    times: Option<u32>,
}

impl Plan {
    /// Strikes the next request.
    pub fn of(fault: Fault) -> Plan {
        Plan { fault, needle: Vec::new(), times: Some(1) }
    }

    /// Only requests that hold these bytes.
    #[must_use]
    pub fn on(mut self, bytes: impl AsRef<[u8]>) -> Plan {
        self.needle = bytes.as_ref().to_vec();
        self
    }

    /// So many requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Plan {
        self.times = Some(times);
        self
    }

    /// Until it is disarmed.
    #[must_use]
    pub fn always(mut self) -> Plan {
        self.times = None;
        self
    }
}

/// A plan that a proxy follows, to count and await its strikes.
#[derive(Debug, Clone)]
pub struct Armed {
    plan: Arc<Mutex<Plan>>,
    struck: Arc<watch::Sender<u32>>,
}

impl Armed {
    /// How often the fault has happened.
    pub fn count(&self) -> u32 {
        *self.struck.borrow()
    }

    /// Waits until it has happened once.
    ///
    /// # Panics
    ///
    /// After [`DEADLINE`](crate::DEADLINE).
    pub async fn happened(&self) {
        self.happened_times(1).await;
    }

    /// Waits until it has happened so often.
    ///
    /// # Panics
    ///
    /// After [`DEADLINE`](crate::DEADLINE).
    pub async fn happened_times(&self, times: u32) {
        let mut struck = self.struck.subscribe();
        let waited = tokio::time::timeout(crate::DEADLINE, struck.wait_for(|struck| *struck >= times)).await;
        assert!(waited.is_ok(), "{:?} has struck {} times of {times}", self.plan(), self.count());
    }

    /// Strikes no more. What it did to open connections stays.
    pub fn disarm(&self) {
        self.plan().times = Some(0);
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether it strikes a request: `seen` is what came before it on the connection, then the request from `start`.
    fn strikes(&self, seen: &[u8], start: usize) -> Option<Fault> {
        let mut plan = self.plan();
        let from = start.saturating_sub(plan.needle.len().saturating_sub(1));
        let fits =
            plan.needle.is_empty() || seen[from..].windows(plan.needle.len()).any(|w| w == plan.needle);
        if !fits || plan.times == Some(0) {
            return None;
        }
        plan.times = plan.times.map(|times| times - 1);
        Some(plan.fault)
    }

    fn happened_now(&self) {
        self.struck.send_modify(|struck| *struck += 1);
    }
}

/// The proxy. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    plans: Mutex<Vec<Armed>>,
    /// Raised to end every connection there is.
    cut: watch::Sender<u32>,
    open: watch::Sender<usize>,
    accepted: watch::Sender<u32>,
}

enum Order {
    Listen(std::net::TcpListener),
    Refuse(std::sync::mpsc::Sender<()>),
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, and passes on to the address.
    ///
    /// # Panics
    ///
    /// When there is no port.
    pub fn before(target: SocketAddr) -> Proxy {
        // Not one that the kernel gives to clients: it is listened on again after a while without.
        let bind = |_| std::net::TcpListener::bind(crate::server::free_address()).ok();
        let listener = (0..100).find_map(bind).expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            plans: Mutex::default(),
            cut: watch::Sender::new(0),
            open: watch::Sender::new(0),
            accepted: watch::Sender::new(0),
        });
        let (orders, received) = mpsc::unbounded_channel();
        let serving = Arc::clone(&shared);
        let serve = move || run(serving, received);
        std::thread::Builder::new().name("testbed-proxy".to_owned()).spawn(serve).expect("a thread");
        orders.send(Order::Listen(listener)).expect("the proxy's thread");
        Proxy { shared, address, orders }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Makes a fault happen to the next request.
    pub fn arm(&self, fault: Fault) -> Armed {
        self.arm_plan(Plan::of(fault))
    }

    /// Makes a fault happen to the next request that holds these bytes.
    pub fn arm_on(&self, fault: Fault, bytes: impl AsRef<[u8]>) -> Armed {
        self.arm_plan(Plan::of(fault).on(bytes))
    }

    /// Follows a plan.
    pub fn arm_plan(&self, plan: Plan) -> Armed {
        let armed = Armed { plan: Arc::new(Mutex::new(plan)), struck: Arc::new(watch::Sender::new(0)) };
        lock(&self.shared.plans).push(armed.clone());
        armed
    }

    /// Follows no plan any more. What was done to open connections stays.
    pub fn disarm(&self) {
        lock(&self.shared.plans).drain(..).for_each(|armed| armed.disarm());
    }

    /// Resets every open connection, on both sides.
    pub fn cut_all(&self) {
        self.shared.cut.send_modify(|cut| *cut += 1);
    }

    /// Refuses new connections, as a host does where nothing listens; those that are open stay.
    ///
    /// # Panics
    ///
    /// When its thread is gone.
    pub fn refuse(&self) {
        let (done, refused) = std::sync::mpsc::channel();
        self.orders.send(Order::Refuse(done)).expect("the proxy's thread");
        refused.recv().expect("the proxy's thread");
    }

    /// Takes connections again, on the same port.
    ///
    /// # Panics
    ///
    /// When another process took the port meanwhile.
    pub fn accept(&self) {
        let listener = std::net::TcpListener::bind(self.address).expect("the same port again");
        self.orders.send(Order::Listen(listener)).expect("the proxy's thread");
    }

    /// Passes new connections on to another address.
    pub fn aim(&self, target: SocketAddr) {
        *lock(&self.shared.target) = target;
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> u32 {
        *self.shared.accepted.borrow()
    }

    /// Waits until so many connections have been made since the proxy started.
    ///
    /// # Panics
    ///
    /// After [`DEADLINE`](crate::DEADLINE).
    pub async fn accepted_times(&self, times: u32) {
        let mut accepted = self.shared.accepted.subscribe();
        let waited = tokio::time::timeout(crate::DEADLINE, accepted.wait_for(|count| *count >= times)).await;
        assert!(waited.is_ok(), "{} connections of {times}", self.accepted());
    }
}

/// Accepts until the proxy is dropped; the end of its runtime ends the connections.
fn run(shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        let mut listener = None;
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Listen(bound)) => listener = Some(listen(bound)),
                    Some(Order::Refuse(done)) => {
                        listener = None;
                        let _ = done.send(());
                    }
                    None => return,
                },
                client = accept(&listener) => {
                    shared.accepted.send_modify(|accepted| *accepted += 1);
                    tokio::spawn(connection::serve(Arc::clone(&shared), client));
                }
            }
        }
    });
}

fn listen(bound: std::net::TcpListener) -> TcpListener {
    bound.set_nonblocking(true).expect("a listener that does not block");
    TcpListener::from_std(bound).expect("a listener")
}

async fn accept(listener: &Option<TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        if let Ok((client, _)) = listener.accept().await {
            return client;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

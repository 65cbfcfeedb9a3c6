//! Between clear text and TLS: whatever a test writes or answers in clear text goes through TLS on its way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A bridge; dropping it closes it.
pub(crate) struct Bridge {
    pub(crate) address: SocketAddr,
    handshakes: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Bridge {
    /// Clear text here is TLS there, by the name `localhost`.
    pub(crate) fn to_tls(there: SocketAddr, config: Arc<ClientConfig>) -> Bridge {
        let connector = TlsConnector::from(config);
        Bridge::start(move |mut here, handshakes| {
            let connector = connector.clone();
            async move {
                let Ok(there) = TcpStream::connect(there).await else { return };
                let name = ServerName::try_from("localhost").unwrap();
                let Ok(mut there) = connector.connect(name, there).await else { return };
                handshakes.fetch_add(1, Ordering::SeqCst);
                let _ = copy_bidirectional(&mut here, &mut there).await;
            }
        })
    }

    /// TLS here is clear text there.
    pub(crate) fn from_tls(there: SocketAddr, config: Arc<ServerConfig>) -> Bridge {
        let acceptor = TlsAcceptor::from(config);
        Bridge::start(move |here, handshakes| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut here) = acceptor.accept(here).await else { return };
                handshakes.fetch_add(1, Ordering::SeqCst);
                let Ok(mut there) = TcpStream::connect(there).await else { return };
                let _ = copy_bidirectional(&mut here, &mut there).await;
            }
        })
    }

    fn start<F>(carry: impl Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static) -> Bridge
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::new(AtomicUsize::new(0));
        let counted = handshakes.clone();
        runtime.spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let _ = here.set_nodelay(true);
                tokio::spawn(carry(here, counted.clone()));
            }
        });
        Bridge { address, handshakes, _runtime: runtime }
    }

    /// Those that succeeded.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }
}

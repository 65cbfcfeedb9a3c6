//! What every server has: a port, a folder, a way to know that it is ready, and the faults of a whole process.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::home::Home;
use crate::process::Process;
use crate::program::User;

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub(crate) durable: bool,
    pub(crate) lines: Vec<(String, String)>,
    pub(crate) folder: Option<PathBuf>,
}

impl Settings {
    /// For tests of answers: what is committed survives the death of the server, not that of the machine.
    pub fn fast() -> Settings {
        Settings::default()
    }

    /// For measurements, and for tests that lose a machine: what is acknowledged is on the disk.
    pub fn durable() -> Settings {
        Settings { durable: true, ..Settings::default() }
    }

    /// A setting of the server, by its own name: `("max_connections", "5")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Settings {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Where the data lies, for the path of a [`SmallDisk`](crate::SmallDisk).
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Settings {
        self.folder = Some(folder.into());
        self
    }
}

/// What tells one kind of server from another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) user: Option<User>,
    /// Ends it as it likes to be ended, with what is open finished or rolled back.
    pub(crate) stop: Signal,
    /// Ends it at once; its name is for `setpriv` and `kill`.
    pub(crate) end: (Signal, &'static str),
    pub(crate) knock: Knock,
}

/// A server is ready when it hears the first words of its protocol, and says the right ones.
#[derive(Clone, Copy)]
pub(crate) struct Knock {
    pub(crate) say: &'static [u8],
    pub(crate) hear: fn(&[u8]) -> bool,
}

impl fmt::Debug for Knock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Knock").finish_non_exhaustive()
    }
}

impl Knock {
    fn answered(&self, address: SocketAddr) -> bool {
        self.try_once(address).unwrap_or(false)
    }

    fn try_once(&self, address: SocketAddr) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(self.say)?;
        let mut heard = [0; 64];
        let length = stream.read(&mut heard)?;
        Ok((self.hear)(&heard[..length]))
    }
}

/// A server, running or not. Ended when it is dropped, and its data removed.
pub(crate) struct Server {
    kind: Kind,
    address: SocketAddr,
    command: Command,
    // In this order: the process ends before its folder goes.
    process: Mutex<Option<Process>>,
    home: Mutex<Home>,
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct(self.kind.name).field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts one. `prepare` fills the folder, and gives the command for the port; it is asked again for another
    /// port when the first was taken meanwhile.
    pub(crate) fn start(
        kind: Kind,
        settings: &Settings,
        prepare: impl Fn(&Home, SocketAddr) -> Command,
    ) -> Server {
        let mut said = String::new();
        for _ in 0..4 {
            let home = Home::new(kind.name, kind.user, settings.folder.as_deref(), kind.end.1);
            let address = free_address();
            let command = prepare(&home, address);
            let server = Server { kind, address, command, process: Mutex::new(None), home: Mutex::new(home) };
            match server.launch() {
                Ok(()) => return server,
                Err(log) => said = log,
            }
        }
        panic!("{} did not start:\n{said}", kind.name);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn home(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Starts the process, and waits until it answers; gives what it said when it ended instead.
    fn launch(&self) -> Result<(), String> {
        let mut slot = self.process();
        let log = self.home().log();
        let mut process = Process::start(&self.command, self.kind.end.1, log)
            .map_err(|failed| format!("{}: {failed}", self.kind.name))?;
        self.home().keep(process.id());
        let started = Instant::now();
        while !self.kind.knock.answered(self.address) {
            if let Some(status) = process.ended() {
                return Err(format!("{status}\n{}", self.home().log_tail()));
            }
            let log = || self.home().log_tail();
            assert!(started.elapsed() < crate::DEADLINE, "{} is not ready:\n{}", self.kind.name, log());
            std::thread::sleep(Duration::from_millis(20));
        }
        // Else it is somebody else's server that answers.
        if let Some(status) = process.ended() {
            return Err(format!("{status}\n{}", self.home().log_tail()));
        }
        *slot = Some(process);
        Ok(())
    }

    /// Ends it in order. Nothing happens when it does not run.
    pub(crate) fn stop(&self) {
        if let Some(mut process) = self.process().take() {
            process.end(self.kind.stop);
        }
    }

    /// Kills it with all its processes.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill();
        }
    }

    /// Starts it again on the same port with the same data; ends it in order first when it runs.
    pub(crate) fn restart(&self) {
        self.stop();
        if let Err(said) = self.launch() {
            panic!("{} did not start again:\n{said}", self.kind.name);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        let mut slot = self.process();
        if slot.as_mut().is_some_and(|process| process.ended().is_some()) {
            *slot = None;
        }
        slot.is_some()
    }

    /// Stops all its processes where they are: its connections stay open, and nothing answers.
    pub(crate) fn pause(&self) {
        self.with_process(|process| process.signal_all(Signal::STOP));
    }

    pub(crate) fn resume(&self) {
        self.with_process(|process| process.signal_all(Signal::CONT));
    }

    fn with_process(&self, act: impl FnOnce(&Process)) {
        match &*self.process() {
            Some(process) => act(process),
            None => panic!("{} does not run", self.kind.name),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process().take() {
            // What is paused would not hear it.
            process.signal_all(Signal::CONT);
            process.end(self.kind.end.0);
        }
    }
}

/// A port below those that the kernel gives to clients, so that a server can come back to it after a restart.
pub(crate) fn free_address() -> SocketAddr {
    (0..1000)
        .map(|_| 10_000 + (RandomState::new().hash_one(0) % 22_000) as u16)
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a free port")
}

/// The methods of a server that is the caller's own.
macro_rules! own_server {
    ($name:ident) => {
        impl $name {
            /// Where it listens. The same after a restart.
            pub fn addr(&self) -> std::net::SocketAddr {
                self.server.address()
            }

            /// The URL with another address in it: that of a [`Proxy`](crate::Proxy) before it.
            pub fn url_at(&self, address: std::net::SocketAddr) -> String {
                crate::at_address(&self.url(), address)
            }

            /// Ends it in order: what is committed is on the disk. Its clients lose their connections.
            pub async fn stop(&self) {
                let server = std::sync::Arc::clone(&self.server);
                crate::blocking(move || server.stop()).await;
            }

            /// Kills all its processes at once.
            pub async fn kill(&self) {
                let server = std::sync::Arc::clone(&self.server);
                crate::blocking(move || server.kill()).await;
            }

            /// Starts it again, on the same port and with the same data; ends it in order first when it runs.
            ///
            /// # Panics
            ///
            /// When it does not start: shows what it said.
            pub async fn restart(&self) {
                let server = std::sync::Arc::clone(&self.server);
                crate::blocking(move || server.restart()).await;
            }

            /// Stops all its processes where they are (SIGSTOP): connections stay open, and nothing answers.
            ///
            /// # Panics
            ///
            /// When it does not run.
            pub fn pause(&self) {
                self.server.pause();
            }

            /// Lets it go on (SIGCONT).
            ///
            /// # Panics
            ///
            /// When it does not run.
            pub fn resume(&self) {
                self.server.resume();
            }

            /// Whether it runs; it may have ended by itself.
            pub fn is_running(&self) -> bool {
                self.server.is_running()
            }

            /// The end of what it wrote to its log.
            pub fn log_tail(&self) -> String {
                self.server.home().log_tail()
            }
        }
    };
}
pub(crate) use own_server;

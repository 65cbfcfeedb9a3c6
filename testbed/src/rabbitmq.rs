//! RabbitMQ: one node, with its own epmd, the Erlang directory of nodes.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;

use crate::home::Home;
use crate::program::{command_as, find};
use crate::server::{Kind, Knock, Server, Settings, free_address, own_server};

const PACKAGE: &str = "rabbitmq-server";
const USER: &str = "rabbitmq";

/// No directory of nodes but ours, two cores, and nothing on other addresses than 127.0.0.1.
const ERLANG: &str =
    "-start_epmd false -noinput +S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}";

// The header of AMQP 0-9-1; the answer is a method frame, Connection.Start.
const KIND: Kind = Kind {
    name: "RabbitMQ",
    user: Some(USER),
    stop: Signal::TERM,
    end: (Signal::KILL, "KILL"),
    knock: Knock { say: b"AMQP\0\0\x09\x01", hear: |heard| heard.first() == Some(&1) },
};

// Asked for its nodes (110, "n"), it first says its port.
const EPMD: Kind = Kind {
    name: "epmd",
    user: Some(USER),
    stop: Signal::TERM,
    end: (Signal::KILL, "KILL"),
    knock: Knock { say: b"\0\x01n", hear: |heard| heard.len() >= 4 },
};

/// A RabbitMQ node of one's own. Quorum queues work; there is nobody to replicate to.
#[derive(Debug, Clone)]
pub struct Rabbitmq {
    server: Arc<Server>,
    epmd: Arc<Server>,
}

own_server!(Rabbitmq);

impl Rabbitmq {
    /// Starts one. It takes some seconds.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start() -> Rabbitmq {
        Rabbitmq::start_with(Settings::fast()).await
    }

    /// Starts one. Settings are those of rabbitmq.conf.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start_with(settings: Settings) -> Rabbitmq {
        crate::blocking(move || Rabbitmq::start_blocking(&settings)).await
    }

    pub(crate) fn start_blocking(settings: &Settings) -> Rabbitmq {
        let epmd = start_epmd();
        let directory = epmd.address();
        let prepare = |home: &Home, address| prepare(home, address, directory, settings);
        Rabbitmq { server: Arc::new(Server::start(KIND, settings, prepare)), epmd: Arc::new(epmd) }
    }

    /// The URL of its virtual host `/`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.addr())
    }

    /// Where its directory of nodes listens: `ERL_EPMD_PORT` of rabbitmqctl.
    pub fn epmd_addr(&self) -> SocketAddr {
        self.epmd.address()
    }
}

/// In the foreground and ours: RabbitMQ would start one in the background, which stays for ever.
fn start_epmd() -> Server {
    Server::start(EPMD, &Settings::fast(), |home, address| {
        let mut command = command_as(EPMD.user, &find("epmd", "erlang-base"));
        command.args(["-address", "127.0.0.1", "-port", &address.port().to_string()]);
        command.env("HOME", home.path());
        command
    })
}

fn prepare(home: &Home, address: SocketAddr, epmd: SocketAddr, settings: &Settings) -> Command {
    let own: String = settings.lines.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    let lines = format!(
        "listeners.tcp.1 = 127.0.0.1:{}\nlog.console = true\nlog.console.level = warning\nlog.file = false\n\
         disk_free_limit.absolute = 50MB\n{own}",
        address.port()
    );
    let configuration = home.write("rabbitmq.conf", &lines);
    let plugins = home.write("enabled_plugins", "[].\n");
    let environment = home.write("rabbitmq-env.conf", "");
    let mut command = command_as(KIND.user, &find("rabbitmq-server", PACKAGE));
    command
        .env("HOME", home.path())
        .env("RABBITMQ_NODENAME", format!("semel-{}@localhost", address.port()))
        .env("RABBITMQ_DIST_PORT", free_address().port().to_string())
        .env("RABBITMQ_CONF_ENV_FILE", environment)
        .env("RABBITMQ_CONFIG_FILE", configuration)
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins)
        .env("RABBITMQ_MNESIA_BASE", home.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", home.join("logs"))
        .env("RABBITMQ_LOGS", "-")
        // The script then becomes the server, and there is one process to signal.
        .env("RABBITMQ_ALLOW_INPUT", "true")
        .env("ERL_EPMD_PORT", epmd.port().to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG);
    command
}

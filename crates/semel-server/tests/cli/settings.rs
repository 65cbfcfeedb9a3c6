//! Every flag is a variable and a TOML key too, taken from `--help` so that none is forgotten; flags win over
//! variables, variables over the file.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Gateway, Launch, Service};
use crate::{Said, run, said, semel};

/// A setting as `--help` has it.
#[derive(Debug)]
struct Setting {
    flag: String,
    variable: String,
    /// Whether it takes a value.
    valued: bool,
}

impl Setting {
    fn toml(&self) -> String {
        match self.flag.as_str() {
            // A list in the file, one at a time on the command line.
            "--cors-origin" => "cors_origins".to_owned(),
            flag => flag.trim_start_matches('-').replace('-', "_"),
        }
    }

    /// A value that is valid and not the default.
    fn good(&self) -> &'static str {
        match self.flag.as_str() {
            "--upstream" => "http://127.0.0.1:9009",
            "--upstream-http" => "2",
            "--tls-cert" | "--tls-client-ca" | "--upstream-ca" => "certificate.pem",
            "--tls-key" => "key.pem",
            "--tls-client-cert" => "optional",
            "--listen" | "--admin" => "127.0.0.1:0",
            "--store" => "memory:",
            "--service" | "--instance" => "shop",
            "--key" => "required",
            "--key-syntax" => "strict",
            "--on-unknown" => "rerun",
            "--body-bytes-max" | "--kept-bytes-max" => "64KiB",
            "--methods" => "PUT,DELETE",
            "--key-aliases" => "x-idempotency-key",
            "--fingerprint" => "json,multipart",
            "--preset" => "stripe",
            "--kept" | "--released" | "--unknown" => "418,500",
            "--key-secret-file" | "--admin-token-file" | "--probe-token-file" => "secret",
            "--derive" | "--key-field" => "json:/order_id",
            "--ignore" | "--redact" => "/attempt",
            "--store-down" => "bypass",
            "--ulid" | "--keep-no-body" | "--observe" | "--critical" => "true",
            "--probe" => "/charges?key={key}",
            "--probe-keep" | "--probe-release" => "404",
            "--in-flight-status" => "425",
            "--mismatch-status" => "400",
            "--attempts-max" | "--workers" | "--open-claims-max" | "--new-keys-per-second-max" => "7",
            "--log" => "debug",
            "--otlp-endpoint" => "http://127.0.0.1:4318",
            "--remember-for" => "40d",
            "--no-migrate" => "true",
            "--cors-origin" => "https://shop.example",
            "--principal" => "required",
            "--trusted-proxies" => "10.0.0.0/8",
            "--jwks" => "keys.json",
            "--jwt-issuer" | "--jwt-audience" => "shop",
            "--auth-check" => "http://127.0.0.1:9009/allowed",
            "--cors-credentials" => "true",
            duration => {
                let durations = [
                    "--upstream-timeout",
                    "--late-answer-for",
                    "--upstream-idle",
                    "--lease",
                    "--replay-for",
                    "--drain-for",
                    "--wait-max",
                    "--probe-after",
                    "--probe-within",
                ];
                assert!(durations.contains(&duration), "{duration} is new: give it a value here");
                "7s"
            }
        }
    }

    /// What it needs beside it.
    fn others(&self) -> &'static [(&'static str, &'static str)] {
        match self.flag.as_str() {
            "--cors-credentials" => &[("--cors-origin", "https://shop.example")],
            "--tls-client-cert" => &[
                ("--tls-cert", "certificate.pem"),
                ("--tls-key", "key.pem"),
                ("--tls-client-ca", "certificate.pem"),
            ],
            flag if flag.starts_with("--tls") => {
                &[("--tls-cert", "certificate.pem"), ("--tls-key", "key.pem")]
            }
            "--jwks" | "--jwt-issuer" | "--jwt-audience" => &[
                ("--jwks", "keys.json"),
                ("--jwt-issuer", "i"),
                ("--jwt-audience", "shop"),
                ("--principal", "jwt:sub"),
            ],
            "--derive" => &[("--key", "derive")],
            "--ignore" => &[("--fingerprint", "json")],
            "--critical" => &[("--key", "required"), ("--auth-check", "http://127.0.0.1:9009/allowed")],
            flag if flag.starts_with("--probe") => {
                &[("--on-unknown", "probe"), ("--probe", "/charges?key={key}")]
            }
            _ => &[],
        }
    }

    /// A number, which stands in TOML without quotes.
    fn is_number(&self) -> bool {
        ["--workers", "--attempts-max", "--open-claims-max", "--new-keys-per-second-max"]
            .contains(&&*self.flag)
    }

    /// A value that cannot be read.
    fn bad(&self) -> &'static str {
        match self.flag.as_str() {
            "--service" => "a:b",
            "--store" => "nowhere",
            "--jwks" => "ftp://issuer.example/keys",
            "--jwt-issuer" | "--jwt-audience" => "",
            _ => "no such value",
        }
    }
}

/// All of the gateway's settings but the file that they may stand in.
fn settings() -> Vec<Setting> {
    let help = run(&["gateway", "--help"]).out;
    let mut settings: Vec<Setting> = Vec::new();
    for line in help.lines().map(str::trim) {
        if let Some(flag) = line.split(' ').next().filter(|word| word.starts_with("--")) {
            let valued = line.contains('<');
            settings.push(Setting { flag: flag.to_owned(), variable: String::new(), valued });
        }
        if let Some((_, variable)) = line.split_once("[env: ") {
            let last = settings.last_mut().expect("a flag before its variable");
            last.variable = variable.split('=').next().unwrap_or_default().to_owned();
        }
    }
    settings.retain(|setting| setting.flag != "--config");
    // A build without TLS refuses them, whatever they say.
    settings.retain(|setting| {
        cfg!(feature = "tls") || !(setting.flag.starts_with("--tls") || setting.flag == "--upstream-ca")
    });
    // So does one without OpenTelemetry.
    settings.retain(|setting| cfg!(feature = "otel") || setting.flag != "--otlp-endpoint");
    assert!(settings.len() >= 20, "{settings:?}");
    settings
}

/// A gateway that ends at once, since its port is taken: its settings were accepted.
struct Taken {
    address: String,
    _listener: TcpListener,
    directory: tempfile::TempDir,
}

impl Taken {
    fn new() -> Taken {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "a-secret-of-20-bytes").unwrap();
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.path().join("certificate.pem"), own.cert.pem()).unwrap();
        std::fs::write(directory.path().join("key.pem"), own.signing_key.serialize_pem()).unwrap();
        Taken { address, _listener: listener, directory }
    }

    /// Runs with the setting given as `set` says, and with whatever else it takes to get as far as the port.
    fn with(&self, setting: &Setting, set: impl FnOnce(&mut Command, &Path)) -> Said {
        let file = self.directory.path().join("semel.toml");
        std::fs::write(&file, "").unwrap();
        let mut command = semel(&["gateway"]);
        let mut others = vec![("--upstream", "http://127.0.0.1:9000"), ("--store", "memory:")];
        others.extend(setting.others());
        for (flag, value) in others.iter().filter(|(flag, _)| *flag != setting.flag) {
            command.args([flag, value]);
        }
        let other = if setting.flag == "--listen" { "--admin" } else { "--listen" };
        command.args([other, &self.address]).arg("--config").arg(&file).current_dir(self.directory.path());
        set(&mut command, &file);
        said(&mut command)
    }

    #[track_caller]
    fn accepted(&self, said: &Said, setting: &Setting) {
        assert!(said.err.contains("is taken"), "{}: {}", setting.flag, said.err);
        assert_eq!(said.code, Some(1));
    }
}

#[test]
fn each_flag_has_its_variable_by_the_same_name() {
    for setting in settings() {
        let expected =
            format!("SEMEL_{}", setting.flag.trim_start_matches('-').replace('-', "_").to_uppercase());
        assert_eq!(setting.variable, expected, "{}", setting.flag);
    }
}

#[test]
fn each_setting_is_read_from_flag_variable_and_file() {
    let taken = Taken::new();
    for setting in settings() {
        let good = setting.good();
        let by_flag = taken.with(&setting, |command, _| {
            command.arg(&setting.flag).args(setting.valued.then_some(good));
        });
        taken.accepted(&by_flag, &setting);
        let by_variable = taken.with(&setting, |command, _| {
            command.env(&setting.variable, good);
        });
        taken.accepted(&by_variable, &setting);
        let by_file = taken.with(&setting, |_, file| std::fs::write(file, toml(&setting, good)).unwrap());
        taken.accepted(&by_file, &setting);
    }
}

#[test]
fn each_setting_is_checked_wherever_it_stands() {
    let taken = Taken::new();
    for setting in settings().into_iter().filter(|setting| setting.valued) {
        let bad = setting.bad();
        let errors = [
            taken.with(&setting, |command, _| {
                command.args([&setting.flag, bad]);
            }),
            taken.with(&setting, |command, _| {
                command.env(&setting.variable, bad);
            }),
            taken.with(&setting, |_, file| {
                std::fs::write(file, format!("{} = \"{bad}\"", setting.toml())).unwrap();
            }),
        ];
        for said in errors {
            assert!(!said.error(2).contains("unknown key"), "{}", said.err);
        }
    }
}

#[test]
fn a_flag_wins_over_a_variable() {
    let taken = Taken::new();
    for setting in settings().into_iter().filter(|setting| setting.valued && setting.flag != "--store") {
        // The variable alone would be a mistake.
        let both = taken.with(&setting, |command, _| {
            command.args([&setting.flag, setting.good()]).env(&setting.variable, setting.bad());
        });
        taken.accepted(&both, &setting);
    }
}

/// What a running gateway says of itself shows which layer won.
#[test]
fn a_variable_wins_over_the_file_and_a_flag_over_both() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    let layers = |number: usize| {
        [
            ("service", ["file", "variable", "flag"][number]),
            ("replay_for", ["1h", "2h", "3h"][number]),
            ("remember_for", ["11d", "12d", "13d"][number]),
            ("body_bytes_max", ["1KiB", "2KiB", "3KiB"][number]),
            ("kept_bytes_max", ["4KiB", "5KiB", "6KiB"][number]),
            ("key", ["required", "optional", "required"][number]),
            ("key_syntax", ["strict", "lenient", "strict"][number]),
            ("on_unknown", ["rerun", "park", "rerun"][number]),
        ]
    };
    let text: String = layers(0).map(|(name, value)| format!("{name} = \"{value}\"\n")).concat();
    std::fs::write(&file, text).unwrap();
    let from_file = launch.args(["--config", file.to_str().unwrap()]);
    let variables = layers(1).iter().fold(from_file.clone(), |launch, (name, value)| {
        launch.env(&format!("SEMEL_{}", name.to_uppercase()), value)
    });
    let flags = layers(2).iter().fold(variables.clone(), |launch, (name, value)| {
        launch.args([format!("--{}", name.replace('_', "-")).as_str(), value])
    });
    for (number, launch) in [from_file, variables, flags].into_iter().enumerate() {
        let statement = statement(&launch.start());
        for (name, value) in layers(number) {
            assert_eq!(statement[name], value, "{name} of layer {number}");
        }
    }
}

#[test]
fn no_migrate_is_off_where_it_is_said_to_be() {
    let taken = Taken::new();
    let store = format!("sqlite://{}", taken.directory.path().join("none.db").display());
    let with = |value: Option<&str>| {
        let args =
            ["gateway", "--upstream", "http://127.0.0.1:9000", "--listen", &taken.address, "--store", &store];
        said(semel(&args).envs(value.map(|value| ("SEMEL_NO_MIGRATE", value))))
    };
    for on in ["true", "1", "yes"] {
        assert!(with(Some(on)).error(1).contains("semel migrate"), "{on}");
    }
    for off in [None, Some("false"), Some("0"), Some("")] {
        assert!(with(off).error(1).contains("is taken"), "{off:?}");
    }
}

fn toml(setting: &Setting, value: &str) -> String {
    let quote = |value: &str| if setting.is_number() { value.to_owned() } else { format!("\"{value}\"") };
    let value = match value {
        value if !setting.valued => value.to_owned(),
        // Several values are an array; so is an origin, alone too.
        value if value.contains(',') || setting.flag == "--cors-origin" => {
            format!("[{}]", value.split(',').map(quote).collect::<Vec<_>>().join(", "))
        }
        value => quote(value),
    };
    format!("{} = {value}\n", setting.toml())
}

fn statement(gateway: &Gateway) -> Value {
    gateway.admin("/readyz").json()["gateway"].clone()
}

//! `tollgate login`, `logout` and `whoami`: signs a person in to a gateway by their browser, here or
//! elsewhere, and keeps the credential of the login on this machine.
//!
//! Security: the credential is printed nowhere. The gateway's answer comes to the loopback address, to a
//! terminal, or by a question that only this process can ask.

use std::io::{BufRead as _, IsTerminal as _, Write};

use clap::Args;
use jiff::Timestamp;
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::api::Server;
use super::context::{Context, Contexts, StoreChoice};
use super::failure::Failure;
use super::format::{Format, print};
use super::kubectl_credential::whole_seconds;
use super::list_output::{aligned, text_at};
use tollgate_runtime::secret;

mod device;
mod loopback;

#[derive(Debug, Args)]
pub struct Login {
    /// URL of the gateway; if omitted, that of the context, such as to sign in again
    #[arg(long, env = "TOLLGATE_SERVER")]
    server: Option<String>,
    /// Name of the context; if omitted, the host of the gateway
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// PEM file of the certificate authorities to trust instead of the system's; kept in the context
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CERTIFICATE_AUTHORITY")]
    certificate_authority: Option<std::path::PathBuf>,
    /// Sign in by typing a code into a browser on another machine
    #[arg(long)]
    device: bool,
    /// Open no browser: print the address to open, and ask for the code that the page then shows
    #[arg(long, conflicts_with = "device")]
    no_browser: bool,
    /// Where to keep the credential
    #[arg(long, value_enum, default_value_t)]
    store: StoreChoice,
}

#[derive(Debug, Args)]
pub struct Logout {
    /// Name of the context; if omitted, the current one
    #[arg(long, value_name = "NAME", env = "TOLLGATE_CONTEXT")]
    context: Option<String>,
}

#[derive(Debug, Args)]
pub struct WhoAmI {
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What the gateway gives for a code.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    credential: SecretString,
    expires_at: Timestamp,
    user: String,
    issuer: String,
}

/// Proves that a code comes to the client that asked for it (RFC 7636).
struct Proof {
    verifier: SecretString,
    state: String,
}

impl Proof {
    fn new() -> Result<Self, Failure> {
        let random = || secret::generate_session_secret().map_err(|error| Failure::new("login.random", error));
        Ok(Self {
            verifier: random()?,
            state: random()?.expose_secret().to_owned(),
        })
    }

    fn challenge(&self) -> String {
        secret::pkce_challenge(self.verifier.expose_secret())
    }
}

impl Login {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut contexts = Contexts::load()?;
        let named = self.context.as_deref();
        let before = match (named, &self.server) {
            // A name that is not known yet is the name of the new context.
            (Some(name), _) => contexts.contexts.iter().find(|context| context.name == name),
            (None, server) => contexts.choose(None, server.as_deref())?,
        };
        let server = self
            .server
            .clone()
            .or_else(|| before.map(|context| context.server.clone()));
        let server = server.ok_or_else(|| {
            Failure::new(
                "login.server",
                "no gateway is named, and there is no context to sign in to again",
            )
            .with_hint("name it with `--server`, such as `https://tollgate.example.com`")
        })?;
        let authority = match &self.certificate_authority {
            Some(path) => Some(read_authority(path)?),
            None => before.and_then(|context| context.certificate_authority.clone()),
        };
        let gateway = Server::anonymous(server.clone(), authority.clone());
        let ways = gateway.request(Method::GET, &["login"], hint).json()?;
        let credential = match (self.device, self.no_browser) {
            (true, _) => device::run(&gateway, &ways)?,
            (false, true) => pasted(&gateway, &ways)?,
            (false, false) => in_browser(&gateway, &ways)?,
        };
        let name = match (named, before) {
            (Some(name), _) => name.to_owned(),
            (None, Some(before)) => before.name.clone(),
            (None, None) => host(&server),
        };
        let store = self.store.save(&name, &credential.credential)?;
        let is_first = contexts.contexts.is_empty();
        let is_again = contexts.contexts.iter().any(|context| context.name == name);
        contexts.put(Context {
            name: name.clone(),
            server: server.clone(),
            certificate_authority: authority,
            user: credential.user.clone(),
            issuer: credential.issuer,
            expires_at: credential.expires_at,
            store,
        });
        // An explicit new login is meant to be used.
        if is_first || !is_again || contexts.current.is_none() {
            contexts.current = Some(name.clone());
        }
        contexts.save()?;
        let (user, place) = (credential.user, store.describe(&name));
        let end = whole_seconds(credential.expires_at);
        print(
            &format!("signed in to {server} as {user} until {end}; the credential is {place}"),
            out,
        )?;
        print(&format!("context {name}"), out)
    }
}

impl Logout {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut contexts = Contexts::load()?;
        let chosen = contexts.choose(self.context.as_deref(), None)?.cloned();
        let context = chosen.ok_or_else(|| {
            Failure::new("context.unknown", "nobody is signed in here")
                .with_hint("`tollgate context list` shows contexts")
        })?;
        // The credential goes from this machine even if the gateway cannot be reached.
        let ended = context.credential().and_then(|credential| {
            let gateway = Server::anonymous(context.server.clone(), context.certificate_authority.clone());
            let gateway = gateway.with_token(credential);
            gateway.request(Method::DELETE, &["login"], hint).json().map(drop)
        });
        context.forget()?;
        contexts.remove(&context.name);
        contexts.save()?;
        let is_over = |failure: &Failure| matches!(&*failure.code, "invalid_token" | "token_expired" | "token_revoked");
        match ended {
            Err(failure) if !is_over(&failure) => {
                let hint =
                    "its credential is removed here; the login ends with its time, or by `tollgate session revoke`";
                Err(failure.with_hint(hint))
            }
            Ok(()) | Err(_) => print(
                &format!("signed out of {} (context {})", context.server, context.name),
                out,
            ),
        }
    }
}

impl WhoAmI {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let me = self.server.request(Method::GET, &["me"], hint).json()?;
        let text = |me: &Value| {
            let groups = me.get("groups").and_then(Value::as_array);
            let groups: Vec<&str> = groups.into_iter().flatten().filter_map(Value::as_str).collect();
            let mut lines = vec![
                ("User", text_at(me, "/user")),
                ("Issuer", text_at(me, "/issuer")),
                ("Kind", text_at(me, "/kind")),
                (
                    "Groups",
                    if groups.is_empty() {
                        "none".to_owned()
                    } else {
                        groups.join(", ")
                    },
                ),
            ];
            if me.pointer("/login/expiresAt").is_some() {
                lines.push(("Until", text_at(me, "/login/expiresAt")));
            }
            aligned(8, &lines)
        };
        Ok(self.output.show(&me, text, out)?)
    }
}

/// Signs in by a browser on this machine, which returns to the loopback address.
fn in_browser(gateway: &Server, ways: &Value) -> Result<Credential, Failure> {
    let proof = Proof::new()?;
    let listener = loopback::Listener::bind()?;
    let address = address(ways, &proof, listener.port())?;
    eprint_line(&format!("opening {address}"));
    if !loopback::open_browser(address.as_str()) {
        eprint_line("no browser could be opened: open the address on this machine, or stop this and use --device");
    }
    let code = listener.wait(&proof.state)?;
    exchange(gateway, &code, &proof)
}

/// Signs in by a browser anywhere, whose code is pasted here.
fn pasted(gateway: &Server, ways: &Value) -> Result<Credential, Failure> {
    let proof = Proof::new()?;
    let address = address(ways, &proof, 0)?;
    eprint_line(&format!("open this address in a browser:\n\n  {address}\n"));
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        eprint_line("then paste the code that the page shows:");
    }
    let mut line = zeroize::Zeroizing::new(String::new());
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::new("login.code", error))?;
    if line.trim().is_empty() {
        return Err(Failure::new("login.code", "no code was pasted").with_hint("run it again, or use --device"));
    }
    exchange(gateway, &SecretString::from(line.trim()), &proof)
}

fn address(ways: &Value, proof: &Proof, port: u16) -> Result<Url, Failure> {
    let console = text_at(ways, "/console");
    let url = Url::parse(&console).and_then(|console| console.join("/console/login"));
    let mut url = url.map_err(|_| Failure::new("gateway.answer", "the gateway names no console"))?;
    // SECURITY: a browser, or what the system opens URLs with, runs what some schemes name.
    if !(url.scheme() == "https" || (url.scheme() == "http" && tollgate_config::is_loopback(&url))) {
        return Err(Failure::new(
            "gateway.answer",
            format_args!(
                "the gateway names the console `{url}`, which is neither https nor http to a loopback address"
            ),
        ));
    }
    url.query_pairs_mut()
        .append_pair("client", &client_name())
        .append_pair("code_challenge", &proof.challenge())
        .append_pair("state", &proof.state)
        .append_pair("port", &port.to_string());
    Ok(url)
}

fn exchange(gateway: &Server, code: &SecretString, proof: &Proof) -> Result<Credential, Failure> {
    token(
        gateway,
        json!({
            "grantType": "authorization_code",
            "code": code.expose_secret(),
            "codeVerifier": proof.verifier.expose_secret(),
        }),
    )
}

fn token(gateway: &Server, content: Value) -> Result<Credential, Failure> {
    let request = gateway
        .request(Method::POST, &["login", "token"], hint)
        .content(content);
    let answer = request.send()?;
    serde_json::from_slice(&answer).map_err(|_| Failure::new("gateway.answer", "the answer has no credential"))
}

/// The name of this client, as the page shows it: `user@host`.
fn client_name() -> String {
    let user = std::env::var_os("USER").and_then(|user| user.into_string().ok());
    let user = user.unwrap_or_else(|| "somebody".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!("{user}@{}", host.trim());
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

fn host(server: &str) -> String {
    let url = Url::parse(server).ok();
    let host = url.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        })
    });
    host.unwrap_or_else(|| server.to_owned())
}

fn read_authority(path: &std::path::Path) -> Result<String, Failure> {
    let wrong =
        |why: &dyn std::fmt::Display| Failure::new("gateway.authority", format_args!("`{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    match reqwest::Certificate::from_pem_bundle(text.as_bytes()) {
        Ok(certificates) if !certificates.is_empty() => Ok(text),
        Ok(_) | Err(_) => Err(wrong(&"has no certificate in PEM form")),
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "no_console" => Some("set `console.url` in its settings, or present a token in `TOLLGATE_AUTH_TOKEN`"),
        "invalid_grant" => Some("run `tollgate login` again"),
        "access_denied" => Some("somebody denied it on the page"),
        "device_login_off" => Some("use `--no-browser`"),
        _ => None,
    }
}

/// Prints a line for the person, beside the output.
fn eprint_line(text: &str) {
    // If this fails, there is nobody to read it.
    let _ = writeln!(super::stderr(), "{text}");
}

//! Waits on the loopback address for the browser's return (RFC 8252, section 7.3), and opens the
//! browser.
//!
//! Security: only a request with the state of this login ends the wait, and the page that it gets has no
//! code in it.

use std::process::{Command, Stdio};
use std::time::Duration;

use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use url::Url;

use crate::api::runtime;
use crate::failure::Failure;

/// How long the person may take.
const WAIT: Duration = Duration::from_mins(5);
/// How long one connection may take to send its request.
const READ: Duration = Duration::from_secs(5);
/// Longest request line, in bytes.
const MAX_BYTES: u64 = 8 * 1024;

pub(super) struct Listener {
    runtime: Runtime,
    listener: TcpListener,
    port: u16,
}

/// What a request on the loopback address says.
enum Answer {
    Code(SecretString),
    Denied,
    /// It is not the browser's return.
    Other,
}

impl Listener {
    pub(super) fn bind() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new("login.listen", format_args!("127.0.0.1: {error}"));
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self {
            runtime,
            listener,
            port,
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the browser, and returns the code that it brings.
    pub(super) fn wait(self, state: &str) -> Result<SecretString, Failure> {
        let work = async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    continue;
                };
                match timeout(READ, serve(stream, state)).await.unwrap_or(Answer::Other) {
                    Answer::Code(code) => return Ok(code),
                    Answer::Denied => {
                        return Err(Failure::new("access_denied", "the login was denied in the browser"));
                    }
                    Answer::Other => {}
                }
            }
        };
        let late = || {
            Failure::new("login.timeout", format_args!("nobody signed in within {WAIT:?}"))
                .with_hint("run it again; on a machine without a browser use --device")
        };
        self.runtime
            .block_on(async { timeout(WAIT, work).await.map_err(|_| late())? })
    }
}

async fn serve(mut stream: TcpStream, state: &str) -> Answer {
    let mut head = Vec::new();
    let mut limited = (&mut stream).take(MAX_BYTES);
    let mut chunk = [0_u8; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match limited.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(count) => head.extend(chunk.iter().take(count)),
        }
    }
    let text = String::from_utf8_lossy(&head);
    let line = text.lines().next().unwrap_or_default();
    let answer = read(line, state);
    let (status, message) = match &answer {
        Answer::Code(_) => (
            "200 OK",
            "You are signed in on the command line. You can close this page.",
        ),
        Answer::Denied => ("200 OK", "The command line is not signed in. You can close this page."),
        Answer::Other => ("404 Not Found", "There is nothing here."),
    };
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>tollgate login</title><style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;\
         margin:3rem auto;padding:0 1rem}}</style><h1>tollgate login</h1><p>{message}</p></html>\n"
    );
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    // The browser may be gone; the code is here all the same.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    answer
}

/// Reads a request line: `GET /callback?state=…&code=… HTTP/1.1`.
fn read(line: &str, state: &str) -> Answer {
    let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let url = target.and_then(|target| Url::parse("http://127.0.0.1").ok()?.join(target).ok());
    let Some(url) = url.filter(|url| url.path() == "/callback") else {
        return Answer::Other;
    };
    let value = |name: &str| {
        let mut pairs = url.query_pairs();
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    if value("state").as_deref() != Some(state) {
        return Answer::Other;
    }
    match (value("code"), value("error")) {
        (Some(code), None) if !code.is_empty() => Answer::Code(SecretString::from(code)),
        (_, _) => Answer::Denied,
    }
}

/// Opens an address in the person's browser. Returns whether there is one, as far as can be told.
pub(super) fn open_browser(address: &str) -> bool {
    let named = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let program = match named {
        Some(program) => program,
        None if cfg!(target_os = "macos") => "open".into(),
        None if has_display => "xdg-open".into(),
        None => return false,
    };
    let mut command = Command::new(program);
    command
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{Answer, read};

    #[test]
    fn only_the_return_with_the_state_counts() {
        let code = |line: &str| match read(line, "s") {
            Answer::Code(code) => Some(code.expose_secret().to_owned()),
            Answer::Denied => Some("denied".to_owned()),
            Answer::Other => None,
        };
        for (line, expected) in [
            ("GET /callback?state=s&code=c%2B HTTP/1.1", Some("c+")),
            ("GET /callback?state=s&error=access_denied HTTP/1.1", Some("denied")),
            ("GET /callback?state=s HTTP/1.1", Some("denied")),
            ("GET /callback?state=x&code=c HTTP/1.1", None),
            ("GET /callback?code=c HTTP/1.1", None),
            ("GET /favicon.ico HTTP/1.1", None),
            ("POST /callback?state=s&code=c HTTP/1.1", None),
            ("", None),
        ] {
            assert_eq!(code(line).as_deref(), expected, "{line}");
        }
    }
}

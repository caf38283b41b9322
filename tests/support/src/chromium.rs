//! Headless Chromium, controlled by the DevTools protocol.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::kubernetes::daemon::Daemon;
use crate::kubernetes::{PATIENCE, eventually};

/// A browser with a new profile. It ends when the value is dropped.
pub struct Chromium {
    port: u16,
    _process: Daemon,
    _folder: TempDir,
}

impl Chromium {
    /// Starts the browser.
    ///
    /// # Panics
    /// If Chromium is not installed. `cargo xtask setup` or `apt-get install chromium` installs it.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("profile");
        let program = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join("chromium"))
            .find(|program| program.is_file())
            .expect("chromium is not installed: run `apt-get install chromium`");
        let home = format!("HOME={}", folder.path().display());
        let mut arguments = vec![home, program.display().to_string()];
        arguments.extend(
            [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--disable-breakpad",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-proxy-server",
                "--remote-debugging-port=0",
            ]
            .map(str::to_owned),
        );
        arguments.push(format!("--user-data-dir={}", profile.display()));
        arguments.push("about:blank".to_owned());
        let mut process = Daemon::run("chromium", "/usr/bin/env".as_ref(), folder.path(), &arguments);
        let port = eventually("chromium listens", async || {
            process.check();
            let text = fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
            text.lines().next()?.parse().ok()
        })
        .await;
        Self {
            port,
            _process: process,
            _folder: folder,
        }
    }

    /// Opens a URL in a new tab and waits until the page is loaded.
    pub async fn open(&self, url: &str) -> Page {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let new = format!("http://127.0.0.1:{}/json/new?{url}", self.port);
        let answer = client.put(new).send().await.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let (socket, _) = connect_async(answer["webSocketDebuggerUrl"].as_str().unwrap())
            .await
            .unwrap();
        let mut page = Page { socket, calls: 0 };
        let url = json!(url::Url::parse(url).unwrap().as_str());
        page.until(&format!(
            "document.readyState === 'complete' && location.href === {url}"
        ))
        .await;
        page
    }
}

/// A tab.
pub struct Page {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    calls: u64,
}

impl Page {
    /// The value of an expression. A promise is awaited.
    ///
    /// # Panics
    /// If the expression throws, rejects or takes too long.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = timeout(PATIENCE, self.call("Runtime.evaluate", &parameters))
            .await
            .unwrap_or_else(|_| panic!("{expression} did not end in time"));
        assert_eq!(result.get("exceptionDetails"), None, "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, also in a page that the browser goes to meanwhile.
    ///
    /// # Panics
    /// If the expression throws, or does not become true.
    pub async fn until(&mut self, expression: &str) {
        let waiting = async { while self.evaluate(expression).await != true {} };
        timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("{expression} did not become true"));
    }

    /// Takes a picture of the page in a theme, 1000 pixels wide, and writes it as PNG.
    ///
    /// - `theme`: `light` or `dark`, which the page sees as `prefers-color-scheme`.
    pub async fn picture(&mut self, theme: &str, file: &Path) {
        let size = json!({"width": 1000, "height": 700, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", &features).await;
        let picture = self.call("Page.captureScreenshot", &json!({"format": "png"})).await;
        let data = picture["data"].as_str().unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, STANDARD.decode(data).unwrap()).unwrap();
    }

    async fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let call = json!({"id": self.calls, "method": method, "params": parameters});
        self.socket.send(Message::text(call.to_string())).await.unwrap();
        loop {
            let message = self
                .socket
                .next()
                .await
                .expect("chromium closed the connection")
                .unwrap();
            let Message::Text(text) = message else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.calls {
                return answer["result"].clone();
            }
        }
    }
}

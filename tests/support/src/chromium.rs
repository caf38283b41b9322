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
        let mut page = Page {
            socket,
            calls: 0,
            complaints: None,
        };
        page.loaded(url).await;
        page
    }

    /// Opens an empty tab that notes what the browser complains about, and trusts any certificate.
    ///
    /// - `origin`: the only one that its pages may send requests to.
    pub async fn open_watched(&self, origin: &str) -> Page {
        let mut page = self.open("about:blank").await;
        page.complaints = Some(Complaints {
            origin: origin.to_owned(),
            texts: Vec::new(),
        });
        for domain in ["Page", "Runtime", "Log", "Audits", "Network"] {
            page.call(&format!("{domain}.enable"), &json!({})).await;
        }
        let ignore = json!({"ignore": true});
        page.call("Security.setIgnoreCertificateErrors", &ignore).await;
        page
    }
}

/// A tab.
pub struct Page {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    calls: u64,
    /// `None` in tabs that are not watched.
    complaints: Option<Complaints>,
}

/// What the browser complained about in a tab.
struct Complaints {
    /// The only origin of requests.
    origin: String,
    texts: Vec<String>,
}

impl Complaints {
    /// Notes an event if it is a violation of a policy, an error, or a request to another origin.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let url = parameters["request"]["url"].as_str().unwrap_or_default();
        let entry = &parameters["entry"];
        let is_complaint = match event["method"].as_str().unwrap_or_default() {
            // Forms without `autocomplete` and the like are no faults.
            "Audits.issueAdded" => parameters["issue"]["code"] == "ContentSecurityPolicyIssue",
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => parameters["type"] == "error" || parameters["type"] == "assert",
            // A page about a refusal has its status, which is logged as an error of the network.
            "Log.entryAdded" => entry["level"] == "error" && entry["source"] != "network",
            "Network.requestWillBeSent" => !url.starts_with(&self.origin) && !url.starts_with("about:"),
            _ => false,
        };
        if is_complaint {
            self.texts.push(parameters.to_string());
        }
    }
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

    /// Goes to a URL and waits until the page is loaded.
    pub async fn go(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url})).await;
        self.loaded(url).await;
    }

    async fn loaded(&mut self, url: &str) {
        let url = json!(url::Url::parse(url).unwrap().as_str());
        self.until(&format!(
            "document.readyState === 'complete' && location.href === {url}"
        ))
        .await;
    }

    /// Sets a cookie.
    pub async fn set_cookie(&mut self, url: &str, name: &str, value: &str) {
        let cookie = json!({"url": url, "name": name, "value": value, "httpOnly": true});
        let set = self.call("Network.setCookie", &cookie).await;
        assert_eq!(set["success"], true, "{name}: {set}");
    }

    /// Presses and releases a key, such as `Tab` or `Enter`.
    pub async fn press_key(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            _ => panic!("no code is known for the key `{key}`"),
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", &event).await;
        }
    }

    /// Types a text where the focus is.
    pub async fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text})).await;
    }

    /// What the browser has complained about since the last time.
    ///
    /// # Panics
    /// If the tab is not watched.
    pub async fn complaints(&mut self) -> Vec<String> {
        // What happened before is known once a call is answered.
        self.evaluate("0").await;
        let complaints = self.complaints.as_mut().expect("the tab is watched");
        std::mem::take(&mut complaints.texts)
    }

    /// Sets the size of the page, in pixels.
    pub async fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size).await;
    }

    /// Has the page see a theme, `light` or `dark`, as `prefers-color-scheme`. It changes at once, without
    /// a transition.
    pub async fn set_theme(&mut self, theme: &str) {
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.call("Emulation.setEmulatedMedia", &features).await;
    }

    /// Takes a picture of the page in a theme, 1000 pixels wide, and writes it as PNG.
    pub async fn picture(&mut self, theme: &str, file: &Path) {
        self.resize(1000, 700).await;
        self.set_theme(theme).await;
        self.capture(file).await;
    }

    /// Writes what the page shows, as PNG or, by the file's name, as WebP.
    pub async fn capture(&mut self, file: &Path) {
        let is_webp = file.extension().is_some_and(|extension| extension == "webp");
        let format = match is_webp {
            true => json!({"format": "webp", "quality": 85}),
            false => json!({"format": "png"}),
        };
        let picture = self.call("Page.captureScreenshot", &format).await;
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
            if let Some(complaints) = &mut self.complaints {
                complaints.note(&answer);
            }
        }
    }
}

//! `tollgate login` by a browser here, by a code that is pasted, and by a device code.

use std::path::PathBuf;
use std::process::Stdio;

use reqwest::StatusCode;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use url::Url;

use super::{Browser, Site};
use test_support::kubernetes::PATIENCE;

/// A person's folder on their machine, without a keyring.
pub(super) struct Home {
    folder: TempDir,
}

impl Home {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of `tollgate` as this person.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(test_support::tollgate());
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path())
            .env("USER", "ann")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Ok(variables) = std::fs::read_to_string(self.path("environment")) {
            for line in variables.lines() {
                let (name, value) = line.split_once('=').unwrap();
                command.env(name, value);
            }
        }
        command
    }

    /// Uses a token in place of a login.
    pub(super) fn token(&self, console: &str, token: &str) {
        let variables = format!("TOLLGATE_SERVER={console}\nTOLLGATE_AUTH_TOKEN={token}\n");
        std::fs::write(self.path("environment"), variables).unwrap();
    }

    /// Runs a command that succeeds, and returns its output.
    pub(super) async fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails, and returns its errors.
    pub(super) async fn fail(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().await.unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts `tollgate login`, and returns it with the address that it asks to open.
    pub(super) async fn start_login(
        &self,
        console: &str,
        more: &[&str],
    ) -> (Child, Url, BufReader<tokio::process::ChildStderr>) {
        let mut command = self.command(&["login", "--server", console]);
        if !more.contains(&"--store") {
            command.args(["--store", "file"]);
        }
        command
            .args(more)
            .env("BROWSER", "true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let address = async {
            loop {
                let mut line = String::new();
                if errors.read_line(&mut line).await.unwrap() == 0 {
                    panic!("no address: {seen}");
                }
                seen.push_str(&line);
                if let Some(address) = line.split_whitespace().find(|word| word.starts_with("http")) {
                    return Url::parse(address).unwrap();
                }
            }
        };
        let address = tokio::time::timeout(PATIENCE, address).await.unwrap();
        (process, address, errors)
    }

    /// Signs in by a browser that is signed in to the console.
    pub(super) async fn log_in(&self, console: &str, browser: &mut Browser) -> String {
        self.log_in_with(console, browser, &[]).await
    }

    /// The same, with further arguments of `tollgate login`.
    pub(super) async fn log_in_with(&self, console: &str, browser: &mut Browser, more: &[&str]) -> String {
        let (process, address, _errors) = self.start_login(console, more).await;
        let page = browser.open(address.as_str()).await;
        assert_eq!(page.status, StatusCode::OK, "{page:?}");
        let approved = approve(browser, console, "login", &page.text).await;
        let back = refresh(&approved.text);
        assert!(back.starts_with("http://127.0.0.1:"), "{back}");
        let end = browser.open(&back).await;
        assert!(
            end.text.contains("You are signed in on the command line"),
            "{}",
            end.text
        );
        finished(process).await
    }

    /// The credential that the login keeps.
    pub(super) fn credential(&self) -> String {
        let folder = self.path(".config/tollgate/credentials");
        let entry = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(entry.path()).unwrap()
    }
}

/// Presses the button of a page that asks whether to sign in.
pub(super) async fn approve(browser: &mut Browser, console: &str, path: &str, page: &str) -> super::browsing::Visited {
    let mut fields = hidden(page);
    fields.push(("answer".to_owned(), "approve".to_owned()));
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    browser.submit(&format!("{console}/console/{path}"), &fields).await
}

/// The hidden fields of a form.
fn hidden(page: &str) -> Vec<(String, String)> {
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split_once(&format!("{name}=\"")).unwrap().1;
        rest.split('"')
            .next()
            .unwrap()
            .replace("&#38;", "&")
            .replace("&#43;", "+")
    };
    let tags = page
        .split("<input type=\"hidden\"")
        .skip(1)
        .map(|rest| rest.split('>').next().unwrap());
    tags.map(|tag| (attribute(tag, "name"), attribute(tag, "value")))
        .collect()
}

/// Where a page goes on to by itself.
fn refresh(page: &str) -> String {
    let rest = page
        .split_once("content=\"0; url='")
        .unwrap_or_else(|| panic!("{page}"))
        .1;
    rest.split('\'')
        .next()
        .unwrap()
        .replace("&#38;", "&")
        .replace("&amp;", "&")
}

pub(super) async fn finished(process: Child) -> String {
    let output = tokio::time::timeout(PATIENCE, process.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_browser_here_signs_the_command_line_in_and_out() {
    use std::os::unix::fs::PermissionsExt as _;

    let site = Site::start().await;
    let home = Home::new();
    let refused = home.fail(&["whoami", "--server", &site.console]).await;
    assert!(
        refused.contains("(sign in with `tollgate login`, or set `TOLLGATE_AUTH_TOKEN`; decision"),
        "{refused}"
    );
    let mut browser = site.browser("ann").await;
    let output = home.log_in(&site.console, &mut browser).await;
    let host = site.console.trim_start_matches("http://");
    assert!(
        output.starts_with(&format!("signed in to {} as sub:ann until ", site.console)),
        "{output}"
    );
    assert!(output.ends_with(&format!("context {host}\n")), "{output}");
    let me = home.run(&["whoami"]).await;
    assert!(me.contains("sub:ann") && me.contains("corp:dev, corp:ops"), "{me}");
    // The credential is where it is said to be, and nobody else may read it.
    let folder = home.path(".config/tollgate/credentials");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let entry = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!output.contains("tglogin-") && home.credential().starts_with("tglogin-"));
    let contexts = std::fs::read_to_string(home.path(".config/tollgate/config.yaml")).unwrap();
    assert!(!contexts.contains("tglogin-"), "{contexts}");
    assert!(home.run(&["context", "list"]).await.contains("sub:ann"));

    let credential = home.credential();
    assert!(home.run(&["logout"]).await.starts_with("signed out of "));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .get(format!("{}/api/v1/me", site.console))
        .bearer_auth(credential)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    // The browser's own login is another one.
    assert_eq!(
        browser.api(&format!("{}/api/v1/me", site.console)).await.0,
        StatusCode::OK
    );
    // No log and no record has the credential.
    for file in ["log", "decisions.jsonl"] {
        assert!(
            !std::fs::read_to_string(site.gateway.path(file))
                .unwrap()
                .contains("tglogin-")
        );
    }
}

#[tokio::test]
async fn a_login_that_is_denied_makes_none() {
    let site = Site::start().await;
    let home = Home::new();
    let (process, address, _errors) = home.start_login(&site.console, &[]).await;
    let mut browser = site.browser("ann").await;
    let page = browser.open(address.as_str()).await;
    let mut fields = hidden(&page.text);
    fields.push(("answer".to_owned(), "deny".to_owned()));
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let denied = browser
        .submit(&format!("{}/console/login", site.console), &fields)
        .await;
    browser.open(&refresh(&denied.text)).await;
    let output = tokio::time::timeout(PATIENCE, process.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert!(!output.status.success());
    assert!(!home.path(".config/tollgate/config.yaml").exists());
}

#[tokio::test]
async fn a_code_that_is_pasted_signs_in_once() {
    let site = Site::start().await;
    let home = Home::new();
    let (mut process, address, _errors) = home.start_login(&site.console, &["--no-browser"]).await;
    let mut browser = site.browser("ann").await;
    let page = browser.open(address.as_str()).await;
    let approved = approve(&mut browser, &site.console, "login", &page.text).await;
    let code = approved
        .text
        .split_once("<code>")
        .unwrap()
        .1
        .split('<')
        .next()
        .unwrap()
        .to_owned();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(format!("{code}\n").as_bytes()).await.unwrap();
    drop(stdin);
    assert!(finished(process).await.contains("as sub:ann"));
    // A person who reads the code on the screen has no verifier, and it is spent.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let content = serde_json::json!({"grantType": "authorization_code", "code": code, "codeVerifier": "x"});
    let answer = client
        .post(format!("{}/api/v1/login/token", site.console))
        .json(&content)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["reason"], "invalid_grant");
}

#[tokio::test]
async fn a_device_code_signs_in_after_its_code_was_typed() {
    let site = Site::start().await;
    let home = Home::new();
    let (process, address, mut errors) = home.start_login(&site.console, &["--device"]).await;
    assert_eq!(address.path(), "/console/device");
    let code = loop {
        let mut line = String::new();
        errors.read_line(&mut line).await.unwrap();
        let line = line.trim();
        if line.len() == 9 && line.as_bytes()[4] == b'-' {
            break line.to_owned();
        }
    };
    let mut browser = site.browser("ann").await;
    let typed = |code: &str| format!("{}/console/device?user_code={code}", site.console);
    let wrong = browser.open(&typed("BBBB-BBBB")).await;
    assert!(wrong.text.contains("No login waits for this code"), "{}", wrong.text);
    // As people type it.
    let page = browser.open(&typed(&code.replace('-', "").to_lowercase())).await;
    assert!(
        page.text.contains("ann@") && page.text.contains(&code) && page.text.contains("127.0.0.1"),
        "{}",
        page.text
    );
    let approved = approve(&mut browser, &site.console, "device", &page.text).await;
    assert!(
        approved.text.contains("The command line is signed in within seconds"),
        "{}",
        approved.text
    );
    assert!(finished(process).await.contains("as sub:ann"));
    // The code is spent.
    let again = browser.open(&typed(&code)).await;
    assert!(again.text.contains("No login waits for this code"), "{}", again.text);
}

#[tokio::test]
async fn codes_of_devices_cannot_be_guessed_or_used_where_they_are_off() {
    let site = Site::start().await;
    let mut browser = site.browser("ann").await;
    for attempt in 0..7 {
        let visited = browser
            .open(&format!("{}/console/device?user_code=BBBB-BBBB", site.console))
            .await;
        match attempt {
            0..5 => assert!(visited.text.contains("No login waits"), "{}", visited.text),
            _ => assert!(visited.text.contains("(too_many_tries)"), "{}", visited.text),
        }
    }
    let off = Site::start_with(|layout| {
        layout.setting("/console/login", serde_json::json!({"device": false}));
    })
    .await;
    let refused = Home::new().fail(&["login", "--server", &off.console, "--device"]).await;
    let expected = "tollgate: device_login_off: this gateway lets nobody sign in by a code that is typed elsewhere (use \
                    `--no-browser`)\n";
    assert_eq!(refused, expected);
}

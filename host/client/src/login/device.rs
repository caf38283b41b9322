//! Signs in by a code that the person types into a browser on another machine (RFC 8628).

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{Credential, client_name, eprint_line, hint, token};
use crate::api::Server;
use crate::failure::Failure;
use crate::list_output::text_at;

/// Longest wait between two questions.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

pub(super) fn run(gateway: &Server, ways: &Value) -> Result<Credential, Failure> {
    if ways.get("device").and_then(Value::as_bool) == Some(false) {
        let message = "this gateway lets nobody sign in by a code that is typed elsewhere";
        return Err(Failure::new("device_login_off", message).with_hint("use `--no-browser`"));
    }
    let request = gateway.request(Method::POST, &["login", "device"], hint);
    let begun = request.content(json!({ "client": client_name() })).json()?;
    let number = |pointer: &str| begun.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    eprint_line(&format!(
        "on any machine, open\n\n  {}\n\nand enter the code\n\n  {}\n",
        text_at(&begun, "/verificationUri"),
        text_at(&begun, "/userCode")
    ));
    let device_code = text_at(&begun, "/deviceCode");
    let end = Instant::now() + Duration::from_secs(number("/expiresIn"));
    let mut interval = Duration::from_secs(number("/interval").max(1));
    while Instant::now() < end {
        std::thread::sleep(interval);
        let content = json!({
            "grantType": "urn:ietf:params:oauth:grant-type:device_code",
            "deviceCode": device_code,
        });
        match token(gateway, content) {
            Err(failure) if failure.code == "authorization_pending" => {}
            // RFC 8628, section 3.5.
            Err(failure) if failure.code == "slow_down" => {
                interval = (interval + Duration::from_secs(5)).min(MAX_INTERVAL);
            }
            done => return done,
        }
    }
    Err(Failure::new("login.timeout", "nobody entered the code in time").with_hint("run it again"))
}

//! People sign in to the gateway at a real OpenID provider, in a browser and on the command line.

use serde_json::{Value, json};
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::oidc::Provider;
use test_support::port::free_port;

pub(crate) mod browsing;
mod chromium;
mod command_line;
mod ending;
mod flows;
mod kubectl;

use browsing::Browser;

/// A gateway with a console, and the provider at which people sign in.
struct Site {
    gateway: Gateway,
    provider: Provider,
    console: String,
}

/// The name of the client, which is also that of the way to sign in.
pub(crate) const CLIENT: &str = "corp";

impl Site {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// - `more`: further settings.
    async fn start_with(more: impl FnOnce(&mut Layout)) -> Self {
        let mut provider = Provider::start();
        let console = format!("http://127.0.0.1:{}", free_port());
        let mut layout = layout(&console, &mut provider);
        more(&mut layout);
        let gateway = layout.start().await;
        Self {
            gateway,
            provider,
            console,
        }
    }

    /// Signs an account in with a new browser.
    async fn browser(&self, account: &str) -> Browser {
        let mut browser = Browser::new();
        browser.sign_in(&self.console, CLIENT, account).await;
        browser
    }
}

/// A gateway whose console has this URL, with a client at a provider.
fn layout(console: &str, provider: &mut Provider) -> Layout {
    provider.ask(&format!("register {CLIENT} {console}"));
    let mut layout = Layout::new(
        &["root"],
        "g, root, role:admin\np, role:admin, people, lock, *, allow\n",
    );
    std::fs::write(
        layout.root().join("secret"),
        provider.token(&format!("secret {CLIENT}")),
    )
    .unwrap();
    layout.settings(json!({
        "listen": console.trim_start_matches("http://"),
        "console": {"url": console},
        "authentication": {"argocdSessions": true, "jwt": [issuer(&provider.issuer, CLIENT, "sub:")]},
    }));
    layout
}

/// The settings of an issuer with a client.
pub(crate) fn issuer(url: &str, client: &str, prefix: &str) -> Value {
    json!({
        "issuer": {"url": url, "audiences": [client]},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": prefix},
            "groups": {"claim": "groups", "prefix": "corp:"},
        },
        "client": {
            "id": client, "name": client, "secretFile": "secret",
            "scopes": ["openid", "profile", "email", "groups"],
        },
    })
}

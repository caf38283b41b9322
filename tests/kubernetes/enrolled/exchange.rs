//! A cluster whose token comes from a web API, as the example of Argo CD's proposal of
//! `webAPIProviderConfig` says. A real Argo CD deploys there in both ways: through the gateway, and by
//! itself with a token that it gets from the gateway.
//!
//! Only the web API is not real. What it answers is a token of the destination's own API server.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tokio::process::Command;

use super::argocd::{HOME, World, component, config_map, is_write, judged, project};
use super::{COMPONENT, OWN, Scene};
use test_support::api_server::{Answer, Api, Seen};
use test_support::kubernetes::argocd::{ArgoCd, NAMESPACE};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Layout, base64};
use test_support::world::copy_guest;

/// The values of the Secret: name of the organization, and the token that the web API exchanges.
const ORGANIZATION: &str = "acme & sons";
const ROBOT: &str = "r0b0t+/=&t0ken";

/// A robot token that was revoked.
const REVOKED: &str = "r3v0ked-t0ken";

/// An account of the destination that reads and impersonates, as Argo CD's own does.
const DEPLOYER: &str = "argocd-manager";

const PATH: &str = "/apis/tokenexchange.upbound.io/v1alpha1/orgscopedtokens";

/// The web API. It exchanges [`ROBOT`] for `token`, once that is known, and nothing else.
async fn web_api(token: Arc<OnceLock<String>>) -> Api {
    Api::start(move |seen| {
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", PATH));
        assert_eq!(seen.value("content-type"), Some("application/x-www-form-urlencoded"));
        let json = |status: u16, body: Value| -> Answer {
            (
                status,
                vec![("content-type", "application/json".into())],
                body.to_string(),
            )
        };
        match token.get() {
            Some(token) if form(seen) == exchange_of(ROBOT) => json(
                200,
                json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}),
            ),
            _ => json(
                401,
                json!({"error": "invalid_grant", "error_description": "the robot token is revoked"}),
            ),
        }
    })
    .await
}

fn form(seen: &Seen) -> Vec<(String, String)> {
    url::form_urlencoded::parse(&seen.body).into_owned().collect()
}

/// The form that exchanges a robot token.
fn exchange_of(robot: &str) -> Vec<(String, String)> {
    let scope = format!("upbound:org:{ORGANIZATION}");
    let fields = [
        ("audience", "upbound:spaces:api"),
        ("audience", "upbound:spaces:controlplanes"),
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("scope", &scope),
        ("subject_token", robot),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"),
    ];
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// `webAPIProviderConfig` of the proposal's example, with templates of Go.
fn web_api_config(api: &Api) -> Value {
    json!({
        "method": "POST",
        "url": format!("{}{PATH}", api.url()),
        "body": "audience=upbound%3Aspaces%3Aapi&audience=upbound%3Aspaces%3Acontrolplanes\
                 &grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange\
                 &scope=upbound%3Aorg%3A{{ .orgName | urlquery }}&subject_token={{ .token | urlquery }}\
                 &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aid_token",
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
        "tokenPath": "$.access_token",
    })
}

/// A destination that neither Argo CD nor the gateway knows yet, and the web API.
struct Scenario {
    world: World,
    api: Api,
    /// What the web API issues.
    token: Arc<OnceLock<String>>,
    /// A token of the destination that only impersonates.
    of_gateway: String,
}

impl Scenario {
    async fn start() -> Self {
        let token = Arc::new(OnceLock::new());
        let api = web_api(Arc::clone(&token)).await;
        let (world, of_gateway) = World::start_without_clusters(|layout, _| allow(layout, &api)).await;
        let server = world.destination.url();
        let project = project("shop", &[(server, HOME)], &[(server, HOME, "deployer")]);
        world.control.admin().apply(&project.to_string()).await;
        world
            .commit(&[("shop/hello.yaml", Some(config_map("hello", "1")))])
            .await;
        Self {
            world,
            api,
            token,
            of_gateway,
        }
    }

    /// Creates the Application [`HOME`], which Argo CD syncs by itself.
    async fn create_application(&self) {
        let application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": HOME, "namespace": NAMESPACE},
            "spec": {
                "project": "shop",
                "source": {"repoURL": self.world.argocd.repository(), "path": HOME},
                "destination": {"server": self.world.destination.url(), "namespace": HOME},
                "syncPolicy": {"automated": {}},
            },
        });
        self.world.control.admin().apply(&application.to_string()).await;
    }

    /// `status` of the Application. Argo CD is asked to look again, as with the button of its pages.
    async fn status(&self) -> Value {
        const REFRESH: &str = "argocd.argoproj.io/refresh";
        let admin = self.world.control.admin();
        let about = ["application", HOME, "--namespace", NAMESPACE];
        let mut application = admin.json(&[&["get"][..], &about].concat()).await;
        if application["metadata"]["annotations"][REFRESH].is_null() {
            let refresh = format!("{REFRESH}=normal");
            admin
                .succeed(&[&["annotate", "--overwrite"][..], &about, &[&refresh]].concat())
                .await;
        }
        application["status"].take()
    }

    /// Waits until Argo CD shows an error that contains a text.
    async fn shows(&self, text: &str) {
        eventually(&format!("the Application shows `{text}`"), async || {
            let status = self.status().await;
            assert_ne!(status["sync"]["status"], "Synced", "{status}");
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let mut errors = conditions.iter().filter_map(|one| one["message"].as_str());
            errors.any(|message| message.contains(text)).then_some(())
        })
        .await;
    }

    /// Waits until the Application is synced.
    async fn is_synced(&self) {
        eventually("the Application is synced", async || {
            let status = self.status().await;
            (status["sync"]["status"] == "Synced").then_some(())
        })
        .await;
        let get = ["get", "configmap", "hello", "--namespace", HOME];
        let map = self.world.destination.admin().json(&get).await;
        assert_eq!(map["data"]["value"], "1", "{map}");
    }

    /// Asserts that Argo CD did not come into the destination, and that nobody wrote there.
    async fn nothing_is_written(&self) {
        let get = ["get", "configmap", "hello", "--namespace", HOME];
        let missing = self.world.destination.admin().fail(&get).await;
        assert!(missing.contains("NotFound"), "{missing}");
        for account in ["gateway", DEPLOYER] {
            for (_, event) in judged(&self.world.destination, &Scene::account(OWN, account)) {
                // The gateway itself asks what it may do.
                assert!(!is_write(&event) && !is_of_argocd(&event), "{event}");
            }
        }
    }

    /// The latest decision of a front with this outcome.
    async fn record(&self, front: &str, outcome: &str) -> Value {
        let wanted = |record: &Value| record["front"] == front && record["outcome"] == outcome;
        let what = format!("{front}: {outcome}");
        self.world.gateway.decision(&what, wanted).await
    }

    /// Asserts that no secret is in what the gateway writes.
    fn secrets_are_kept(&self) {
        let gateway = &self.world.gateway;
        let written = format!("{:?}{:?}", gateway.log(), gateway.decisions());
        for secret in [ROBOT, REVOKED, self.token.get().unwrap()] {
            assert!(!written.contains(secret), "`{secret}` is written");
        }
    }

    /// The robot tokens that the web API received.
    fn exchanged(&self) -> Vec<&'static str> {
        let seen = self.api.seen();
        let known = |seen: &Seen| {
            let form = form(seen);
            let mut robots = [ROBOT, REVOKED].into_iter();
            robots.find(|robot| form == exchange_of(robot)).expect("another form")
        };
        seen.iter().map(known).collect()
    }
}

fn is_of_argocd(event: &Value) -> bool {
    // The gateway's own requests have no User-Agent.
    event["userAgent"]
        .as_str()
        .is_some_and(|agent| agent.starts_with("argocd"))
}

/// Lets the gateway ask the web API.
fn allow(layout: &mut Layout, api: &Api) {
    copy_guest("webapi", &layout.root().join("plugins"));
    let authority = layout.root().join("web-api.pem");
    std::fs::write(&authority, &api.ca_pem).unwrap();
    let host = json!({"host": "127.0.0.1", "port": api.address.port(), "loopback": true, "ca": authority});
    layout.setting(
        "/plugins/grants",
        json!({"webapi": {"imports": ["clock"], "hosts": [host]}}),
    );
}

/// A Secret of the destination.
///
/// - `robot`: the token that the web API gets.
fn secret(namespace: &str, label: &str, server: &str, (config, robot): (&Value, &str)) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "destination", "namespace": namespace, "labels": {label: "cluster"}},
        "stringData": {
            "name": "destination", "server": server, "config": config.to_string(),
            "orgName": ORGANIZATION, "token": robot,
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_deploys_through_a_gateway_that_gets_its_token_from_a_web_api() {
    let scenario = Scenario::start().await;
    let Scenario { world, api, .. } = &scenario;
    scenario.token.set(scenario.of_gateway.clone()).unwrap();
    let server = world.destination.url();
    let config = json!({
        "webAPIProviderConfig": web_api_config(api),
        "tlsClientConfig": {"caData": base64(world.destination.authority())},
    });
    let own = |robot: &str| secret(OWN, "tollgate.dev/secret-type", server, (&config, robot));
    world.control.admin().apply(&own(REVOKED).to_string()).await;
    // Argo CD's Secret has nothing by which the destination could be entered.
    let proxy = world.gateway.url();
    world.write_argocd_secret("destination", server, &proxy).await;
    scenario.create_application().await;

    // Argo CD does not read the text of an error there, which has the provider's code.
    scenario
        .shows("failed to get server version: an error on the server")
        .await;
    scenario.nothing_is_written().await;
    assert_eq!(scenario.exchanged().first(), Some(&REVOKED));
    let record = scenario.record("control-plane", "failed").await;
    assert_eq!(
        (&record["reason"], &record["status"], &record["credential"]["failure"]),
        (
            &json!("credential_unavailable"),
            &json!(502),
            &json!("denied oauth.invalid_grant")
        ),
        "{record}"
    );

    world.control.admin().apply(&own(ROBOT).to_string()).await;
    scenario.is_synced().await;
    let account = Scene::account(HOME, "deployer");
    world.wrote(&account, "create", ("configmaps", "hello")).await;
    world.assert_actors(&[account]);
    assert_eq!(scenario.exchanged().iter().filter(|robot| **robot == ROBOT).count(), 1);
    scenario.secrets_are_kept();
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_deploys_by_itself_with_a_token_that_the_gateway_gets_from_a_web_api() {
    let scenario = Scenario::start().await;
    let Scenario { world, api, .. } = &scenario;
    let token = world.destination.service_account(OWN, DEPLOYER).await;
    scenario.token.set(token).unwrap();
    let (server, manager) = (world.destination.url(), format!("--serviceaccount={OWN}:{DEPLOYER}"));
    for role in ["reader", "impersonator"] {
        let (name, role) = (format!("manager-{role}"), format!("--clusterrole={OWN}-{role}"));
        let create = ["create", "clusterrolebinding", &name, &role, &manager];
        world.destination.admin().succeed(&create).await;
    }
    // As the init container of Argo CD's components does.
    let folder = world.gateway.path("shared");
    std::fs::create_dir(&folder).unwrap();
    let install = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("install")
        .arg(&folder)
        .output();
    let installed = install.await.unwrap();
    assert!(
        installed.status.success(),
        "{}",
        String::from_utf8_lossy(&installed.stderr)
    );

    // One Secret for both: Argo CD reads the first key, and the gateway the second.
    let config = json!({
        "execProviderConfig": {
            "command": folder.join("tollgate"),
            "args": [
                "credential", "exec", "destination", "--server", world.gateway.url(),
                "--certificate-authority", world.gateway.path("gateway-ca.pem"),
            ],
            "env": {"TOLLGATE_AUTH_TOKEN": component()},
            "apiVersion": "client.authentication.k8s.io/v1",
        },
        "webAPIProviderConfig": web_api_config(api),
        "tlsClientConfig": {"caData": base64(world.destination.authority())},
    });
    let both = secret(NAMESPACE, "argocd.argoproj.io/secret-type", server, (&config, ROBOT));
    world.control.admin().apply(&both.to_string()).await;
    let may = async |actions: &[(&str, &str)]| {
        let rows = actions.iter();
        let rows = rows.map(|(resource, action)| format!("p, {COMPONENT}, {resource}, {action}, {server}, allow\n"));
        ArgoCd::permit(&world.control, &rows.collect::<String>()).await;
    };
    may(&[("clusters", "get")]).await;
    scenario.create_application().await;

    scenario.shows("tollgate failed with exit code 1").await;
    scenario.nothing_is_written().await;
    let record = scenario.record("clusters", "denied").await;
    assert_eq!(
        (&record["reason"], &record["principal"]["username"]),
        (&json!("permission_denied"), &json!(COMPONENT)),
        "{record}"
    );

    may(&[("clusters", "get"), ("credentials", "get")]).await;
    scenario.is_synced().await;
    assert_eq!(scenario.exchanged(), [ROBOT]);
    // Argo CD came itself, with this token, and acted as the account of the project.
    let seen = judged(&world.destination, &Scene::account(OWN, DEPLOYER));
    let account = Scene::account(HOME, "deployer");
    let mut writes = seen.iter().filter(|(_, event)| is_write(event)).peekable();
    assert!(writes.peek().is_some(), "{seen:?}");
    for (who, event) in writes {
        assert!(*who == account && is_of_argocd(event), "{who}: {event}");
    }
    scenario.secrets_are_kept();
}

//! A day of three people with the console: a tenant who is refused and finds out why, a project owner
//! who changes accounts while somebody else does, and an on-call who ends a session and finds what it
//! did. It takes the pictures of the documentation, in `target/pictures/docs`.

use std::path::PathBuf;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::World;
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::argocd::{Cli, NAMESPACE};
use test_support::kubernetes::eventually;

/// The people, accounts of Argo CD.
pub(super) const TENANT: &str = "tina";
pub(super) const OWNER: &str = "olivia";
pub(super) const ON_CALL: &str = "oscar";
const PASSWORD: &str = "a-good-password-1";

/// What each may do, and nothing else.
pub(super) const POLICY: &str = "p, role:tenant, projects, get, web, allow\n\
                                 p, role:tenant, applications, get, web/*, allow\n\
                                 p, role:owner, projects, *, web, allow\n\
                                 p, role:owner, applications, *, web/*, allow\n\
                                 p, role:on-call, sessions, *, *, allow\n\
                                 p, role:on-call, audit, get, *, allow\n\
                                 p, role:on-call, decisions, get, *, allow\n\
                                 p, role:on-call, system, get, *, allow\n\
                                 g, tina, role:tenant\ng, olivia, role:owner\ng, oscar, role:on-call\n";

/// The cluster as an agent that is shared with the tenant, and what it gives her there.
pub(super) const OBJECTS: &str = r#"
apiVersion: tollgate.dev/v1alpha1
kind: Agent
metadata: { name: production, namespace: argocd }
spec:
  id: 1
  configProject: { id: 1 }
  cluster: world
  config: { user_access: { access_as: { user: {} }, groups: [{ id: web-team }] } }
---
apiVersion: tollgate.dev/v1alpha1
kind: UserDirectory
metadata: { name: people, namespace: argocd }
spec:
  users: [{ id: 1, username: tina }]
  groups: [{ id: 1, path: web-team, members: [{ username: tina, role: developer }] }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: web-team, namespace: default }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }
subjects:
  - { kind: Group, name: "gitlab:group_role:1:developer", apiGroup: rbac.authorization.k8s.io }
"#;

/// Somebody with a browser who is signed in to the console.
struct Person {
    page: Page,
    console: String,
    /// A separate browser, as it keeps who is signed in.
    _browser: Chromium,
}

impl Person {
    async fn sign_in(world: &World, name: &str) -> Self {
        let chromium = Chromium::start().await;
        let page = chromium.open_watched(&world.console).await;
        let console = world.console.clone();
        let mut person = Self {
            page,
            console,
            _browser: chromium,
        };
        person.page.resize(1280, 800).await;
        // A person who is not signed in is sent to sign in, and back.
        let open = format!("location.href = '{}/console/'", person.console);
        person.page.evaluate(&open).await;
        person
            .page
            .until("location.pathname === '/console/sign-in' && document.readyState === 'complete'")
            .await;
        person.fill("#username", name).await;
        person.fill("#password", PASSWORD).await;
        person.press("main form button").await;
        person
            .page
            .until("location.pathname === '/console/' && document.readyState === 'complete'")
            .await;
        person
    }

    async fn go(&mut self, path: &str) {
        self.page.go(&format!("{}/console/{path}", self.console)).await;
        assert_eq!(self.page.complaints().await, [""; 0], "{path}");
    }

    async fn text(&mut self) -> String {
        let text = self.page.evaluate("document.querySelector('main').innerText").await;
        text.as_str().unwrap().to_owned()
    }

    /// Types a text in place of what a field has.
    async fn fill(&mut self, selector: &str, text: &str) {
        let focus =
            format!("document.querySelector({selector:?}).focus(); document.querySelector({selector:?}).select?.()");
        self.page.evaluate(&focus).await;
        self.page.type_text(text).await;
    }

    /// Does something, and waits for the page that it leads to.
    async fn leave_by(&mut self, expression: &str) {
        self.page.evaluate("window.before = true").await;
        self.page.evaluate(expression).await;
        self.page
            .until("!window.before && document.readyState === 'complete'")
            .await;
    }

    /// Presses the button of a selector, and waits for the page that it leads to.
    async fn press(&mut self, selector: &str) {
        self.leave_by(&format!("document.querySelector({selector:?}).click()"))
            .await;
        assert_eq!(self.page.complaints().await, [""; 0], "{selector}");
    }

    async fn expect(&mut self, parts: &[&str]) {
        let text = self.text().await;
        for part in parts {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    /// A picture for the documentation, in both themes.
    async fn picture(&mut self, name: &str) {
        for theme in ["light", "dark"] {
            self.page.set_theme(theme).await;
            self.page
                .evaluate("window.scrollTo(0, 0); document.activeElement.blur()")
                .await;
            let folder = test_support::checkout().join("target/pictures/docs");
            let file: PathBuf = folder.join(format!("{name}-{theme}.webp"));
            self.page.capture(&file).await;
        }
        self.page.set_theme("light").await;
    }
}

/// - `admin`: the CLI of Argo CD's administrator, straight to argocd-server.
pub(super) async fn run(world: &World, admin: &Cli) {
    set_up(world, admin).await;
    refused_tenant(world).await;
    project_owner(world, admin).await;
    on_call(world).await;
}

async fn set_up(world: &World, admin: &Cli) {
    super::tour::step("three people, a project and its Applications");
    for person in [TENANT, OWNER, ON_CALL] {
        let password = [
            "--current-password",
            world.argocd.password(),
            "--new-password",
            PASSWORD,
        ];
        admin
            .succeed(&[&["account", "update-password", "--account", person][..], &password].concat())
            .await;
    }
    admin
        .succeed(&[
            "proj",
            "create",
            "web",
            "-d",
            "*,*",
            "-s",
            "*",
            "--description",
            "The web shop",
        ])
        .await;
    let repository = world.argocd.repository();
    for (name, namespace) in [("cart", "shop"), ("catalog", "shop"), ("metrics", "monitoring")] {
        let source = ["--repo", repository, "--path", "app", "--project", "web"];
        let destination = [
            "--dest-server",
            "https://kubernetes.default.svc",
            "--dest-namespace",
            namespace,
        ];
        admin
            .succeed(&[&["app", "create", name][..], &source, &destination].concat())
            .await;
    }
    let account = ["https://kubernetes.default.svc", "shop", "shop-deployer"];
    admin
        .succeed(&[&["proj", "add-destination-service-account", "web"][..], &account].concat())
        .await;
}

/// The token of a person's session, as `argocd account` has it.
async fn session(world: &World, person: &str) -> String {
    let url = format!("{}/api/v1/session", world.argocd.url());
    let answer = reqwest::Client::new()
        .post(url)
        .json(&json!({"username": person, "password": PASSWORD}))
        .send();
    let answer: Value = answer.await.unwrap().json().await.unwrap();
    answer["token"].as_str().unwrap().to_owned()
}

async fn refused_tenant(world: &World) {
    super::tour::step("a tenant is refused, and finds out why");
    let account = ["https://kubernetes.default.svc", "monitoring", "metrics-deployer"];
    let refused = Command::new(test_support::tollgate())
        .args(["project", "add-destination-service-account", "web"])
        .args(account)
        .args(["--server", &format!("http://{}", world.gateway.address())])
        .env("TOLLGATE_AUTH_TOKEN", session(world, TENANT).await)
        .output()
        .await
        .unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("projects, update"),
        "{message}"
    );
    let mut tina = Person::sign_in(world, TENANT).await;
    tina.expect(&["1", "refused"]).await;
    tina.picture("overview").await;
    tina.go("decisions?outcome=denied").await;
    tina.press("tbody th a").await;
    tina.expect(&[
        "permission_denied",
        "projects",
        "update",
        "Ask for projects, update, web",
        "#platform",
    ])
    .await;
    tina.picture("decision").await;
    tina.press("tbody a[href^='/console/permissions']").await;
    tina.expect(&["refused", "role:tenant", "p, role:tenant, projects, get, web, allow"])
        .await;
    // She sees what is hers and no more.
    tina.go("projects/web").await;
    tina.expect(&["shop-deployer"]).await;
    tina.leave_by("document.querySelector('button[value=save]').click()")
        .await;
    tina.expect(&["`projects, update` of `web`"]).await;
    tina.page.complaints().await;
    tina.page
        .go(&format!("{}/console/sessions?user=*", world.console))
        .await;
    tina.expect(&["You may not see this", "#platform"]).await;
}

async fn project_owner(world: &World, admin: &Cli) {
    super::tour::step("a project owner changes accounts with the preview, and somebody else does meanwhile");
    let mut olivia = Person::sign_in(world, OWNER).await;
    olivia.go("projects/web").await;
    olivia.expect(&["shop:shop-deployer", "cart", "metrics"]).await;
    olivia.press("button[value=add]").await;
    olivia.fill("#server-1", "https://kubernetes.default.svc").await;
    olivia.fill("#namespace-1", "*").await;
    olivia.fill("#account-1", "web:deployer").await;
    olivia.press(".actions button[value=preview]").await;
    olivia
        .expect(&["1 would change, 2 stay", "web:deployer", "Not saved yet"])
        .await;
    olivia.picture("project").await;
    // First in order, it would act for everything.
    olivia.press("button[value='up:1']").await;
    olivia.expect(&["3 would change, 0 stay"]).await;
    olivia.press("button[value='down:0']").await;
    let account = ["https://kubernetes.default.svc", "backup", "backup-deployer"];
    admin
        .succeed(&[&["proj", "add-destination-service-account", "web"][..], &account].concat())
        .await;
    olivia
        .leave_by("document.querySelector('.actions button[value=save]').click()")
        .await;
    olivia
        .expect(&["Somebody else changed this project meanwhile", "backup-deployer"])
        .await;
    // The browser says that the answer was 409.
    olivia.page.complaints().await;
    let value = olivia.page.evaluate("document.querySelector('#account-1').value").await;
    assert_eq!(value, "web:deployer", "what she typed is lost");
    olivia.press("button[value=add]").await;
    olivia.fill("#server-2", "https://kubernetes.default.svc").await;
    olivia.fill("#namespace-2", "backup").await;
    olivia.fill("#account-2", "backup-deployer").await;
    olivia.press("button[value='up:2']").await;
    olivia.press(".actions button[value=save]").await;
    olivia.expect(&["Saved."]).await;
    let stored: Value = serde_json::from_str(&admin.succeed(&["proj", "get", "web", "-o", "json"]).await).unwrap();
    let accounts: Vec<_> = stored["spec"]["destinationServiceAccounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["defaultServiceAccount"].as_str().unwrap())
        .collect();
    assert_eq!(accounts, ["shop-deployer", "backup-deployer", "web:deployer"]);
    eventually("it is in force", async || {
        olivia.go("identities?project=web&name=metrics").await;
        olivia.text().await.contains("web:deployer").then_some(())
    })
    .await;
}

async fn on_call(world: &World) {
    super::tour::step("an on-call ends a session, and finds what it did");
    let mut tina = Person::sign_in(world, TENANT).await;
    tina.go("tokens").await;
    tina.page
        .evaluate("document.querySelector('main details').open = true")
        .await;
    tina.fill("#name", "a script").await;
    tina.fill("#lifetime", "8h").await;
    tina.press("main details form button").await;
    let bearer = tina.page.evaluate("document.querySelector('pre code').innerText").await;
    let bearer = bearer.as_str().unwrap().to_owned();
    let secrets = async || {
        let url = format!("{}/k8s-proxy/api/v1/namespaces/default/secrets", world.console);
        let request = reqwest::Client::new().get(url).bearer_auth(&bearer);
        request.send().await.unwrap().status()
    };
    eventually("the token enters the cluster", async || {
        (secrets().await == StatusCode::OK).then_some(())
    })
    .await;
    let mut oscar = Person::sign_in(world, ON_CALL).await;
    oscar.go("sessions?user=*").await;
    let row = "[...document.querySelectorAll('tbody tr')].find(row => row.innerText.includes('access token'))";
    oscar.page.until(&format!("{row}?.innerText.includes('tina')")).await;
    oscar.picture("sessions").await;
    let audit = oscar
        .page
        .evaluate(&format!("{row}.querySelector('a[href*=audit]').getAttribute('href')"))
        .await;
    let audit = audit.as_str().unwrap().trim_start_matches("/console/").to_owned();
    let end = format!("{row}.querySelector('details').open = true; {row}.querySelector('button.danger').click()");
    oscar.leave_by(&end).await;
    assert!(!oscar.text().await.contains("access token"));
    assert_eq!(secrets().await, StatusCode::UNAUTHORIZED);
    oscar.go(&audit).await;
    oscar
        .expect(&["tina", "list secrets in default", "access.allowed", "token.created"])
        .await;
    oscar.picture("audit").await;
    oscar.go("decisions?user=tina").await;
    oscar.expect(&["list secrets in default"]).await;
    oscar.go("system").await;
    oscar.picture("system").await;
}

/// Gives the world its people.
pub(super) async fn prepare(cluster: &test_support::kubernetes::cluster::Cluster) {
    cluster.admin().apply(OBJECTS).await;
    assert!(OBJECTS.contains(NAMESPACE));
}

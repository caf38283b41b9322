//! What Argo CD's pages do in a browser, with a whole Argo CD behind the gateway: sign in with Dex,
//! read, follow streams, change a project, show an extension, and sign out.
//!
//! Argo CD's UI cannot be built from package registries alone, so a page of these tests, which
//! argocd-server serves, sends its requests (`ui/src/app/shared/services` of the release).

use serde_json::{Value, json};

use super::extension::{EXTENSION, PAGE, greeter};
use crate::argocd::{Fixture, SESSION_KEY, Setup};
use test_support::backend::Backend;
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::argocd::{ArgoCd, NAMESPACE, PERSON, PERSON_PASSWORD, Wire, with_dex};
use test_support::kubernetes::eventually;
use test_support::port::free_port;
use test_support::token;

/// Functions for the tests to call.
const SCRIPT: &str = r"<script>
const send = async (method, path, body) => {
  const headers = method === 'GET' ? {} : { 'Content-Type': 'application/json' };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json().catch(() => null) };
};
const streams = [];
const first = new Map();
// The first event of a stream, which stays open.
const follow = (path) => new Promise((resolve) => {
  const source = new EventSource(path);
  source.onmessage = ({ data }) => resolve(JSON.parse(data));
  streams.push(new Promise((end) => {
    // The browser connects again by itself, until it is refused.
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      end();
      resolve('refused');
    };
  }));
});
const ended = () => Promise.all(streams).then(() => streams.length);
</script>";

/// What the pages read from argocd-server.
const READS: [&str; 18] = [
    "/api/version",
    "/api/v1/settings",
    "/api/v1/applications?projects=shop&fields=items.metadata.name,items.spec,items.status.sync.status&selector=&appNamespace=",
    "/api/v1/applications/cart/resource-tree?appNamespace=argocd",
    "/api/v1/applications/cart/managed-resources?appNamespace=argocd&fields=items.normalizedLiveState",
    "/api/v1/applications/cart/syncwindows?name=cart&appNamespace=argocd",
    "/api/v1/applications/cart/links?appNamespace=argocd&name=cart&namespace=argocd",
    "/api/v1/projects?fields=items.metadata.name,items.spec",
    "/api/v1/projects/shop",
    "/api/v1/projects/shop/detailed",
    "/api/v1/projects/shop/globalprojects?name=shop",
    "/api/v1/projects/shop/links?name=shop",
    "/api/v1/projects/shop/syncwindows?name=shop",
    "/api/v1/clusters",
    "/api/v1/clusters/https%3A%2F%2Fkubernetes.default.svc?id.type=url",
    "/api/v1/repositories",
    "/api/v1/account/can-i/applications/sync/*",
    "/api/v1/certificates",
];

/// What they read that the gateway serves.
const OWN_READS: [&str; 5] = [
    "/api/v1/applicationsets?selector=&appNamespace=&fields=metadata.resourceVersion,items.metadata,items.spec",
    "/api/v1/applicationsets",
    "/api/v1/applicationsets/carts?appsetNamespace=&refresh=normal",
    "/api/v1/applicationsets/carts/resource-tree?appsetNamespace=argocd",
    "/api/v1/applicationsets/carts/events?appsetNamespace=argocd",
];

/// Streams of both, and what the first event has.
const STREAMS: [(&str, &str, &str); 4] = [
    (
        "/api/v1/stream/applications?projects=shop&fields=result.type,result.application.metadata.name",
        "/result/application/metadata/name",
        "cart",
    ),
    (
        "/api/v1/stream/applications/cart/resource-tree?appNamespace=argocd",
        "/result/nodes/0/name",
        "hello",
    ),
    (
        "/api/v1/stream/applicationsets?resourceVersion=&fields=result.type,result.applicationSet.metadata.name&selector=",
        "/result/applicationSet/metadata/name",
        "carts",
    ),
    (
        "/api/v1/stream/applicationsets?name=carts&appSetNamespace=argocd",
        "/result/applicationSet/metadata/name",
        "carts",
    ),
];

struct Scene {
    fixture: Fixture,
    greeter: Backend,
    chromium: Chromium,
    /// The page's URL.
    url: String,
}

impl Scene {
    async fn start() -> Self {
        let (greeter, port) = (greeter().await, free_port());
        let origin = format!("http://localhost:{port}");
        let mut setup = Setup::new(Wire::Plain);
        setup.listen = format!("127.0.0.1:{port}");
        with_dex(&mut setup.argocd_cm, &origin);
        let service = format!("{{services: [{{url: 'http://{}'}}]}}", greeter.address);
        setup.argocd_cm["extension.config.greeter"] = json!(service);
        let fixture = setup.start(|_| {}).await;
        let policy = format!("g, {PERSON}, role:admin\np, {PERSON}, extensions, invoke, greeter, allow\n");
        ArgoCd::permit(&fixture.cluster, &policy).await;
        let page = PAGE.replace("/extensions.js", "/greeter.js");
        fixture.argocd.asset("page.html", &format!("{page}{SCRIPT}"));
        fixture.argocd.asset("greeter.js", EXTENSION);
        Self {
            fixture,
            greeter,
            chromium: Chromium::start().await,
            url: format!("{origin}/page.html"),
        }
    }

    /// Sends the form of Dex to which the sign-in leads.
    async fn fill_in_form(&self, page: &mut Page, password: &str) {
        page.until("document.readyState === 'complete' && !!document.querySelector('#password')")
            .await;
        let fill = format!(
            "document.querySelector('#login').value = '{PERSON}'; \
             document.querySelector('#password').value = '{password}'; \
             document.querySelector('form').requestSubmit()"
        );
        page.evaluate(&fill).await;
    }

    async fn sign_in(&self, page: &mut Page) {
        let back = json!(self.url);
        page.evaluate(&format!(
            "location.assign('/auth/login?return_url=' + encodeURIComponent({back}))"
        ))
        .await;
        self.fill_in_form(page, "not-the-password").await;
        page.until("!!document.querySelector('#login-error')").await;
        self.fill_in_form(page, PERSON_PASSWORD).await;
        page.until(&format!(
            "document.readyState === 'complete' && location.href === {back}"
        ))
        .await;
    }

    /// The answer of argocd-server itself to somebody with the same rights.
    async fn direct(&self, path: &str) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("{}{path}", self.fixture.argocd.url()));
        let request = request.bearer_auth(token::session(SESSION_KEY, "admin"));
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        json!({"status": status, "body": answer.json::<Value>().await.unwrap_or_default()})
    }
}

async fn send(page: &mut Page, method: &str, path: &str, body: &Value) -> Value {
    page.evaluate(&format!("send('{method}', '{path}', {body})")).await
}

async fn get(page: &mut Page, path: &str) -> Value {
    page.evaluate(&format!("send('GET', '{path}')")).await
}

/// Creates the project, an Application and a set, as the dialogs of the pages do.
async fn create(scene: &Scene, page: &mut Page) {
    let destination = json!({"server": "https://kubernetes.default.svc", "namespace": "default"});
    let any = json!([{"server": "*", "namespace": "*"}]);
    let project = json!({"metadata": {"name": "shop"}, "spec": {"sourceRepos": ["*"], "destinations": any}});
    let created = send(page, "POST", "/api/v1/projects", &json!({"project": project})).await;
    assert_eq!(created["status"], 200, "{created}");
    let source = json!({"repoURL": scene.fixture.argocd.repository(), "path": "app", "targetRevision": "HEAD"});
    let spec = json!({"project": "shop", "source": source, "destination": destination});
    let cart = json!({"metadata": {"name": "cart"}, "spec": spec});
    let created = send(page, "POST", "/api/v1/applications", &cart).await;
    assert_eq!(created["status"], 200, "{created}");
    let synced = send(page, "POST", "/api/v1/applications/cart/sync", &json!({"prune": false})).await;
    assert_eq!(synced["status"], 200, "{synced}");
    let set = json!({"metadata": {"name": "carts"}, "spec": {
        "generators": [{"list": {"elements": [{"name": "cart-eu"}]}}],
        "template": {"metadata": {"name": "{{name}}"}, "spec": spec},
    }});
    let preview = json!({"applicationSet": set});
    let preview = send(page, "POST", "/api/v1/applicationsets/generate", &preview).await;
    assert_eq!(
        preview["body"]["applications"][0]["metadata"]["name"], "cart-eu",
        "{preview}"
    );
    let created = send(page, "POST", "/api/v1/applicationsets", &set).await;
    assert_eq!(created["status"], 200, "{created}");
    eventually("both are reconciled", async || {
        let tree = scene.direct("/api/v1/applicationsets/carts/resource-tree").await;
        let application = scene.direct("/api/v1/applications/cart").await;
        let synced = application["body"]["status"]["sync"]["status"] == "Synced";
        (synced && tree["body"]["nodes"].is_array()).then_some(())
    })
    .await;
}

/// The list of destination service accounts is edited by sending the whole project.
async fn edit_project(scene: &Scene, page: &mut Page) {
    let mut project = get(page, "/api/v1/projects/shop").await["body"].clone();
    project["spec"]["destinationServiceAccounts"] =
        json!([{"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"}]);
    let saved = send(page, "PUT", "/api/v1/projects/shop", &json!({"project": project})).await;
    assert_eq!(saved["status"], 200, "{saved}");
    let direct = scene.direct("/api/v1/projects/shop").await;
    assert_eq!(
        direct["body"]["spec"]["destinationServiceAccounts"][0]["defaultServiceAccount"],
        "deployer"
    );
    let stale = send(page, "PUT", "/api/v1/projects/shop", &json!({"project": project})).await;
    assert_eq!(stale["status"], 409, "{stale}");

    let mut project = get(page, "/api/v1/projects/shop").await["body"].clone();
    project["spec"]["roles"] = json!([{"name": "ci", "policies": []}]);
    let saved = send(page, "PUT", "/api/v1/projects/shop", &json!({"project": project})).await;
    assert_eq!(saved["status"], 200, "{saved}");
    let path = "/api/v1/projects/shop/roles/ci/token";
    let token = json!({"project": "shop", "role": "ci", "expiresIn": 3600});
    let token = send(page, "POST", path, &token).await;
    assert!(token["body"]["token"].is_string(), "{token}");
    let project = get(page, "/api/v1/projects/shop").await;
    let issued = &project["body"]["status"]["jwtTokensByRole"]["ci"]["items"][0]["iat"];
    let removed = page.evaluate(&format!("send('DELETE', '{path}/{issued}')")).await;
    assert_eq!(removed["status"], 200, "{removed}");
}

/// The first event of a stream. Those of a tree and of all sets begin with the first change.
async fn first_event(scene: &Scene, page: &mut Page, path: &str) -> Value {
    page.evaluate(&format!(
        "void follow('{path}').then((event) => first.set('{path}', event))"
    ))
    .await;
    let mut change = 0;
    eventually(path, async || {
        change += 1;
        let label = format!("change={change}");
        for (object, namespace) in [("configmap/hello", "default"), ("applicationset/carts", NAMESPACE)] {
            let label = ["label", object, "--namespace", namespace, "--overwrite", &label];
            scene.fixture.cluster.admin().succeed(&label).await;
        }
        let event = page.evaluate(&format!("first.get('{path}')")).await;
        (!event.is_null()).then_some(event)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_work_from_sign_in_to_sign_out() {
    let scene = Scene::start().await;
    let mut page = scene.chromium.open(&scene.url).await;
    for path in ["/api/v1/applications", "/api/v1/applicationsets"] {
        assert_eq!(get(&mut page, path).await["status"], 401, "{path}");
    }
    for (path, ..) in STREAMS {
        assert_eq!(page.evaluate(&format!("follow('{path}')")).await, "refused", "{path}");
    }
    scene.sign_in(&mut page).await;
    let person = get(&mut page, "/api/v1/session/userinfo").await;
    assert_eq!(
        (&person["body"]["loggedIn"], &person["body"]["username"]),
        (&json!(true), &json!(PERSON)),
        "{person}"
    );

    create(&scene, &mut page).await;
    for path in READS {
        // The application controller writes the state of its connection to a cluster every ten seconds.
        eventually(&format!("{path} has the same answer"), async || {
            let (through, direct) = (get(&mut page, path).await, scene.direct(path).await);
            assert_eq!(through["status"], 200, "{path}");
            (through == direct).then_some(())
        })
        .await;
    }
    for path in OWN_READS {
        let (through, direct) = (get(&mut page, path).await, scene.direct(path).await);
        for pointer in [
            "/status",
            "/body/metadata/name",
            "/body/items/0/metadata/name",
            "/body/nodes/0/name",
        ] {
            // The controller may add an event in between.
            if !path.contains("/events") {
                assert_eq!(through.pointer(pointer), direct.pointer(pointer), "{path} {pointer}");
            }
        }
        assert_eq!(through["status"], 200, "{path}: {through}");
    }
    edit_project(&scene, &mut page).await;

    for (path, pointer, expected) in STREAMS {
        let event = first_event(&scene, &mut page, path).await;
        assert_eq!(event.pointer(pointer), Some(&json!(expected)), "{path}: {event}");
    }
    assert_eq!(page.evaluate("show('cart')").await, "pre");
    for line in ["fetch 200: hello", "event: good morning", "socket: good evening"] {
        page.evaluate(&format!("until('{line}')")).await;
    }
    for seen in scene.greeter.seen() {
        assert_eq!(seen.values("argocd-username"), [PERSON]);
        assert!(seen.values("cookie").is_empty(), "{}", seen.head);
    }

    let signed_out = "fetch('/auth/logout', { method: 'POST', redirect: 'manual' }).then(({ type }) => type)";
    assert_eq!(page.evaluate(signed_out).await, "opaqueredirect");
    assert_eq!(page.evaluate("ended()").await, STREAMS.len());
    for line in ["socket closed", "events closed"] {
        page.evaluate(&format!("until('{line}')")).await;
    }
    for path in READS.into_iter().skip(2).chain(OWN_READS) {
        assert_eq!(get(&mut page, path).await["status"], 401, "{path}");
    }
    assert_eq!(scene.greeter.seen().len(), 3);
}

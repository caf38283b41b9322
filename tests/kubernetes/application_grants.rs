//! The roles that `tollgate rbac manifest --applications` prints, tested with a real API server.
//! They are sufficient, every name in them is necessary, and the gateway reports missing rights and
//! accounts.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};

/// The extra keys that the shipped rules send.
const KEYS: [&str; 2] = ["tollgate.dev/application", "tollgate.dev/user"];

/// Part of the API server's message when impersonation itself is forbidden.
const REFUSED: &str = "cannot impersonate";

/// A separate cluster, because the names of ClusterRoles are fixed. The gateway's service account
/// has no rights there. Applications act as `deployer` of namespace `web`, which exists, and as
/// `ghost` of `api`, which does not.
struct Fixture {
    cluster: Cluster,
    token: String,
}

impl Fixture {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        for namespace in ["gate", "web", "api"] {
            cluster.admin().succeed(&["create", "namespace", namespace]).await;
        }
        let token = cluster.service_account("gate", "gateway").await;
        cluster.service_account("web", "deployer").await;
        cluster.service_account("web", "other").await;
        let reader = |namespace: &str, account: &str| {
            let role = "rbac.authorization.k8s.io";
            [
                json!({
                    "apiVersion": format!("{role}/v1"), "kind": "Role",
                    "metadata": {"name": "reader", "namespace": namespace},
                    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}],
                }),
                json!({
                    "apiVersion": format!("{role}/v1"), "kind": "RoleBinding",
                    "metadata": {"name": "reader", "namespace": namespace},
                    "roleRef": {"apiGroup": role, "kind": "Role", "name": "reader"},
                    "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
                }),
            ]
        };
        let fixture = Self { cluster, token };
        fixture.apply(&reader("web", "deployer")).await;
        fixture.apply(&reader("api", "ghost")).await;
        fixture
    }

    /// Starts a gateway, which asks the cluster about its rights.
    async fn gateway(&self, mode: &str) -> Gateway {
        let mut layout = Layout::new(&[], "");
        layout.policies("applications");
        layout.settings(json!({"applications": {}}));
        let data = json!({"application.sync.impersonation.enabled": mode});
        layout.object("ConfigMap", "argocd-cm", &json!({}), &data);
        let config = json!({
            "bearerToken": self.token,
            "tlsClientConfig": {"caData": base64(self.cluster.authority())},
        });
        let secret = json!({"name": "tenants", "server": self.cluster.url(), "config": config.to_string()});
        layout.cluster("tenants", &secret);
        let account = |namespace: &str, name: &str| json!({"server": self.cluster.url(), "namespace": namespace, "defaultServiceAccount": name});
        layout.write(&json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "*", "namespace": "*"}],
                "destinationServiceAccounts": [account("web", "deployer"), account("api", "ghost")],
            },
        }));
        for (name, namespace) in [("cart", "web"), ("front", "web"), ("orders", "api")] {
            layout.write(&json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": name, "namespace": "argocd"},
                "spec": {
                    "project": "shop", "destination": {"server": self.cluster.url(), "namespace": namespace},
                },
            }));
        }
        layout.start().await
    }

    /// What the gateway knows about its rights in the cluster, once it has asked.
    async fn known(&self, gateway: &Gateway) -> Value {
        eventually("the gateway asked the cluster", async || {
            let report = gateway.admin("/applications").await;
            let cluster = report["clusters"].as_array().unwrap().first().cloned();
            cluster.filter(|cluster| !cluster.to_string().contains("it was not asked about yet"))
        })
        .await
    }

    /// The objects that the command prints.
    async fn manifest(&self, gateway: &Gateway, more: &[&str]) -> Vec<Value> {
        let arguments = [
            "--applications",
            "--cluster",
            "tenants",
            "--subject",
            "serviceaccount:gate:gateway",
        ];
        gateway.rbac_manifest(&arguments, more).await
    }

    async fn apply(&self, objects: &[Value]) {
        for object in objects {
            self.cluster.admin().apply(&object.to_string()).await;
        }
    }

    /// Sends a request to the API server as the gateway would. Returns the response.
    async fn ask(&self, method: Method, account: (&str, &str), extra: &[&str]) -> (StatusCode, String) {
        let (namespace, name) = account;
        let url = format!("{}/api/v1/namespaces/{namespace}/configmaps", self.cluster.url());
        let mut request = self
            .cluster
            .client()
            .request(method.clone(), url)
            .bearer_auth(&self.token)
            .header("impersonate-user", format!("system:serviceaccount:{namespace}:{name}"));
        for key in extra {
            let key = key.replace('/', "%2f");
            request = request.header(format!("impersonate-extra-{key}"), "value");
        }
        if method == Method::POST {
            request = request.json(&json!({"metadata": {"generateName": "c-"}}));
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Waits for this response to a list, because the API server applies roles with a delay.
    async fn listed(&self, account: (&str, &str), extra: &[&str], (wanted, word): (StatusCode, &str)) {
        eventually(&format!("{account:?} {extra:?}: {wanted} with `{word}`"), async || {
            let (status, text) = self.ask(Method::GET, account, extra).await;
            (status == wanted && text.contains(word)).then_some(())
        })
        .await;
    }

    /// Removes the name from each printed role in turn, and checks that the request is then
    /// refused.
    async fn miss_each(&self, objects: &[Value], accounts: &[(&str, &str)]) {
        for account @ (namespace, name) in accounts {
            let role = objects
                .iter()
                .find(|object| object["kind"] == "Role" && object["metadata"]["namespace"] == *namespace)
                .unwrap();
            let mut less = role.clone();
            let names = less["rules"][0]["resourceNames"].as_array_mut().unwrap();
            assert_eq!(*names, [json!(name)]);
            *names = vec![json!("somebody-else")];
            self.apply(&[less]).await;
            self.listed(*account, &[], (StatusCode::FORBIDDEN, REFUSED)).await;
            self.apply(std::slice::from_ref(role)).await;
            self.listed(*account, &[], (StatusCode::OK, "ConfigMapList")).await;
        }
    }
}

fn account<'a>(known: &'a Value, name: &str) -> &'a Value {
    let accounts = known["accounts"].as_array().unwrap();
    accounts.iter().find(|account| account["name"] == name).unwrap()
}

fn extra(states: [&str; 2]) -> Value {
    let keys = KEYS.into_iter().zip(states);
    keys.map(|(key, state)| json!({"key": key, "state": state})).collect()
}

fn log(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("log")).unwrap()
}

#[tokio::test]
async fn the_classic_roles_are_sufficient_and_every_name_is_necessary() {
    let fixture = Fixture::start().await;
    let gateway = fixture.gateway("true").await;
    let known = fixture.known(&gateway).await;
    assert_eq!(
        known["impersonation"],
        json!({"granted": 0, "missing": 2, "unknown": 0})
    );
    let deployer = json!({
        "namespace": "web", "name": "deployer",
        "impersonation": {"state": "missing"},
        "existence": account(&known, "deployer")["existence"],
        "applications": {"count": 2, "first": ["argocd/cart", "argocd/front"]},
    });
    assert_eq!(*account(&known, "deployer"), deployer);
    assert_eq!(deployer["existence"]["state"], "unknown");
    assert_eq!(known["extra"], extra(["missing", "missing"]));
    let command = "tollgate rbac manifest --applications --cluster tenants";
    assert_eq!(known["command"], command);
    let text = log(&gateway);
    let line = text.lines().find(|line| line.contains("may not act as these")).unwrap();
    assert!(
        line.contains("api:ghost, web:deployer") && line.contains(command),
        "{line}"
    );
    let metrics = gateway.admin_text("/metrics").await;
    let series = r#"tollgate_application_grants{cluster="tenants",about="impersonation",state="missing"} 2"#;
    assert!(metrics.contains(series), "{metrics}");

    // Without the roles the gateway may do nothing, and with them exactly what they grant.
    let [deployer, ghost] = [("web", "deployer"), ("api", "ghost")];
    let (status, text) = fixture.ask(Method::GET, deployer, &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let objects = fixture.manifest(&gateway, &[]).await;
    assert_eq!(objects.len(), 6);
    fixture.apply(&objects).await;
    for account in [deployer, ghost] {
        fixture.listed(account, &KEYS, (StatusCode::OK, "ConfigMapList")).await;
    }
    fixture
        .listed(("web", "other"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    fixture
        .listed(("gate", "gateway"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    let (status, text) = fixture.ask(Method::GET, deployer, &["example.com/more"]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    fixture.miss_each(&objects, &[deployer, ghost]).await;
    for key in KEYS {
        let mut less = objects[4].clone();
        let resources = less["rules"][0]["resources"].as_array_mut().unwrap();
        resources.retain(|resource| *resource != format!("userextras/{key}"));
        assert_eq!(resources.len(), 1);
        fixture.apply(&[less]).await;
        let word = format!(r#"resource \"userextras/{key}\""#);
        fixture.listed(deployer, &KEYS, (StatusCode::FORBIDDEN, &word)).await;
        let other: Vec<&str> = KEYS.into_iter().filter(|other| *other != key).collect();
        fixture
            .listed(deployer, &other, (StatusCode::OK, "ConfigMapList"))
            .await;
        let known = fixture.known(&fixture.gateway("true").await).await;
        let states = KEYS.map(|other| if other == key { "missing" } else { "granted" });
        assert_eq!(known["extra"], extra(states), "{known}");
    }
    fixture.apply(&objects).await;
    fixture.listed(deployer, &KEYS, (StatusCode::OK, "ConfigMapList")).await;

    let gateway = fixture.gateway("audit").await;
    let known = fixture.known(&gateway).await;
    assert_eq!(
        known["impersonation"],
        json!({"granted": 2, "missing": 0, "unknown": 0})
    );
    assert_eq!(
        account(&known, "ghost")["impersonation"],
        json!({"state": "granted", "mode": "classic"})
    );
    assert_eq!(known["extra"], extra(["granted", "granted"]));
    assert_eq!(known.get("command"), None);
    assert_eq!(known.get("acts_as_all"), None);
}

#[tokio::test]
async fn absent_accounts_are_reported_if_the_gateway_may_read_them() {
    let fixture = Fixture::start().await;
    let gateway = fixture.gateway("true").await;
    fixture
        .apply(&fixture.manifest(&gateway, &["--with-account-check"]).await)
        .await;
    fixture
        .listed(("api", "ghost"), &KEYS, (StatusCode::OK, "ConfigMapList"))
        .await;
    let gateway = fixture.gateway("true").await;
    let known = fixture.known(&gateway).await;
    assert_eq!(known["existence"], json!({"granted": 1, "missing": 1, "unknown": 0}));
    assert_eq!(account(&known, "deployer")["existence"], json!({"state": "exists"}));
    assert_eq!(account(&known, "ghost")["existence"], json!({"state": "missing"}));
    // It is listed first, because something is missing.
    assert_eq!(known["accounts"][0]["name"], "ghost");
    let text = log(&gateway);
    let line = text.lines().find(|line| line.contains("are not there")).unwrap();
    assert!(line.contains("api:ghost") && !line.contains("web:deployer"), "{line}");
    // The gateway may read these accounts and no others.
    let denied = ["auth", "can-i", "get", "serviceaccounts/other", "--namespace=web"];
    let as_gateway = ["--as=system:serviceaccount:gate:gateway"];
    let run = fixture.cluster.admin().fail(&[&denied[..], &as_gateway].concat()).await;
    assert!(!run.contains("yes"), "{run}");
}

#[tokio::test]
async fn the_constrained_roles_are_sufficient_for_their_verbs_without_extra_keys() {
    let fixture = Fixture::start().await;
    let gateway = fixture.gateway("true").await;
    let objects = fixture
        .manifest(&gateway, &["--mode", "constrained", "--verbs", "get,list,watch"])
        .await;
    fixture.apply(&objects).await;
    let [deployer, ghost] = [("web", "deployer"), ("api", "ghost")];
    for account in [deployer, ghost] {
        fixture.listed(account, &[], (StatusCode::OK, "ConfigMapList")).await;
    }
    // The account may create config maps, but the gateway may not do so on its behalf.
    let (status, text) = fixture.ask(Method::POST, deployer, &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let (status, text) = fixture.ask(Method::GET, deployer, &KEYS[..1]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    fixture
        .listed(("web", "other"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    fixture.miss_each(&objects, &[deployer, ghost]).await;

    let known = fixture.known(&fixture.gateway("true").await).await;
    let granted = json!({"state": "granted", "mode": "constrained"});
    for name in ["deployer", "ghost"] {
        assert_eq!(account(&known, name)["impersonation"], granted);
    }
    assert_eq!(known["extra"], extra(["missing", "missing"]));
}

#[tokio::test]
async fn a_right_on_all_accounts_is_reported_and_off_asks_nothing() {
    let fixture = Fixture::start().await;
    let role = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "blanket"});
    fixture
        .apply(&[
            json!({
                "apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": metadata,
                "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate", "get"]}],
            }),
            json!({
                "apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "blanket"},
                "subjects": [{"kind": "ServiceAccount", "name": "gateway", "namespace": "gate"}],
            }),
        ])
        .await;
    fixture
        .listed(("api", "ghost"), &[], (StatusCode::OK, "ConfigMapList"))
        .await;
    let asked = || {
        let events = fixture.cluster.audit().events();
        let reviews = events.iter().filter(|event| {
            event["user"]["username"] == "system:serviceaccount:gate:gateway"
                && event["objectRef"]["resource"] == "selfsubjectaccessreviews"
        });
        reviews.count()
    };
    let gateway = fixture.gateway("false").await;
    let report = gateway.admin("/applications").await;
    assert_eq!(report, json!({"mode": "off", "clusters": []}));

    let before = asked();
    let gateway_on = fixture.gateway("true").await;
    let known = fixture.known(&gateway_on).await;
    assert_eq!(known["acts_as_all"], "classic");
    assert_eq!(
        known["impersonation"],
        json!({"granted": 2, "missing": 0, "unknown": 0})
    );
    assert_eq!(known["existence"], json!({"granted": 1, "missing": 1, "unknown": 0}));
    let text = log(&gateway_on);
    let line = text.lines().find(|line| line.contains("anyone who has its credential"));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{text}");
    assert!(!text.contains("may not act as"), "{text}");
    // Four questions are enough: two rights on all accounts, and two keys.
    eventually("the questions are in the audit log", async || {
        (asked() == before + 4).then_some(())
    })
    .await;
    assert_eq!(before, 0, "with impersonation off, the gateway asked the cluster");
    drop(gateway);
}

//! The roles `tollgate rbac manifest --applications` prints, before a real API server:
//! they are enough, no name in them is too much, and the gateway says what is missing,
//! which accounts are not there, and what may travel along.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};

/// What the shipped rules send along.
const KEYS: [&str; 2] = ["tollgate.dev/application", "tollgate.dev/user"];

/// What is forbidden is to act as somebody, not what would be done then.
const REFUSED: &str = "cannot impersonate";

/// A cluster of its own, for roles of clusters have one name each, that knows the
/// gateway as a service account without a single right. Applications act as `deployer`
/// of namespace `web`, which is there, and as `ghost` of `api`, which is not.
struct World {
    cluster: Cluster,
    token: String,
}

impl World {
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
        let world = Self { cluster, token };
        world.apply(&reader("web", "deployer")).await;
        world.apply(&reader("api", "ghost")).await;
        world
    }

    /// A gateway that asks the cluster when it starts.
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

    /// What the gateway knows of the cluster, once it was asked.
    async fn known(&self, gateway: &Gateway) -> Value {
        eventually("the gateway asked the cluster", async || {
            let report = gateway.admin("/applications").await;
            let cluster = report["clusters"].as_array().unwrap().first().cloned();
            cluster.filter(|cluster| !cluster.to_string().contains("it was not asked about yet"))
        })
        .await
    }

    /// What the command prints, as objects.
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

    /// Sends a request to the API server as the gateway would; what it says.
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

    /// Waits for a list to be answered so: the API server hears of roles a moment later.
    async fn listed(&self, account: (&str, &str), extra: &[&str], (wanted, word): (StatusCode, &str)) {
        eventually(&format!("{account:?} {extra:?}: {wanted} with `{word}`"), async || {
            let (status, text) = self.ask(Method::GET, account, extra).await;
            (status == wanted && text.contains(word)).then_some(())
        })
        .await;
    }

    /// The printed roles, one name taken out of each in turn: it is missed.
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
async fn the_classic_roles_are_enough_and_no_name_too_much() {
    let world = World::start().await;
    let gateway = world.gateway("true").await;
    let known = world.known(&gateway).await;
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

    // The gateway is forbidden what it is not given; the roles give it, and no more.
    let [deployer, ghost] = [("web", "deployer"), ("api", "ghost")];
    let (status, text) = world.ask(Method::GET, deployer, &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let objects = world.manifest(&gateway, &[]).await;
    assert_eq!(objects.len(), 6);
    world.apply(&objects).await;
    for account in [deployer, ghost] {
        world.listed(account, &KEYS, (StatusCode::OK, "ConfigMapList")).await;
    }
    world
        .listed(("web", "other"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    world
        .listed(("gate", "gateway"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    let (status, text) = world.ask(Method::GET, deployer, &["example.com/more"]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    world.miss_each(&objects, &[deployer, ghost]).await;
    for key in KEYS {
        let mut less = objects[4].clone();
        let resources = less["rules"][0]["resources"].as_array_mut().unwrap();
        resources.retain(|resource| *resource != format!("userextras/{key}"));
        assert_eq!(resources.len(), 1);
        world.apply(&[less]).await;
        let word = format!(r#"resource \"userextras/{key}\""#);
        world.listed(deployer, &KEYS, (StatusCode::FORBIDDEN, &word)).await;
        let other: Vec<&str> = KEYS.into_iter().filter(|other| *other != key).collect();
        world.listed(deployer, &other, (StatusCode::OK, "ConfigMapList")).await;
        let known = world.known(&world.gateway("true").await).await;
        let states = KEYS.map(|other| if other == key { "missing" } else { "granted" });
        assert_eq!(known["extra"], extra(states), "{known}");
    }
    world.apply(&objects).await;
    world.listed(deployer, &KEYS, (StatusCode::OK, "ConfigMapList")).await;

    let gateway = world.gateway("audit").await;
    let known = world.known(&gateway).await;
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
async fn accounts_that_are_not_there_are_missed_where_the_gateway_may_look() {
    let world = World::start().await;
    let gateway = world.gateway("true").await;
    world
        .apply(&world.manifest(&gateway, &["--with-account-check"]).await)
        .await;
    world
        .listed(("api", "ghost"), &KEYS, (StatusCode::OK, "ConfigMapList"))
        .await;
    let gateway = world.gateway("true").await;
    let known = world.known(&gateway).await;
    assert_eq!(known["existence"], json!({"granted": 1, "missing": 1, "unknown": 0}));
    assert_eq!(account(&known, "deployer")["existence"], json!({"state": "exists"}));
    assert_eq!(account(&known, "ghost")["existence"], json!({"state": "missing"}));
    // It is first, for it lacks something.
    assert_eq!(known["accounts"][0]["name"], "ghost");
    let text = log(&gateway);
    let line = text.lines().find(|line| line.contains("are not there")).unwrap();
    assert!(line.contains("api:ghost") && !line.contains("web:deployer"), "{line}");
    // It may look at these, and at no other.
    let denied = ["auth", "can-i", "get", "serviceaccounts/other", "--namespace=web"];
    let as_gateway = ["--as=system:serviceaccount:gate:gateway"];
    let run = world.cluster.admin().fail(&[&denied[..], &as_gateway].concat()).await;
    assert!(!run.contains("yes"), "{run}");
}

#[tokio::test]
async fn the_constrained_roles_are_enough_for_their_verbs_and_nothing_travels_along() {
    let world = World::start().await;
    let gateway = world.gateway("true").await;
    let objects = world
        .manifest(&gateway, &["--mode", "constrained", "--verbs", "get,list,watch"])
        .await;
    world.apply(&objects).await;
    let [deployer, ghost] = [("web", "deployer"), ("api", "ghost")];
    for account in [deployer, ghost] {
        world.listed(account, &[], (StatusCode::OK, "ConfigMapList")).await;
    }
    // The account may create them; the gateway may not on its behalf.
    let (status, text) = world.ask(Method::POST, deployer, &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let (status, text) = world.ask(Method::GET, deployer, &KEYS[..1]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    world
        .listed(("web", "other"), &[], (StatusCode::FORBIDDEN, REFUSED))
        .await;
    world.miss_each(&objects, &[deployer, ghost]).await;

    let known = world.known(&world.gateway("true").await).await;
    let granted = json!({"state": "granted", "mode": "constrained"});
    for name in ["deployer", "ghost"] {
        assert_eq!(account(&known, name)["impersonation"], granted);
    }
    assert_eq!(known["extra"], extra(["missing", "missing"]));
}

#[tokio::test]
async fn a_right_on_all_accounts_is_said_to_be_too_much_and_off_asks_nobody() {
    let world = World::start().await;
    let role = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "blanket"});
    world
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
    world
        .listed(("api", "ghost"), &[], (StatusCode::OK, "ConfigMapList"))
        .await;
    let asked = || {
        let events = world.cluster.audit().events();
        let reviews = events.iter().filter(|event| {
            event["user"]["username"] == "system:serviceaccount:gate:gateway"
                && event["objectRef"]["resource"] == "selfsubjectaccessreviews"
        });
        reviews.count()
    };
    let gateway = world.gateway("false").await;
    let report = gateway.admin("/applications").await;
    assert_eq!(report, json!({"mode": "off", "clusters": []}));

    let before = asked();
    let gateway_on = world.gateway("true").await;
    let known = world.known(&gateway_on).await;
    assert_eq!(known["acts_as_all"], "classic");
    assert_eq!(
        known["impersonation"],
        json!({"granted": 2, "missing": 0, "unknown": 0})
    );
    assert_eq!(known["existence"], json!({"granted": 1, "missing": 1, "unknown": 0}));
    let text = log(&gateway_on);
    let line = text.lines().find(|line| line.contains("whoever has its credential"));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{text}");
    assert!(!text.contains("may not act as"), "{text}");
    // All of it by four questions: two rights on all accounts, two keys.
    eventually("the questions are in the audit log", async || {
        (asked() == before + 4).then_some(())
    })
    .await;
    assert_eq!(before, 0, "off asks nobody");
    drop(gateway);
}

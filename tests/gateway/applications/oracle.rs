//! Property test: no caller reaches through an Application what Argo CD's server would refuse them.
//!
//! Random RBAC tables, projects, tracking settings, stored objects and requests go through a whole
//! gateway to an API server that records what it receives. A model decides what each caller may do.
//! It shares no code with the gateway, and was written from Argo CD 3.5.7 (`server/application`:
//! `getAppLiveResource`, `PatchResource`, `DeleteResource`, `PodLogs`, `Sync`, the terminal;
//! `controller/cache`: `getAppRecursive`; `AppProject.IsResourcePermitted`; the casbin model).
//!
//! The model deliberately differs from Argo CD in three points:
//!
//! - Discovery and access reviews about oneself need `get`.
//! - Requests for more than one object need `override`: with it, a sync of the caller's own
//!   manifests could make the objects part of the Application.
//! - The gateway may require `get` of everybody and `sync` of everybody who writes, even where Argo
//!   CD does not.
//!
//! `TOLLGATE_ORACLE_SEED` (a number) and `TOLLGATE_ORACLE_WORLDS` (how many scenarios) select what
//! is run. A failure is shrunk.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use reqwest::Method;
use serde_json::{Value, json};

use super::{CART, api, asked, setup, shop};
use crate::clusters::ask;
use test_support::api_server::{Answer, Seen};

const USERS: [&str; 3] = ["alice", "bob", "carol"];
/// Resource and action of RBAC rows.
const RIGHTS: [(&str, &str); 16] = [
    ("applications", "get"),
    ("applications", "sync"),
    ("applications", "override"),
    ("applications", "update"),
    ("applications", "delete"),
    ("applications", "update/*"),
    ("applications", "delete/*"),
    ("applications", "update/apps/Deployment/cart/*"),
    ("applications", "update//Pod/*/a"),
    ("applications", "delete/*/ConfigMap/*/*"),
    ("applications", "action/*"),
    ("applications", "*"),
    ("logs", "get"),
    ("exec", "create"),
    ("*", "get"),
    ("clusters", "*"),
];
const OBJECTS: [&str; 4] = ["shop/cart", "shop/*", "*/*", "other/*"];
/// Group, kind, resource. The last one is cluster-scoped.
const KINDS: [(&str, &str, &str); 6] = [
    ("", "Pod", "pods"),
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("", "ConfigMap", "configmaps"),
    ("", "Secret", "secrets"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings"),
];
const NAMESPACES: [&str; 2] = ["cart", "cart-2"];
const NAMES: [&str; 2] = ["a", "b"];
const METHODS: [&str; 6] = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD"];
const SUBRESOURCES: [&str; 9] = [
    "log",
    "exec",
    "attach",
    "portforward",
    "proxy",
    "scale",
    "status",
    "eviction",
    "ephemeralcontainers",
];
const QUERIES: [&str; 4] = ["", "watch=true", "fieldSelector=metadata.name%3Da", "dryRun=All"];
const PATHS: [&str; 6] = [
    "/version",
    "/apis/apps/v1",
    "/openapi/v3",
    "/metrics",
    "/logs/kube.log",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
];

/// A row of the RBAC table: indices of user, right and object, and whether it denies.
type Row = (usize, usize, usize, bool);
/// An object: kind, namespace, name, how it is tracked, owner (an index), and whether the owner's
/// uid is stale.
type Stored = (usize, usize, usize, usize, Option<usize>, bool);
/// A request: user, method, target, query.
type Asked = (usize, usize, RequestTarget, usize);

#[derive(Clone, Debug)]
enum RequestTarget {
    Path(usize),
    /// Kind, namespace, name, subresource.
    Resource(usize, usize, Option<usize>, Option<usize>),
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent random setting")]
struct Scenario {
    rows: Vec<Row>,
    readonly_by_default: bool,
    inherits: bool,
    two_namespaces: bool,
    denies_config_maps: bool,
    permits_bindings: bool,
    by_label: bool,
    installation: bool,
    /// Whether the gateway acts with its own identity.
    gateway_identity: bool,
    objects: Vec<Stored>,
    requests: Vec<Asked>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    // The most important rights occur often, so that enough requests are permitted.
    let right = prop_oneof![3 => 0..3_usize, 2 => 0..RIGHTS.len()];
    let object = prop_oneof![4 => 0..3_usize, 1 => 0..OBJECTS.len()];
    let row = (0..USERS.len(), right, object, prop::bool::weighted(0.1));
    let stored = (
        0..KINDS.len(),
        0..NAMESPACES.len(),
        0..NAMES.len(),
        0..6_usize,
        prop::option::weighted(0.4, 0..8_usize),
        prop::bool::weighted(0.15),
    );
    let target = prop_oneof![
        1 => (0..PATHS.len()).prop_map(RequestTarget::Path),
        8 => (
            0..KINDS.len(),
            0..NAMESPACES.len(),
            prop::option::weighted(0.75, 0..NAMES.len()),
            prop::option::weighted(0.3, 0..SUBRESOURCES.len()),
        )
            .prop_map(|(kind, namespace, name, subresource)| RequestTarget::Resource(kind, namespace, name, subresource)),
    ];
    let request = (0..USERS.len(), 0..METHODS.len(), target, 0..QUERIES.len());
    let switches = (any::<[bool; 5]>(), any::<[bool; 3]>());
    let lists = (
        prop::collection::vec(row, 0..12),
        prop::collection::vec(stored, 0..10),
        prop::collection::vec(request, 1..40),
    );
    (switches, lists).prop_map(|((five, three), (rows, objects, requests))| {
        let [
            readonly_by_default,
            inherits,
            two_namespaces,
            denies_config_maps,
            permits_bindings,
        ] = five;
        let [by_label, installation, gateway_identity] = three;
        Scenario {
            rows,
            readonly_by_default,
            inherits,
            two_namespaces,
            denies_config_maps,
            permits_bindings,
            by_label,
            installation,
            gateway_identity,
            objects,
            requests,
        }
    })
}

/// What the model knows about a stored object.
#[derive(Clone, Debug)]
struct Live {
    uid: String,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    /// Key and uid of each owner.
    owners: Vec<(Key, String)>,
}

/// Kind, namespace (empty if cluster-scoped), name.
type Key = (usize, &'static str, &'static str);

fn key(kind: usize, namespace: usize, name: usize) -> Key {
    let namespace = if is_cluster_scoped(kind) {
        ""
    } else {
        NAMESPACES[namespace]
    };
    (kind, namespace, NAMES[name])
}

fn is_cluster_scoped(kind: usize) -> bool {
    kind == KINDS.len() - 1
}

fn uid((kind, namespace, name): Key) -> String {
    format!("{}-{namespace}-{name}", KINDS[kind].2)
}

fn path((kind, namespace, name): Key) -> String {
    format!("{}/{name}", folder(kind, namespace))
}

fn folder(kind: usize, namespace: &str) -> String {
    let (group, _, resource) = KINDS[kind];
    let root = if group.is_empty() {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{group}/v1")
    };
    match namespace {
        "" => format!("{root}/{resource}"),
        namespace => format!("{root}/namespaces/{namespace}/{resource}"),
    }
}

/// Matches a pattern in which `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|from| rest.get(from..).is_some_and(|rest| matches(after, rest)))),
    }
}

impl Scenario {
    fn live(&self) -> BTreeMap<Key, Live> {
        let keys: Vec<Key> = self
            .objects
            .iter()
            .map(|stored| key(stored.0, stored.1, stored.2))
            .collect();
        let of = |(index, stored): (usize, &Stored)| {
            let (kind, namespace, name) = keys[index];
            let (group, kind_name, _) = KINDS[kind];
            // The tracking id of a cluster-scoped object has the destination's namespace.
            let there = if namespace.is_empty() { "cart" } else { namespace };
            let id = |application: &str, name: &str| format!("{application}:{group}/{kind_name}:{there}/{name}");
            let id = match stored.3 {
                0 | 1 => Some(id("cart", name)),
                2 => Some(id("other", name)),
                3 => Some(id("cart", "copied")),
                _ => None,
            };
            let mut annotations = BTreeMap::new();
            annotations.extend(id.map(|id| ("argocd.argoproj.io/tracking-id".to_owned(), id)));
            if stored.3 == 1 {
                annotations.insert("argocd.argoproj.io/installation-id".to_owned(), "ours".to_owned());
            }
            let label = match stored.3 {
                0 | 4 => Some("cart"),
                2 => Some("other"),
                _ => None,
            };
            let labels = label.map(|label| ("app.kubernetes.io/instance".to_owned(), label.to_owned()));
            let owner = stored.4.and_then(|owner| keys.get(owner)).copied();
            // An object cannot own objects of another namespace.
            let owner = owner.filter(|owner| owner.1.is_empty() || owner.1 == namespace);
            let stale = if stored.5 { "-stale" } else { "" };
            Live {
                uid: uid(keys[index]),
                annotations,
                labels: labels.into_iter().collect(),
                owners: owner.into_iter().map(|owner| (owner, uid(owner) + stale)).collect(),
            }
        };
        self.objects
            .iter()
            .enumerate()
            .map(|found| (keys[found.0], of(found)))
            .collect()
    }

    fn table(&self) -> String {
        let line = |(user, right, object, denies): &Row| {
            let (resource, action) = RIGHTS[*right];
            let effect = if *denies { "deny" } else { "allow" };
            format!(
                "p, {}, {resource}, {action}, {}, {effect}\n",
                USERS[*user], OBJECTS[*object]
            )
        };
        self.rows.iter().map(line).collect()
    }

    fn project(&self) -> Value {
        let mut namespaces = vec![json!({"server": "*", "namespace": "cart"})];
        if self.two_namespaces {
            namespaces.push(json!({"server": "*", "namespace": "cart-2"}));
        }
        let denied = if self.denies_config_maps {
            vec![json!({"group": "", "kind": "ConfigMap"})]
        } else {
            vec![]
        };
        let (group, kind, _) = KINDS[KINDS.len() - 1];
        let permitted = if self.permits_bindings {
            vec![json!({"group": group, "kind": kind})]
        } else {
            vec![]
        };
        json!({
            "sourceRepos": ["*"], "destinations": namespaces, "namespaceResourceBlacklist": denied, "clusterResourceWhitelist": permitted,
        })
    }
}

/// The model: what Argo CD's server would decide.
struct Model<'a> {
    scenario: &'a Scenario,
    live: &'a BTreeMap<Key, Live>,
}

impl Model<'_> {
    /// casbin: a row allows and none denies, or the default role allows.
    fn enforce(&self, user: usize, resource: &str, action: &str) -> bool {
        let fits = |row: &&Row| {
            let (of, right) = (row.0, RIGHTS[row.1]);
            of == user && matches(right.0, resource) && matches(right.1, action) && matches(OBJECTS[row.2], "shop/cart")
        };
        let rows: Vec<&Row> = self.scenario.rows.iter().filter(fits).collect();
        let own = rows.iter().any(|row| !row.3) && !rows.iter().any(|row| row.3);
        let readonly = matches!((resource, action), ("applications" | "logs", "get"));
        own || (self.scenario.readonly_by_default && readonly)
    }

    /// `AppProject.IsResourcePermitted`.
    fn permits(&self, (kind, namespace, _): Key) -> bool {
        match is_cluster_scoped(kind) {
            true => self.scenario.permits_bindings,
            false => {
                let there = namespace == "cart" || (namespace == "cart-2" && self.scenario.two_namespaces);
                there && !(KINDS[kind].1 == "ConfigMap" && self.scenario.denies_config_maps)
            }
        }
    }

    /// Whether an object is in the Application's resource tree.
    fn is_in_tree(&self, key: Key, seen: &mut Vec<Key>) -> bool {
        let Some(live) = self.live.get(&key) else { return false };
        if seen.contains(&key) {
            return false;
        }
        seen.push(key);
        if live.owners.is_empty() {
            return self.is_tracked(key, live);
        }
        live.owners.iter().any(|(owner, uid)| {
            let is_it = self.live.get(owner).is_some_and(|owner| owner.uid == *uid);
            is_it && self.is_in_tree(*owner, seen)
        })
    }

    fn is_tracked(&self, (kind, namespace, name): Key, live: &Live) -> bool {
        if self.scenario.by_label {
            return live
                .labels
                .get("app.kubernetes.io/instance")
                .is_some_and(|label| label == "cart");
        }
        let installation = live.annotations.get("argocd.argoproj.io/installation-id");
        let ours = if self.scenario.installation { "ours" } else { "" };
        let (group, kind, _) = KINDS[kind];
        let there = if namespace.is_empty() { "cart" } else { namespace };
        let id = format!("cart:{group}/{kind}:{there}/{name}");
        installation.map_or("", String::as_str) == ours
            && live.annotations.get("argocd.argoproj.io/tracking-id") == Some(&id)
    }

    /// Whether any API of Argo CD does the same for this caller.
    fn allows(&self, (user, method, target, _): &Asked) -> bool {
        let user = *user;
        let get = self.enforce(user, "applications", "get");
        let sync = self.enforce(user, "applications", "sync");
        let overrides = get && sync && self.enforce(user, "applications", "override");
        let method = METHODS[*method];
        let reads = matches!(method, "GET" | "HEAD");
        let (kind, namespace, name, subresource) = match target {
            RequestTarget::Path(path) => {
                let is_review = PATHS[*path].ends_with("reviews");
                let is_document = matches!(*path, 0..=2);
                return get && ((reads && is_document) || (method == "POST" && is_review));
            }
            RequestTarget::Resource(kind, namespace, name, subresource) => (*kind, *namespace, *name, *subresource),
        };
        let own = key(kind, namespace, name.unwrap_or_default());
        if !self.permits(own) {
            return false;
        }
        let subresource = name.and(subresource).map(|subresource| SUBRESOURCES[subresource]);
        let is_pod = KINDS[kind].1 == "Pod";
        let logs = self.enforce(user, "logs", "get");
        let exec = self.enforce(user, "exec", "create");
        let runs = matches!(subresource, Some("exec" | "attach" | "portforward" | "proxy"));
        if runs && !exec {
            return false;
        }
        if subresource == Some("log") && is_pod && !logs && reads {
            return false;
        }
        if overrides {
            return true;
        }
        // Without `override`, only single objects of the tree, and no Secrets.
        let (Some(_), false) = (name, KINDS[kind].1 == "Secret") else {
            return false;
        };
        if !self.is_in_tree(own, &mut Vec::new()) {
            return false;
        }
        let may = |action: &str| {
            let (group, kind, _) = KINDS[kind];
            let fine = format!("{action}/{group}/{kind}/{}/{}", own.1, own.2);
            (self.scenario.inherits && self.enforce(user, "applications", action))
                || self.enforce(user, "applications", &fine)
        };
        match (method, subresource) {
            ("GET" | "HEAD", None | Some("scale" | "status")) => get,
            ("GET" | "HEAD", Some("log")) => get && logs && is_pod,
            ("GET" | "HEAD" | "POST", Some("exec" | "attach" | "portforward")) => get && exec && is_pod,
            ("PATCH" | "PUT", None | Some("scale")) => may("update"),
            ("DELETE", None) => may("delete"),
            (_, _) => false,
        }
    }

    /// Whether the caller has the permissions that only the gateway requires, not Argo CD.
    fn meets_gateway_requirements(&self, (user, method, target, _): &Asked) -> bool {
        let get = self.enforce(*user, "applications", "get");
        let sync = self.enforce(*user, "applications", "sync");
        let runs =
            |subresource: &usize| matches!(SUBRESOURCES[*subresource], "exec" | "attach" | "portforward" | "proxy");
        let reads = match target {
            RequestTarget::Path(_) => true,
            RequestTarget::Resource(_, _, name, subresource) => {
                let runs = name.and(subresource.as_ref()).is_some_and(runs);
                matches!(METHODS[*method], "GET" | "HEAD") && !runs
            }
        };
        get && (reads || sync)
    }
}

fn line((_, method, target, query): &Asked) -> (Method, String) {
    let method = Method::from_bytes(METHODS[*method].as_bytes()).unwrap();
    let path = match target {
        RequestTarget::Path(path) => return (method, PATHS[*path].to_owned()),
        RequestTarget::Resource(kind, namespace, None, _) => folder(*kind, key(*kind, *namespace, 0).1),
        RequestTarget::Resource(kind, namespace, Some(name), None) => path(key(*kind, *namespace, *name)),
        RequestTarget::Resource(kind, namespace, Some(name), Some(subresource)) => {
            format!("{}/{}", path(key(*kind, *namespace, *name)), SUBRESOURCES[*subresource])
        }
    };
    match QUERIES[*query] {
        "" => (method, path),
        query => (method, format!("{path}?{query}")),
    }
}

/// How many requests of a scenario were sent, and how many reached the cluster.
#[derive(Debug, Default)]
struct Outcome {
    sent: usize,
    passed: usize,
}

async fn run(scenario: &Scenario) -> Result<Outcome, String> {
    let live = Arc::new(scenario.live());
    let stored: BTreeMap<String, Value> = live.iter().map(|(key, live)| (path(*key), object(live))).collect();
    let api = api(move |seen: &Seen| answer(seen, &stored)).await;
    let mut setup = setup(
        &api,
        if scenario.gateway_identity { "false" } else { "true" },
        shop(&scenario.project()),
    );
    setup.rbac_cm.insert("policy.csv".to_owned(), scenario.table());
    if scenario.readonly_by_default {
        setup
            .rbac_cm
            .insert("policy.default".to_owned(), "role:readonly".to_owned());
    }
    let mut set = |key: &str, value: &str| drop(setup.argocd_cm.insert(key.to_owned(), value.to_owned()));
    if scenario.inherits {
        set("server.rbac.disableApplicationFineGrainedRBACInheritance", "false");
    }
    if scenario.by_label {
        set("application.resourceTrackingMethod", "label");
    }
    if scenario.installation {
        set("installationID", "ours");
    }
    if scenario.gateway_identity {
        setup.settings["applications"]["gatewayIdentity"] = json!("allowed");
    }
    let world = setup
        .try_start()
        .await
        .map_err(|error| format!("the gateway does not start: {error:#}"))?;
    let model = Model { scenario, live: &live };
    let mut outcome = Outcome::default();
    for request in &scenario.requests {
        let (method, path) = line(request);
        let user = USERS[request.0];
        let before = asked(&api).len();
        let forged = json!({
            "kind": "Deployment", "metadata": {
                "name": "a", "labels": {"app.kubernetes.io/instance": "cart"},
                "annotations": {"argocd.argoproj.io/tracking-id": "cart:apps/Deployment:cart/a"},
            },
        });
        let request_of = ask(&world, method.clone(), user, &format!("{CART}{path}")).body(forged.to_string());
        let status = request_of.send().await.map_err(|error| error.to_string())?.status();
        let is_review = path.ends_with("reviews");
        let own = |seen: &Seen| {
            seen.value("accept")
                .is_some_and(|accept| accept.contains("PartialObjectMetadata"))
        };
        let arrived = match is_review {
            // The gateway sends reviews for itself too, so only the answer shows if it arrived.
            true => status.is_success(),
            false => asked(&api).split_off(before).iter().any(|seen| !own(seen)),
        };
        let permitted = model.allows(request);
        outcome.sent += 1;
        outcome.passed += usize::from(arrived);
        let summary =
            format!("{user} {method} {path}: {status}; Argo CD permits it: {permitted}; it arrived: {arrived}");
        if arrived && !permitted {
            return Err(summary);
        }
        // With the gateway's own identity, more is refused.
        if permitted
            && !arrived
            && !scenario.gateway_identity
            && model.meets_gateway_requirements(request)
            && is_served(request)
        {
            return Err(format!("refused without need: {summary}"));
        }
    }
    Ok(outcome)
}

/// Whether API servers serve such a request. The gateway may refuse others anyway.
fn is_served((_, method, target, _): &Asked) -> bool {
    match target {
        RequestTarget::Path(_) => true,
        RequestTarget::Resource(_, _, name, subresource) => match (METHODS[*method], name, subresource) {
            ("GET" | "POST" | "DELETE", None, _) | ("GET" | "PATCH" | "PUT" | "DELETE", Some(_), None) => true,
            // Without an upgrade, nothing can run.
            ("GET", Some(_), Some(subresource)) => {
                !matches!(SUBRESOURCES[*subresource], "exec" | "attach" | "portforward")
            }
            (_, _, _) => false,
        },
    }
}

fn object(live: &Live) -> Value {
    let owner = |((kind, _, name), uid): &(Key, String)| {
        let (group, kind, _) = KINDS[*kind];
        let version = if group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{group}/v1")
        };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
    };
    let owners: Vec<Value> = live.owners.iter().map(owner).collect();
    json!({"metadata": {
        "uid": live.uid, "annotations": live.annotations, "labels": live.labels, "ownerReferences": owners,
    }})
}

fn answer(seen: &Seen, stored: &BTreeMap<String, Value>) -> Answer {
    let path = seen.target.split('?').next().unwrap_or_default();
    let looks = seen
        .value("accept")
        .is_some_and(|accept| accept.contains("PartialObjectMetadata"));
    let (status, body) = match (stored.get(path), looks) {
        (Some(object), _) => (200, object.clone()),
        (None, true) => (404, json!({"kind": "Status", "code": 404})),
        (None, false) => (200, json!({"kind": "Status", "status": "Success"})),
    };
    (
        status,
        vec![("content-type", "application/json".to_owned())],
        body.to_string(),
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test reads its own seed from the environment"
)]
fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nobody_reaches_what_argo_cd_would_refuse() {
    let seed = number("TOLLGATE_ORACLE_SEED", 13);
    let worlds = u32::try_from(number("TOLLGATE_ORACLE_WORLDS", 32)).unwrap();
    println!("seed {seed}, {worlds} worlds: TOLLGATE_ORACLE_SEED={seed} TOLLGATE_ORACLE_WORLDS={worlds}");
    let config = Config {
        cases: worlds,
        max_shrink_iters: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (sent, passed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let outcome = runner.run(&scenarios(), |scenario| match runtime.block_on(run(&scenario)) {
        Ok(outcome) => {
            sent.set(sent.get() + outcome.sent);
            passed.set(passed.get() + outcome.passed);
            Ok(())
        }
        Err(summary) => Err(TestCaseError::fail(summary)),
    });
    if let Err(error) = outcome {
        panic!("seed {seed}: {error}");
    }
    let (sent, passed) = (sent.get(), passed.get());
    println!("{sent} requests, {passed} of them reached the cluster");
    // The test proves something only if some requests pass and some are refused.
    assert!(passed * 20 > sent && passed < sent, "{passed} of {sent}");
}

//! Which account acts: the four examples of Argo CD's design of sync impersonation, and what it says
//! of further cases. Each Application is synced twice: before its account has rights, and after.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::argocd::{HOME, World, assert_actors, deployment, grant, is_write, judged, messages, project};
use super::{OWN, Scene, prepare};
use test_support::kubernetes::argocd::NAMESPACE;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;

/// The only object of each Application, a Deployment.
const OBJECT: &str = "guestbook-ui";

/// Label of the Applications.
const LABEL: &str = "of=design";

/// A cluster as Argo CD knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// A cluster where the gateway's account only impersonates.
    Home,
    /// Another one, where the gateway's account is an administrator, as after `argocd cluster add`.
    Remote,
    /// The same by another URL, where the gateway's account only impersonates.
    RemoteByName,
}

use Server::{Home, Remote, RemoteByName};

/// An entry of `destinationServiceAccounts`: server (`None` for `*`), namespace and account.
type Entry = (Option<Server>, &'static str, &'static str);

/// An Application and its project.
struct Example {
    name: &'static str,
    server: Server,
    /// Namespace of the destination; empty for none.
    namespace: &'static str,
    /// Namespace of its objects.
    objects: &'static str,
    /// Those of the project.
    entries: &'static [Entry],
    /// Namespace and name of the account that acts.
    account: (&'static str, &'static str),
}

impl Example {
    /// An Application whose objects are in the namespace of its destination.
    const fn new(
        name: &'static str,
        (server, namespace): (Server, &'static str),
        entries: &'static [Entry],
        account: (&'static str, &'static str),
    ) -> Self {
        Self {
            name,
            server,
            namespace,
            objects: namespace,
            entries,
            account,
        }
    }

    fn user(&self) -> String {
        Scene::account(self.account.0, self.account.1)
    }
}

/// Entries for two namespaces, as in examples 2 and 4.
const BY_NAMESPACE: &[Entry] = &[
    (None, "guestbook", "guestbook-deployer"),
    (None, "guestbook-ui", "guestbook-ui-deployer"),
];

/// As in the section about several matches.
const SEVERAL: &[Entry] = &[
    (Some(Home), "several-prod", "several-prod-deployer"),
    (Some(Home), "several-*", "several-generic-deployer"),
    (Some(Home), "*", "generic-deployer"),
];

const EXAMPLES: &[Example] = &[
    Example::new(
        "example-1",
        (Home, "all-namespaces"),
        &[(Some(Home), "*", "generic-deployer")],
        ("all-namespaces", "generic-deployer"),
    ),
    Example::new(
        "example-2",
        (Home, "guestbook"),
        BY_NAMESPACE,
        ("guestbook", "guestbook-deployer"),
    ),
    Example::new(
        "example-2-ui",
        (Home, "guestbook-ui"),
        BY_NAMESPACE,
        ("guestbook-ui", "guestbook-ui-deployer"),
    ),
    Example::new(
        "example-3",
        (Remote, "guestbook"),
        &[
            (Some(Home), "guestbook", "another"),
            (Some(Remote), "guestbook", "guestbook-deployer"),
        ],
        ("guestbook", "guestbook-deployer"),
    ),
    Example::new(
        "example-4",
        (RemoteByName, "guestbook-ui"),
        BY_NAMESPACE,
        ("guestbook-ui", "guestbook-ui-deployer"),
    ),
    Example::new(
        "of-another-namespace",
        (Home, "elsewhere"),
        &[(Some(Home), "*", "mynamespace:guestbook-deployer")],
        ("mynamespace", "guestbook-deployer"),
    ),
    Example::new(
        "several-1",
        (Home, "several-prod"),
        SEVERAL,
        ("several-prod", "several-prod-deployer"),
    ),
    Example::new(
        "several-2",
        (Home, "several-dev"),
        SEVERAL,
        ("several-dev", "several-generic-deployer"),
    ),
    Example::new("several-3", (Home, "myns"), SEVERAL, ("myns", "generic-deployer")),
    Example::new(
        "catch-all",
        (Home, "rest"),
        &[(Some(Home), "other", "another"), (None, "*", "default")],
        ("rest", "default"),
    ),
    // One account for all objects, regardless of their namespace.
    Example {
        objects: "placed-2",
        ..Example::new(
            "placed",
            (Home, "placed-1"),
            &[(Some(Home), "placed-*", "deployer")],
            ("placed-1", "deployer"),
        )
    },
    Example {
        objects: "without",
        ..Example::new(
            "without",
            (Home, ""),
            &[(Some(Home), "*", "guestbook-deployer")],
            (NAMESPACE, "guestbook-deployer"),
        )
    },
];

/// An Application that no entry matches. Today's Argo CD does not fall back to `default`.
const UNMATCHED: Example = Example::new(
    "unmatched",
    (Home, "unmatched"),
    &[(Some(Home), "other", "another")],
    ("unmatched", "default"),
);

/// A request to change something.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    user: String,
    verb: String,
    namespace: String,
    name: String,
}

/// The gateway's account in a cluster.
fn gateway_account(server: Server) -> String {
    match server {
        Home | RemoteByName => Scene::account(OWN, "gateway"),
        Remote => Scene::account("kube-system", "argocd-manager"),
    }
}

struct Fixture {
    world: World,
    remote: Cluster,
    by_name: String,
}

impl Fixture {
    async fn start() -> Self {
        let (world, remote) = tokio::join!(World::start(), Cluster::start());
        let admin = remote.admin();
        for namespace in [OWN, HOME] {
            admin.succeed(&["create", "namespace", namespace]).await;
        }
        let own = prepare(&remote, OWN, HOME).await;
        let manager = remote.service_account("kube-system", "argocd-manager").await;
        let bind = [
            "create",
            "clusterrolebinding",
            "argocd-manager",
            "--clusterrole=cluster-admin",
        ];
        let of = ["--serviceaccount=kube-system:argocd-manager"];
        admin.succeed(&[&bind[..], &of].concat()).await;
        let by_name = remote.url().replace("127.0.0.1", "localhost");
        world.enroll("remote", remote.url(), &remote, &manager).await;
        world.enroll("by-name", &by_name, &remote, &own).await;
        Self { world, remote, by_name }
    }

    fn url(&self, server: Server) -> &str {
        match server {
            Home => self.world.destination.url(),
            Remote => self.remote.url(),
            RemoteByName => &self.by_name,
        }
    }

    fn cluster(&self, server: Server) -> &Cluster {
        match server {
            Home => &self.world.destination,
            Remote | RemoteByName => &self.remote,
        }
    }

    /// Writes an Application and its project, and makes its namespaces.
    async fn write(&self, example: &Example) {
        let server = self.url(example.server);
        let entries: Vec<_> = example
            .entries
            .iter()
            .map(|(server, namespace, account)| (server.map_or("*", |server| self.url(server)), *namespace, *account))
            .collect();
        let mut destination = json!({"server": server});
        if !example.namespace.is_empty() {
            destination["namespace"] = json!(example.namespace);
        }
        let application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": example.name, "namespace": NAMESPACE, "labels": {"of": "design"}},
            "spec": {
                "project": example.name,
                "source": {"repoURL": self.world.argocd.repository(), "path": example.name},
                "destination": destination,
            },
        });
        let project = project(example.name, &[(server, "*")], &entries);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [project, application]});
        self.world.control.admin().apply(&list.to_string()).await;
        let namespaces = [example.namespace, example.objects, example.account.0];
        let namespaces = namespaces
            .iter()
            .filter(|name| !name.is_empty())
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": example.account.1, "namespace": example.account.0},
        });
        let items: Vec<Value> = namespaces.chain([account]).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.cluster(example.server).admin().apply(&list.to_string()).await;
    }

    async fn until_acting(&self, example: &Example) {
        let server = self.url(example.server);
        self.world.until_acting(server, &example.user()).await;
    }

    async fn grant(&self, example: &Example) {
        let rights = (Some(example.objects), &["*"][..], &["apps/deployments"][..]);
        grant(self.cluster(example.server), "objects", example.account, rights).await;
    }

    /// Waits until the operations of all examples have ended in this phase, and returns their
    /// messages.
    async fn ended(&self, phase: &str) -> Vec<String> {
        let mut ended = Vec::new();
        for example in EXAMPLES {
            let what = format!("{} ends as {phase}", example.name);
            let state = eventually(&what, async || {
                let state = self.world.operation(example.name).await;
                let ended = state["phase"]
                    .as_str()
                    .filter(|phase| !matches!(*phase, "Running" | "Failed"));
                assert!(ended.is_none_or(|ended| ended == phase), "{}: {state}", example.name);
                (state["phase"] == phase).then_some(state)
            });
            ended.push(messages(&state.await));
        }
        ended
    }

    /// What was written, or was to be written, with the gateway's account of a cluster, in order.
    fn writes(&self, server: Server) -> Vec<Write> {
        let events = judged(self.cluster(server), &gateway_account(server)).into_iter();
        let writes = events.filter(|(_, event)| is_write(event)).map(|(user, event)| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Write {
                user,
                verb: text(&event["verb"]),
                namespace: text(&event["objectRef"]["namespace"]),
                name: text(&event["objectRef"]["name"]),
            }
        });
        let mut writes: Vec<Write> = writes.collect();
        writes.sort();
        writes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_application_is_synced_as_the_account_of_the_design() {
    let fixture = Fixture::start().await;
    let world = &fixture.world;
    let files = EXAMPLES.iter().chain([&UNMATCHED]).map(|example| {
        let mut object = deployment(OBJECT);
        object["metadata"]["namespace"] = json!(example.objects);
        (format!("{}/deployment.yaml", example.name), Some(object))
    });
    let files: Vec<_> = files.collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, object)| (name.as_str(), object.clone()))
        .collect();
    world.commit(&files).await;
    join_all(
        EXAMPLES
            .iter()
            .chain([&UNMATCHED])
            .map(|example| fixture.write(example)),
    )
    .await;
    join_all(EXAMPLES.iter().map(|example| fixture.until_acting(example))).await;
    let cli = world.cli().await;
    let sync = ["app", "sync", "--selector", LABEL, "--async"];

    cli.succeed(&sync).await;
    let ended = fixture.ended("Failed").await;
    for (example, refused) in EXAMPLES.iter().zip(ended) {
        let forbidden = format!(
            "deployments.apps \"{OBJECT}\" is forbidden: User \"{}\" cannot get resource \"deployments\" \
             in API group \"apps\" in the namespace \"{}\"",
            example.user(),
            example.objects
        );
        assert!(refused.contains(&forbidden), "{}: {refused}", example.name);
    }
    let unmatched = eventually("the operation that no account acts for ends", async || {
        let state = world.operation(UNMATCHED.name).await;
        (state["phase"] == "Error").then(|| messages(&state))
    })
    .await;
    assert!(unmatched.contains("no matching service account found"), "{unmatched}");
    for server in [Home, Remote, RemoteByName] {
        assert_eq!(fixture.writes(server), Vec::<Write>::new());
    }

    join_all(EXAMPLES.iter().map(|example| fixture.grant(example))).await;
    cli.succeed(&sync).await;
    fixture.ended("Succeeded").await;
    for server in [Home, Remote, RemoteByName] {
        let mut expected: Vec<Write> = EXAMPLES
            .iter()
            .filter(|example| example.server == server)
            .map(|example| Write {
                user: example.user(),
                verb: "create".to_owned(),
                namespace: example.objects.to_owned(),
                name: OBJECT.to_owned(),
            })
            .collect();
        expected.sort();
        assert_eq!(fixture.writes(server), expected);
    }
    for (servers, cluster) in [
        (&[Home][..], &world.destination),
        (&[Remote, RemoteByName][..], &fixture.remote),
    ] {
        let accounts = EXAMPLES.iter().filter(|example| servers.contains(&example.server));
        let accounts: Vec<String> = accounts.map(Example::user).collect();
        let gateways: Vec<String> = servers.iter().map(|server| gateway_account(*server)).collect();
        assert_actors(cluster, &gateways, &accounts);
    }
}

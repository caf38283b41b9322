//! Costs of 10,000 Applications in 500 projects: looking up the account that acts for one,
//! building the first index and the next one after a change, a reload, and memory.
//!
//! Run it with `cargo bench --bench applications`; docs/performance.md has the results.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a bench that cannot start panics; it also prints memory, which is not a time"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_config::ImpersonationMode;
use tollgate_config::ServiceAccountSemantics;
use tollgate_config::raw;
use tollgate_core::diagnostic::Location;
use tollgate_credential::cache::{self, CredentialCache};
use tollgate_front::snapshot::CurrentSnapshot;
use tollgate_gateway::loader::Loader;
use tollgate_identity::clock::Clock;
use tollgate_objects::{Application, Cluster, Destination, DestinationServiceAccount, ObjectName, Project, Resources};
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_proxy::metrics::{ConfigPart, Metrics};
use tollgate_rego::Checker;

const PROJECTS: usize = 500;
const APPLICATIONS: usize = 10_000;
const CLUSTERS: usize = 20;
/// Entries of each project. Only the last one matches.
const ENTRIES: usize = 10;

fn server(number: usize) -> String {
    format!("https://cluster-{number}.example:6443")
}

fn entry(project: usize, number: usize) -> DestinationServiceAccount {
    let (server, namespace) = match number + 1 == ENTRIES {
        true => ("*".to_owned(), "*".to_owned()),
        false => (server(number), format!("team-{project}-{number}-*")),
    };
    DestinationServiceAccount {
        server,
        namespace,
        default_service_account: format!("deployer-{number}"),
        location: Location::default(),
    }
}

fn application(number: usize) -> Application {
    Application {
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: format!("application-{number}"),
        },
        project: format!("project-{}", number % PROJECTS),
        destination: Destination {
            name: String::new(),
            server: server(number % CLUSTERS),
            namespace: format!("application-{number}"),
        },
        application_set: None,
        repositories: Vec::new(),
        labels: BTreeMap::new(),
        location: Location::default(),
    }
}

fn resources() -> Resources {
    let project = |number: usize| {
        let project = Project {
            name: format!("project-{number}"),
            destinations: vec![Destination {
                server: "*".to_owned(),
                namespace: "*".to_owned(),
                name: String::new(),
            }],
            destination_service_accounts: (0..ENTRIES).map(|at| entry(number, at)).collect(),
            ..Project::default()
        };
        (project.name.clone(), Arc::new(project))
    };
    let cluster = |number| Cluster {
        name: format!("cluster-{number}"),
        server: server(number),
        project: String::new(),
    };
    let named = |number| {
        let application = application(number);
        (application.name.clone(), Arc::new(application))
    };
    Resources {
        control_plane_namespace: "argocd".to_owned(),
        projects: (0..PROJECTS).map(project).collect(),
        applications: (0..APPLICATIONS).map(named).collect(),
        clusters: (0..CLUSTERS).map(cluster).collect(),
        ..Resources::default()
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.expect("a number") * 1_024
}

fn applications(criterion: &mut Criterion) {
    let rules = ImpersonationRules::new(ServiceAccountSemantics::Strict);
    let enforce = Some(ImpersonationMode::Enforce);
    let before = resident();
    let mut resources = resources();
    let with_objects = resident();
    let index = ApplicationIndex::build(&resources, &rules, enforce, None);
    let with_index = resident();
    eprintln!(
        "memory of {APPLICATIONS} Applications: objects {} KiB, index {} KiB",
        (with_objects.saturating_sub(before)) / 1_024,
        (with_index.saturating_sub(with_objects)) / 1_024,
    );
    let mut group = criterion.benchmark_group("applications");
    let names: Vec<String> = (0..APPLICATIONS)
        .map(|number| format!("application-{number}"))
        .collect();
    let mut names = names.iter().cycle();
    group.bench_function("identity of one of 10,000", |bench| {
        bench.iter(|| {
            let name = names.next().expect("the iterator cycles");
            let governed = index
                .find(black_box("argocd"), black_box(name))
                .expect("the Application");
            black_box(&governed.derived_account.as_ref().expect("an account").impersonation);
        });
    });
    group.sample_size(20);
    group.bench_function("first index", |bench| {
        bench.iter(|| ApplicationIndex::build(black_box(&resources), &rules, enforce, None));
    });
    let mut turn = 0;
    group.bench_function("next index, one Application changed", |bench| {
        bench.iter_batched_ref(
            || {
                turn += 1;
                let mut changed = application(turn % APPLICATIONS);
                changed.destination.namespace = format!("elsewhere-{turn}");
                let changed = Arc::new(changed);
                resources.applications.insert(changed.name.clone(), changed);
                resources.clone()
            },
            |resources| ApplicationIndex::build(resources, &rules, enforce, Some(&index)),
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// A file of the state folder with project `number` and its Applications.
fn file(number: usize, turn: usize) -> String {
    let object = |kind: &str, name: &str, spec: serde_json::Value| {
        serde_json::json!({"apiVersion": "argoproj.io/v1alpha1", "kind": kind,
                           "metadata": {"name": name, "namespace": "argocd"}, "spec": spec})
        .to_string()
    };
    let accounts: Vec<_> = (0..ENTRIES)
        .map(|at| entry(number, at))
        .map(|entry| {
            serde_json::json!({"server": entry.server, "namespace": entry.namespace,
                               "defaultServiceAccount": entry.default_service_account})
        })
        .collect();
    let spec = serde_json::json!({"destinations": [{"server": "*", "namespace": "*"}],
                                  "destinationServiceAccounts": accounts});
    let mut documents = vec![object("AppProject", &format!("project-{number}"), spec)];
    for application in (number..APPLICATIONS).step_by(PROJECTS).map(application) {
        let namespace = format!("{}-{turn}", application.destination.namespace);
        let destination = serde_json::json!({"name": "in-cluster", "namespace": namespace});
        let spec = serde_json::json!({"project": application.project, "destination": destination});
        documents.push(object("Application", &application.name.name, spec));
    }
    documents.join("\n---\n") + "\n"
}

/// Measures everything that a gateway does after a file changed.
fn reload(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    std::fs::create_dir(root.join("state")).expect("a folder");
    let path = |number: usize| root.join(format!("state/project-{number}.yaml"));
    for number in 0..PROJECTS {
        std::fs::write(path(number), file(number, 0)).expect("a file");
    }
    let map = |name: &str, data: serde_json::Value| {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                                        "metadata": {"name": name, "namespace": "argocd"}});
        std::fs::write(root.join(format!("state/{name}.yaml")), format!("{object}\n")).expect("a file");
    };
    map(
        "argocd-cm",
        serde_json::json!({"application.sync.impersonation.enabled": "true"}),
    );
    map(
        "argocd-rbac-cm",
        serde_json::json!({"policy.csv": "p, alice, applications, *, *, allow\n"}),
    );
    let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let settings = serde_json::json!({"state": {"directory": "state"}, "policies": {"directory": policies},
                                      "applications": {}});
    let config = raw::parse(&settings.to_string(), "tollgate.yaml", root);
    let config = Arc::new(config.value.expect("settings"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let clock: Arc<dyn cache::clock::Clock> = Arc::new(cache::clock::SystemClock::start());
    let credentials = Arc::new(CredentialCache::new(
        cache::Settings::default(),
        clock,
        runtime.handle().clone(),
    ));
    let checker = Checker::new(env!("CARGO_BIN_EXE_tollgate").into());
    let metrics = Arc::new(Metrics::default());
    let loader = Loader::new(config, checker, metrics, credentials, Clock::default()).expect("a loader");
    let before = resident();
    let first = loader.first().value.expect("good state");
    let current: CurrentSnapshot = Arc::new(arc_swap::ArcSwap::from_pointee(first));
    eprintln!(
        "memory of the whole snapshot: {} KiB",
        resident().saturating_sub(before) / 1_024
    );
    let mut group = criterion.benchmark_group("applications");
    group.sample_size(20);
    let mut turn = 0;
    group.bench_function("reload, one file of 500 changed", |bench| {
        bench.iter_batched(
            || {
                turn += 1;
                let number = turn % PROJECTS;
                std::fs::write(root.join("next"), file(number, turn)).expect("a file");
                std::fs::rename(root.join("next"), path(number)).expect("a file");
            },
            |()| {
                let before = current.load().generation;
                let findings = loader.reload(&current, ConfigPart::State);
                assert!(current.load().generation > before, "{findings:?}");
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, applications, reload);
criterion_main!(benches);

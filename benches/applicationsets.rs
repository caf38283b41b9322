//! Costs of an ApplicationSet of 1,000 Applications: authorizing the operation, generating and
//! rendering, planning with differences, authorizing every Application, and all of it together.
//!
//! Run it with `cargo bench --bench applicationsets`; docs/performance.md has the results.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot start panics"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tollgate_applicationset::plan::StoredState;
use tollgate_applicationset::{
    ApplicationSet, ClusterInput, GenerationBudget, GeneratorKind, GitTree, InputError, Inputs, Params, Plan,
    PluginGenerators, Repositories, generate,
};
use tollgate_applicationset_rights::{Operation, ResolvedInputs, SetAuthorizer, SetRequest};
use tollgate_config::GenerationLimits;
use tollgate_config::raw;
use tollgate_credential::cache::{self, CredentialCache};
use tollgate_front::caller::Caller;
use tollgate_front::snapshot::Snapshot;
use tollgate_gateway::loader::Loader;
use tollgate_identity::authenticate::Safety;
use tollgate_identity::clock::Clock;
use tollgate_proxy::metrics::Metrics;
use tollgate_rego::Checker;

use test_support::token;

const APPLICATIONS: usize = 1_000;
const TEAMS: usize = 10;
const KEY: &str = "a-key-only-benches-know-0123456789abcdef";
const GROUP: &str = "argoproj.io/v1alpha1";

/// Inputs of generators that refuse every read.
#[derive(Debug)]
struct NoInputs;

impl Repositories for NoInputs {
    fn open(&self, url: &str, _: &str, _: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        Err(InputError(format!("unexpected read of `{url}`")))
    }
}

impl PluginGenerators for NoInputs {
    fn generate(&self, kind: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        Err(InputError(format!("unexpected call of `{}`", kind.as_ref())))
    }
}

/// A set of 1,000 Applications in ten projects, from a matrix of teams and services.
fn set(go_template: bool, revision: &str) -> ApplicationSet {
    let list = |name: &str, count: usize| {
        let elements: Vec<Value> = (0..count).map(|at| json!({name: format!("{name}-{at}")})).collect();
        json!({"list": {"elements": elements}})
    };
    let matrix = json!([{"matrix": {"generators": [list("team", TEAMS), list("service", APPLICATIONS / TEAMS)]}}]);
    let put = |text: &str| match go_template {
        true => text.replace("{{", "{{."),
        false => text.to_owned(),
    };
    let template = json!({
        "metadata": {
            "name": put("{{team}}-{{service}}"),
            "labels": {"team": put("{{team}}"), "service": put("{{service}}")},
            "annotations": {"example.com/owner": put("{{team}}@example.com")},
        },
        "spec": {
            "project": put("{{team}}"),
            "source": {
                "repoURL": "https://git.example.com/services.git",
                "path": put("services/{{service}}"),
                "targetRevision": revision,
                "helm": {
                    "releaseName": put("{{service}}"),
                    "parameters": [{"name": "team", "value": put("{{team}}")}],
                },
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": put("{{team}}-{{service}}")},
        },
    });
    let object = json!({
        "apiVersion": GROUP,
        "kind": "ApplicationSet",
        "metadata": {"name": "services", "namespace": "argocd"},
        "spec": {"generators": matrix, "template": template, "goTemplate": go_template},
    });
    ApplicationSet::read(object).expect("a set")
}

/// Writes a state folder in which `alice` may do everything in the teams' projects.
fn state(root: &Path) {
    let object = |version: &str, kind: &str, name: &str, body: Value| {
        let mut object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "argocd"}});
        for (key, value) in body.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    };
    let rows = |team: usize| {
        let row = |resource| format!("p, role:teams, {resource}, *, team-{team}/*, allow\n");
        row("applications") + &row("applicationsets")
    };
    let policy: String = (0..TEAMS).map(rows).collect();
    let mut objects = vec![
        object(
            "v1",
            "ConfigMap",
            "argocd-cm",
            json!({"data": {"accounts.alice": "login"}}),
        ),
        object(
            "v1",
            "ConfigMap",
            "argocd-rbac-cm",
            json!({"data": {"policy.csv": format!("{policy}g, alice, role:teams\n")}}),
        ),
        object(
            "v1",
            "Secret",
            "argocd-secret",
            json!({"stringData": {"server.secretkey": KEY}}),
        ),
    ];
    for team in 0..TEAMS {
        let spec = json!({
            "sourceRepos": ["https://git.example.com/*"],
            "destinations": [{"server": "*", "namespace": format!("team-{team}-*")}],
        });
        objects.push(object(
            GROUP,
            "AppProject",
            &format!("team-{team}"),
            json!({"spec": spec}),
        ));
    }
    std::fs::create_dir_all(root.join("state")).expect("a folder");
    for (at, object) in objects.iter().enumerate() {
        std::fs::write(root.join(format!("state/{at}.yaml")), object.to_string()).expect("a file");
    }
}

fn snapshot(root: &Path, runtime: &tokio::runtime::Runtime) -> Snapshot {
    state(root);
    let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let settings = json!({
        "state": {"directory": "state"}, "policies": {"directory": policies},
        "authentication": {"argocdSessions": true}, "applicationSets": {},
    });
    let config = raw::parse(&settings.to_string(), "tollgate.yaml", root);
    let config = Arc::new(config.value.expect("settings"));
    let clock: Arc<dyn cache::clock::Clock> = Arc::new(cache::clock::SystemClock::start());
    let credentials = Arc::new(CredentialCache::new(
        cache::Settings::default(),
        clock,
        runtime.handle().clone(),
    ));
    let checker = Checker::new(env!("CARGO_BIN_EXE_tollgate").into());
    let loader = Loader::new(
        config,
        checker,
        Arc::new(Metrics::default()),
        credentials,
        Clock::default(),
    );
    let first = loader.expect("a loader").first();
    first.value.unwrap_or_else(|| panic!("{:?}", first.diagnostics))
}

fn caller(snapshot: &Snapshot, runtime: &tokio::runtime::Runtime) -> Arc<Caller> {
    let token = token::session(KEY, "alice");
    let request = http::Request::get("/").header("authorization", format!("Bearer {token}"));
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let principal = runtime
        .block_on(snapshot.authenticator.authenticate(&head, Safety::ByMethod))
        .expect("alice");
    snapshot.policies.caller(&principal)
}

/// The steps of one request.
struct Scenario<'a> {
    authorizer: SetAuthorizer<'a>,
    clusters: Vec<ClusterInput>,
    existing: StoredState,
}

impl Scenario<'_> {
    fn set_request<'s>(&self, set: &'s ApplicationSet, owned: &'s [&'s Value]) -> SetRequest<'s> {
        SetRequest {
            operation: Operation::Create,
            name: &set.name,
            sent: Some(set),
            stored: None,
            owned,
            reads: ResolvedInputs::default(),
        }
    }

    fn authorize_operation(&self, set: &ApplicationSet) -> tollgate_applicationset_rights::SetPermit {
        self.authorizer
            .authorize_operation(&self.set_request(set, &[]), &mut Vec::new())
            .expect("alice is allowed")
    }

    fn generate(&self, set: &ApplicationSet) -> Vec<Value> {
        let permit = self.authorize_operation(set);
        let inputs = Inputs {
            clusters: &self.clusters,
            authorizer: &self.authorizer.input_authorizer(&permit),
            repositories: &NoInputs,
            plugin_generators: &NoInputs,
        };
        let applications =
            generate(set, &inputs, &GenerationBudget::new(GenerationLimits::default())).expect("Applications");
        assert_eq!(applications.len(), APPLICATIONS);
        applications
    }

    fn plan(&self, set: &ApplicationSet, applications: Vec<Value>) -> Plan {
        let plan = Plan::new(set, self.existing.clone(), applications);
        assert_eq!(plan.changes.len(), APPLICATIONS);
        plan
    }
}

fn differences(plan: &Plan) -> usize {
    plan.changes.iter().map(|change| change.diff().len()).sum()
}

fn applicationsets(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let snapshot = snapshot(folder.path(), &runtime);
    let caller = caller(&snapshot, &runtime);
    let scenario = Scenario {
        authorizer: SetAuthorizer::new(&snapshot.policies, &caller).expect("an open front"),
        clusters: ClusterInput::all(&snapshot.policies.resources),
        existing: StoredState::default(),
    };
    let mut group = criterion.benchmark_group("applicationsets");
    group.sample_size(20);
    for (engine, go_template) in [("fasttemplate", false), ("Go templates", true)] {
        let set = set(go_template, "main");
        group.bench_function(format!("check before, {engine}"), |bench| {
            bench.iter(|| scenario.authorize_operation(black_box(&set)))
        });
        group.bench_function(format!("generate and render 1,000, {engine}"), |bench| {
            bench.iter(|| scenario.generate(black_box(&set)));
        });
        let applications = scenario.generate(&set);
        group.bench_function(format!("plan and diff 1,000, {engine}"), |bench| {
            bench.iter_batched(
                || applications.clone(),
                |applications| differences(&scenario.plan(&set, applications)),
                BatchSize::PerIteration,
            );
        });
        let permit = scenario.authorize_operation(&set);
        group.bench_function(format!("check each of 1,000, {engine}"), |bench| {
            bench.iter_batched(
                || scenario.plan(&set, applications.clone()),
                |plan| {
                    scenario
                        .authorizer
                        .authorize_plan(&permit, plan, &mut Vec::new())
                        .expect("alice is allowed")
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("all of it, 1,000, {engine}"), |bench| {
            bench.iter(|| {
                let permit = scenario.authorize_operation(&set);
                let plan = scenario.plan(&set, scenario.generate(&set));
                let size = differences(&plan);
                (
                    scenario
                        .authorizer
                        .authorize_plan(&permit, plan, &mut Vec::new())
                        .expect("alice is allowed"),
                    size,
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, applicationsets);
criterion_main!(benches);

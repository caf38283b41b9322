use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};

use http::StatusCode;
use serde_json::{Value, json};

use crate::{ApprovedPlan, Error, LaterApplications, Operation, ResolvedInputs, SetAuthorizer, SetPermit, SetRequest};
use tollgate_applicationset::plan::{Owner, Plan, StoredState};
use tollgate_applicationset::{ApplicationSet, PreservedFields, Spec, SyncPolicy, TemplateEngine};
use tollgate_config::{
    ApplicationSetChecks, ApplicationSetPermissions, ApplicationSets, GenerationLimits, GitCache, GitLimits,
};
use tollgate_front::caller::{Caller, CallerCache};
use tollgate_front::set_list::OwnedApplication;
use tollgate_identity::authenticate::{CredentialTransport, Principal};
use tollgate_objects::{ObjectName, Resources, decode};
use tollgate_policy::applications::Projects;
use tollgate_policy::rbac::{PolicySource, Rbac};
use tollgate_rego::{Bundle, BundleSource, Front};
use tollgate_state::write::batch::Propagation;

mod argocd;
mod determinism;
mod generated;
mod inherited;
mod operation;
mod ownership;
pub(crate) mod plan;
mod policy;
mod property;
mod spelling;

const STATE: &str = include_str!("tests/state.yaml");
const REPOSITORY: &str = "https://git.example.org/guestbook";

/// What a snapshot contains.
struct Fixture {
    resources: Resources,
    projects: OnceLock<Projects>,
    rbac: Rbac,
    policy: Arc<Bundle>,
    settings: ApplicationSets,
    callers: CallerCache,
    later: LaterApplications,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/applicationsets")
}

/// Compiled once for all tests.
fn shipped() -> Arc<Bundle> {
    static SHIPPED: LazyLock<Arc<Bundle>> = LazyLock::new(|| {
        let source = BundleSource::read(&folder(), Front::ApplicationSets).value.unwrap();
        Arc::new(Bundle::unchecked(&source).unwrap())
    });
    Arc::clone(&SHIPPED)
}

impl Fixture {
    /// The state of the tests, with these rows of `policy.csv`.
    fn new(rows: &str) -> Self {
        let rows: String = rows.lines().map(|row| format!("    {}\n", row.trim())).collect();
        Self::of(&STATE.replace("    # rows\n", &rows))
    }

    fn of(state: &str) -> Self {
        let loaded = decode::load_text(state, "state.yaml", "argocd");
        let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let source = PolicySource::from_resources(&resources, tollgate_config::RbacSemantics::Argocd);
        Self {
            rbac: Rbac::compile(&source.value.unwrap()).value.unwrap(),
            resources,
            policy: shipped(),
            settings: ApplicationSets {
                checks: ApplicationSetChecks::Generated,
                permissions: ApplicationSetPermissions::Own,
                namespaces: vec!["team-*".to_owned()],
                repositories: vec!["https://git.example.org/*".to_owned()],
                limits: GenerationLimits::default(),
                git: GitLimits::default(),
                git_cache: GitCache::default(),
                concurrency: 1,
                controller_timeout: std::time::Duration::MAX,
                unknown_fields: tollgate_config::UnknownFields::Refuse,
                max_deletions: 10,
            },
            projects: OnceLock::new(),
            callers: CallerCache::default(),
            later: LaterApplications::Unjudged,
        }
    }

    fn with_later(self, later: LaterApplications) -> Self {
        Self { later, ..self }
    }

    fn caller(&self, name: &str) -> Arc<Caller> {
        let claims = json!({"iss": "https://idp.example.org", "sub": name});
        let principal = Principal::for_test(claims.as_object().unwrap().clone(), CredentialTransport::Bearer);
        self.callers.of(&Arc::new(principal), &self.rbac)
    }

    fn authorizer<'a>(&'a self, caller: &'a Caller) -> SetAuthorizer<'a> {
        SetAuthorizer {
            rbac: &self.rbac,
            resources: &self.resources,
            projects: self.projects.get_or_init(|| Projects::build(&self.resources).0),
            settings: &self.settings,
            policy: &self.policy,
            control_plane_namespace: "argocd",
            caller,
            later: self.later,
        }
    }

    /// The first step alone, for `ann`.
    fn authorize_operation(
        &self,
        operation: Operation,
        sent: Option<&ApplicationSet>,
        stored: &StoredState,
    ) -> Result<SetPermit, Error> {
        self.authorize_operation_with(operation, (sent, stored), ResolvedInputs::default())
    }

    fn authorize_operation_with(
        &self,
        operation: Operation,
        (sent, stored): (Option<&ApplicationSet>, &StoredState),
        reads: ResolvedInputs<'_>,
    ) -> Result<SetPermit, Error> {
        let caller = self.caller("ann");
        let name = sent.map_or_else(|| name_of(stored.set.as_ref()), |sent| sent.name.clone());
        let owned: Vec<&Value> = stored.owned(&name).collect();
        let request = SetRequest {
            operation,
            name: &name,
            sent,
            stored: stored.set.as_ref(),
            owned: &owned,
            reads,
        };
        self.authorizer(&caller).authorize_operation(&request, &mut Vec::new())
    }

    /// Both steps, for `ann`.
    fn authorize(
        &self,
        operation: Operation,
        sent: &ApplicationSet,
        stored: &StoredState,
        generated: Vec<Value>,
    ) -> Result<ApprovedPlan, Error> {
        let permit = self.authorize_operation(operation, Some(sent), stored)?;
        let plan = Plan::new(sent, stored.clone(), generated);
        self.authorizer(&self.caller("ann"))
            .authorize_plan(&permit, plan, &mut Vec::new())
    }

    fn delete(&self, stored: &StoredState, cascade: Propagation) -> Result<ApprovedPlan, Error> {
        let permit = self.authorize_operation(Operation::Delete, None, stored)?;
        let set = set_of(stored.set.clone().unwrap());
        let plan = Plan::deletion(&set, stored.clone(), cascade);
        self.authorizer(&self.caller("ann"))
            .authorize_plan(&permit, plan, &mut Vec::new())
    }
}

fn name_of(set: Option<&Value>) -> ObjectName {
    let text = |path: &str| {
        let found = set.and_then(|set| set.pointer(path)).and_then(Value::as_str);
        found.map(str::to_owned)
    };
    ObjectName {
        namespace: text("/metadata/namespace").unwrap_or_else(|| "argocd".to_owned()),
        name: text("/metadata/name").unwrap_or_else(|| "web".to_owned()),
    }
}

/// A decoded set, with the parts that authorization reads.
fn set_of(object: Value) -> ApplicationSet {
    ApplicationSet {
        name: name_of(Some(&object)),
        spec: Spec {
            generators: Vec::new(),
            template: object.pointer("/spec/template").cloned().unwrap_or_default(),
            template_patch: None,
            engine: TemplateEngine::FastTemplate,
            sync_policy: SyncPolicy::default(),
            preserved_fields: PreservedFields::default(),
        },
        object,
    }
}

/// A set `web` of a project, with a list generator.
fn set(project: &str) -> ApplicationSet {
    set_in("argocd", project)
}

fn set_in(namespace: &str, project: &str) -> ApplicationSet {
    set_of(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"generators": [{"list": {"elements": []}}], "template": {"spec": {"project": project}}},
    }))
}

/// An Application the project `dev` permits.
fn application(name: &str, project: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": "argocd"},
        "spec": {
            "project": project,
            "source": {"repoURL": REPOSITORY, "path": "."},
            "destination": {"name": "eu", "namespace": "web"},
        },
    })
}

/// With one field of `spec` replaced.
fn with(mut application: Value, key: &str, value: Value) -> Value {
    application["spec"][key] = value;
    application
}

/// The stored set `web` of a project, with Applications it owns.
fn stored(project: &str, owned: Vec<Value>) -> StoredState {
    let mut object = set(project).object;
    object["metadata"]["uid"] = json!("u1");
    let owner = Owner::of("web", &object);
    let link = |application: Value| tollgate_applicationset::plan::with_owner_reference(application, &owner);
    StoredState {
        set: Some(object),
        applications: owned.into_iter().map(link).collect(),
    }
}

/// Applications that a set owns, one in each project.
fn owned_in(projects: &[&str]) -> BTreeSet<OwnedApplication> {
    let of_project = |project: &&str| OwnedApplication {
        project: (*project).to_owned(),
        name: "a".to_owned(),
    };
    projects.iter().map(of_project).collect()
}

/// The projects of an approved plan's Applications.
fn projects_of(approved: &ApprovedPlan) -> Vec<&str> {
    let projects = approved.applications().iter().map(|one| one.project.as_str());
    let mut projects: Vec<&str> = projects.collect();
    projects.dedup();
    projects
}

/// Each refusal as the caller reads it.
#[track_caller]
fn refusals(outcome: Result<impl std::fmt::Debug, Error>) -> Vec<String> {
    match outcome {
        Err(Error::Refused(refused)) => refused.refusals().iter().map(ToString::to_string).collect(),
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn refused(outcome: Result<impl std::fmt::Debug, Error>, expected: &str) {
    let found = refusals(outcome);
    assert!(
        found.len() == 1 && found.iter().all(|text| text.contains(expected)),
        "expected `{expected}`, got {found:#?}"
    );
}

#[track_caller]
fn status_of(outcome: Result<impl std::fmt::Debug, Error>) -> StatusCode {
    outcome.unwrap_err().answer().0
}

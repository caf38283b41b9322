//! Collects the policy's facts about a call: RBAC verdicts, the project, the application and its
//! destination, each looked up once. It decides nothing.
//!
//! Security: the application belongs to the project that the caller names, or the project is the
//! application's. Only the attributes of the request become input.
//!
//! An Application that is missing, or that its project does not accept, is answered as one that the caller
//! may not see.

use std::sync::Arc;

use crate::extensions::call::{Call, CallObject, ExtensionAttributes};
use tollgate_config::Compatibility;
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_front::rbac::RbacLookup;
use tollgate_objects::{Application, Cluster, Destination, ObjectName, Project, destination};
use tollgate_policy::rbac::object_name;
use tollgate_proxy::headers;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{
    Bundle, ExtensionFacts, ExtensionInput, ExtensionRequest, ExtensionVerdicts, MAX_CANDIDATES, RbacFacts, RbacRow,
};

/// The objects that a call names, as far as they exist. Built once per snapshot.
#[derive(Debug)]
pub(crate) struct CallTarget {
    /// The project that the caller names, existing or not; else the application's.
    pub(crate) project: Option<String>,
    /// `spec.destination` of the application.
    pub(crate) literal: Option<Destination>,
    /// The application's cluster, when its destination names exactly one.
    pub(crate) destination: Option<Arc<Cluster>>,
    prepared: ExtensionFacts,
    /// The same as headers for backends, or why headers cannot express it.
    pub(crate) headers: Result<headers::ResourceHeaders, headers::Error>,
    /// Number of list entries that it holds. The lists of a project may be long, and the entry of
    /// each requested application, existing or not, holds a copy.
    pub(crate) list_entries: u32,
}

/// Capacity of the cache of targets, in list entries of some 300 bytes. Callers choose what they
/// name, so a bound on the number of targets would let them fill the memory with copies of one
/// large project.
const TARGET_CACHE_CAPACITY: u64 = 200_000;

/// Targets by the attributes of calls. There is one cache for each snapshot.
#[derive(Debug)]
struct CallTargets(moka::sync::Cache<ExtensionAttributes, Arc<CallTarget>>);

impl Default for CallTargets {
    fn default() -> Self {
        Self(
            moka::sync::Cache::builder()
                .weigher(|_, target: &Arc<CallTarget>| target.list_entries)
                .max_capacity(TARGET_CACHE_CAPACITY)
                .build(),
        )
    }
}

/// What a call names, as far as it exists.
#[derive(Clone, Copy, Default)]
struct NamedObjects<'a> {
    /// See [`CallTarget::project`].
    project_name: Option<&'a str>,
    project: Option<&'a Arc<Project>>,
    application: Option<&'a Application>,
}

/// Everything looked up about one caller and the attributes of a call. It is valid as long as the
/// snapshot it was looked up in.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The lookups as the record shows them, in the order of evaluation.
    pub(crate) checks: Arc<[CheckRecord]>,
    pub(crate) target: Arc<CallTarget>,
    /// The lookups as policies see them.
    verdicts: RbacFacts,
    pub(crate) size_kib: u32,
}

impl Facts {
    /// Looks up everything in the request's snapshot.
    pub(crate) fn gather(policies: &Policies, bundle: &Bundle, caller: &Caller, call: &Call) -> Self {
        let attributes = &call.attributes;
        let targets: &CallTargets = policies.caches.of();
        let target = targets
            .0
            // Computed once, however many requests for it come at the same time.
            .get_with_by_ref(attributes, || Arc::new(CallTarget::of(policies, call)));
        let look = |resource, action, object| RbacLookup::of(&policies.rbac, caller, [resource, action], object);
        let read = match (&attributes.object, &target.project) {
            (CallObject::Application { application, .. }, Some(project)) => Some(look(
                "applications",
                "get",
                application_object(policies, project, application),
            )),
            // SECURITY: without an application there is no project to ask about. No verdict reads to
            // a policy as one that denies, so an application that the caller may not see gets the
            // same answer.
            (CallObject::Application { .. }, None) | (CallObject::Global, _) => None,
            (CallObject::Project(project), _) => Some(look("projects", "get", project.clone())),
        };
        let project = project_of_rows(policies, &target);
        let invoke = match project {
            Some(project) => RbacLookup::of_invoke(&policies.rbac, caller, &attributes.name, project),
            None => look("extensions", "invoke", attributes.name.to_string()),
        };
        let rows = match bundle.dependencies().candidates {
            true => candidates(policies, caller, read.as_ref(), &invoke, project),
            false => Vec::new(),
        };
        let verdict = |resource| {
            let read = read.as_ref().filter(|read| read.request().resource == resource);
            read.map(RbacLookup::verdict)
        };
        let verdicts = RbacFacts::new(&ExtensionVerdicts {
            applications_get: verdict("applications"),
            projects_get: verdict("projects"),
            extensions_invoke: invoke.verdict(),
            candidates: &rows,
        });
        let checks: Arc<[CheckRecord]> = read.into_iter().chain([invoke]).map(RbacLookup::into_check).collect();
        let texts = checks
            .iter()
            .map(|check| check.object.len() + check.rule.as_ref().map_or(0, String::len));
        let kibibytes = texts.sum::<usize>() / 1_024 + rows.len() + 1;
        Self {
            size_kib: u32::try_from(kibibytes).unwrap_or(u32::MAX),
            checks,
            target,
            verdicts,
        }
    }

    /// - `request`: the call, without the project, which the facts have.
    /// - `time`: when the call is judged, if the policy reads it.
    pub(crate) fn input(
        &self,
        caller: &Caller,
        request: ExtensionRequest<'_>,
        time: Option<&str>,
    ) -> tollgate_rego::Value {
        ExtensionInput {
            principal: &caller.policy,
            request: ExtensionRequest {
                project: self.target.project.as_deref(),
                ..request
            },
            facts: &self.target.prepared,
            rbac: &self.verdicts,
            time,
        }
        .to_value()
    }
}

/// The project in which rows may name an extension, as `<project>/<extension>`. Argo CD has no such
/// rows.
fn project_of_rows<'a>(policies: &Policies, target: &'a CallTarget) -> Option<&'a str> {
    match policies.config.extensions.compatibility {
        Compatibility::None => target.project.as_deref(),
        Compatibility::Argocd => None,
    }
}

/// The rows of the table that could affect the lookups.
fn candidates<'a>(
    policies: &'a Policies,
    caller: &Caller,
    read: Option<&RbacLookup>,
    invoke: &RbacLookup,
    project: Option<&str>,
) -> Vec<RbacRow<'a>> {
    let mut rows = Vec::new();
    for lookup in read.into_iter().chain([invoke]) {
        // One bound for all lookups: the input must not grow with the table.
        let left = MAX_CANDIDATES.saturating_sub(rows.len());
        rows.extend(policies.rbac.candidates(&caller.roles, lookup.request(), left));
    }
    if let Some(project) = project {
        let left = MAX_CANDIDATES.saturating_sub(rows.len());
        let request = invoke.request();
        rows.extend(
            policies
                .rbac
                .candidates_in_project(&caller.roles, request, project, left),
        );
    }
    let rules = rows.into_iter().filter_map(|id| policies.rbac.rule(id));
    rules
        .map(|rule| RbacRow {
            subject: &rule.subject,
            resource: &rule.resource,
            action: &rule.action,
            object: &rule.object,
            effect: rule.effect.into(),
        })
        .collect()
}

impl CallTarget {
    fn of(policies: &Policies, call: &Call) -> Self {
        let attributes = &call.attributes;
        let NamedObjects {
            project_name,
            project,
            application,
        } = NamedObjects::find(policies, &attributes.object);
        let clusters = &policies.resources.clusters;
        let literal = application.map(|application| &application.destination);
        let destination = literal.and_then(|literal| destination::resolve(literal, clusters).ok());
        let mut prepared = ExtensionFacts::new(&attributes.name, call.scope.as_ref());
        if let Some(project) = project {
            prepared = prepared.with_project(project);
        }
        if let Some(application) = application {
            prepared = prepared.with_application(application);
        }
        if let (Some(project), Some(literal), Some(cluster)) = (project, literal, &destination) {
            let permitted = destination::permitted(project, cluster, &literal.namespace, clusters);
            prepared = prepared.with_destination(cluster, &literal.namespace, permitted);
        }
        let values = destination.as_ref().zip(literal);
        let values = values.map(|(cluster, literal)| cluster_header_values(policies, cluster, literal));
        Self {
            headers: resource_headers(policies, attributes, project_name, values),
            project: project_name.map(str::to_owned),
            literal: literal.cloned(),
            destination: destination.map(Arc::new),
            prepared,
            list_entries: count_list_entries(project, application),
        }
    }
}

impl<'a> NamedObjects<'a> {
    fn find(policies: &'a Policies, object: &'a CallObject) -> Self {
        let resources = &policies.resources;
        let project_name = match object {
            CallObject::Application {
                application,
                project: None,
            } => resources.applications.get(application).map(|found| &*found.project),
            CallObject::Application { .. } | CallObject::Project(_) | CallObject::Global => object.project(),
        };
        let project = project_name.and_then(|name| policies.projects.find(name));
        let application = project
            .zip(object.application())
            .and_then(|(project, name)| application(policies, project, name));
        match (object.project(), application) {
            // An application that does not count has no project either.
            (None, None) => Self::default(),
            (_, _) => Self {
                project_name,
                project,
                application,
            },
        }
    }
}

fn resource_headers(
    policies: &Policies,
    attributes: &ExtensionAttributes,
    project: Option<&str>,
    cluster: Option<(&str, &str)>,
) -> Result<headers::ResourceHeaders, headers::Error> {
    headers::ResourceHeaders::new(&headers::ResourceNames {
        namespace: &policies.config.control_plane_namespace,
        application: attributes
            .object
            .application()
            .map(|app| (app.namespace.as_str(), app.name.as_str())),
        project,
        cluster,
    })
}

/// Name and server of the cluster as the backend's headers carry them. An empty one is not sent.
/// Argo CD sends those of the application's destination, which has one of the two.
fn cluster_header_values<'a>(
    policies: &Policies,
    cluster: &'a Cluster,
    literal: &'a Destination,
) -> (&'a str, &'a str) {
    match policies.config.extensions.compatibility {
        Compatibility::None => (&cluster.name, &cluster.server),
        Compatibility::Argocd => (&literal.name, &literal.server),
    }
}

fn count_list_entries(project: Option<&Arc<Project>>, application: Option<&Application>) -> u32 {
    let lists = project.map_or(0, |project| {
        project.destinations.len() + project.source_namespaces.len()
    });
    let labels = application.map_or(0, |application| application.labels.len());
    // A target without lists takes room, too.
    u32::try_from(lists + labels + 1).unwrap_or(u32::MAX)
}

/// The application, if it is in this project and the project accepts applications of its namespace. Any other counts as missing, because the caller must not learn
/// of it.
fn application<'a>(policies: &'a Policies, project: &Project, name: &ObjectName) -> Option<&'a Application> {
    let application = policies.resources.applications.get(name)?;
    (application.project == project.name && is_app_namespace_permitted(policies, project, &name.namespace))
        .then_some(&**application)
}

/// Whether the project accepts applications of the namespace: those of the control plane's
/// namespace always, others if `sourceNamespaces` lists the namespace. Argo CD does not check it
/// here.
fn is_app_namespace_permitted(policies: &Policies, project: &Project, namespace: &str) -> bool {
    let own = &policies.config.control_plane_namespace;
    match policies.config.extensions.compatibility {
        Compatibility::Argocd => true,
        Compatibility::None => tollgate_policy::applications::is_app_namespace_permitted(project, own, namespace),
    }
}

/// The RBAC object of an application. Argo CD omits the namespace from the object it checks here,
/// so a grant on `proj/app` covers that name in every namespace.
fn application_object(policies: &Policies, project: &str, name: &ObjectName) -> String {
    let own = &policies.config.control_plane_namespace;
    match policies.config.extensions.compatibility {
        Compatibility::None => object_name(own, project, &name.namespace, &name.name),
        Compatibility::Argocd => format!("{project}/{}", name.name),
    }
}

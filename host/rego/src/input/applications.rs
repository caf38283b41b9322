//! Builds the input of the policy of the Applications front, `data.tollgate.applications.decision`:
//! the caller, the Application with its project, cluster and account, and the request.
//!
//! Security: the input contains no credential, no header and no body.

use regorus::Value;
use regorus::value::Object;

use super::kubernetes::request;
use super::{
    PrincipalFacts, RbacVerdict, insert, labels, object, optional, permitted_destination, reusable, reusable_value,
    verdict,
};
use tollgate_config::ImpersonationMode;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_objects::{Cluster, Project};
use tollgate_policy::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::IndexedApplication;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::{AccountSource, DerivedAccount};

/// Maximum length of the reason why a list refuses, in bytes. It contains names that the caller
/// chooses, and the policy passes it on.
const MAX_REASON_BYTES: usize = 480;

/// The verdicts of the RBAC table about one caller and one Application.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationVerdicts<'a> {
    /// Verdict about `applications, get`.
    pub applications_get: RbacVerdict<'a>,
    /// Verdict about `applications, sync`.
    pub applications_sync: RbacVerdict<'a>,
    /// Verdict about `applications, override`.
    pub applications_override: RbacVerdict<'a>,
    /// Verdict about `logs, get`.
    pub logs_get: RbacVerdict<'a>,
    /// Verdict about `exec, create`.
    pub exec_create: RbacVerdict<'a>,
}

/// The facts about an Application for which the gateway can act.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationDetails<'a> {
    /// The Application, and the account that acts for it when service accounts act.
    pub indexed: &'a IndexedApplication,
    /// Its project.
    pub project: &'a Project,
    /// Its destination cluster.
    pub cluster: &'a Cluster,
    /// Whether the project permits the destination.
    pub permitted: bool,
    /// Whether service accounts act.
    pub mode: ImpersonationMode,
    /// Who acts in the cluster.
    pub acting_identity: &'a ActingIdentity,
}

/// The parts of the input that are the same for all requests of one caller about one Application.
#[derive(Clone, Debug)]
pub struct ApplicationFacts(Object);

impl ApplicationFacts {
    /// Takes some 10 µs: call it once per caller and Application.
    pub fn new(
        principal: &PrincipalFacts,
        details: &ApplicationDetails<'_>,
        verdicts: &ApplicationVerdicts<'_>,
    ) -> Self {
        let application = &details.indexed.application;
        let application_value = reusable_value([
            ("namespace", application.name.namespace.as_str().into()),
            ("name", application.name.name.as_str().into()),
            ("project", application.project.as_str().into()),
            ("labels", labels(&application.labels)),
        ]);
        let project = reusable_value([
            ("name", details.project.name.as_str().into()),
            ("labels", labels(&details.project.labels)),
        ]);
        let namespace = &application.destination.namespace;
        let destination = permitted_destination(details.cluster, namespace, details.permitted);
        Self(reusable([
            ("principal", principal.0.clone()),
            ("application", application_value),
            ("project", project),
            ("destination", destination),
            ("identity", identity(details)),
            ("rbac", rbac(verdicts)),
        ]))
    }
}

fn rbac(verdicts: &ApplicationVerdicts<'_>) -> Value {
    reusable_value([
        ("applications_get", verdict(&verdicts.applications_get)),
        ("applications_sync", verdict(&verdicts.applications_sync)),
        ("applications_override", verdict(&verdicts.applications_override)),
        ("logs_get", verdict(&verdicts.logs_get)),
        ("exec_create", verdict(&verdicts.exec_create)),
    ])
}

/// Who acts, and who would act if service accounts acted.
fn identity(details: &ApplicationDetails<'_>) -> Value {
    let what = match &details.indexed.derived_account {
        Ok(derived) => ("acting", account_value(derived)),
        Err(error) => ("error", one_line(&error.to_string(), MAX_REASON_BYTES).into()),
    };
    reusable_value([
        ("mode", details.mode.as_ref().into()),
        ("acts", details.acting_identity.as_ref().into()),
        what,
    ])
}

fn account_value(derived: &DerivedAccount) -> Value {
    let user = match &*derived.impersonation {
        Impersonation::Nobody => None,
        Impersonation::As(identity) => Some(identity.username.as_str()),
    };
    let entry = match &derived.by {
        AccountSource::Entry { index, location } => Some((*index, location.to_string())),
        AccountSource::Fallback(_) => None,
    };
    let (index, location) = entry.unzip();
    let account = derived.account.as_ref();
    reusable_value([
        ("user", optional(user)),
        ("namespace", optional(account.map(|account| account.namespace.as_str()))),
        ("name", optional(account.map(|account| account.name.as_str()))),
        ("by", derived.by.as_ref().into()),
        ("index", optional(index)),
        ("location", optional(location)),
    ])
}

/// Input of `data.tollgate.applications.decision`. The schema is
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationInput<'a> {
    /// The caller and the Application.
    pub facts: &'a ApplicationFacts,
    /// The request into the cluster.
    pub attributes: &'a Attributes,
    /// Whether it may change anything.
    pub access: ReadOrWrite,
    /// The operation on live objects.
    pub operation: ObjectOperation,
    /// The checks of its object.
    pub checks: ObjectChecks<'a>,
    /// When it is judged, in UTC as RFC 3339. `None` if the bundle does not read it.
    pub time: Option<&'a str>,
}

impl ApplicationInput<'_> {
    /// The value on which a bundle decides. Takes about a microsecond, as all but the request was
    /// built before.
    pub fn to_value(self) -> Value {
        let permitted = || object([("permitted", true.into()), ("reason", "".into())]);
        let refused = |reason: &str| {
            let reason = one_line(reason, MAX_REASON_BYTES);
            object([("permitted", false.into()), ("reason", reason.into())])
        };
        let restriction = match self.checks.project_lists {
            ProjectListCheck::Permitted => permitted(),
            ProjectListCheck::Refused(reason) => refused(reason),
        };
        let owned = match self.checks.ownership {
            OwnershipCheck::NotChecked => Value::Undefined,
            OwnershipCheck::Permitted => permitted(),
            OwnershipCheck::Refused(reason) => refused(reason),
        };
        let mut input = self.facts.0.clone();
        let parts = [
            ("request", request(self.attributes)),
            ("access", self.access.as_ref().into()),
            ("operation", self.operation.as_ref().into()),
            ("restriction", restriction),
            ("object", owned),
            ("time", optional(self.time)),
        ];
        insert(&mut input, parts);
        input.into_value()
    }
}

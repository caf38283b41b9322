//! Builds the input of the policy of the Applications front, `data.tollgate.applications.decision`:
//! the caller, the Application with its project, cluster and account, and the request.
//!
//! Security: the input contains no credential, no header and no body.

use std::sync::LazyLock;

use regorus::Value;
use regorus::value::Object;

use super::kubernetes::request;
use super::{PrincipalFacts, RbacVerdict, labels, object_with_keys, verdict};
use crate::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use crate::applications::IndexedApplication;
use crate::impersonate::Impersonation;
use crate::impersonate::service_account::{self, AccountSource, DerivedAccount};
use tollgate_config::ImpersonationMode;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_state::{Cluster, Project};

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
        let ApplicationDetails {
            indexed,
            project,
            cluster,
            permitted,
            mode,
            acting_identity,
        } = *details;
        let application = &indexed.application;
        let name = &application.name;
        let parts = [
            ("principal", principal.0.clone()),
            (
                "application",
                object_with_keys([
                    ("namespace", Value::from(name.namespace.as_str())),
                    ("name", Value::from(name.name.as_str())),
                    ("project", Value::from(application.project.as_str())),
                    ("labels", labels(&application.labels)),
                ]),
            ),
            (
                "project",
                object_with_keys([
                    ("name", Value::from(project.name.as_str())),
                    ("labels", labels(&project.labels)),
                ]),
            ),
            (
                "destination",
                object_with_keys([
                    ("name", Value::from(cluster.name.as_str())),
                    ("server", Value::from(cluster.server.as_str())),
                    ("namespace", Value::from(application.destination.namespace.as_str())),
                    ("permitted", Value::from(permitted)),
                ]),
            ),
            ("identity", identity(mode, acting_identity, &indexed.derived_account)),
            ("rbac", rbac(verdicts)),
        ];
        Self(
            parts
                .into_iter()
                .map(|(key, value)| (Value::from(key), value))
                .collect(),
        )
    }
}

fn rbac(verdicts: &ApplicationVerdicts<'_>) -> Value {
    let ApplicationVerdicts {
        applications_get,
        applications_sync,
        applications_override,
        logs_get,
        exec_create,
    } = verdicts;
    super::KEYS.with(|keys| {
        object_with_keys([
            ("applications_get", verdict(keys, applications_get)),
            ("applications_sync", verdict(keys, applications_sync)),
            ("applications_override", verdict(keys, applications_override)),
            ("logs_get", verdict(keys, logs_get)),
            ("exec_create", verdict(keys, exec_create)),
        ])
    })
}

/// Who acts, and who would act if service accounts acted.
fn identity(
    mode: ImpersonationMode,
    acting_identity: &ActingIdentity,
    derived_account: &Result<DerivedAccount, service_account::Error>,
) -> Value {
    let acts = match acting_identity {
        ActingIdentity::Gateway => "gateway",
        ActingIdentity::ServiceAccount(_) => "account",
    };
    let what = match derived_account {
        Ok(derived) => ("acting", account_value(derived)),
        Err(error) => ("error", Value::from(one_line(&error.to_string(), MAX_REASON_BYTES))),
    };
    object_with_keys([("mode", Value::from(mode.as_str())), ("acts", Value::from(acts)), what])
}

fn account_value(derived: &DerivedAccount) -> Value {
    let DerivedAccount {
        account,
        impersonation,
        by,
    } = derived;
    let mut parts = Vec::new();
    match &**impersonation {
        Impersonation::Nobody => {}
        Impersonation::As(identity) => parts.push(("user", Value::from(identity.username.as_str()))),
    }
    if let Some(account) = account {
        parts.push(("namespace", Value::from(account.namespace.as_str())));
        parts.push(("name", Value::from(account.name.as_str())));
    }
    match by {
        AccountSource::Entry { index, location } => {
            parts.push(("by", Value::from("entry")));
            parts.push(("index", Value::from(u64::try_from(*index).unwrap_or(u64::MAX))));
            parts.push(("location", Value::from(location.to_string())));
        }
        AccountSource::Fallback(_) => parts.push(("by", Value::from("fallback"))),
    }
    parts
        .into_iter()
        .map(|(key, value)| (Value::from(key), value))
        .collect::<Object>()
        .into_value()
}

keys!(access, object, operation, permitted, reason, request, restriction);

thread_local! {
    static KEYS: Keys = Keys::new();
}

/// Input of `data.tollgate.applications.decision`. The schema is
/// [`application_input_schema`]; docs/policies.md explains it.
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
}

impl ApplicationInput<'_> {
    /// The value on which a bundle decides. Takes about a microsecond, as all but the request was
    /// built before.
    pub fn to_value(self) -> Value {
        KEYS.with(|keys| {
            let mut input = self.facts.0.clone();
            input.insert(keys.request.clone(), request(self.attributes));
            input.insert(keys.access.clone(), Value::from(self.access.as_str()));
            input.insert(keys.operation.clone(), Value::from(self.operation.as_str()));
            let permitted = || super::object([(&keys.permitted, Value::from(true)), (&keys.reason, Value::from(""))]);
            let refused = |reason: &str| {
                let reason = Value::from(one_line(reason, MAX_REASON_BYTES));
                super::object([(&keys.permitted, Value::from(false)), (&keys.reason, reason)])
            };
            let restriction = match self.checks.project_lists {
                ProjectListCheck::Permitted => permitted(),
                ProjectListCheck::Refused(reason) => refused(reason),
            };
            input.insert(keys.restriction.clone(), restriction);
            match self.checks.ownership {
                OwnershipCheck::NotChecked => None,
                OwnershipCheck::Permitted => input.insert(keys.object.clone(), permitted()),
                OwnershipCheck::Refused(reason) => input.insert(keys.object.clone(), refused(reason)),
            };
            input.into_value()
        })
    }
}

/// JSON Schema (2020-12) of the input of the Applications front.
pub fn application_input_schema() -> &'static serde_json::Value {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
        // If the file in the repository is broken, `false` refuses every input, and the tests fail.
        serde_json::from_str(include_str!("applications.schema.json")).unwrap_or(serde_json::Value::Bool(false))
    });
    &SCHEMA
}

//! Builds the input of the policy of the argocd front, `data.tollgate.argocd.decision`: the caller,
//! the time, and one call of Argo CD's API, by REST, gRPC or gRPC-Web alike.
//!
//! Security: the input contains no credential and nothing else of the content than the names below.

use regorus::Value;

use super::{PrincipalFacts, existing_application, object, optional};
use tollgate_objects::Application;

/// A call of Argo CD's API. Texts are empty, or `None`, if the call has none.
#[derive(Clone, Copy, Debug)]
pub struct ArgocdRequest<'a> {
    /// Whether the method is one that Tollgate knows.
    pub known: bool,
    /// gRPC service, such as `application.ApplicationService`.
    pub service: Option<&'a str>,
    /// gRPC method, such as `Sync`.
    pub method: Option<&'a str>,
    /// HTTP method of the REST form.
    pub verb: &'a str,
    /// RBAC resource that argocd-server checks.
    pub resource: Option<&'a str>,
    /// RBAC action that argocd-server checks.
    pub action: Option<&'a str>,
    /// Path of a method that is not known.
    pub path: Option<&'a str>,
    /// Project that the request names.
    pub project: Option<&'a str>,
    /// Application that the request names.
    pub application: Option<&'a str>,
    /// Namespace of that Application.
    pub namespace: Option<&'a str>,
}

/// Input of `data.tollgate.argocd.decision`. The schema is
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct ArgocdInput<'a> {
    /// The caller.
    pub principal: &'a PrincipalFacts,
    /// When the request arrived, in UTC as RFC 3339.
    pub time: &'a str,
    /// Why the caller makes the request, in the caller's words.
    pub reason: Option<&'a str>,
    /// The call.
    pub request: ArgocdRequest<'a>,
    /// The Application that the request names, as it is now. `None` if it does not exist.
    pub application: Option<&'a Application>,
}

impl ArgocdInput<'_> {
    /// The value on which a bundle decides.
    pub fn to_value(&self) -> Value {
        let request = &self.request;
        let call = object([
            ("known", request.known.into()),
            ("service", optional(request.service)),
            ("method", optional(request.method)),
            ("verb", request.verb.into()),
            ("resource", optional(request.resource)),
            ("action", optional(request.action)),
            ("path", optional(request.path)),
            ("project", optional(request.project)),
            ("application", optional(request.application)),
            ("namespace", optional(request.namespace)),
        ]);
        object([
            ("principal", self.principal.0.clone()),
            ("time", self.time.into()),
            ("reason", optional(self.reason)),
            ("request", call),
            (
                "application",
                self.application.map_or(Value::Undefined, existing_application),
            ),
        ])
    }
}

//! Decides whether the caller may make a call. The result is an [`ExtensionPermit`], which only
//! this stage can make, or 403.
//!
//! Security: everything is denied by default, and only the policies of the snapshot that the
//! request took decide.

use http::StatusCode;
use std::sync::Arc;

use crate::extensions::call::Call;
use crate::extensions::evaluation::{ExtensionEvaluation, ExtensionEvaluationCache};
use crate::extensions::policy_input;
use tollgate_front::Denial;
use tollgate_front::caller::Caller;
use tollgate_front::extension_registry::{Extension, Registry};
use tollgate_front::policies::{Policies, time_if_read};
use tollgate_objects::Cluster;
use tollgate_proxy::forward::Backend;
use tollgate_proxy::headers;
use tollgate_proxy::record::OpenRecord;
use tollgate_rego as rego;

/// Proof that the policy allowed one call.
///
/// Its fields are private and only `authorize` makes it, so a request cannot reach its backend
/// without this stage:
///
/// ```compile_fail,E0451
/// fn forge(call: std::sync::Arc<tollgate_argocd_fronts::call::Call>) {
///     let _ = tollgate_argocd_fronts::ExtensionPermit { call, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ExtensionPermit {
    evaluation: Arc<ExtensionEvaluation>,
    extension: Arc<Extension>,
    backend: Arc<Backend>,
    call: Arc<Call>,
    decision: Arc<rego::Decision>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Denied(String),
    /// The caller may use an extension of this name, but there is none.
    #[error("extension `{0}` is not registered")]
    UnknownExtension(Arc<str>),
    /// No service of the extension is for the application's cluster.
    #[error("extension `{0}` has no backend for the application's cluster")]
    NoBackend(Arc<str>),
    #[error("the policy could not be evaluated")]
    Policy(#[source] rego::Error),
}

/// Authorizes `call` by the snapshot's RBAC and policy bundle. Permissions that were looked up go
/// into `record`, if there is one.
pub(crate) fn authorize(
    policies: &Policies,
    extensions: &Registry,
    caller: &Arc<Caller>,
    call: &Arc<Call>,
    mut record: Option<&mut OpenRecord>,
) -> Result<ExtensionPermit, Error> {
    // SECURITY: a front without a bundle is closed.
    let bundle = policies
        .bundle(rego::Front::Extensions)
        .ok_or(Error::Policy(rego::Error::Undefined))?;
    let evaluations: &ExtensionEvaluationCache = policies.caches.of();
    let evaluation = evaluations.get_or_evaluate(policies, bundle, caller, call);
    let target = &evaluation.facts.target;
    if let Some(record) = record.as_deref_mut() {
        record.note(|record| {
            record.checks = Arc::clone(&evaluation.facts.checks);
            record.destination.clone_from(&target.destination);
            record.policy = Some(Arc::clone(&bundle.digest));
        });
    }
    let time = time_if_read(bundle);
    let decision = evaluation.decide(bundle, call, time.as_deref());
    if let Some(record) = record.as_deref_mut() {
        // Also for an evaluation that failed, so that an operator can repeat it.
        policy_input::keep(bundle, &evaluation, call, time, record);
    }
    let decision = decision.map_err(Error::Policy)?;
    if let Some(record) = record.as_deref_mut() {
        record.note(|record| record.notes.clone_from(&decision.log));
    }
    if !decision.allow {
        return Err(Error::Denied(decision.reason.clone()));
    }
    // This comes after the policy: only callers who could call an extension of that name learn
    // that it does not exist, as in Argo CD. An extension of another scope is another one: the call
    // names no object of it.
    let extension = extensions.find(&call.attributes.name);
    let Some(extension) = extension.filter(|extension| extension.spec().scope == call.scope) else {
        return Err(Error::UnknownExtension(Arc::clone(&call.attributes.name)));
    };
    let compatibility = policies.config.extensions.compatibility;
    let backend = extension.backend(target.literal.as_ref(), target.destination.as_deref(), compatibility);
    let Some(backend) = backend.cloned() else {
        return Err(Error::NoBackend(Arc::clone(extension.name())));
    };
    if let Some(record) = record {
        // SECURITY: callers read the records of requests that they sent. One who is refused does not learn the
        // project.
        record.note(|record| record.project.clone_from(&target.project));
    }
    Ok(ExtensionPermit {
        extension,
        backend,
        call: Arc::clone(call),
        decision,
        evaluation,
    })
}

impl ExtensionPermit {
    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.evaluation.caller
    }

    pub(crate) fn extension(&self) -> &Arc<Extension> {
        &self.extension
    }

    /// Where the request is sent.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// The project that the call is about: the one that the caller names, else the application's.
    pub(crate) fn project(&self) -> Option<&str> {
        self.evaluation.facts.target.project.as_deref()
    }

    /// The application's cluster, when the call is about an application.
    pub(crate) fn destination(&self) -> Option<&Cluster> {
        self.evaluation.facts.target.destination.as_deref()
    }

    /// The headers about application, project and cluster, or why headers cannot express them.
    pub(crate) fn resource_headers(&self) -> &Result<headers::ResourceHeaders, headers::Error> {
        &self.evaluation.facts.target.headers
    }

    pub(crate) fn decision(&self) -> &rego::Decision {
        &self.decision
    }

    /// Whether two permits lead to the same URL, with the same headers about the caller.
    pub(super) fn is_same_way(&self, other: &Self) -> bool {
        self.backend.upstream.has_same_url(&other.backend.upstream)
            && self.resource_headers() == other.resource_headers()
            && self.extension.spec().identity == other.extension.spec().identity
            && self.decision.set_headers == other.decision.set_headers
            && self.decision.remove_headers == other.decision.remove_headers
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let refused = || Some((StatusCode::UNAUTHORIZED, "Unauthorized extension request".into()));
        let (mut denial, as_argocd) = match &error {
            Error::Denied(reason) => (
                Self::denied(StatusCode::FORBIDDEN, "permission_denied", reason.clone()),
                refused(),
            ),
            Error::UnknownExtension(_) => (
                Self::denied(StatusCode::NOT_FOUND, "extension_not_found", text),
                Some((StatusCode::NOT_FOUND, "Extension not found".into())),
            ),
            Error::NoBackend(_) => (
                Self::failed(StatusCode::NOT_FOUND, "no_backend_for_cluster", text),
                Some((StatusCode::BAD_REQUEST, "invalid extension".into())),
            ),
            Error::Policy(rego::Error::Stuck) => (Self::failed(StatusCode::FORBIDDEN, "policy_stuck", text), refused()),
            Error::Policy(_) => (Self::failed(StatusCode::FORBIDDEN, "policy_failed", text), refused()),
        };
        denial.as_argocd = as_argocd;
        denial.caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use uuid::Uuid;

    use super::Error;
    use tollgate_front::Denial;
    use tollgate_front::error_format::{ErrorFormat, response};
    use tollgate_proxy::record::Outcome;
    use tollgate_rego as rego;

    #[test]
    fn an_abandoned_policy_denies_with_its_own_reason() {
        for (cause, reason) in [
            (rego::Error::Stuck, "policy_stuck"),
            (rego::Error::Time, "policy_failed"),
        ] {
            let denial = Denial::from(Error::Policy(cause));
            assert_eq!((denial.status, denial.reason), (StatusCode::FORBIDDEN, reason));
            assert!(matches!(denial.outcome, Outcome::Failed));
            assert_eq!(denial.message, "the policy could not be evaluated");
            let answer = response(&denial, Uuid::nil(), ErrorFormat::Argocd);
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        }
    }
}

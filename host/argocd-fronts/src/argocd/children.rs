//! Authorizes changes of Applications, ApplicationSets and AppProjects that another Application deployed,
//! by the rights of the caller on them.
//!
//! For an object of a resource tree argocd-server asks about the Application that deployed it, and
//! changes the object with its own account, whose writes the admission webhook accepts. So where that
//! webhook enforces, the caller needs on such an object what writing it with kubectl needs.
//!
//! Security: the patch is applied to the stored object, and the result is judged.
//!
//! Source: Argo CD, `server/application`, `PatchResource`, `DeleteResource`, `RunResourceActionV2`.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::api_request::{ResourceChange, ResourceRequest};
use tollgate_applicationset::ApplicationSet;
use tollgate_applicationset_rights::{
    LaterApplications, Operation, SetAuthorizer, SetOperation, WrittenApplication, authorize_set, owned_objects,
};
use tollgate_config::AdmissionMode;
use tollgate_front::policies::Policies;
use tollgate_front::rbac::RbacLookup;
use tollgate_identity::authenticate::Principal;
use tollgate_objects::ObjectName;
use tollgate_state::source::Source;
use tollgate_state::write::{self, ObjectKey, WritableKind};

const GROUP: &str = "argoproj.io";

/// Why a child is not changed. The text is for the caller.
#[derive(Debug, thiserror::Error)]
#[error("{kind} `{name}`: {why}")]
pub(crate) struct Error {
    kind: &'static str,
    name: String,
    why: String,
}

/// Whether a request for an object of a resource tree is one for a child that is judged here.
pub(super) fn is_judged(policies: &Policies, request: &ResourceRequest) -> bool {
    let settings = policies.config.admission.as_ref();
    settings.is_some_and(|settings| settings.mode == AdmissionMode::Enforce) && kind_of(request).is_some()
}

/// Authorizes the change of a child.
///
/// # Errors
/// The caller may not make it by their own rights.
pub(super) async fn authorize(
    policies: &Policies,
    source: &dyn Source,
    principal: Option<&Arc<Principal>>,
    request: &ResourceRequest,
) -> Result<(), Error> {
    let Some(kind) = kind_of(request) else {
        return Ok(());
    };
    let refused = |why: String| Error {
        kind: kind.as_str(),
        name: request.name.clone(),
        why,
    };
    let principal = principal.ok_or_else(|| refused("it is not for callers without a session".to_owned()))?;
    let name = ObjectName {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
    };
    let read = match source.writer() {
        Ok(writer) => writer.read(&ObjectKey::of(kind, &name)).await,
        Err(error) => Err(error),
    };
    let before = match read {
        Ok(stored) => stored.object,
        // It is in another cluster, or argocd-server finds none either.
        Err(write::Error::NotFound(_)) => return Ok(()),
        // Fails closed: without the object, its rights are not known.
        Err(error) => return Err(refused(format!("it cannot be read: {error}"))),
    };
    let after = match &request.change {
        ResourceChange::Delete => None,
        // What it changes only argocd-server knows, so it counts as an update.
        ResourceChange::Action => Some(before.clone()),
        ResourceChange::Patch { kind, patch } => Some(patched(&before, kind, patch).map_err(refused)?),
    };
    let write = Write {
        kind,
        name: &name,
        before: &before,
        after: after.as_ref(),
        is_action: request.change == ResourceChange::Action,
    };
    write.authorize(policies, principal).map_err(refused)
}

fn kind_of(request: &ResourceRequest) -> Option<WritableKind> {
    let kinds = [
        WritableKind::Application,
        WritableKind::ApplicationSet,
        WritableKind::AppProject,
    ];
    let mut kinds = kinds.into_iter();
    kinds.find(|kind| request.group == GROUP && request.kind == kind.as_str())
}

/// The object with a patch applied, as an API server does it for custom resources.
fn patched(before: &Value, kind: &str, patch: &str) -> Result<Value, String> {
    let unreadable = |error: serde_json::Error| format!("the patch cannot be read: {error}");
    let mut after = before.clone();
    match kind {
        "application/merge-patch+json" => {
            json_patch::merge(&mut after, &serde_json::from_str(patch).map_err(unreadable)?);
        }
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_str(patch).map_err(unreadable)?;
            json_patch::patch(&mut after, &patch).map_err(|error| format!("the patch cannot be applied: {error}"))?;
        }
        // Custom resources have no strategic merge, and what an apply changes depends on the owners of fields.
        other => {
            return Err(format!(
                "a patch of type `{other}` is not judged: send `application/merge-patch+json` or \
                 `application/json-patch+json`"
            ));
        }
    }
    Ok(after)
}

/// The write of a child that argocd-server would make.
struct Write<'a> {
    kind: WritableKind,
    name: &'a ObjectName,
    before: &'a Value,
    after: Option<&'a Value>,
    /// What an action changes only argocd-server knows.
    is_action: bool,
}

impl Write<'_> {
    fn authorize(&self, policies: &Policies, principal: &Arc<Principal>) -> Result<(), String> {
        let caller = policies.caller(principal);
        let authorizer =
            SetAuthorizer::new(policies, &caller).ok_or("the settings have no section `applicationSets`")?;
        // This is asked only while the webhook enforces, which judges those Applications itself.
        let authorizer = authorizer.with_later(LaterApplications::JudgedByAuthor);
        let mut checks = Vec::new();
        match self.kind {
            WritableKind::Application => {
                let written = WrittenApplication {
                    name: self.name,
                    before: Some(self.before),
                    after: self.after,
                    is_given_away: self.gives_away(policies),
                };
                if self.is_action {
                    return authorizer
                        .authorize_update(self.name, self.before)
                        .map_err(|error| error.to_string());
                }
                let authorized = authorizer.authorize_application(written, &mut checks);
                authorized.map_err(|error| error.to_string())
            }
            WritableKind::ApplicationSet => {
                let resources = &policies.resources;
                let owned = owned_objects(resources, self.name);
                let owned: Vec<&Value> = owned.iter().collect();
                let sent = self.after.cloned().map(ApplicationSet::read).transpose();
                let sent = sent.map_err(|error| error.to_string())?;
                let operation = match sent {
                    Some(_) => Operation::Update,
                    None => Operation::Delete,
                };
                let set_operation = SetOperation {
                    operation,
                    name: self.name,
                    sent: sent.as_ref(),
                };
                let stored = Some(self.before);
                let authorized = authorize_set(&authorizer, resources, set_operation, stored, &owned, &mut checks);
                authorized.map(drop).map_err(|error| error.to_string())
            }
            WritableKind::AppProject => {
                let action = if self.after.is_some() { "update" } else { "delete" };
                match RbacLookup::of_project(&policies.rbac, &caller, action, &self.name.name)
                    .into_check()
                    .allowed
                {
                    true => Ok(()),
                    false => Err(format!("`projects, {action}` is not permitted")),
                }
            }
        }
    }

    /// Whether another Application tracks it from then on, and may delete it.
    fn gives_away(&self, policies: &Policies) -> bool {
        let front = policies.applications.as_ref();
        let tracking = front.map(|front| Arc::clone(&front.index.tracking)).unwrap_or_default();
        let metadata = |object: &Value| -> ObjectMeta {
            let metadata = object.get("metadata").cloned().unwrap_or_default();
            serde_json::from_value(metadata).unwrap_or_default()
        };
        let (before, after) = (metadata(self.before), self.after.map(metadata).unwrap_or_default());
        let claim = tracking.claim(&after);
        claim.is_some() && claim != tracking.claim(&before)
    }
}

//! Decides whether a writer may write an object: yes with a reason code, or a [`Refusal`].
//!
//! | writer | may write |
//! |---|---|
//! | the gateway | everything, because it has judged, but no probe (`admission_probe.rs`) |
//! | argocd-server | everything, because Argo CD's RBAC has judged, but no author of a set |
//! | Argo CD's controller | what it finds out; automated syncs; objects of an Application where its project may have children |
//! | the ApplicationSet controller | what it finds out; Applications, with their operations, that the author of their set may write |
//! | the garbage collector | deletions |
//! | everybody else | what Argo CD's RBAC permits to their username and groups |
//!
//! A set without an author that an Application deployed, by a signed statement, generates what that
//! Application could deploy. Nobody writes an operation with manifests of another Application.
//!
//! Security: a write never gives a set another author than the writer. Sets are read as they are
//! stored, because a stale copy may name an author with broader permissions.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::UserInfo;
use serde_json::Value;

use crate::admission::changes::{Changes, is_automated_sync};
use crate::admission::operation::{check_initiator, check_manifests};
use crate::admission::review::WrittenObject;
use crate::admission::stored_sets::{StoredSet, StoredSets};
use crate::admission_probe;
use crate::set_author::author_of;
use tollgate_applicationset::plan::Owner;
use tollgate_applicationset::{ApplicationSet, schema};
use tollgate_applicationset_rights::{
    Error as SetError, LaterApplications, Operation, OperationError, SetAuthorizer, SetOperation, WrittenApplication,
    authorize_set, owned_objects,
};
use tollgate_config::{Admission, AdmissionMode, UnknownFields};
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_front::rbac::RbacLookup;
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_identity::authenticate::Principal;
use tollgate_objects::ObjectName;
use tollgate_policy::applications::{IndexedApplication, Tracking};
use tollgate_proxy::record::{CheckRecord, OpenRecord};
use tollgate_state::write::WritableKind;

mod parent;

/// The identities by which Kubernetes deletes the dependents of a deleted object. Without separate
/// accounts, the controllers of kube-controller-manager use its name.
const COLLECTORS: [&str; 3] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Stable reason code.
    pub(super) reason: &'static str,
    /// Text for the client.
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
        }
    }
}

/// Who writes, as the API server authenticated them.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) kind: WriterKind,
    pub(super) principal: Arc<Principal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterKind {
    Gateway,
    Server,
    Controller,
    ApplicationSetController,
    Collector,
    User,
}

/// Judges one review.
pub(super) struct Judge<'a> {
    current: &'a CurrentSnapshot,
    sets: &'a Arc<StoredSets>,
    snapshot: &'a Arc<Snapshot>,
    settings: &'a Admission,
    tracking: Arc<Tracking>,
}

type Judged = Result<&'static str, Refusal>;

impl<'a> Judge<'a> {
    pub(super) fn new(
        current: &'a CurrentSnapshot,
        sets: &'a Arc<StoredSets>,
        snapshot: &'a Arc<Snapshot>,
        settings: &'a Admission,
    ) -> Self {
        let front = snapshot.policies.applications.as_ref();
        Self {
            current,
            sets,
            snapshot,
            settings,
            tracking: front.map(|front| Arc::clone(&front.index.tracking)).unwrap_or_default(),
        }
    }

    pub(super) fn policies(&self) -> &'a Policies {
        &self.snapshot.policies
    }

    pub(super) fn writer(&self, user: &UserInfo) -> Writer {
        let username = user.username.as_deref().unwrap_or_default();
        let groups = user.groups.as_deref().unwrap_or_default();
        let principal = Principal::of_kubernetes_user(username, groups, &self.policies().rbac.scopes);
        let writers = &self.settings.writers;
        let kind = if username == writers.gateway {
            WriterKind::Gateway
        } else if username == writers.server {
            WriterKind::Server
        } else if username == writers.controller {
            WriterKind::Controller
        } else if username == writers.application_set_controller {
            WriterKind::ApplicationSetController
        } else if COLLECTORS.contains(&username) {
            WriterKind::Collector
        } else {
            WriterKind::User
        };
        Writer {
            kind,
            principal: Arc::new(principal),
        }
    }

    /// Decides, and writes down by whose rights.
    pub(super) async fn judge(&self, writer: &Writer, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        let changes = Changes::of(object, writer.kind);
        let user = &writer.principal;
        if writer.kind != WriterKind::Gateway {
            self.check_operation(object)?;
        }
        match writer.kind {
            WriterKind::Gateway => match admission_probe::nonce(object.object()) {
                Some(nonce) => Err(Refusal::new("probe", admission_probe::refusal(nonce))),
                None => Ok("written_by_gateway"),
            },
            WriterKind::Server => {
                self.check_authorship(None, object)?;
                Ok("written_by_argocd")
            }
            WriterKind::Collector if object.after().is_none() || changes.none() => Ok("collected"),
            WriterKind::Collector if releases_only(object) => Ok("released"),
            WriterKind::Collector => Err(Refusal::new(
                "definition_changed",
                "Kubernetes' own controllers delete objects and do not change them",
            )),
            WriterKind::Controller | WriterKind::ApplicationSetController if changes.none() => {
                self.check_authorship(None, object)?;
                Ok("definition_kept")
            }
            WriterKind::Controller if !changes.definition && is_automated_sync(object) => Ok("sync_automated"),
            WriterKind::Controller => self.judge_child(writer, object, record).await,
            WriterKind::ApplicationSetController => self.judge_generated(object, record).await,
            WriterKind::User if !object.changes_anything() => Ok("unchanged"),
            WriterKind::User => match self.parent_acting_as(user, object) {
                Some(_) => self.judge_child(writer, object, record).await,
                None => self.judge_user(user, object, record),
            },
        }
    }

    /// Refuses an operation with manifests that say they belong to another Application.
    fn check_operation(&self, object: &WrittenObject) -> Result<(), Refusal> {
        let front = self.policies().applications.as_ref();
        let instance = front.map(|front| front.index.instance_name(&object.name));
        check_manifests(&self.tracking, &instance.unwrap_or_default(), object)
    }

    /// Refuses a set that would get another author than the one who writes, or another parent.
    ///
    /// - `author`: who writes, if by their own rights.
    fn check_authorship(&self, author: Option<&Principal>, object: &WrittenObject) -> Result<(), Refusal> {
        let Some(set) = object.after().filter(|_| object.kind == WritableKind::ApplicationSet) else {
            return Ok(());
        };
        if object.changes_claim(&self.tracking) {
            return Err(Refusal::new(
                "parent_claimed",
                "only Argo CD's controller sets the tracking id of an ApplicationSet; leave it out",
            ));
        }
        self.check_statement(author, object, set)?;
        self.check_parent_statement(None, object, set)
    }

    fn check_statement(&self, author: Option<&Principal>, object: &WrittenObject, set: &Value) -> Result<(), Refusal> {
        let [stored, sent] = object.statements();
        // Clients send back what they read. A statement about another `spec` no longer verifies, so keeping it claims
        // nothing.
        let Some(sent) = sent.filter(|_| stored != sent) else {
            return Ok(());
        };
        let signed = author_of(self.policies(), &object.name, set, sent);
        let is_own = |signed: &Principal| {
            author.is_some_and(|author| (author.kind(), author.user_id()) == (signed.kind(), signed.user_id()))
        };
        match signed {
            Ok(signed) if is_own(&signed) => Ok(()),
            Ok(_) | Err(_) => Err(Refusal::new(
                "author_claimed",
                "the annotation `tollgate.dev/author` is not of who writes; leave it out",
            )),
        }
    }

    async fn judge_generated(&self, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        if object.kind != WritableKind::Application {
            let text = "Argo CD's ApplicationSet controller writes Applications only";
            return Err(Refusal::new("definition_changed", text));
        }
        // Deleting a set without its Applications gives nobody anything, so it needs no author.
        if releases_only(object) {
            return Ok("released");
        }
        let name = controlling_set(object.object())
            .ok_or_else(|| Refusal::new("set_unknown", "the Application belongs to no ApplicationSet"))?;
        let name = ObjectName {
            namespace: object.name.namespace.clone(),
            name: name.to_owned(),
        };
        record.note(|record| {
            record
                .notes
                .insert("applicationset".to_owned(), format!("{}/{}", name.namespace, name.name));
        });
        let stored = self.sets.read(&name).await?;
        let StoredSet { set, author, parent } = &*stored;
        // The reference names a UID: a new set must not answer for what a deleted one of its name generated.
        if !Owner::of(&name.name, set).is_controller_of(object.object()) {
            let text = format!(
                "the Application belongs to an ApplicationSet `{}` that is gone",
                name.name
            );
            return Err(Refusal::new("set_unknown", text));
        }
        match (author, parent) {
            (Ok(author), _) => {
                record.note(|record| {
                    record.notes.insert("author".to_owned(), author.username().to_owned());
                });
                self.authorize_application(author, object, record)?;
                Ok("author_permitted")
            }
            (Err(_), Ok(parent)) => self.judge_grandchild(parent, object, record).await,
            (Err(author), Err(parent)) => {
                let text = format!(
                    "who wrote ApplicationSet `{}` is unknown: {author}, and {parent}; write it through Tollgate, such \
                     as with `tollgate appset apply`",
                    name.name
                );
                Err(Refusal::new("author_unknown", text))
            }
        }
    }

    /// Judges what somebody writes by their own rights.
    fn judge_user(&self, user: &Arc<Principal>, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        self.check_authorship(Some(user), object)?;
        self.check_fields(object)?;
        check_initiator(user, object)?;
        self.check_owners(user, object, record)?;
        match object.kind {
            WritableKind::Application => self.authorize_application(user, object, record)?,
            WritableKind::ApplicationSet => self.authorize_set(user, object, record)?,
            WritableKind::AppProject => self.authorize_project(user, object, record)?,
        }
        Ok("permitted")
    }

    /// Refuses a definition that lacks required fields, or has keys that no field has: an API server
    /// drops such a key where its schema reaches, and keeps it where a set may have any JSON.
    fn check_fields(&self, object: &WrittenObject) -> Result<(), Refusal> {
        // A mistake that is stored already must not block changes of labels or a deletion.
        let Some(after) = object.after().filter(|_| object.changes("/spec")) else {
            return Ok(());
        };
        let settings = self.policies().config.application_sets.as_ref();
        let errors = match object.kind {
            WritableKind::Application => schema::check_application(after),
            WritableKind::ApplicationSet => schema::check_application_set(after),
            WritableKind::AppProject => return Ok(()),
        };
        let unknown_fields = settings.map(|settings| settings.unknown_fields).unwrap_or_default();
        let is_error = |error: &&schema::Error| match unknown_fields {
            UnknownFields::Refuse => true,
            UnknownFields::Warn => matches!(error, schema::Error::Missing { .. }),
        };
        let texts: Vec<String> = errors.iter().filter(is_error).map(ToString::to_string).collect();
        match texts.is_empty() {
            true => Ok(()),
            false => Err(Refusal::new("unknown_fields", texts.join("; "))),
        }
    }

    /// Kubernetes deletes a set whose owners are gone, with its Applications.
    fn check_owners(
        &self,
        user: &Arc<Principal>,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Result<(), Refusal> {
        let is_changed = object.after().is_some() && object.changes("/metadata/ownerReferences");
        match object.before() {
            Some(_) if is_changed && object.kind == WritableKind::ApplicationSet => {
                self.authorize_set_operation(user, Operation::Delete, None, object, record)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn authorize_application(
        &self,
        user: &Arc<Principal>,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Result<(), Refusal> {
        let written = WrittenApplication {
            name: &object.name,
            before: object.before(),
            after: object.after(),
            is_given_away: self.is_given_away(object),
        };
        self.authorize(user, record, |authorizer, checks| {
            let authorized = authorizer.authorize_application(written, checks);
            authorized.map_err(|error| denied(user, &error))
        })
    }

    fn authorize_set(
        &self,
        user: &Arc<Principal>,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Result<(), Refusal> {
        let operation = match (object.before(), object.after()) {
            (None, _) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (Some(_), None) => Operation::Delete,
        };
        let sent = object.after().cloned().map(ApplicationSet::read).transpose();
        let sent = sent.map_err(|error| invalid_set(&error))?;
        self.authorize_set_operation(user, operation, sent.as_ref(), object, record)
    }

    fn authorize_set_operation(
        &self,
        user: &Arc<Principal>,
        operation: Operation,
        sent: Option<&ApplicationSet>,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Result<(), Refusal> {
        let resources = &self.policies().resources;
        let owned = owned_objects(resources, &object.name);
        let owned: Vec<&Value> = owned.iter().collect();
        self.authorize(user, record, |authorizer, checks| {
            let set_operation = SetOperation {
                operation,
                name: &object.name,
                sent,
            };
            authorize_set(authorizer, resources, set_operation, object.before(), &owned, checks)
                // The permit is for plans of the gateway, and here somebody else writes.
                .map(drop)
                .map_err(|error| match error {
                    OperationError::Denied(error) => denied(user, &error),
                    OperationError::Generate(error) => invalid_set(&error),
                })
        })
    }

    fn authorize(
        &self,
        user: &Arc<Principal>,
        record: &mut OpenRecord,
        authorize: impl FnOnce(&SetAuthorizer<'_>, &mut Vec<CheckRecord>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let caller = self.policies().caller_once(user);
        let authorizer = SetAuthorizer::new(self.policies(), &caller)
            .ok_or_else(|| Refusal::new("permission_denied", "the settings have no section `applicationSets`"))?;
        // In mode `audit` nothing refuses what the set generates later, so the stricter rule holds.
        let authorizer = authorizer.with_later(match self.settings.mode {
            AdmissionMode::Enforce => LaterApplications::JudgedByAuthor,
            AdmissionMode::Audit => LaterApplications::Unjudged,
        });
        let mut checks = Vec::new();
        let authorized = authorize(&authorizer, &mut checks);
        record.note(|record| record.checks = checks.into());
        authorized
    }

    fn authorize_project(
        &self,
        user: &Arc<Principal>,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Result<(), Refusal> {
        let is_deletable = self.is_given_away(object) || object.changes("/metadata/ownerReferences");
        let actions: &[&'static str] = match (object.before(), object.after()) {
            (None, _) => &["create"],
            (Some(_), Some(_)) if is_deletable => &["update", "delete"],
            (Some(_), Some(_)) => &["update"],
            (Some(_), None) => &["delete"],
        };
        let caller: Arc<Caller> = self.policies().caller_once(user);
        let name = &object.name.name;
        let check =
            |action: &&'static str| RbacLookup::of_project(&self.policies().rbac, &caller, action, name).into_check();
        let checks: Vec<CheckRecord> = actions.iter().map(check).collect();
        let denied = std::iter::zip(actions, &checks).find(|(_, check)| !check.allowed);
        let denied = denied.map(|(action, _)| format!("`projects, {action}` is not permitted on `{name}`"));
        record.note(|record| {
            record.project = Some(name.clone());
            record.checks = checks.into();
        });
        match denied {
            None => Ok(()),
            Some(text) => Err(Refusal::new("permission_denied", of_user(user, &text))),
        }
    }

    /// Whether another Application tracks the object from then on, and may delete it.
    fn is_given_away(&self, object: &WrittenObject) -> bool {
        object.before().is_some() && object.changes_claim(&self.tracking) && object.claim(&self.tracking).is_some()
    }
}

fn invalid_set(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new("applicationset_invalid", error.to_string())
}

fn denied(user: &Principal, error: &SetError) -> Refusal {
    let (_, reason) = error.answer();
    Refusal::new(reason, of_user(user, &error.to_string()))
}

fn of_user(user: &Principal, text: &str) -> String {
    format!("for `{}`: {text}", user.username())
}

fn note_parent(parent: &IndexedApplication, record: &mut OpenRecord) {
    record.note(|record| {
        record.application = Some(parent.application.name.clone());
        record.project = Some(parent.application.project.clone());
    });
}

fn controlling_set(application: &Value) -> Option<&str> {
    let references = application.pointer("/metadata/ownerReferences")?.as_array()?;
    let is_controller = |reference: &&Value| {
        reference["controller"] == true && reference["kind"] == WritableKind::ApplicationSet.as_str()
    };
    references.iter().find(is_controller)?["name"].as_str()
}

/// Whether only references to owners are removed, as when a set is deleted without its Applications.
fn releases_only(object: &WrittenObject) -> bool {
    let (Some(before), Some(after)) = (object.before(), object.after()) else {
        return false;
    };
    let references = |object: &Value| -> Vec<Value> {
        let listed = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        listed.cloned().unwrap_or_default()
    };
    let (before, after) = (references(before), references(after));
    after.len() < before.len()
        && after.iter().all(|reference| before.contains(reference))
        && !object.changes_besides(&["/status", "/metadata/ownerReferences"])
}

/// Derives all that decisions read of an object, for the fuzz target.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn derived(object: &WrittenObject) {
    use crate::admission::review::deployed_by;

    let tracking = Tracking::default();
    let _ = (object.claim(&tracking), object.notes(), object.statements());
    let _ = (
        controlling_set(object.object()),
        deployed_by(&tracking, &object.name, object.object()),
        object.applies_whole_spec(),
        is_automated_sync(object),
    );
    let instance = check_manifests(&tracking, "a", object);
    let any = Changes::of(object, WriterKind::Controller);
    assert!(
        object.changes_anything() || (any.none() && instance.is_ok()),
        "what is judged is a change"
    );
    let is_write = object.before().is_none() || object.after().is_none();
    assert!(
        !(is_write && releases_only(object)),
        "a new or deleted object is released"
    );
}

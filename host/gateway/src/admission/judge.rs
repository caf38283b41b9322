//! Decides whether a writer may write an object: yes with a reason code, or a [`Refusal`].
//!
//! | writer | may write |
//! |---|---|
//! | the gateway | everything, because it has judged, but no probe (`probe.rs`) |
//! | argocd-server | everything, because Argo CD's RBAC has judged, but no author of a set |
//! | Argo CD's controller | what it finds out; objects of an Application where its project may have children |
//! | the ApplicationSet controller | what it finds out; Applications that the author of their set may write |
//! | the garbage collector | deletions |
//! | everybody else | what Argo CD's RBAC permits to their username and groups |
//!
//! A set without an author belongs to the Application that deployed it, if any, and generates what that
//! Application could deploy.
//!
//! Security: whoever changes a set does not become, or remain, anybody else's author. Sets are read as
//! they are stored, because an older one could have a mightier author.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;
use serde_json::Value;

use crate::admission::author::author_of;
use crate::admission::probe;
use crate::admission::review::{WrittenObject, deployed_by};
use crate::admission::stored_sets::{StoredSet, StoredSets};
use crate::applicationsets::permit::{
    Error as SetError, LaterApplications, Operation, SetAuthorizer, WrittenApplication, is_templated, or_default,
    project_of, project_text,
};
use crate::applicationsets::request::Error as RequestError;
use crate::applicationsets::{authorize_set, owned_objects};
use crate::caller::Caller;
use crate::policies::Policies;
use crate::projects;
use crate::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_applicationset::plan::Owner;
use tollgate_applicationset::{ApplicationSet, schema};
use tollgate_config::{Admission, AdmissionMode, UnknownFields};
use tollgate_identity::authenticate::Principal;
use tollgate_policy::applications::{IndexedApplication, Tracking};
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::record::{CheckRecord, OpenRecord};
use tollgate_state::ObjectName;
use tollgate_state::write::WritableKind;

/// How Kubernetes deletes what belongs to something that is gone. Without accounts of their own, the
/// controllers of kube-controller-manager have its name.
const COLLECTORS: [&str; 3] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];

/// How long an Application that is named, and not known yet, is waited for: a snapshot follows a write
/// within a second.
const PARENT_PATIENCE: Duration = Duration::from_secs(3);
const PARENT_POLL: Duration = Duration::from_millis(50);

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

/// What a writer is.
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
        (current, sets): (&'a CurrentSnapshot, &'a Arc<StoredSets>),
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
        let principal = Principal::of_kubernetes_user(username, groups, self.policies().rbac.scopes());
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
        let changes_definition = object.changes_definition(&self.tracking);
        let user = &writer.principal;
        match writer.kind {
            WriterKind::Gateway => match probe::nonce(object.object()) {
                Some(nonce) => Err(Refusal::new("probe", probe::refusal(nonce))),
                None => Ok("written_by_gateway"),
            },
            WriterKind::Server => {
                self.check_authorship(None, object)?;
                Ok("written_by_argocd")
            }
            WriterKind::Collector if object.after().is_none() || !changes_definition => Ok("collected"),
            WriterKind::Collector => Err(Refusal::new(
                "definition_changed",
                "Kubernetes' own controllers delete objects and do not change them",
            )),
            WriterKind::Controller | WriterKind::ApplicationSetController if !changes_definition => {
                self.check_authorship(None, object)?;
                Ok("definition_kept")
            }
            WriterKind::Controller => self.judge_child(object, record).await,
            WriterKind::ApplicationSetController => self.judge_generated(object, record).await,
            WriterKind::User if !object.changes_anything() => Ok("unchanged"),
            WriterKind::User => match self.parent_acting_as(user, object) {
                Some(_) => self.judge_child(object, record).await,
                None => self.judge_user(user, object, record),
            },
        }
    }

    /// The Application that an object says it belongs to, if the user is its account.
    pub(super) fn parent_acting_as(&self, user: &Principal, object: &WrittenObject) -> Option<Arc<IndexedApplication>> {
        let instance = object.claim(&self.tracking)?.ok()?;
        let index = &self.policies().applications.as_ref()?.index;
        let parent = index.find_instance(instance)?;
        let account = parent.derived_account.as_ref().ok()?;
        let Impersonation::As(identity) = &*account.impersonation else {
            return None;
        };
        (identity.username == user.username()).then(|| Arc::clone(parent))
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
        self.check_statement(author, object, set)
    }

    fn check_statement(&self, author: Option<&Principal>, object: &WrittenObject, set: &Value) -> Result<(), Refusal> {
        let [stored, sent] = object.statements();
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

    /// Judges an object that an Application deploys, by that Application's project.
    async fn judge_child(&self, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        let parent = match object.claim(&self.tracking) {
            Some(Ok(instance)) => self.find_parent(instance).await,
            Some(Err(())) | None => None,
        };
        let parent = parent.ok_or_else(|| {
            let text = "Argo CD's controller writes it for no Application that is known: it has no tracking id of one";
            Refusal::new("parent_unknown", text)
        })?;
        note_parent(&parent, record);
        if let (WritableKind::ApplicationSet, Some(set)) = (object.kind, object.after()) {
            // SECURITY: who may change the repository of the Application is no other author.
            self.check_statement(None, object, set)?;
        }
        self.check_children(&parent, object)?;
        Ok("child_permitted")
    }

    async fn find_parent(&self, instance: &str) -> Option<Arc<IndexedApplication>> {
        let known = |snapshot: &Snapshot| {
            let index = snapshot.policies.applications.as_ref().map(|front| &front.index);
            index.and_then(|index| index.find_instance(instance).cloned())
        };
        let find = async {
            loop {
                if let Some(found) = known(&self.current.load()) {
                    return found;
                }
                tokio::time::sleep(PARENT_POLL).await;
            }
        };
        tokio::time::timeout(PARENT_PATIENCE, find).await.ok()
    }

    /// Whether an Application may write the object, before and after.
    fn check_children(&self, parent: &IndexedApplication, object: &WrittenObject) -> Result<(), Refusal> {
        let project = &parent.application.project;
        let listed = self.settings.children.get(project);
        for state in [object.before(), object.after()].into_iter().flatten() {
            let (child, what) = match object.kind {
                WritableKind::Application => (project_of(state), "in project"),
                // What it generates is judged when it is generated.
                WritableKind::ApplicationSet if is_templated(project_text(state)) => continue,
                WritableKind::ApplicationSet => (or_default(project_text(state)), "in project"),
                WritableKind::AppProject => (object.name.name.as_str(), "that is project"),
            };
            let is_permitted = match listed {
                Some(patterns) => patterns.iter().any(|pattern| pattern.matches(child)),
                // SECURITY: a project that could change itself would have no bounds.
                None => object.kind != WritableKind::AppProject && child == project,
            };
            if !is_permitted {
                let text = format!(
                    "Application `{}` of project `{project}` may not write an {} {what} `{child}`: \
                     `admission.children` of the gateway's settings does not list it",
                    parent.application.name.name,
                    object.kind.as_str()
                );
                return Err(Refusal::new("child_refused", text));
            }
        }
        Ok(())
    }

    /// Judges what Argo CD's ApplicationSet controller generates.
    async fn judge_generated(&self, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        if object.kind != WritableKind::Application {
            let text = "Argo CD's ApplicationSet controller writes Applications only";
            return Err(Refusal::new("definition_changed", text));
        }
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
        let StoredSet { set, author } = &*stored;
        if !Owner::of(&name.name, set).is_controller_of(object.object()) {
            let text = format!(
                "the Application belongs to an ApplicationSet `{}` that is gone",
                name.name
            );
            return Err(Refusal::new("set_unknown", text));
        }
        let unknown = match author {
            Ok(author) => {
                record.note(|record| {
                    record.notes.insert("author".to_owned(), author.username().to_owned());
                });
                self.authorize_application(author, object, record)?;
                return Ok("author_permitted");
            }
            Err(error) => error,
        };
        let Some(parent) = self.deploying(&name, set).await else {
            let text = format!(
                "who wrote ApplicationSet `{}` is unknown: {unknown}; write it through Tollgate, such as with \
                 `tollgate appset apply`",
                name.name
            );
            return Err(Refusal::new("author_unknown", text));
        };
        note_parent(&parent, record);
        self.check_children(&parent, object)?;
        Ok("child_permitted")
    }

    /// The Application that deployed a stored set, whose tracking id names the set itself.
    async fn deploying(&self, name: &ObjectName, set: &Value) -> Option<Arc<IndexedApplication>> {
        let instance = deployed_by(&self.tracking, name, set)?;
        self.find_parent(&instance).await
    }

    /// Judges what somebody writes by their own rights.
    fn judge_user(&self, user: &Arc<Principal>, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        self.check_authorship(Some(user), object)?;
        self.check_fields(object)?;
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
        let invalid = |error: &dyn std::fmt::Display| Refusal::new("applicationset_invalid", error.to_string());
        let sent = object.after().cloned().map(ApplicationSet::read).transpose();
        let sent = sent.map_err(|error| invalid(&error))?;
        let resources = &self.policies().resources;
        let owned = owned_objects(resources, &object.name);
        let owned: Vec<&Value> = owned.iter().collect();
        self.authorize(user, record, |authorizer, checks| {
            let set_operation = (operation, &object.name, sent.as_ref());
            let existing = (object.before(), &*owned);
            authorize_set((authorizer, resources), set_operation, existing, checks)
                .map(drop)
                .map_err(|error| match error {
                    RequestError::Denied(error) => denied(user, &error),
                    other => invalid(&other),
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
        let action = match (object.before(), object.after()) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        };
        let caller: Arc<Caller> = self.policies().caller_once(user);
        let check = projects::permit::check(self.policies(), &caller, action, &object.name.name);
        let is_allowed = check.allowed;
        record.note(|record| {
            record.project = Some(object.name.name.clone());
            record.checks = vec![check].into();
        });
        match is_allowed {
            true => Ok(()),
            false => {
                let text = format!("`projects, {action}` is not permitted on `{}`", object.name.name);
                Err(Refusal::new("permission_denied", of_user(user, &text)))
            }
        }
    }
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

/// The name of the set that controls an Application.
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
    let kept = references(before);
    let is_same = !object.changes("/spec") && !object.changes("/operation");
    is_same && references(after).iter().all(|reference| kept.contains(reference))
}

/// Derives all that decisions read of an object, for the fuzz target.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn derived(object: &WrittenObject) {
    let tracking = Tracking::default();
    let _ = (object.claim(&tracking), object.notes(), object.statements());
    let _ = (
        controlling_set(object.object()),
        deployed_by(&tracking, &object.name, object.object()),
    );
    assert!(
        object.changes_anything() || !object.changes_definition(&tracking),
        "a new definition is a change"
    );
    let is_write = object.before().is_none() || object.after().is_none();
    assert!(
        !(is_write && releases_only(object)),
        "a new or deleted object is released"
    );
}

//! Judges what an Application writes: which Application writes an object, and whether its project may
//! have such children.
//!
//! Security: a tracking id is a claim. It counts in a write of Argo CD's controller, which sets it
//! (`operation.rs`), and of the Application's own account. What is stored was written by the
//! Application only if a signed statement says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::admission::judge::{Judge, Judged, Refusal, Writer, WriterKind, note_parent};
use crate::admission::review::{WrittenObject, deployed_by};
use crate::set_author::{parent_of, sign_parent};
use tollgate_applicationset_rights::{annotated_projects, owned_by};
use tollgate_config::ImpersonationMode;
use tollgate_front::set_list::{is_templated, or_default, project_of, project_text};
use tollgate_front::snapshot::Snapshot;
use tollgate_identity::authenticate::{DeployedBy, Principal};
use tollgate_objects::Application;
use tollgate_objects::destination::IN_CLUSTER_SERVER;
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication};
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::AccountSource;
use tollgate_proxy::record::OpenRecord;
use tollgate_state::write::WritableKind;

/// How long an Application that is named, and not known yet, is waited for: a snapshot follows a write
/// within a second.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);

type Found = Arc<IndexedApplication>;

impl Judge<'_> {
    fn index(&self) -> Option<&ApplicationIndex> {
        let front = self.policies().applications.as_ref();
        front.map(|front| &*front.index)
    }

    /// The Application that an object says it belongs to, if the user is its account.
    ///
    /// SECURITY: the user is of the control plane's cluster. An account of the same name in the cluster
    /// that the Application deploys into is somebody else, and so is one that no entry of a project
    /// names, or one that Argo CD does not act as.
    pub(in crate::admission) fn parent_acting_as(&self, user: &Principal, object: &WrittenObject) -> Option<Found> {
        let instance = object.claim(&self.tracking)?.ok()?;
        let index = self.index().filter(|index| index.mode == ImpersonationMode::Enforce)?;
        let parent = index.find_instance(instance)?;
        let server = &parent.destination.as_ref().ok()?.server;
        let is_entry = matches!(parent.derived_account.as_ref().ok()?.by, AccountSource::Entry { .. });
        if !is_entry || server.trim_end_matches('/') != IN_CLUSTER_SERVER {
            return None;
        }
        let Impersonation::As(identity) = &*index.acting_for(parent, server)?.impersonation else {
            return None;
        };
        (identity.username == user.username()).then(|| Arc::clone(parent))
    }

    /// The Application for which a writer writes an object, by the object's tracking id.
    async fn parent_writing(&self, writer: &Writer, object: &WrittenObject) -> Option<Found> {
        match writer.kind {
            WriterKind::Controller => {
                let instance = object.claim(&self.tracking)?.ok()?;
                self.find_parent(|index| index.find_instance(instance)).await
            }
            WriterKind::User => self.parent_acting_as(&writer.principal, object),
            WriterKind::Gateway | WriterKind::Server | WriterKind::ApplicationSetController | WriterKind::Collector => {
                None
            }
        }
    }

    /// Judges an object that an Application deploys, by that Application's project.
    pub(super) async fn judge_child(&self, writer: &Writer, object: &WrittenObject, record: &mut OpenRecord) -> Judged {
        let parent = self.parent_writing(writer, object).await.ok_or_else(|| {
            let text = "Argo CD's controller writes it for no Application that is known: it has no tracking id of one";
            Refusal::new("parent_unknown", text)
        })?;
        note_parent(&parent, record);
        if let (WritableKind::ApplicationSet, Some(set)) = (object.kind, object.after()) {
            // SECURITY: who may change the repository of the Application is no other author.
            self.check_statement(None, object, set)?;
            self.check_parent_statement(Some(&parent), object, set)?;
        }
        self.check_children(&parent, object)?;
        Ok("child_permitted")
    }

    /// The Application that deployed a generated Application's set, judged by its project.
    pub(super) async fn judge_grandchild(
        &self,
        signed: &DeployedBy,
        object: &WrittenObject,
        record: &mut OpenRecord,
    ) -> Judged {
        let name = &signed.application;
        let parent = self.find_parent(|index| index.find(&name.namespace, &name.name)).await;
        let parent = parent.filter(|parent| parent.application.project == signed.project);
        let parent = parent.ok_or_else(|| {
            let text = format!(
                "Application `{}` of project `{}`, which deployed the ApplicationSet, is gone or in another project",
                name.name, signed.project
            );
            Refusal::new("parent_unknown", text)
        })?;
        note_parent(&parent, record);
        self.check_children(&parent, object)?;
        Ok("child_permitted")
    }

    async fn find_parent(&self, of: impl Fn(&ApplicationIndex) -> Option<&Found>) -> Option<Found> {
        let known = |snapshot: &Snapshot| {
            let front = snapshot.policies.applications.as_ref();
            front.and_then(|front| of(&front.index).cloned())
        };
        let find = async {
            loop {
                // The newest snapshot each time: the one of the review never learns of an Application that was just
                // written.
                if let Some(found) = known(&self.current.load()) {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(PATIENCE, find).await.ok()
    }

    /// Whether an Application may write the object, before and after.
    fn check_children(&self, parent: &IndexedApplication, object: &WrittenObject) -> Result<(), Refusal> {
        let own = &parent.application.project;
        let listed = self.settings.children.get(own);
        let what = match object.kind {
            WritableKind::Application | WritableKind::ApplicationSet => "in project",
            WritableKind::AppProject => "that is project",
        };
        for child in self.projects_of(parent, object)? {
            let is_permitted = match listed {
                Some(patterns) => patterns.iter().any(|pattern| pattern.matches(&child)),
                // SECURITY: a project that could change itself would have no bounds.
                None => object.kind != WritableKind::AppProject && child == *own,
            };
            if !is_permitted {
                let text = format!(
                    "Application `{}` of project `{own}` may not write an {} {what} `{child}`: \
                     `admission.children` of the gateway's settings does not list it",
                    parent.application.name.name,
                    object.kind.as_str()
                );
                return Err(Refusal::new("child_refused", text));
            }
        }
        Ok(())
    }

    /// The projects in which an object is or was, and in which it has Applications.
    fn projects_of(&self, parent: &IndexedApplication, object: &WrittenObject) -> Result<BTreeSet<String>, Refusal> {
        let states = [object.before(), object.after()];
        let mut projects: BTreeSet<String> = match object.kind {
            WritableKind::Application => states
                .into_iter()
                .flatten()
                .map(project_of)
                .map(str::to_owned)
                .collect(),
            WritableKind::AppProject => BTreeSet::from([object.name.name.clone()]),
            // What a template leads into is judged when it is generated.
            WritableKind::ApplicationSet => states
                .into_iter()
                .flatten()
                .map(project_text)
                .filter(|text| !is_templated(text))
                .map(|text| or_default(text).to_owned())
                .collect(),
        };
        let Some(set) = object.before().filter(|_| object.kind == WritableKind::ApplicationSet) else {
            return Ok(projects);
        };
        // SECURITY: a user who deletes or changes a set decides about the Applications that it has,
        // and Kubernetes' garbage collector is not judged.
        let owned = || owned_by(&self.policies().resources, &object.name);
        projects.extend(owned().map(|application| application.project.clone()));
        if is_templated(project_text(set)) {
            // An Application of an earlier set of that name says nothing about this one.
            let uid = set.pointer("/metadata/uid").and_then(Value::as_str);
            let is_its = |application: &Application| {
                let owner = application.application_set.as_ref();
                uid.is_some() && owner.map(|owner| owner.uid.as_str()) == uid
            };
            let annotated: Vec<&str> = annotated_projects(set).collect();
            if annotated.is_empty() && !owned().any(is_its) && !self.has_deployed(parent, object, set) {
                let text = format!(
                    "Application `{}` may not take over ApplicationSet `{}`: the set's project is a template, and \
                     nothing says that this Application deployed it",
                    parent.application.name.name, object.name.name
                );
                return Err(Refusal::new("child_refused", text));
            }
            projects.extend(annotated.into_iter().map(str::to_owned));
        }
        Ok(projects)
    }

    /// Whether a stored set says that an Application deployed it, by its tracking id or by a statement.
    fn has_deployed(&self, parent: &IndexedApplication, object: &WrittenObject, set: &Value) -> bool {
        let instance = self.index().map(|index| index.instance_name(&parent.application.name));
        let is_tracked = instance.is_some() && deployed_by(&self.tracking, &object.name, set) == instance;
        let [stored, _] = object.parent_statements();
        is_tracked || stored.is_some_and(|text| self.is_signed_for(parent, object, set, text))
    }

    /// The statement that an Application deployed a set as it is to be stored. `None` if it has not
    /// written all of it.
    pub(in crate::admission) async fn parent_statement(
        &self,
        writer: &Writer,
        object: &WrittenObject,
        now: i64,
    ) -> Option<String> {
        let set = object.after()?;
        let parent = self.parent_writing(writer, object).await?;
        let instance = self.index()?.instance_name(&parent.application.name);
        // A copy keeps the tracking id of what it was copied from.
        if deployed_by(&self.tracking, &object.name, set)? != instance {
            return None;
        }
        // SECURITY: what is applied is merged into what somebody else may have written.
        let [stored, _] = object.parent_statements();
        let was_own = object
            .before()
            .is_none_or(|before| stored.is_some_and(|text| self.is_signed_for(&parent, object, before, text)));
        if !was_own && !object.applies_whole_spec() {
            return None;
        }
        self.check_children(&parent, object).ok()?;
        sign_parent(self.policies(), &object.name, set, &deployed(&parent), now)
    }

    /// Refuses a set that would get the statement of an Application that does not write it.
    ///
    /// - `parent`: which one writes it, if any.
    pub(super) fn check_parent_statement(
        &self,
        parent: Option<&IndexedApplication>,
        object: &WrittenObject,
        set: &Value,
    ) -> Result<(), Refusal> {
        let [stored, sent] = object.parent_statements();
        let Some(sent) = sent.filter(|_| stored != sent) else {
            return Ok(());
        };
        match parent.is_some_and(|parent| self.is_signed_for(parent, object, set, sent)) {
            true => Ok(()),
            false => Err(Refusal::new(
                "parent_claimed",
                "the annotation `tollgate.dev/parent` is not of the Application that writes; leave it out",
            )),
        }
    }

    fn is_signed_for(&self, parent: &IndexedApplication, object: &WrittenObject, set: &Value, text: &str) -> bool {
        parent_of(self.policies(), &object.name, set, text).is_ok_and(|signed| signed == deployed(parent))
    }
}

fn deployed(parent: &IndexedApplication) -> DeployedBy {
    DeployedBy {
        application: parent.application.name.clone(),
        project: parent.application.project.clone(),
    }
}

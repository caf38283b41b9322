//! Everybody who writes: people, and Argo CD's and Kubernetes' components as they behave.
//!
//! Source: Argo CD 3.5.7: `controller/sync.go`, `controller/state.go` (local manifests keep their
//! tracking id where they name a namespace), `applicationset/controllers`, `server/application`
//! (`PatchResource` asks for the rights on the parent).

use serde_json::{Value, json};

use super::objects::{Kind, NAMESPACE, claim, field, generate, owner, owner_uids, project_of, set_claim};
use super::oracle::{self, Effect};
use super::rights::{Entity, Responsible, Right, account_of, check, has_row};
use super::webhooks::{Request, Writer};
use super::world::{CLAIM, COLLECTOR, CONTROLLER, GATEWAY, Installation, SERVER, SET_CONTROLLER, Stored, World};
use super::writes::{Change, LocalClaim, Operation, Target, Write, changed};
use test_support::token;
use test_support::world::SESSION_KEY;

/// What went wrong.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    /// What kind of write it was, and what it lacked. Violations that are alike have the same.
    pub(super) rule: String,
    pub(super) detail: String,
}

/// A sequence as it runs.
pub(super) struct Run<'a> {
    pub(super) installation: &'a mut Installation,
    pub(super) world: World,
    pub(super) violations: Vec<Violation>,
    /// Who tried each write, and why it was refused, if it was.
    pub(super) tried: Vec<(&'static str, Result<(), String>)>,
}

/// One write of one object.
struct Attempt {
    actor: &'static str,
    writer: String,
    target: (Kind, String),
    after: Option<Value>,
    responsible: Responsible,
    /// Who answers for what is collected once the object is gone. `None`: the same.
    cascade: Option<Responsible>,
    /// Who answers for the whole specification, even if it is unchanged.
    author: Option<Responsible>,
    promise: Promise,
}

/// The ApplicationSet controller, for a set without an author, for one with the statement of one, and
/// where that came after the specification.
const RECONCILE: &str = "reconcile";
const RECONCILE_SIGNED: &str = "reconcile of a signed set";
const RECONCILE_SIGNED_LATER: &str = "reconcile of a set that was signed later";

/// What must not happen to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    None,
    /// It is not refused.
    Stored,
    /// It is stored without a review.
    Unasked,
}

impl Run<'_> {
    pub(super) async fn perform(&mut self, write: Write) {
        match write {
            Write::Kubectl { user, target, change } => self.kubectl(user, target, change).await,
            Write::Server { user, target, change } => self.server(user, target, change).await,
            Write::Resource {
                user,
                parent,
                child,
                change,
            } => self.resource(user, parent, child, change).await,
            Write::Git { parent, target, change } => self.git(parent, target, change).await,
            Write::Local {
                user,
                parent,
                target,
                change,
                claim,
                by_kubectl,
            } => {
                let manifest = self.local_manifest(parent, target, change, claim);
                self.local((user, by_kubectl), parent, target, manifest).await;
            }
            Write::Prune { parent, target } => self.prune(parent, target).await,
            Write::Tollgate { user, set, spec } => self.tollgate(user, (set, Change::Set(spec))).await,
            Write::Reconcile { set } => self.reconcile(set).await,
            Write::Collect => self.collect().await,
            Write::Compare { application } => self.compare(application).await,
            Write::Progress { application } => self.progress(application).await,
            Write::Automate { application } => self.automate(application).await,
        }
    }

    async fn kubectl(&mut self, user: &'static str, target: Target, change: Change) {
        let Some(after) = changed(&self.world, target, change) else {
            return;
        };
        self.attempt(Attempt::new("kubectl", user, target, after, Responsible::person(user)))
            .await;
    }

    /// argocd-server writes what Argo CD's RBAC permits, and nothing else of an object than its API
    /// has.
    async fn server(&mut self, user: &'static str, target: Target, change: Change) {
        let has_no_api = matches!(
            change,
            Change::Orphan
                | Change::State(_)
                | Change::Statements(_)
                | Change::Operation(
                    Operation::Empty | Operation::Automated | Operation::End | Operation::AsSomebodyElse
                )
        );
        let Some(mut after) = changed(&self.world, target, change).filter(|_| !has_no_api) else {
            return;
        };
        if let (Change::Operation(_), Some(after)) = (change, &mut after) {
            if self.world.object(target.0, target.1).is_none() {
                return;
            }
            after["operation"]["initiatedBy"] = json!({"username": user});
        }
        let has_template = |set: &Value| super::objects::template_project(set).contains("{{");
        if target.0 == Kind::ApplicationSet && after.as_ref().is_some_and(has_template) {
            return;
        }
        let responsible = Responsible::person(user);
        let effect = Effect {
            kind: target.0,
            name: target.1,
            after: after.as_ref(),
            responsible: &responsible,
        };
        let stored = self.world.object(target.0, target.1);
        let is_templated = target.0 == Kind::ApplicationSet && stored.is_some_and(has_template);
        if oracle::judge(&self.world, effect).is_err() || (is_templated && user != "admin") {
            return;
        }
        let attempt = Attempt::new("argocd-server", SERVER, target, after, responsible);
        // Argo CD's RBAC has judged the deletion with everything that follows from it.
        let cascade = Some(Responsible::system());
        self.attempt(Attempt { cascade, ..attempt }).await;
    }

    /// argocd-server asks for the rights on the parent, and writes with its own account, or with that
    /// of the parent if impersonation is on.
    async fn resource(&mut self, user: &'static str, parent: &str, child: Target, change: Change) {
        // argocd-server takes any name of who started an operation from those who may change the child.
        if matches!(
            change,
            Change::Operation(Operation::AsSomebodyElse | Operation::Automated)
        ) {
            return;
        }
        let by_label = self.world.settings.by_label;
        let Some(owner) = self.world.object(Kind::Application, parent) else {
            return;
        };
        let Some(stored) = self.world.object(child.0, child.1) else {
            return;
        };
        let Some(after) = changed(&self.world, child, change) else {
            return;
        };
        let action = if after.is_some() { "update/*" } else { "delete/*" };
        let is_permitted = has_row(
            user,
            &Right {
                resource: "applications",
                action,
                project: project_of(owner).to_owned(),
            },
        );
        if claim(by_label, stored) != Some(parent) || !is_permitted {
            return;
        }
        let (writer, responsible) = match (
            self.world.settings.impersonation,
            account_of(&self.world.settings, owner),
        ) {
            (false, _) => (SERVER, Responsible::person(user)),
            // Who may change the objects of an Application acts as its account.
            (true, Some(account)) => (
                account,
                Responsible(vec![vec![Entity::Person(user), Entity::Parent(parent.to_owned())]]),
            ),
            (true, None) => return,
        };
        if !self.front_passes(user, parent, child, after.as_ref()).await {
            self.tried
                .push(("resource", Err("the front of Argo CD refuses the call".to_owned())));
            return;
        }
        self.attempt(Attempt::new("resource", writer, child, after, responsible))
            .await;
    }

    /// Whether the front of Argo CD sends a call about an object on to argocd-server.
    async fn front_passes(&self, user: &str, parent: &str, (kind, name): Target, after: Option<&Value>) -> bool {
        let query = format!(
            "name={parent}&appNamespace={NAMESPACE}&namespace={NAMESPACE}&resourceName={name}&version=v1alpha1&\
             group=argoproj.io&kind={}&patchType=application%2Fmerge-patch%2Bjson",
            kind.name()
        );
        let url = format!(
            "http://{}/api/v1/applications/{parent}/resource?{query}",
            self.installation.address()
        );
        let http = self.installation.http();
        let request = match after {
            Some(after) => http.post(url).json(&after.to_string()),
            None => http.delete(url).header("content-type", "application/json"),
        };
        let request = request.bearer_auth(token::session(SESSION_KEY, user));
        request.send().await.unwrap().status().is_success()
    }

    /// The account by which an Application is synced in this cluster. `None` if it is not.
    fn sync_account(&self, parent: &str) -> Option<&'static str> {
        let application = self.world.object(Kind::Application, parent)?;
        if application["spec"]["destination"]["server"] != super::objects::IN_CLUSTER {
            return None;
        }
        match self.world.settings.impersonation {
            true => account_of(&self.world.settings, application),
            false => Some(CONTROLLER),
        }
    }

    async fn git(&mut self, parent: &str, target: Target, change: Change) {
        // A deletion is a prune, and the controller sets the claim.
        if matches!(change, Change::Delete | Change::Claim(_)) {
            return;
        }
        let Some(account) = self.sync_account(parent) else {
            return;
        };
        let Some(Some(mut manifest)) = changed(&self.world, target, change) else {
            return;
        };
        set_claim(self.world.settings.by_label, &mut manifest, parent);
        remember(&mut manifest);
        let attempt = Attempt::deployed("git", account, target, manifest, parent);
        self.attempt(attempt).await;
    }

    fn local_manifest(&self, parent: &str, target: Target, change: Change, local: LocalClaim) -> Option<Value> {
        let mut manifest = changed(&self.world, target, change)??;
        match local {
            LocalClaim::Kept => {}
            LocalClaim::Own => set_claim(self.world.settings.by_label, &mut manifest, parent),
            LocalClaim::Forged(other) => set_claim(self.world.settings.by_label, &mut manifest, other),
        }
        Some(manifest)
    }

    /// A sync with manifests of somebody who may have them.
    async fn local(
        &mut self,
        (user, by_kubectl): (&'static str, bool),
        parent: &'static str,
        target: Target,
        manifest: Option<Value>,
    ) {
        let (Some(mut manifest), Some(account)) = (manifest, self.sync_account(parent)) else {
            return;
        };
        let Some(application) = self.world.object(Kind::Application, parent) else {
            return;
        };
        let project = project_of(application);
        let needed = ["sync", "override"].map(|action| Right::new(Kind::Application, action, project));
        if !needed.iter().all(|right| has_row(user, right)) || field(Some(application), "/operation").is_some() {
            return;
        }
        remember(&mut manifest);
        let mut sent = manifest.clone();
        for key in ["uid", "managedFields"] {
            sent["metadata"].as_object_mut().unwrap().remove(key);
        }
        sent.as_object_mut().unwrap().remove("status");
        let mut started = application.clone();
        started["operation"] = json!({"initiatedBy": {"username": user}, "sync": {"manifests": [sent.to_string()]}});
        let writer = if by_kubectl { user } else { SERVER };
        let start = Attempt::new(
            "local",
            writer,
            (Kind::Application, parent),
            Some(started),
            Responsible::person(user),
        );
        if !self.attempt(start).await {
            return;
        }
        let attempt = Attempt::deployed("local", account, target, manifest, parent);
        self.attempt(attempt).await;
        self.progress(parent).await;
        self.progress(parent).await;
    }

    async fn prune(&mut self, parent: &str, target: Target) {
        let Some(account) = self.sync_account(parent) else {
            return;
        };
        let Some(stored) = self.world.stored(target.0, target.1) else {
            return;
        };
        if claim(self.world.settings.by_label, &stored.object) != Some(parent) {
            return;
        }
        // Who said that it belongs to the Application has it deleted, too.
        let responsible = Responsible::parent(parent).and(&stored.origins[CLAIM]);
        self.attempt(Attempt::new("prune", account, target, None, responsible))
            .await;
    }

    /// The gateway's own API asks for the right to the set and to every Application.
    async fn tollgate(&mut self, user: &'static str, (name, change): (&'static str, Change)) {
        let target = (Kind::ApplicationSet, name);
        let Some(Some(set)) = changed(&self.world, target, change) else {
            return;
        };
        let responsible = Responsible::person(user);
        let effect = Effect {
            kind: target.0,
            name,
            after: Some(&set),
            responsible: &responsible,
        };
        let mut needed = Vec::new();
        for generated in generate(&set) {
            let project = project_of(&generated).to_owned();
            let stored = self
                .world
                .object(Kind::Application, super::objects::name_of(&generated));
            needed.push(Right::new(
                Kind::Application,
                if stored.is_some() { "update" } else { "create" },
                project,
            ));
            needed.extend(stored.map(|stored| Right::new(Kind::Application, "update", project_of(stored))));
        }
        let stored = self.world.object(target.0, name);
        let uid = stored.and_then(|set| set["metadata"]["uid"].as_str());
        let owned = self.world.objects_of(Kind::Application).into_iter();
        let owned = owned.filter(|(_, one)| uid.is_some_and(|uid| owner_uids(one).contains(&uid)));
        let kept: Vec<Value> = generate(&set);
        let gone = owned.filter(|(name, _)| !kept.iter().any(|one| super::objects::name_of(one) == *name));
        needed.extend(gone.map(|(_, one)| Right::new(Kind::Application, "delete", project_of(one))));
        let permitted = oracle::judge(&self.world, effect).is_ok() && check(&self.world, &responsible, &needed).is_ok();
        // An operation in the patch, and tracking ids, are refused there.
        let text = set["spec"].to_string();
        if !permitted || text.contains("operation") || text.contains("tracking-id") {
            return;
        }
        let writer = Writer::new(user);
        let before = self.world.object(target.0, name).cloned();
        let request = Request {
            writer: &writer,
            kind: target.0,
            name,
            before: before.as_ref(),
            after: Some(set),
        };
        let signed = self.installation.sign(request).await;
        let attempt = Attempt::new("tollgate", GATEWAY, target, signed, responsible.clone());
        self.attempt(Attempt {
            author: Some(responsible),
            ..attempt
        })
        .await;
    }

    async fn reconcile(&mut self, name: &'static str) {
        let Some(stored) = self.world.stored(Kind::ApplicationSet, name).cloned() else {
            return;
        };
        let (set, responsible) = (stored.object, &stored.origins["spec"]);
        let uid = set["metadata"]["uid"].as_str().unwrap();
        let actor = match author_of(&set).is_some() {
            true if stored.is_signed_later => RECONCILE_SIGNED_LATER,
            true => RECONCILE_SIGNED,
            false => RECONCILE,
        };
        let generated = generate(&set);
        let names: Vec<String> = generated
            .iter()
            .map(|one| super::objects::name_of(one).to_owned())
            .collect();
        for (wanted, name) in generated.into_iter().zip(&names) {
            let target = (Kind::Application, name.clone());
            let after = match self.world.object(Kind::Application, name) {
                None => wanted,
                Some(existing) => {
                    let owners = owner_uids(existing);
                    if owners.iter().any(|other| *other != uid) {
                        // It belongs to another set.
                        continue;
                    }
                    let mut after = existing.clone();
                    after["spec"] = wanted["spec"].clone();
                    for part in ["labels", "annotations"] {
                        after["metadata"][part] = wanted["metadata"][part].clone();
                    }
                    after["metadata"]["ownerReferences"] = json!([owner(&set)]);
                    if !wanted["operation"].is_null() {
                        after["operation"] = wanted["operation"].clone();
                    }
                    after
                }
            };
            self.attempt(Attempt::of(
                actor,
                SET_CONTROLLER,
                target,
                Some(after),
                responsible.clone(),
            ))
            .await;
        }
        let all = self.world.objects_of(Kind::Application).into_iter();
        let gone = all.filter(|(name, one)| owner_uids(one).contains(&uid) && !names.iter().any(|kept| kept == name));
        let gone: Vec<String> = gone.map(|(name, _)| name.to_owned()).collect();
        for name in gone {
            let target = (Kind::Application, name);
            self.attempt(Attempt::of(actor, SET_CONTROLLER, target, None, responsible.clone()))
                .await;
        }
    }

    /// Deletes what has owners of which none exists.
    async fn collect(&mut self) {
        let all = self.world.objects_of(Kind::Application).into_iter();
        let orphans = all.filter(|(_, object)| {
            let owners = owner_uids(object);
            !owners.is_empty() && !owners.iter().any(|uid| self.world.has_uid(uid))
        });
        let orphans: Vec<String> = orphans.map(|(name, _)| name.to_owned()).collect();
        for name in orphans {
            let stored = self.world.stored(Kind::Application, &name).unwrap();
            let deleters = owner_uids(&stored.object).into_iter();
            let responsible = deleters
                .map(|uid| self.world.deleted.get(uid).unwrap_or(&stored.origins["owners"]).clone())
                .reduce(|one, other| one.and(&other));
            let attempt = Attempt::of(
                "collector",
                COLLECTOR,
                (Kind::Application, name),
                None,
                responsible.unwrap(),
            );
            self.attempt(attempt).await;
        }
    }

    /// A comparison. It must need no gateway: Argo CD makes thousands of them in a minute.
    async fn compare(&mut self, name: &'static str) {
        let Some(mut after) = self.world.object(Kind::Application, name).cloned() else {
            return;
        };
        let status = if after["status"]["sync"]["status"] == "Synced" {
            "OutOfSync"
        } else {
            "Synced"
        };
        after["status"]["sync"]["status"] = json!(status);
        if let Some(annotations) = after["metadata"]["annotations"].as_object_mut() {
            annotations.remove("argocd.argoproj.io/refresh");
        }
        self.controller(name, after, Promise::Unasked).await;
    }

    async fn progress(&mut self, name: &str) {
        let Some(mut after) = self.world.object(Kind::Application, name).cloned() else {
            return;
        };
        let Some(operation) = field(Some(&after), "/operation").cloned() else {
            return;
        };
        if after["status"]["operationState"]["phase"] == "Running" {
            after.as_object_mut().unwrap().remove("operation");
            after["status"]["operationState"]["phase"] = json!("Succeeded");
        } else {
            after["status"]["operationState"] =
                json!({"phase": "Running", "startedAt": "2026-01-02T00:00:00Z", "operation": operation});
        }
        self.controller(name, after, Promise::Unasked).await;
    }

    async fn automate(&mut self, name: &'static str) {
        let Some(mut after) = self.world.object(Kind::Application, name).cloned() else {
            return;
        };
        if field(Some(&after), "/operation").is_some() {
            return;
        }
        after["operation"] = json!({"initiatedBy": {"automated": true}, "sync": {"revision": "main"}});
        self.controller(name, after, Promise::Stored).await;
    }

    async fn controller(&mut self, name: &str, after: Value, promise: Promise) {
        let target = (Kind::Application, name.to_owned());
        let attempt = Attempt::of("controller", CONTROLLER, target, Some(after), Responsible::system());
        self.attempt(Attempt { promise, ..attempt }).await;
    }

    /// Writes an object as an API server does. Returns whether it is stored. What the oracle objects
    /// to is not: the sequence goes on as if it had been refused.
    async fn attempt(&mut self, mut attempt: Attempt) -> bool {
        let (kind, name) = attempt.target.clone();
        let before = self.world.object(kind, &name).cloned();
        if let Some(after) = &mut attempt.after {
            normalize(after);
            if before.is_none() {
                after["metadata"]["uid"] = json!(self.world.next_uid());
            }
        }
        if attempt.after == before {
            return true;
        }
        let writer = Writer::new(&attempt.writer);
        let request = Request {
            writer: &writer,
            kind,
            name: &name,
            before: before.as_ref(),
            after: attempt.after.clone(),
        };
        let (after, is_asked) = match self.installation.admit(&self.world, request).await {
            Ok(admitted) => admitted,
            Err(text) => {
                if attempt.promise != Promise::None {
                    self.object_to(&attempt, ": must be stored", &text);
                }
                self.tried.push((attempt.actor, Err(text)));
                return false;
            }
        };
        if after == before {
            // A webhook has taken out all that was new.
            return true;
        }
        if is_asked && attempt.promise == Promise::Unasked {
            self.object_to(&attempt, ": must not be judged", "");
        }
        let effect = Effect {
            kind,
            name: &name,
            after: after.as_ref(),
            responsible: &attempt.responsible,
        };
        let origins = match oracle::judge(&self.world, effect) {
            Ok(origins) => origins,
            Err(excess) => {
                let detail = format!(
                    "{} may not: {}; before: {}; after: {}",
                    excess.who,
                    excess.in_projects,
                    text(before.as_ref()),
                    text(after.as_ref())
                );
                let unasked = if is_asked { "" } else { " without a review" };
                let parts = changed_parts(before.as_ref(), after.as_ref());
                self.object_to(&attempt, &format!("{parts}{unasked}: {}", excess.missing), &detail);
                return false;
            }
        };
        if let (None, Some(before)) = (&after, &before) {
            let uid = before["metadata"]["uid"].as_str().unwrap().to_owned();
            self.world
                .deleted
                .insert(uid, attempt.cascade.unwrap_or(attempt.responsible.clone()));
        }
        let changes =
            |read: fn(&Value) -> Option<&Value>| before.as_ref().and_then(read) != after.as_ref().and_then(read);
        let is_signed_later = match self.world.stored(kind, &name) {
            Some(stored) if !changes(|set| set.get("spec")) => stored.is_signed_later || changes(author_of),
            Some(_) | None => false,
        };
        let mut stored = after.map(|object| Stored {
            object,
            origins,
            is_signed_later,
        });
        if let (Some(stored), Some(author)) = (&mut stored, attempt.author) {
            stored.origins.insert("spec", author);
        }
        self.world.put(kind, &name, stored);
        self.installation.publish(&self.world).await;
        self.tried.push((attempt.actor, Ok(())));
        true
    }

    fn object_to(&mut self, attempt: &Attempt, missing: &str, detail: &str) {
        let (kind, name) = &attempt.target;
        let verb = match (&attempt.after, self.world.object(*kind, name)) {
            (None, _) => "deletes",
            (Some(_), None) => "creates",
            (Some(_), Some(_)) => "updates",
        };
        self.violations.push(Violation {
            rule: format!("{} {verb} {}{missing}", attempt.actor, kind.name()),
            detail: format!("`{name}` by {}: {detail}", attempt.writer),
        });
    }
}

impl Attempt {
    fn new(
        actor: &'static str,
        writer: &str,
        (kind, name): Target,
        after: Option<Value>,
        responsible: Responsible,
    ) -> Self {
        Self::of(actor, writer, (kind, name.to_owned()), after, responsible)
    }

    /// What a parent deploys. Its manifest has the whole specification, even where it is as before.
    fn deployed(actor: &'static str, writer: &str, target: Target, manifest: Value, parent: &str) -> Self {
        let responsible = Responsible::parent(parent);
        Self {
            author: Some(responsible.clone()),
            ..Self::new(actor, writer, target, Some(manifest), responsible)
        }
    }

    fn of(
        actor: &'static str,
        writer: &str,
        target: (Kind, String),
        after: Option<Value>,
        responsible: Responsible,
    ) -> Self {
        Self {
            actor,
            writer: writer.to_owned(),
            target,
            after,
            responsible,
            cascade: None,
            author: None,
            promise: Promise::None,
        }
    }
}

/// The statement of the author of a set.
fn author_of(set: &Value) -> Option<&Value> {
    set.pointer("/metadata/annotations/tollgate.dev~1author")
}

/// What an update changes, in brackets.
fn changed_parts(before: Option<&Value>, after: Option<&Value>) -> String {
    if before.is_none() || after.is_none() {
        return String::new();
    }
    let pointers = [
        "/spec",
        "/operation",
        "/status",
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/ownerReferences",
    ];
    let changed = pointers
        .iter()
        .filter(|pointer| field(before, pointer) != field(after, pointer));
    let changed: Vec<&str> = changed.filter_map(|pointer| pointer.rsplit('/').next()).collect();
    format!(" ({})", changed.join(", "))
}

/// What a client-side apply remembers of what it applied.
fn remember(manifest: &mut Value) {
    let applied = json!({"spec": manifest["spec"]}).to_string();
    manifest["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(applied);
}

/// Fields that are null are not stored.
fn normalize(object: &mut Value) {
    for pointer in ["", "/metadata"] {
        let members = object.pointer_mut(pointer).and_then(Value::as_object_mut);
        members.unwrap().retain(|_, value| !value.is_null());
    }
}

fn text(object: Option<&Value>) -> String {
    object.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

//! Creates, changes and deletes ApplicationSets, and previews what that would do.
//!
//! Security: only approved plans are written, and a preview writes nothing.
//!
//! Invariant: a separate task carries out a plan and holds the record. Neither ends with the client.

use std::sync::Arc;

use serde_json::Value;

use crate::applicationsets::answer::{self, Preview};
use crate::applicationsets::apply::{self, Options};
use crate::applicationsets::front_state::GenerationContext;
use crate::applicationsets::request::{Error, Query};
use crate::applicationsets::{ApplicationSetHandler, ReadScope, read};
use crate::set_author;
use tollgate_applicationset::ApplicationSet;
use tollgate_applicationset::plan::{Action, Plan, StoredState, is_equivalent, replaced, upserted};
use tollgate_applicationset_rights::{self, self as permit, ApprovedPlan, Operation, SetOperation, SetPermit};
use tollgate_config::ApplicationSetChecks;
use tollgate_front::Denial;
use tollgate_objects::ObjectName;
use tollgate_proxy::record::{CheckRecord, Outcome, Stage};
use tollgate_state::write::{self, ObjectKey, WritableKind, resource_version};

/// Most attempts of an upsert when other writes come in between.
///
/// Source: Argo CD, `server/applicationset`, `updateAppSet`.
const MAX_ATTEMPTS: u32 = 10;

impl ApplicationSetHandler<'_, '_> {
    /// Creates a set, or with `upsert` changes the stored one.
    pub(super) async fn create(&mut self, query: &Query, set: Value) -> Result<Value, Denial> {
        let sent = self.decode_sent(set)?;
        if query.dry_run {
            return self.preview_upsert(sent, answer::dry_run).await;
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.try_create(&sent, query).await {
                Err(denial) if query.upsert && attempts < MAX_ATTEMPTS && is_race(&denial) => self.checks.clear(),
                done => return done,
            }
        }
    }

    async fn try_create(&mut self, sent: &ApplicationSet, query: &Query) -> Result<Value, Denial> {
        // Determined twice: by the snapshot, for `precheck`, and by what is stored.
        let (operation, set) = self.creation(sent, query.upsert, &self.latest_known(&sent.name)?)?;
        let set_operation = SetOperation {
            operation,
            name: &sent.name,
            sent: Some(&set),
        };
        let existing = self.read_existing(set_operation, ReadScope::Namespace).await?;
        let (operation, set) = self.creation(sent, query.upsert, &existing)?;
        let set_permit = self.authorize_operation(operation, &sent.name, Some(&set), &existing)?;
        match existing.set {
            // A set that lacks its author is written although it is unchanged, to be signed.
            Some(stored) if operation == Operation::CreateUnchanged && !self.lacks_author(&sent.name, &stored) => {
                Ok(answer::stored(stored, Action::Keep, Value::Array(Vec::new())))
            }
            _ => self.carry_out(set_permit, set, existing, query.deletions).await,
        }
    }

    /// Whether the admission webhook needs to know the author of a stored set, and does not.
    fn lacks_author(&self, name: &ObjectName, stored: &Value) -> bool {
        let policies = &self.snapshot.policies;
        policies.author_key.is_some() && !set_author::is_signed(policies, name, stored)
    }

    /// Determines which operation creating a set amounts to, and the resulting set.
    fn creation(
        &self,
        sent: &ApplicationSet,
        upsert: bool,
        existing: &StoredState,
    ) -> Result<(Operation, ApplicationSet), Denial> {
        // SECURITY: callers who may not see the stored set do not learn whether theirs equals it.
        let is_shown = self.checks() == ApplicationSetChecks::Argocd || self.may_see(&sent.name, existing)?;
        Ok(match &existing.set {
            None => (Operation::Create, sent.clone()),
            Some(stored) if is_shown && is_equivalent(stored, &sent.object) => {
                (Operation::CreateUnchanged, sent.clone())
            }
            Some(stored) if upsert => (Operation::Upsert, read(upserted(stored, &sent.object))?),
            Some(_) => (Operation::Create, sent.clone()),
        })
    }

    pub(super) async fn update(&mut self, query: &Query, mut set: Value) -> Result<Value, Denial> {
        let target = self.object_name(query);
        // The path counts where the object gives no name or namespace.
        if let Some(metadata) = set.get_mut("metadata").and_then(Value::as_object_mut) {
            for (key, value) in [("name", &target.name), ("namespace", &target.namespace)] {
                let own = metadata.get(key).and_then(Value::as_str).unwrap_or_default();
                if own.is_empty() {
                    metadata.insert(key.to_owned(), value.as_str().into());
                }
            }
        }
        let sent = self.decode_sent(set)?;
        if sent.name != target {
            return Err(Error::Renamed {
                found: format!("{}/{}", sent.name.namespace, sent.name.name),
                named: format!("{}/{}", target.namespace, target.name),
            }
            .into());
        }
        if query.dry_run {
            let existing = self.existing_for_preview(&sent).await?;
            let stored = existing.set.as_ref().ok_or_else(|| Error::not_found(&target))?;
            let set = read(replaced(stored, &sent.object))?;
            check_version(&sent, stored)?;
            return self.preview(set, existing, answer::dry_run).await;
        }
        let replacing = |existing: &StoredState| match &existing.set {
            Some(stored) => read(replaced(stored, &sent.object)),
            None => Ok(sent.clone()),
        };
        let expected = replacing(&self.latest_known(&target)?)?;
        let set_operation = SetOperation {
            operation: Operation::Update,
            name: &target,
            sent: Some(&expected),
        };
        let existing = self.read_existing(set_operation, ReadScope::Namespace).await?;
        let set = replacing(&existing)?;
        let set_permit = self.authorize_operation(Operation::Update, &target, Some(&set), &existing)?;
        let stored = existing.set.as_ref().ok_or_else(|| Error::not_found(&target))?;
        // After the permissions, because a conflict tells that the set exists.
        check_version(&sent, stored)?;
        self.carry_out(set_permit, set, existing, query.deletions).await
    }

    pub(super) async fn generate(&mut self, set: Value) -> Result<Value, Denial> {
        let sent = self.decode_sent(set)?;
        self.preview_upsert(sent, answer::generated).await
    }

    pub(super) async fn delete(&mut self, query: &Query) -> Result<Value, Denial> {
        let name = self.object_name(query);
        let checks = self.checks();
        let set_operation = SetOperation {
            operation: Operation::Delete,
            name: &name,
            sent: None,
        };
        let existing = match checks {
            ApplicationSetChecks::Generated => self.read_existing(set_operation, ReadScope::Namespace).await?,
            // Argo CD does not check the namespace here.
            ApplicationSetChecks::Argocd => self.read_stored_objects(set_operation, ReadScope::Namespace).await?,
        };
        let set_permit = self.authorize_operation(Operation::Delete, &name, None, &existing)?;
        let stored = existing.set.clone().ok_or_else(|| Error::not_found(&name))?;
        let mut set = ApplicationSet::read_stored(stored).map_err(Error::Decode)?;
        set.name = name;
        let cascade = query.cascade.unwrap_or_default();
        let planned = self
            .run_and_record(move |context, checks| {
                let plan = Plan::deletion(&set, existing, cascade);
                approve(context, &set_permit, plan, checks)
            })
            .await?;
        let written = self.write(planned.approved, query.deletions).await?;
        Ok(match checks {
            ApplicationSetChecks::Generated => answer::deleted(planned.changes, &written.left),
            ApplicationSetChecks::Argocd => serde_json::json!({}),
        })
    }

    /// Reads the stored objects, but leaves out a set that the caller may not see: a preview then
    /// looks as if the set did not exist.
    async fn existing_for_preview(&mut self, sent: &ApplicationSet) -> Result<StoredState, Denial> {
        let set_operation = SetOperation {
            operation: Operation::Preview,
            name: &sent.name,
            sent: Some(sent),
        };
        let mut existing = self.read_existing(set_operation, ReadScope::Namespace).await?;
        if !self.may_see(&sent.name, &existing)? {
            existing.set = None;
        }
        Ok(existing)
    }

    /// Previews a set that is created, or stored over the one that the caller may see.
    async fn preview_upsert(&mut self, sent: ApplicationSet, answer: fn(Preview) -> Value) -> Result<Value, Denial> {
        let existing = self.existing_for_preview(&sent).await?;
        let set = match &existing.set {
            Some(stored) => read(upserted(stored, &sent.object))?,
            None => sent,
        };
        self.preview(set, existing, answer).await
    }

    /// Previews what a set would generate and change, in the form that `answer` builds.
    async fn preview(
        &mut self,
        set: ApplicationSet,
        existing: StoredState,
        answer: fn(Preview) -> Value,
    ) -> Result<Value, Denial> {
        let name = set.name.clone();
        let set_permit = self.authorize_operation(Operation::Preview, &name, Some(&set), &existing)?;
        self.run_and_record(move |context, checks| {
            let applications = context.generate(&set_permit, &set)?;
            let plan = Plan::new(&set, existing, applications.clone());
            let review = context.authorizer.review(&set_permit, plan, checks);
            Ok(answer(Preview {
                set: set.object,
                applications,
                review: review.map_err(Error::Denied)?,
            }))
        })
        .await
    }

    /// Runs work off the threads that serve. The checks that it makes go into the record.
    async fn run_and_record<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&GenerationContext<'_>, &mut Vec<CheckRecord>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Denial> {
        // The checks so far are recorded even if the work never begins.
        let mut checks = self.checks.clone();
        let (snapshot, caller) = (Arc::clone(self.snapshot), Arc::clone(&self.caller));
        let done = self
            .front_state
            .run_blocking(snapshot, caller, self.principal.limit_key(), move |context| {
                let done = work(context, &mut checks);
                Ok((done, checks))
            });
        let done = done.await;
        self.record.finish_stage(Stage::Authorize);
        let (done, checks) = done?;
        self.checks = checks;
        Ok(done?)
    }

    async fn carry_out(
        &mut self,
        set_permit: SetPermit,
        set: ApplicationSet,
        existing: StoredState,
        deletions: Option<u64>,
    ) -> Result<Value, Denial> {
        let checks = self.checks();
        let planned = self
            .run_and_record(move |context, recorded_checks| {
                let plan = match checks {
                    ApplicationSetChecks::Generated => {
                        let applications = context.generate(&set_permit, &set)?;
                        Plan::new(&set, existing, applications)
                    }
                    ApplicationSetChecks::Argocd => Plan::set_only(&set, existing.set),
                };
                approve(context, &set_permit, plan, recorded_checks)
            })
            .await?;
        let written = self.write(planned.approved, deletions).await?;
        let stored = written.set.or(planned.before).unwrap_or_default();
        Ok(answer::stored(stored, planned.action, planned.changes))
    }

    /// Carries out an approved plan.
    ///
    /// The whole sequence continues, with its record, if the caller goes away. A set without its
    /// Applications, or a record that says nothing was done, would be worse than a response that
    /// nobody reads.
    async fn write(&mut self, approved: ApprovedPlan, deletions: Option<u64>) -> Result<apply::ApplyOutcome, Denial> {
        let settings = self.snapshot.policies.config.application_sets.as_ref();
        let options = Options {
            max_deletions: settings.map_or(0, |settings| settings.max_deletions),
            confirmed: deletions,
            clock: self.front_state.clock.clone(),
        };
        // The task below holds it until it ends: `finish` waits for all of these.
        let write_permit = self.front_state.acquire_write().await?;
        let checks = self.checks.clone();
        self.record.note(|record| record.checks = checks.into());
        let mut record = self.record.lend();
        let (writer, front_state, reader) = (self.writer.clone(), Arc::clone(self.front_state), self.reader.take());
        let name = approved.plan().set.name.clone();
        let was = self.snapshot.policies.resources.application_sets.get(&name).cloned();
        let written = tokio::spawn(async move {
            let _held = (write_permit, reader);
            let applications = approved.applications().clone();
            let done = apply::apply(&writer, approved, &options).await;
            record.finish_stage(Stage::Forward);
            let done = done.map_err(|error| Denial::from(Error::Apply(error)));
            // If the client is gone, nobody takes the record back, and this is the outcome with which it is closed.
            match &done {
                Ok(outcome) => {
                    let now = outcome.set.clone().map(Arc::new);
                    front_state.recent_writes.record_write(name, was, now, applications);
                    record.set_outcome_on_drop(Outcome::Allowed, "allowed", String::new());
                }
                Err(denial) => {
                    record.set_outcome_on_drop(denial.outcome, denial.reason, denial.detail());
                }
            }
            (done, record)
        });
        let (done, record) = written.await.map_err(|_| Error::Broken)?;
        self.record.restore(record);
        done
    }
}

struct Planned {
    approved: ApprovedPlan,
    changes: Value,
    action: Action,
    before: Option<Value>,
}

fn approve(
    context: &GenerationContext<'_>,
    set_permit: &SetPermit,
    plan: Plan,
    checks: &mut Vec<CheckRecord>,
) -> Result<Planned, Error> {
    let changes = answer::changes(&plan);
    let before = plan.set.before.clone();
    let approved = context.authorizer.authorize_plan(set_permit, plan, checks);
    let mut approved = approved.map_err(Error::Denied)?;
    approved.set_author(|name, set| context.author_statement(name, set));
    let action = approved.plan().set.action;
    Ok(Planned {
        approved,
        changes,
        action,
        before,
    })
}

/// Compares the version that was sent with the stored one, before work that a conflict would
/// waste.
fn check_version(sent: &ApplicationSet, stored: &Value) -> Result<(), Error> {
    let expected_version = resource_version(&sent.object).ok_or(Error::NoVersion)?;
    match resource_version(stored) {
        Some(found) if found != expected_version => Err(Error::State(write::Error::Conflict {
            key: ObjectKey::of(WritableKind::ApplicationSet, &sent.name),
            expected_version: expected_version.as_str().to_owned(),
            found: found.as_str().to_owned(),
        })),
        Some(_) | None => Ok(()),
    }
}

fn is_race(denial: &Denial) -> bool {
    let failed = match denial.cause() {
        Some(Error::Denied(permit::Error::PlanMismatch)) => return true,
        Some(Error::State(error)) => Some(error),
        Some(Error::Apply(error)) => error.write(),
        Some(_) | None => None,
    };
    matches!(
        failed,
        Some(write::Error::Conflict { .. } | write::Error::AlreadyExists(_))
    )
}

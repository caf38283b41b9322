//! Runs the stages of the API for AppProjects after authentication.
//!
//! Invariant: a change is on disk, or in the cluster, before its response is sent.
//!
//! Security: a project is looked up only after RBAC allowed it.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Response, request};
use serde_json::{Value, json};

use crate::front::{RequestContext, RouteHandler};
use crate::projects::permit::{check, visible};
use crate::projects::preview::{Preview, PreviewRequest};
use crate::projects::route::ProjectRoute;
use crate::projects::summary::{SummaryFilter, SummaryPage};
use crate::projects::update::{CONTENT_BYTES, Error, Update};
use tollgate_front::api::content::{buffer, read};
use tollgate_front::{Denial, api};
use tollgate_objects::ObjectName;
use tollgate_proxy::forward::{Body, LimitPermit};
use tollgate_proxy::record::Stage;
use tollgate_state::write::{ObjectKey, WritableKind, Writer};

pub(crate) mod permit;
pub(crate) mod preview;
pub(crate) mod route;
mod summary;
pub mod update;

impl RouteHandler for ProjectRoute<'_> {
    async fn serve(
        &self,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        context.record.note(|record| record.front = "projects");
        let held = context.gateway.persons.acquire(context.principal.limit_key())?;
        let writer = context.gateway.source.writer().map_err(Error::State)?;
        let document = match self {
            Self::List => match SummaryFilter::read(head.uri.query()).map_err(Error::Content)? {
                Some(filter) => context.summarize_projects(&filter),
                None => context.list_projects(&writer).await,
            },
            Self::Get { name } => context.project(&writer, name).await,
            Self::Update { name } => context.update_project(&writer, name, (head, body)).await,
            Self::Preview { name, is_sent } => {
                let sent = is_sent.then_some((head, body));
                context.preview_project(name, sent, held).await
            }
        };
        Ok(api::json(document?.to_string()))
    }
}

impl RequestContext<'_> {
    fn summarize_projects(&mut self, filter: &SummaryFilter) -> Result<Value, Denial> {
        let policies = &self.snapshot.policies;
        let page = SummaryPage::of(filter, policies, &policies.caller(self.principal));
        self.record.finish_stage(Stage::Authorize);
        Ok(serde_json::to_value(page).unwrap_or_default())
    }

    async fn list_projects(&mut self, writer: &Writer) -> Result<Value, Denial> {
        let caller = self.snapshot.policies.caller(self.principal);
        let names = self.snapshot.policies.resources.projects.keys();
        let shown = visible(&self.snapshot.policies, &caller, names.clone().map(String::as_str));
        self.record.finish_stage(Stage::Authorize);
        let shown = names.zip(shown).filter_map(|(name, shown)| shown.then_some(&**name));
        let shown: BTreeSet<&str> = shown.collect();
        // A caller who may see no project causes no file access and no call.
        if shown.is_empty() {
            return Ok(list_of(WritableKind::AppProject, Vec::new()));
        }
        let namespace = &self.snapshot.policies.config.control_plane_namespace;
        let listed = writer.list(WritableKind::AppProject, namespace).await;
        let mut all = listed.map_err(Error::State)?;
        all.retain(|stored| {
            let name = stored.object.pointer("/metadata/name").and_then(Value::as_str);
            name.is_some_and(|name| shown.contains(name))
        });
        let objects = all.into_iter().map(|stored| stored.object).collect();
        Ok(list_of(WritableKind::AppProject, objects))
    }

    async fn project(&mut self, writer: &Writer, name: &str) -> Result<Value, Denial> {
        self.require_project(&["get"], name)?;
        let stored = writer.read(&self.project_key(name)).await.map_err(Error::State)?;
        Ok(stored.object)
    }

    async fn update_project(
        &mut self,
        writer: &Writer,
        name: &str,
        (head, body): (request::Parts, Body),
    ) -> Result<Value, Denial> {
        // The response shows the project, so the caller must also be allowed to see it.
        self.require_project(&["update", "get"], name)?;
        let content = buffer(body, CONTENT_BYTES).await?;
        let update: Update = read(&head.headers, &content).map_err(Error::Content)?;
        let expected_version = update.base_version()?;
        let key = self.project_key(name);
        let stored = writer.read(&key).await.map_err(Error::State)?;
        let semantics = self.snapshot.policies.config.applications.unwrap_or_default().semantics;
        let updated = update.apply_to(&stored, (&key, &expected_version), semantics)?;
        let stored = writer
            .replace(&key, updated, &expected_version)
            .await
            .map_err(Error::State)?;
        Ok(stored.object)
    }

    /// Shows who acts, or would with the accounts that are sent. It needs no right to change the
    /// project.
    async fn preview_project(
        &mut self,
        name: &str,
        sent: Option<(request::Parts, Body)>,
        held: LimitPermit,
    ) -> Result<Value, Denial> {
        self.require_project(&["get"], name)?;
        let asked: Option<PreviewRequest> = match sent {
            Some((head, body)) => {
                let content = buffer(body, CONTENT_BYTES).await?;
                Some(read(&head.headers, &content).map_err(Error::Content)?)
            }
            None => None,
        };
        let (snapshot, name) = (Arc::clone(&self.snapshot), name.to_owned());
        let caller = snapshot.policies.caller(self.principal);
        let work = move || Preview::of(asked, &name, (&snapshot.policies, &caller));
        let preview = self.gateway.run_blocking(held, work).await??;
        Ok(serde_json::to_value(preview).unwrap_or_default())
    }

    fn project_key(&self, name: &str) -> ObjectKey {
        ObjectKey {
            kind: WritableKind::AppProject,
            name: ObjectName {
                namespace: self.snapshot.policies.config.control_plane_namespace.clone(),
                name: name.to_owned(),
            },
        }
    }

    fn require_project(&mut self, actions: &[&'static str], name: &str) -> Result<(), Error> {
        let policies = &self.snapshot.policies;
        let caller = policies.caller(self.principal);
        let checks: Vec<_> = actions
            .iter()
            .map(|action| check(policies, &caller, action, name))
            .collect();
        let missing = checks.iter().find(|check| !check.allowed).map(|check| check.action);
        self.record.finish_stage(Stage::Authorize);
        self.record.note(|record| {
            record.project = Some(name.to_owned());
            record.checks = checks.into();
        });
        match missing {
            None => Ok(()),
            Some(action) => Err(Error::NotPermitted {
                action,
                name: name.to_owned(),
            }),
        }
    }
}

/// A list of objects, as Argo CD's API has it.
pub(crate) fn list_of(kind: WritableKind, items: Vec<Value>) -> Value {
    let mut list = json!({
        "apiVersion": kind.api_version(),
        "kind": format!("{}List", kind.as_str()),
        "metadata": {},
    });
    if let Some(members) = list.as_object_mut() {
        members.insert("items".to_owned(), items.into());
    }
    list
}

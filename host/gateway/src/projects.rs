//! Runs the stages of the API for AppProjects after authentication.
//!
//! Invariant: a change is on disk, or in the cluster, before its response is sent.
//!
//! Security: a project is looked up only after RBAC allowed it.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, request};
use serde_json::{Value, json};

use crate::front::{Front, RequestContext};
use crate::platform::api::content::{buffer, read};
use crate::projects::permit::{ProjectPermission, check, visible};
use crate::projects::route::ProjectRoute;
use crate::projects::update::{CONTENT_BYTES, Error, Update};
use crate::rejection::Rejection;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::Stage;
use tollgate_state::ObjectName;
use tollgate_state::write::{ObjectKey, WritableKind, Writer};

pub mod permit;
pub mod route;
pub mod update;

impl Front for ProjectRoute<'_> {
    async fn serve(
        &self,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Rejection> {
        context.record.note(|record| record.front = "projects");
        let _held = context.gateway.persons.acquire(context.principal.limit_key())?;
        let writer = context.gateway.source.writer().map_err(Error::State)?;
        let document = match self {
            Self::List => context.list_projects(&writer).await,
            Self::Get { name } => context.project(&writer, name).await,
            Self::Update { name } => context.update_project(&writer, name, (head, body)).await,
        };
        Ok(answer(&document?))
    }
}

impl RequestContext<'_> {
    async fn list_projects(&mut self, writer: &Writer) -> Result<Value, Rejection> {
        let caller = self.snapshot.policies.caller(self.principal);
        let names = self.snapshot.policies.resources.projects.keys();
        let shown = visible(&self.snapshot.policies, &caller, names.clone().map(String::as_str));
        self.record.finish_stage(Stage::Authorize);
        let shown: BTreeSet<&str> = names
            .zip(shown)
            .filter(|(_, shown)| *shown)
            .map(|(name, _)| &**name)
            .collect();
        // A caller who may see no project causes no file access and no call.
        if shown.is_empty() {
            return Ok(list_of(&[]));
        }
        let namespace = &self.snapshot.policies.config.control_plane_namespace;
        let listed = writer.list(WritableKind::AppProject, namespace).await;
        let mut all = listed.map_err(Error::State)?;
        all.retain(|stored| {
            let name = stored.object.pointer("/metadata/name").and_then(Value::as_str);
            name.is_some_and(|name| shown.contains(name))
        });
        let objects: Vec<Value> = all.into_iter().map(|stored| stored.object).collect();
        Ok(list_of(&objects))
    }

    async fn project(&mut self, writer: &Writer, name: &str) -> Result<Value, Rejection> {
        self.require_project(&[ProjectPermission::Get], name)?;
        let stored = writer.read(&self.project_key(name)).await.map_err(Error::State)?;
        Ok(stored.object)
    }

    async fn update_project(
        &mut self,
        writer: &Writer,
        name: &str,
        (head, body): (request::Parts, Body),
    ) -> Result<Value, Rejection> {
        // The response shows the project, so the caller must also be allowed to see it.
        self.require_project(&[ProjectPermission::Update, ProjectPermission::Get], name)?;
        let content = buffer(body, CONTENT_BYTES).await?;
        let update: Update = read(&head.headers, &content).map_err(Error::Content)?;
        let expected_version = update.base_version()?;
        let key = self.project_key(name);
        let stored = writer.read(&key).await.map_err(Error::State)?;
        let semantics = self.snapshot.policies.config.applications.unwrap_or_default().semantics;
        let updated = update.apply_to(&stored, &key, semantics)?;
        let stored = writer
            .replace(&key, updated, &expected_version)
            .await
            .map_err(Error::State)?;
        Ok(stored.object)
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

    fn require_project(&mut self, permissions: &[ProjectPermission], name: &str) -> Result<(), Error> {
        let caller = self.snapshot.policies.caller(self.principal);
        let checks = permissions
            .iter()
            .map(|permission| check(&self.snapshot.policies, &caller, *permission, name));
        let checks: Vec<_> = checks.collect();
        let missing = checks.iter().zip(permissions).find(|(check, _)| !check.allowed);
        let action = missing.map(|(_, permission)| permission.action());
        self.record.finish_stage(Stage::Authorize);
        self.record.note(|record| {
            record.project = Some(name.to_owned());
            record.checks = checks.into();
        });
        match action {
            None => Ok(()),
            Some(action) => Err(Error::NotPermitted {
                action,
                name: name.to_owned(),
            }),
        }
    }
}

fn list_of(items: &[Value]) -> Value {
    json!({
        "apiVersion": WritableKind::AppProject.api_version(),
        "kind": "AppProjectList",
        "metadata": {},
        "items": items,
    })
}

/// A response that must not be cached, because the next write needs the current version.
fn answer(document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(document.to_string())));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

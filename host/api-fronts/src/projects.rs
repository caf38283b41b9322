//! The front of the API for AppProjects.
//!
//! Invariant: a change is on disk, or in the cluster, before its response is sent.
//!
//! Security: a project is looked up only after RBAC allowed it.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Response, Uri, request};
use serde_json::Value;

use crate::projects::permit::visible;
use crate::projects::preview::{Preview, PreviewRequest};
use crate::projects::route::{Endpoint, ProjectRoute};
use crate::projects::summary::{SummaryFilter, SummaryPage};
use crate::projects::update::{CONTENT_BYTES, Error, Update};
use tollgate_front::api::content::{buffer, read};
use tollgate_front::api::object_list;
use tollgate_front::blocking::BlockingWork;
use tollgate_front::open_exchanges::Change;
use tollgate_front::path::{Captures, Path};
use tollgate_front::rbac::RbacLookup;
use tollgate_front::{
    DecisionInputs, Denial, Front, Lookup, Permitted, RequestContext, Services, Steps, api, serve_steps,
};
use tollgate_objects::ObjectName;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::OpenRecord;
use tollgate_proxy::target;
use tollgate_state::source::Source;
use tollgate_state::write::{ObjectKey, WritableKind, Writer};

pub(crate) mod permit;
pub(crate) mod preview;
pub(crate) mod route;
mod summary;
mod update;

/// The API of AppProjects.
#[derive(Debug)]
pub struct ProjectsFront {
    source: Arc<dyn Source>,
    /// Where projects are.
    namespace: String,
    blocking: BlockingWork,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Question {
    List,
    Summary(SummaryFilter),
    /// Whether all of these actions are permitted on the project.
    Project(String, &'static [&'static str]),
}

#[derive(Debug)]
pub enum Permit {
    /// The names of the projects that the caller may see.
    List(BTreeSet<String>),
    Summary(SummaryPage),
    Project,
}

/// A request whose content is not read yet.
#[derive(derive_more::Debug)]
pub struct ProjectHead {
    question: Question,
    route: ProjectRoute,
    writer: Writer,
    #[debug(skip)]
    head: request::Parts,
}

#[derive(Debug)]
pub enum Request {
    List(Writer),
    Get(Writer, String),
    Update(Writer, String, Update),
    /// `None` for the project's own accounts.
    Preview(String, Option<PreviewRequest>),
}

impl Front for ProjectsFront {
    const NAME: &'static str = "projects";
    const PATHS: &'static [Path<Endpoint>] = route::PATHS;

    type Endpoint = Endpoint;
    type Target = ProjectRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self {
            source: Arc::clone(&services.source),
            namespace: services.config.control_plane_namespace.clone(),
            blocking: services.blocking.clone(),
        }))
    }

    fn check(path: &str) -> Result<(), target::Error> {
        route::check(path)
    }

    fn target(endpoint: Endpoint, captures: &Captures<'_>, _: &Uri) -> Result<Option<ProjectRoute>, target::Error> {
        ProjectRoute::read(endpoint, captures)
    }

    async fn serve(
        self: &Arc<Self>,
        target: ProjectRoute,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        serve_steps(self, target, context, head, body).await
    }
}

impl Steps for ProjectsFront {
    type Admitted = ProjectHead;
    type Question = Question;
    type Request = Request;
    type Permit = Permit;
    // The answer is made at once, of what is permitted.
    type Terms = ();

    fn admit(
        &self,
        by: DecisionInputs<'_>,
        route: ProjectRoute,
        head: request::Parts,
        record: &mut OpenRecord,
    ) -> Result<ProjectHead, Denial> {
        let writer = self.source.writer().map_err(Error::State)?;
        let question = match &route {
            ProjectRoute::List => match SummaryFilter::read(head.uri.query()).map_err(Error::Content)? {
                Some(filter) => Question::Summary(filter),
                None => Question::List,
            },
            ProjectRoute::Get(name) | ProjectRoute::Preview(name) => Question::Project(name.clone(), &["get"]),
            // The preview needs no right to change the project.
            ProjectRoute::PreviewSent(name) => Question::Project(name.clone(), &["get"]),
            // The response shows the project, so the caller must also be allowed to see it.
            ProjectRoute::Update(name) => Question::Project(name.clone(), &["update", "get"]),
        };
        if let ProjectRoute::Update(_) | ProjectRoute::PreviewSent(_) = &route {
            // No content is read from callers who may not send it.
            self.authorize(by, &question, Some(record))?;
        }
        Ok(ProjectHead {
            question,
            route,
            writer,
            head,
        })
    }

    async fn read(
        &self,
        lookup: &mut Lookup<'_>,
        admitted: ProjectHead,
        body: Body,
    ) -> Result<(Question, Request), Denial> {
        let ProjectHead {
            question,
            route,
            writer,
            head,
        } = admitted;
        let request = match route {
            ProjectRoute::List => Request::List(writer),
            ProjectRoute::Get(name) => Request::Get(writer, name),
            ProjectRoute::Preview(name) => Request::Preview(name, None),
            ProjectRoute::PreviewSent(name) => {
                let content = lookup.content(buffer(body, CONTENT_BYTES)).await?;
                Request::Preview(name, Some(read(&head.headers, &content).map_err(Error::Content)?))
            }
            ProjectRoute::Update(name) => {
                let content = lookup.content(buffer(body, CONTENT_BYTES)).await?;
                Request::Update(writer, name, read(&head.headers, &content).map_err(Error::Content)?)
            }
        };
        Ok((question, request))
    }

    fn authorize(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        question: &Question,
        record: Option<&mut OpenRecord>,
    ) -> Result<Permit, Denial> {
        let policies = &now.policies;
        let (name, actions) = match question {
            Question::Summary(filter) => return Ok(Permit::Summary(SummaryPage::of(filter, policies, caller))),
            Question::List => {
                let names = policies.resources.projects.keys();
                let shown = visible(policies, caller, names.clone().map(String::as_str));
                let shown = names.zip(shown).filter(|(_, shown)| *shown);
                return Ok(Permit::List(shown.map(|(name, _)| name.clone()).collect()));
            }
            Question::Project(name, actions) => (name, *actions),
        };
        // All of them, because the record shows which are missing.
        let checks: Vec<_> = actions
            .iter()
            .map(|action| RbacLookup::of_project(&policies.rbac, caller, action, name).into_check())
            .collect();
        let missing = checks.iter().find(|check| !check.allowed).map(|check| check.action);
        if let Some(record) = record {
            record.note(|record| {
                record.project = Some(name.clone());
                record.checks = checks.into();
            });
        }
        match missing {
            None => Ok(Permit::Project),
            Some(action) => Err(Error::NotPermitted {
                action,
                name: name.clone(),
            }
            .into()),
        }
    }

    fn terms(_: &Permit) {}

    fn inputs_unchanged(change: &Change<'_>) -> bool {
        change.same_permissions() && change.same_resources()
    }

    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: Permit,
        request: Request,
    ) -> Result<Response<Body>, Denial> {
        let document = match (permit, request) {
            (Permit::Summary(page), _) => serde_json::to_value(page).unwrap_or_default(),
            (Permit::List(shown), Request::List(writer)) => self.list(&shown, &writer).await?,
            // The question of a list is about all projects, and every other about one.
            (_, Request::List(_)) | (Permit::List(_), _) => return Err(Denial::not_found()),
            (Permit::Project, Request::Get(writer, name)) => {
                let stored = writer.read(&self.key(&name)).await.map_err(Error::State)?;
                stored.object
            }
            (Permit::Project, Request::Update(writer, name, update)) => {
                self.update(&writer, &name, &update, permitted).await?
            }
            (Permit::Project, Request::Preview(name, asked)) => self.preview(name, asked, permitted).await?,
        };
        Ok(api::json(document.to_string()))
    }
}

impl ProjectsFront {
    async fn list(&self, shown: &BTreeSet<String>, writer: &Writer) -> Result<Value, Error> {
        // A caller who may see no project causes no file access and no call.
        if shown.is_empty() {
            return Ok(object_list(WritableKind::AppProject, Vec::new()));
        }
        let listed = writer.list(WritableKind::AppProject, &self.namespace).await;
        let mut all = listed.map_err(Error::State)?;
        all.retain(|stored| {
            let name = stored.object.pointer("/metadata/name").and_then(Value::as_str);
            name.is_some_and(|name| shown.contains(name))
        });
        let objects = all.into_iter().map(|stored| stored.object).collect();
        Ok(object_list(WritableKind::AppProject, objects))
    }

    async fn update(
        &self,
        writer: &Writer,
        name: &str,
        update: &Update,
        permitted: Permitted<'_>,
    ) -> Result<Value, Error> {
        let semantics = permitted
            .snapshot
            .policies
            .config
            .applications
            .unwrap_or_default()
            .semantics;
        let expected_version = update.base_version()?;
        let key = self.key(name);
        let stored = writer.read(&key).await.map_err(Error::State)?;
        let updated = update.apply_to(&stored, &key, &expected_version, semantics)?;
        let stored = writer
            // With the version, so that a change by somebody else since the read is not overwritten.
            .replace(&key, updated, &expected_version)
            .await
            .map_err(Error::State)?;
        Ok(stored.object)
    }

    /// Shows who acts, or would with the accounts that are sent.
    async fn preview(
        &self,
        name: String,
        asked: Option<PreviewRequest>,
        permitted: Permitted<'_>,
    ) -> Result<Value, Denial> {
        let snapshot = permitted.snapshot;
        let caller = snapshot.policies.caller(permitted.principal);
        let work = move || Preview::of(asked, &name, &snapshot.policies, &caller);
        let preview = self.blocking.run(permitted.held, work).await??;
        Ok(serde_json::to_value(preview).unwrap_or_default())
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey {
            kind: WritableKind::AppProject,
            name: ObjectName {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            },
        }
    }
}

//! The checks of Argo CD's API, in its order and with its texts. The set's RBAC object alone
//! decides; what the set generates is not checked. This mode is never the default.
//!
//! Source: Argo CD, `server/applicationset/applicationset.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::Error;
use crate::finding::record_check;
use crate::operation::not_visible;
use tollgate_front::set_list::{is_templated, project_text};

use crate::{Operation, SetAuthorizer, SetPermit, SetRequest};
use tollgate_proxy::record::CheckRecord;

impl SetAuthorizer<'_> {
    /// [`SetAuthorizer::authorize_operation`] for [`tollgate_config::ApplicationSetChecks::Argocd`].
    pub(super) fn authorize_as_argocd(
        &self,
        request: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        let set = match request.operation {
            Operation::Get => {
                self.namespace(&request.name.namespace)?;
                let stored = stored(request)?;
                self.require("get", project_text(stored), request, checks)?;
                stored
            }
            // Argo CD does not check whether the namespace is permitted.
            Operation::Delete => {
                let stored = stored(request)?;
                self.require("delete", project_text(stored), request, checks)?;
                stored
            }
            Operation::Preview => {
                self.namespace(&request.name.namespace)?;
                let sent = sent(request)?;
                reject_template(sent)?;
                self.check_create(sent, request, checks)?;
                sent
            }
            Operation::Create | Operation::CreateUnchanged | Operation::Upsert => {
                let sent = sent(request)?;
                // Argo CD checks these two in the other order for a preview.
                reject_template(sent)?;
                self.namespace(&request.name.namespace)?;
                self.check_create(sent, request, checks)?;
                match (request.operation, request.stored) {
                    (Operation::Create, Some(_)) => return Err(Error::Exists),
                    (Operation::Upsert, Some(stored)) => self.check_update(sent, stored, request, checks)?,
                    (_, Some(_) | None) => {}
                }
                sent
            }
            // Argo CD has no such operation. It is authorized as an upsert, without the permission
            // to create.
            Operation::Update => {
                let (sent, stored) = (sent(request)?, stored(request)?);
                reject_template(sent)?;
                self.namespace(&request.name.namespace)?;
                self.check_update(sent, stored, request, checks)?;
                self.check_project_exists(sent)?;
                sent
            }
        };
        Ok(self.permit_as_argocd(request, set))
    }

    fn check_create(&self, sent: &Value, request: &SetRequest<'_>, checks: &mut Vec<CheckRecord>) -> Result<(), Error> {
        self.require("create", project_text(sent), request, checks)?;
        self.check_project_exists(sent)
    }

    /// Argo CD looks up the project as written, even an empty one.
    fn check_project_exists(&self, sent: &Value) -> Result<(), Error> {
        let project = project_text(sent);
        let stored = self.projects.find(project);
        stored
            .map(|_| ())
            .ok_or_else(|| Error::UnknownProject(project.to_owned()))
    }

    fn check_update(
        &self,
        sent: &Value,
        stored: &Value,
        request: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let (new, old) = (project_text(sent), project_text(stored));
        self.require("update", new, request, checks)?;
        if new != old {
            self.require("create", new, request, checks)?;
            self.require("update", old, request, checks)?;
        }
        Ok(())
    }

    fn require(
        &self,
        action: &'static str,
        project: &str,
        request: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let object = self.object(project, request.name);
        let lookup = self.lookup_permission("applicationsets", action, object.clone());
        let is_allowed = lookup.is_allowed();
        record_check(checks, || lookup.into_check());
        if is_allowed {
            return Ok(());
        }
        let subject = match self.caller.principal.user_id() {
            "" => String::new(),
            id => format!(", sub: {id}"),
        };
        let message = format!("permission denied: applicationsets, {action}, {object}{subject}");
        Err(Error::Denied(message))
    }

    fn permit_as_argocd(&self, request: &SetRequest<'_>, set: &Value) -> SetPermit {
        let project = project_text(set);
        let projects = BTreeSet::from([project.to_owned()]);
        SetPermit {
            operation: request.operation,
            name: request.name.clone(),
            project: project.to_owned(),
            stored_projects: BTreeSet::new(),
            // Argo CD's controller handles them.
            owned: BTreeSet::new(),
            facts: self.facts(request.operation, request.name, set, &projects),
            plugin_access: Ok(()),
            nondeterminism: Vec::new(),
            possible_applications: Vec::new(),
        }
    }
}

fn stored<'a>(request: &SetRequest<'a>) -> Result<&'a Value, Error> {
    request.stored.ok_or_else(|| not_visible(request))
}

fn sent<'a>(request: &SetRequest<'a>) -> Result<&'a Value, Error> {
    let sent = request.sent.map(|sent| &sent.object);
    sent.ok_or_else(|| not_visible(request))
}

fn reject_template(sent: &Value) -> Result<(), Error> {
    match is_templated(project_text(sent)) {
        true => Err(Error::Templated),
        false => Ok(()),
    }
}

//! The checks of Argo CD's API, in its order and with its texts. The set's RBAC object alone
//! decides; what the set generates is not judged. This mode is never the default.
//!
//! Source: Argo CD, `server/applicationset/applicationset.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::applicationsets::permit::error::Error;
use crate::applicationsets::permit::judge::record_check;
use crate::applicationsets::permit::rights::{is_templated, project_text};
use crate::applicationsets::permit::{Desk, Operation, SetPermit, SetRequest};
use tollgate_proxy::record::CheckRecord;

impl Desk<'_> {
    /// [`Desk::authorize_operation`] for [`tollgate_config::ApplicationSetChecks::Argocd`].
    pub(super) fn authorize_as_argocd(
        &self,
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        match asked.operation {
            Operation::Get => {
                self.namespace(&asked.name.namespace)?;
                let stored = stored(asked)?;
                self.must("get", project_text(stored), asked, checks)?;
                Ok(self.permit_as_argocd(asked, stored))
            }
            // Argo CD does not check whether the namespace is permitted.
            Operation::Delete => {
                let stored = stored(asked)?;
                self.must("delete", project_text(stored), asked, checks)?;
                Ok(self.permit_as_argocd(asked, stored))
            }
            Operation::Preview => {
                self.namespace(&asked.name.namespace)?;
                let sent = sent(asked)?;
                is_plain(sent)?;
                self.may_create(sent, asked, checks)?;
                Ok(self.permit_as_argocd(asked, sent))
            }
            Operation::Create | Operation::CreateUnchanged | Operation::Upsert => {
                let sent = sent(asked)?;
                is_plain(sent)?;
                self.namespace(&asked.name.namespace)?;
                self.may_create(sent, asked, checks)?;
                match (asked.operation, asked.stored) {
                    (Operation::Create, Some(_)) => return Err(Error::Exists),
                    (Operation::Upsert, Some(stored)) => self.may_update((sent, stored), asked, checks)?,
                    (_, Some(_) | None) => {}
                }
                Ok(self.permit_as_argocd(asked, sent))
            }
            // Argo CD has no such operation. It is judged as an upsert, without the right to
            // create.
            Operation::Update => {
                let (sent, stored) = (sent(asked)?, stored(asked)?);
                is_plain(sent)?;
                self.namespace(&asked.name.namespace)?;
                self.may_update((sent, stored), asked, checks)?;
                self.must_exist(sent)?;
                Ok(self.permit_as_argocd(asked, sent))
            }
        }
    }

    fn may_create(&self, sent: &Value, asked: &SetRequest<'_>, checks: &mut Vec<CheckRecord>) -> Result<(), Error> {
        self.must("create", project_text(sent), asked, checks)?;
        self.must_exist(sent)
    }

    /// Argo CD looks up the project as written, even an empty one.
    fn must_exist(&self, sent: &Value) -> Result<(), Error> {
        let project = project_text(sent);
        match self.resources.projects.contains_key(project) {
            true => Ok(()),
            false => Err(Error::UnknownProject {
                project: project.to_owned(),
            }),
        }
    }

    fn may_update(
        &self,
        (sent, stored): (&Value, &Value),
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let (new, old) = (project_text(sent), project_text(stored));
        self.must("update", new, asked, checks)?;
        if new != old {
            self.must("create", new, asked, checks)?;
            self.must("update", old, asked, checks)?;
        }
        Ok(())
    }

    fn must(
        &self,
        action: &'static str,
        project: &str,
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let object = self.object(project, asked.name);
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
        Err(Error::Denied {
            message: format!("permission denied: applicationsets, {action}, {object}{subject}"),
        })
    }

    fn permit_as_argocd(&self, asked: &SetRequest<'_>, set: &Value) -> SetPermit {
        let project = project_text(set);
        let projects = BTreeSet::from([project.to_owned()]);
        SetPermit {
            operation: asked.operation,
            name: asked.name.clone(),
            project: project.to_owned(),
            stored_projects: BTreeSet::new(),
            // Argo CD's controller handles them.
            owned: BTreeSet::new(),
            facts: self.facts(asked.operation, asked.name, set, &projects),
            guests: Ok(()),
            nondeterminism: Vec::new(),
        }
    }
}

fn stored<'a>(asked: &SetRequest<'a>) -> Result<&'a Value, Error> {
    asked.stored.ok_or_else(|| Error::NotVisible {
        name: asked.name.clone(),
    })
}

fn sent<'a>(asked: &SetRequest<'a>) -> Result<&'a Value, Error> {
    let sent = asked.sent.map(|sent| &sent.object);
    sent.ok_or_else(|| Error::NotVisible {
        name: asked.name.clone(),
    })
}

fn is_plain(sent: &Value) -> Result<(), Error> {
    match is_templated(project_text(sent)) {
        true => Err(Error::Templated),
        false => Ok(()),
    }
}

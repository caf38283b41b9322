//! Decodes calls of the ApplicationSet service into [`Request`]s, from a method and its message as
//! JSON.
//!
//! Invariant: REST could make every request that is made here.

use serde_json::Value;

use crate::applicationsets::grpc::{Error, Method};
use crate::applicationsets::request::{ApplicationSetRef, Create, Delete, Filter, Request, Watch, WriteMode};
use tollgate_state::write::WritableKind;

/// The request that a call makes about ApplicationSets. `None` if it is about something else.
pub(crate) fn request(method: Method, message: Value) -> Result<Option<Request>, Error> {
    let mut fields = Fields(message);
    Ok(Some(match method {
        Method::Version | Method::UserInfo => return Ok(None),
        Method::Get => Request::Get(fields.target()),
        Method::ResourceTree => Request::ResourceTree(fields.target()),
        Method::Events => Request::Events(fields.target()),
        Method::List => Request::List(fields.filter("appsetNamespace")),
        Method::Watch => Request::Watch(Watch {
            name: fields.text("name"),
            resource_version: fields.text("resourceVersion"),
            filter: fields.filter("appSetNamespace"),
        }),
        Method::Create => Request::Create(Create {
            set: fields.set("applicationset")?,
            upsert: fields.is_true("upsert"),
            mode: if fields.is_true("dryRun") {
                WriteMode::DryRun
            } else {
                WriteMode::Commit
            },
            deletions: None,
        }),
        Method::Generate => Request::Generate {
            set: fields.set("applicationSet")?,
        },
        Method::Delete => Request::Delete(Delete {
            target: fields.target(),
            cascade: None,
            deletions: None,
        }),
    }))
}

/// The fields of a message. A field that is zero may be absent.
struct Fields(Value);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.get_mut(name).map(Value::take)
    }

    fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        }
    }

    fn is_true(&mut self, name: &str) -> bool {
        self.take(name) == Some(Value::Bool(true))
    }

    fn target(&mut self) -> ApplicationSetRef {
        ApplicationSetRef {
            name: self.text("name"),
            namespace: self.text("appsetNamespace"),
        }
    }

    fn filter(&mut self, namespace: &str) -> Filter {
        let projects = match self.take("projects") {
            Some(Value::Array(projects)) => projects,
            _ => Vec::new(),
        };
        let projects = projects.iter().filter_map(Value::as_str);
        Filter {
            projects: projects.map(str::to_owned).collect(),
            selector: self.text("selector"),
            namespace: self.text(namespace),
        }
    }

    /// Adds `apiVersion` and `kind` to an object, which its message does not have.
    fn set(&mut self, field: &'static str) -> Result<Value, Error> {
        let Some(Value::Object(mut set)) = self.take(field) else {
            return Err(Error::Missing { field });
        };
        set.insert(
            "apiVersion".to_owned(),
            WritableKind::ApplicationSet.api_version().into(),
        );
        set.insert("kind".to_owned(), WritableKind::ApplicationSet.as_str().into());
        Ok(Value::Object(set))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::request;
    use crate::applicationsets::grpc::{Error, Method};
    use crate::applicationsets::request::{Request, WriteMode};

    #[test]
    fn messages_are_requests() {
        let query = json!({"projects": ["a", "b"], "selector": "x=y", "appsetNamespace": "team"});
        let Ok(Some(Request::List(filter))) = request(Method::List, query) else {
            panic!("no list");
        };
        assert_eq!(filter.projects, ["a", "b"]);
        assert_eq!((&*filter.selector, &*filter.namespace), ("x=y", "team"));
        let query = json!({"name": "a", "appSetNamespace": "team", "resourceVersion": "7"});
        let Ok(Some(Request::Watch(watch))) = request(Method::Watch, query) else {
            panic!("no watch");
        };
        assert_eq!((&*watch.name, &*watch.resource_version), ("a", "7"));
        assert_eq!(watch.filter.namespace, "team");
        let create = json!({"applicationset": {"metadata": {"name": "a"}}, "dryRun": true});
        let Ok(Some(Request::Create(create))) = request(Method::Create, create) else {
            panic!("no creation");
        };
        assert_eq!((create.mode, create.upsert), (WriteMode::DryRun, false));
        let set = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "a"}});
        assert_eq!(create.set, set);
    }

    #[test]
    fn what_has_to_be_there_is_asked_for() {
        for (method, field) in [(Method::Create, "applicationset"), (Method::Generate, "applicationSet")] {
            let error = request(method, json!({})).expect_err("nothing to do");
            assert!(matches!(error, Error::Missing { field: missing } if missing == field));
        }
        assert!(matches!(request(Method::Version, json!({})), Ok(None)));
    }
}

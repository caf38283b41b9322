//! Decodes calls of the ApplicationSet service into [`Request`]s, from a method and its message as
//! JSON.
//!
//! Invariant: REST could make every request that is made here.

use serde_json::Value;

use crate::applicationsets::grpc::{Error, Method};
use crate::applicationsets::request::Request;
use crate::applicationsets::request::query::Query;
use tollgate_state::write::WritableKind;

/// The request that a call makes about ApplicationSets. `None` if it is about something else.
pub(crate) fn request(method: Method, mut message: Value) -> Result<Option<Request>, Error> {
    let set = match method {
        Method::Create => sent_set(&mut message, "applicationset")?,
        Method::Generate => sent_set(&mut message, "applicationSet")?,
        _ => Value::Null,
    };
    // The codec has checked the types, so this does not fail.
    let query: Query = serde_json::from_value(message).map_err(|_| Error::Frame)?;
    Ok(Some(match method {
        Method::Version | Method::UserInfo => return Ok(None),
        Method::Get => Request::Get(query.target()),
        Method::ResourceTree => Request::ResourceTree(query.target()),
        Method::Events => Request::Events(query.target()),
        Method::List => Request::List(query.filter()),
        Method::Watch => Request::Watch(query.watch()),
        Method::Create => Request::Create(query.create(set)),
        Method::Generate => Request::Generate { set },
        Method::Delete => Request::Delete(query.delete()),
    }))
}

/// Takes an object out of a message, and adds `apiVersion` and `kind`, which its own message does
/// not have.
fn sent_set(message: &mut Value, field: &'static str) -> Result<Value, Error> {
    let Some(Value::Object(mut set)) = message.get_mut(field).map(Value::take) else {
        return Err(Error::Missing { field });
    };
    let kind = WritableKind::ApplicationSet;
    set.insert("apiVersion".to_owned(), kind.api_version().into());
    set.insert("kind".to_owned(), kind.as_str().into());
    Ok(Value::Object(set))
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

//! Decodes calls of the ApplicationSet service into [`Request`]s, from a method and its message as
//! JSON.
//!
//! Invariant: REST could make every request that is made here.

use serde_json::Value;

use crate::applicationsets::grpc::{Error, Method};
use crate::applicationsets::request::{Request, RequestKind};
use tollgate_state::write::WritableKind;

/// The request that a call makes about ApplicationSets. `None` if it is about something else.
pub(crate) fn request(method: Method, mut message: Value) -> Result<Option<Request>, Error> {
    let (kind, set) = match method {
        Method::Version | Method::UserInfo => return Ok(None),
        Method::Get => (RequestKind::Get, Value::Null),
        Method::ResourceTree => (RequestKind::ResourceTree, Value::Null),
        Method::Events => (RequestKind::Events, Value::Null),
        Method::List => (RequestKind::List, Value::Null),
        Method::Watch => (RequestKind::Watch, Value::Null),
        Method::Create => (RequestKind::Create, sent_set(&mut message, "applicationset")?),
        Method::Generate => (RequestKind::Generate, sent_set(&mut message, "applicationSet")?),
        Method::Delete => (RequestKind::Delete, Value::Null),
    };
    // The codec has checked the types, so this does not fail.
    let query = serde_json::from_value(message).map_err(|_| Error::Frame)?;
    Ok(Some(Request { kind, query, set }))
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
    use serde_json::{Value, json};

    use super::request;
    use crate::applicationsets::grpc::{Error, Method};
    use crate::applicationsets::request::RequestKind;

    #[test]
    fn messages_are_converted_to_requests() {
        let query = json!({"projects": ["a", "b"], "selector": "x=y", "appsetNamespace": "team"});
        let list = request(Method::List, query).expect("valid").expect("a list");
        assert_eq!((list.kind, list.set), (RequestKind::List, Value::Null));
        assert_eq!(list.query.projects, ["a", "b"]);
        assert_eq!((&*list.query.selector, &*list.query.namespace), ("x=y", "team"));
        let query = json!({"name": "a", "appSetNamespace": "team", "resourceVersion": "7"});
        let watch = request(Method::Watch, query).expect("valid").expect("a watch");
        assert_eq!(watch.kind, RequestKind::Watch);
        assert_eq!((&*watch.query.name, &*watch.query.resource_version), ("a", "7"));
        assert_eq!(watch.query.namespace, "team");
        let create = json!({"applicationset": {"metadata": {"name": "a"}}, "dryRun": true});
        let create = request(Method::Create, create).expect("valid").expect("a creation");
        assert_eq!(create.kind, RequestKind::Create);
        assert_eq!((create.query.dry_run, create.query.upsert), (true, false));
        let set = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "a"}});
        assert_eq!(create.set, set);
    }

    #[test]
    fn missing_required_fields_are_refused() {
        for (method, field) in [(Method::Create, "applicationset"), (Method::Generate, "applicationSet")] {
            let error = request(method, json!({})).expect_err("nothing to do");
            assert!(matches!(error, Error::Missing { field: missing } if missing == field));
        }
        assert!(matches!(request(Method::Version, json!({})), Ok(None)));
    }
}

//! Decodes the ApplicationSet of a REST request, in JSON or YAML, or answers 400 or 415. A body
//! has exactly one document.
//!
//! Security: content types that a page of another site may send are refused.

use http::HeaderMap;
use serde_json::Value;

use crate::applicationsets::grpc::MAX_VALUES;
use crate::applicationsets::request::Error;
use tollgate_front::api::content::{media_type, unexpected};
use tollgate_state::write;

const YAML: [&str; 3] = ["application/yaml", "application/x-yaml", "text/yaml"];

/// Decodes one object whose content type must be declared: a page of another site can send text on
/// behalf of its reader, but neither JSON nor YAML (`text/yaml` also needs a preflight:
/// <https://fetch.spec.whatwg.org/#cors-safelisted-request-header>).
pub(crate) fn read(fields: &HeaderMap, content: &[u8]) -> Result<Value, Error> {
    let name = media_type(fields).ok_or(Error::ContentType)?;
    // SECURITY: a value of three bytes can take a hundred in memory, and the sender is not
    // authorized until later.
    let values = content
        .iter()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{' | b'\n'))
        .count();
    if values > MAX_VALUES {
        return Err(wrong(&format_args!(
            "it has {values} values or lines, at most {MAX_VALUES} are allowed"
        )));
    }
    let value = if name.eq_ignore_ascii_case("application/json") {
        serde_json::from_slice(content).map_err(|error| wrong(&error))?
    } else if YAML.iter().any(|yaml| name.eq_ignore_ascii_case(yaml)) {
        one_document(content)?
    } else {
        return Err(Error::ContentType);
    };
    if !matches!(value, Value::Object(_)) {
        return Err(wrong(&"it is no object"));
    }
    Ok(value)
}

/// The set in a request for a preview: `{"applicationSet": …}` as in Argo CD, or the object
/// itself.
pub(crate) fn application_set_to_preview(mut content: Value) -> Value {
    match content.get_mut("applicationSet") {
        Some(set) => set.take(),
        None => content,
    }
}

fn one_document(content: &[u8]) -> Result<Value, Error> {
    let text = std::str::from_utf8(content).map_err(|error| wrong(&error))?;
    let mut documents = write::documents(text).map_err(|error| wrong(&error))?;
    match (documents.pop(), documents.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(wrong(&"it is empty")),
        (Some(_), more) => {
            let found = more.saturating_add(1);
            Err(wrong(&format_args!("it has {found} documents, allowed is one")))
        }
    }
}

fn wrong(error: &dyn std::fmt::Display) -> Error {
    Error::Content(unexpected(error))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::{CONTENT_TYPE, HeaderValue};
    use serde_json::json;

    use super::{MAX_VALUES, application_set_to_preview, read};

    fn of(content_type: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    #[test]
    fn json_and_yaml_are_equivalent() {
        let expected = json!({"metadata": {"name": "a", "labels": {"on": "1"}}, "spec": {"n": 3}});
        let text = expected.to_string();
        assert_eq!(
            read(&of("application/json; charset=utf-8"), text.as_bytes()).expect("JSON"),
            expected
        );
        let text = "# a set\nmetadata:\n  name: a\n  labels: {on: '1'}\nspec: {n: 3}\n";
        for name in ["application/yaml", "text/yaml", "application/x-yaml"] {
            assert_eq!(read(&of(name), text.as_bytes()).expect("YAML"), expected);
        }
        assert_eq!(
            application_set_to_preview(json!({"applicationSet": expected})),
            expected
        );
        assert_eq!(application_set_to_preview(expected.clone()), expected);
    }

    #[test]
    fn other_content_is_refused() {
        for (name, content, text) in [
            (
                "text/plain",
                "{}",
                "the content has a type other than `application/json` and `application/yaml`",
            ),
            (
                "application/json",
                "[]",
                "the content is not what is expected: it is no object",
            ),
            (
                "application/yaml",
                "a: 1\n---\na: 2\n",
                "the content is not what is expected: it has 2 documents, allowed is one",
            ),
            (
                "application/yaml",
                "",
                "the content is not what is expected: it is empty",
            ),
            (
                "application/yaml",
                "a: 1\na: 2\n",
                "the content is not what is expected: line 2: key `a` stands twice in one mapping, first on line 1",
            ),
        ] {
            let error = read(&of(name), content.as_bytes()).expect_err(content);
            assert!(error.to_string().starts_with(text), "{error}");
        }
        let many = format!("{{\"a\": [{}0]}}", "0,".repeat(MAX_VALUES));
        let error = read(&of("application/json"), many.as_bytes()).expect_err("too many values");
        assert!(error.to_string().contains("at most 200000 are allowed"), "{error}");
        let some = format!("{{\"a\": [{}0]}}", "0,".repeat(MAX_VALUES / 2));
        assert!(read(&of("application/json"), some.as_bytes()).is_ok());
        assert!(read(&HeaderMap::new(), b"{}").is_err());
    }
}

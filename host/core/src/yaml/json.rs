//! Converts JSON values that an API server sent into the same trees, without writing YAML text in
//! between. The nodes have no positions, except for the lines inside multi-line texts.

use std::rc::Rc;

use serde_json::Value;

use super::{Content, Entry, Node, Style};

/// The value as a tree. Its depth is bounded by the JSON parser's.
pub fn from_json(value: &Value) -> Rc<Node> {
    let (content, text_line) = match value {
        Value::Null => (Content::scalar("null", Style::Plain), 0),
        Value::Bool(true) => (Content::scalar("true", Style::Plain), 0),
        Value::Bool(false) => (Content::scalar("false", Style::Plain), 0),
        Value::Number(number) => (Content::scalar(&number.to_string(), Style::Plain), 0),
        // Lines of a multi-line text count from its first one.
        Value::String(text) => (Content::scalar(text, Style::Quoted), u32::from(text.contains('\n'))),
        Value::Array(items) => (Content::Sequence(items.iter().map(from_json).collect()), 0),
        Value::Object(members) => {
            let entry = |(key, value): (&String, &Value)| Entry {
                key: Rc::from(key.as_str()),
                line: 0,
                column: 0,
                value: from_json(value),
            };
            (Content::Mapping(members.iter().map(entry).collect()), 0)
        }
    };
    // Counts and depths bound aliases, which JSON does not have.
    Rc::new(Node {
        text_line,
        ..Node::new(content, (0, 0))
    })
}

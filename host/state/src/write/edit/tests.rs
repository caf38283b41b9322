use serde_json::{Value, json};

use super::{ALIAS, ANCHOR, LAYOUT, MERGED, ObjectPosition, at, documents, remove, replace};

mod layouts;

const FIRST: ObjectPosition = ObjectPosition {
    document: 0,
    item: None,
};

fn entry(server: &str, account: &str) -> Value {
    json!({"server": server, "namespace": "n", "defaultServiceAccount": account})
}

/// The text after `change` of the first object's entries.
fn changed(text: &str, position: ObjectPosition, change: impl Fn(&mut Vec<Value>)) -> Result<String, String> {
    let mut wanted = at(&documents(text).expect("a text"), position)
        .expect("an object")
        .clone();
    let spec = wanted["spec"].as_object_mut().expect("a spec");
    let list = spec.entry("destinationServiceAccounts").or_insert(json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    change(list.as_array_mut().expect("a list"));
    replace(text, position, &wanted).map_err(|refused| refused.to_string())
}

#[track_caller]
fn check(text: &str, change: impl Fn(&mut Vec<Value>), expected: &str) {
    assert_eq!(changed(text, FIRST, change).as_deref(), Ok(expected));
}

fn add(list: &mut Vec<Value>) {
    list.push(entry("*", "new"));
}

fn clear(list: &mut Vec<Value>) {
    list.clear();
}

const TWO: &str = "\
spec:
  # who acts
  destinationServiceAccounts:   # in order
    # the first
    - server: 'https://a'   # quoted
      namespace: n
      defaultServiceAccount: one # one

    # the second
    - {server: https://b, namespace: \"n\", defaultServiceAccount: two}
    # the end
  description: >-
    kept   as
    it is
";

#[test]
fn a_new_item_is_appended_after_the_last() {
    check(
        TWO,
        add,
        &TWO.replace(
            "    # the end\n",
            "    - server: \"*\"\n      namespace: \"n\"\n      defaultServiceAccount: new\n    # the end\n",
        ),
    );
}

#[test]
fn removing_an_item_keeps_comments_between_items() {
    let without_first = TWO.replace(
        "    - server: 'https://a'   # quoted\n      namespace: n\n      defaultServiceAccount: one # one\n",
        "",
    );
    check(TWO, |list| drop(list.remove(0)), &without_first);
    let without_second = TWO.replace(
        "    - {server: https://b, namespace: \"n\", defaultServiceAccount: two}\n",
        "",
    );
    check(TWO, |list| drop(list.remove(1)), &without_second);
}

#[test]
fn a_list_can_be_emptied_and_filled_again() {
    let text = "spec:\n  a: 1\n  destinationServiceAccounts: # who\n  # the one\n  - server: '*'\n    namespace: n\n    defaultServiceAccount: x\n  b: 2\n";
    let empty = "spec:\n  a: 1\n  destinationServiceAccounts: [] # who\n  # the one\n  b: 2\n";
    check(text, clear, empty);
    let again = "spec:\n  a: 1\n  destinationServiceAccounts: # who\n    - defaultServiceAccount: new\n      namespace: \"n\"\n      server: \"*\"\n  # the one\n  b: 2\n";
    check(empty, add, again);
}

#[test]
fn a_missing_list_is_added_after_the_other_keys() {
    // Indented like the other lists of the object.
    check(
        "kind: AppProject\nspec:\n  destinations:\n  - server: x # y\nstatus: {}\n",
        add,
        "kind: AppProject\nspec:\n  destinations:\n  - server: x # y\n  destinationServiceAccounts:\n  - defaultServiceAccount: new\n    namespace: \"n\"\n    server: \"*\"\nstatus: {}\n",
    );
    // In the last line of a text without a final line break.
    check(
        "spec:\n  description: last",
        add,
        "spec:\n  description: last\n  destinationServiceAccounts:\n    - defaultServiceAccount: new\n      namespace: \"n\"\n      server: \"*\"",
    );
    // After a block text.
    check(
        "spec:\n  description: |\n    a\n\n---\nb: 1\n",
        add,
        "spec:\n  description: |\n    a\n\n  destinationServiceAccounts:\n    - defaultServiceAccount: new\n      namespace: \"n\"\n      server: \"*\"\n---\nb: 1\n",
    );
    check(
        "spec:\n  destinationServiceAccounts:\n  a: 1\n",
        add,
        "spec:\n  destinationServiceAccounts:\n    - defaultServiceAccount: new\n      namespace: \"n\"\n      server: \"*\"\n  a: 1\n",
    );
    check(
        "spec: {}\n",
        add,
        "spec: {destinationServiceAccounts: [{defaultServiceAccount: new, namespace: \"n\", server: \"*\"}]}\n",
    );
}

#[test]
fn line_endings_are_kept() {
    check(
        "spec:\r\n  destinationServiceAccounts:\r\n  - server: a\r\n    namespace: n\r\n    defaultServiceAccount: x\r\n",
        add,
        "spec:\r\n  destinationServiceAccounts:\r\n  - server: a\r\n    namespace: n\r\n    defaultServiceAccount: x\r\n  - server: \"*\"\r\n    namespace: \"n\"\r\n    defaultServiceAccount: new\r\n",
    );
}

#[test]
fn flow_style_lists_keep_their_style() {
    let text = "spec: {a: 1, destinationServiceAccounts: [{server: a, namespace: n, defaultServiceAccount: x}]} # c\n";
    let two = "spec: {a: 1, destinationServiceAccounts: [{server: a, namespace: n, defaultServiceAccount: x}, {server: \"*\", namespace: \"n\", defaultServiceAccount: new}]} # c\n";
    check(text, add, two);
    check(two, |list| drop(list.pop()), text);
    check(
        two,
        |list| drop(list.remove(0)),
        "spec: {a: 1, destinationServiceAccounts: [{server: \"*\", namespace: \"n\", defaultServiceAccount: new}]} # c\n",
    );
    check(text, clear, "spec: {a: 1, destinationServiceAccounts: []} # c\n");
    // A trailing comma, and several lines.
    let lines = "spec:\n  destinationServiceAccounts: [\n    {server: a, namespace: n, defaultServiceAccount: x}, # x\n    {server: b, namespace: n, defaultServiceAccount: y}, # y\n  ]\n";
    check(
        lines,
        add,
        "spec:\n  destinationServiceAccounts: [\n    {server: a, namespace: n, defaultServiceAccount: x}, # x\n    {server: b, namespace: n, defaultServiceAccount: y},\n    {server: \"*\", namespace: \"n\", defaultServiceAccount: new}, # y\n  ]\n",
    );
    let refused = changed(lines, FIRST, |list| drop(list.remove(0)));
    assert_eq!(refused, Err(format!("line 2: {LAYOUT}")));
}

#[test]
fn json_stays_json() {
    let text = "{\n  \"kind\": \"AppProject\",\n  \"spec\": {\n    \"destinationServiceAccounts\": [\n      {\"server\": \"a\", \"namespace\": \"n\", \"defaultServiceAccount\": \"x\"}\n    ],\n    \"a\": 1\n  }\n}\n";
    let two = text.replace(
        "\"x\"}\n",
        "\"x\"},\n      {\"server\": \"*\", \"namespace\": \"n\", \"defaultServiceAccount\": \"new\"}\n",
    );
    check(text, add, &two);
    check(&two, |list| drop(list.pop()), text);
    let none = "{\"spec\":{\"a\":1},\"x\":2}";
    let one = "{\"spec\":{\"a\":1, \"destinationServiceAccounts\": [{\"defaultServiceAccount\": \"new\", \"namespace\": \"n\", \"server\": \"*\"}]},\"x\":2}";
    check(none, add, one);
    let parsed: Value = serde_json::from_str(one).expect("JSON");
    assert_eq!(parsed["x"], 2);
    let empty = "{\"spec\":{\"destinationServiceAccounts\":[]}}";
    let filled = changed(empty, FIRST, add).expect("a list");
    assert!(serde_json::from_str::<Value>(&filled).is_ok(), "{filled}");
}

#[test]
fn only_the_selected_object_is_changed() {
    let item = "- kind: AppProject\n  metadata: {name: b}\n  spec:\n    destinationServiceAccounts:\n    - {server: a, namespace: n, defaultServiceAccount: x}\n";
    let text = format!("# first\na: 1\n---\nkind: List\nitems:\n{item}{item}metadata: {{}}\n---\nc:   3   # odd\n");
    let position = ObjectPosition {
        document: 1,
        item: Some(1),
    };
    let after = item.replace("{server: a, namespace: n, defaultServiceAccount: x}\n", "{server: a, namespace: n, defaultServiceAccount: x}\n    - server: \"*\"\n      namespace: \"n\"\n      defaultServiceAccount: new\n");
    let expected =
        format!("# first\na: 1\n---\nkind: List\nitems:\n{item}{after}metadata: {{}}\n---\nc:   3   # odd\n");
    assert_eq!(changed(&text, position, add), Ok(expected));
    let gone = remove(&text, position).expect("an item is removed");
    assert_eq!(
        gone,
        format!("# first\na: 1\n---\nkind: List\nitems:\n{item}metadata: {{}}\n---\nc:   3   # odd\n")
    );
}

#[test]
fn documents_are_removed_with_their_separator() {
    let text = "# a\na: 1\n---\n# b\nb: 2\n---\nc: 3\n";
    let of = |document| {
        let position = ObjectPosition { document, item: None };
        remove(text, position).expect("a document is removed")
    };
    assert_eq!(of(0), "---\n# b\nb: 2\n---\nc: 3\n");
    assert_eq!(of(1), "# a\na: 1\n---\nc: 3\n");
    assert_eq!(of(2), "# a\na: 1\n---\n# b\nb: 2\n");
    assert_eq!(remove("a: 1\n", FIRST).as_deref(), Ok(""));
    // Without `---` between two documents, neither is removed with the other.
    for text in [
        "---\na: 1\n...\nb: 2\n",
        "a: 1\n...\nb: 2\n",
        "a: 1\n...\n# b\nb: 2\n---\nc: 3\n",
    ] {
        for document in 0..documents(text).expect("a text").len() {
            let position = ObjectPosition { document, item: None };
            let mut left = documents(text).expect("a text");
            left.remove(document);
            let rest = remove(text, position).map(|rest| documents(&rest).expect("a text"));
            assert!(rest.is_err() || rest == Ok(left), "{text}");
        }
    }
}

#[test]
fn other_values_are_changed_in_place() {
    let text = "metadata:\n  name: a # who\n  labels:\n    old: \"1\" # gone\n    kept: '2'\nspec:\n  on: true\n";
    let mut wanted = documents(text).expect("a text").remove(0);
    wanted["metadata"]["labels"] = json!({"kept": "3", "new": "4"});
    wanted["spec"] = json!({"on": false, "list": [], "map": {"a": [1, 2]}});
    let expected = "metadata:\n  name: a # who\n  labels:\n    kept: \"3\"\n    new: \"4\"\nspec:\n  on: false\n  list: []\n  map:\n    a:\n      - 1\n      - 2\n";
    assert_eq!(replace(text, FIRST, &wanted).as_deref(), Ok(expected));
}

#[test]
fn changes_through_aliases_anchors_and_merge_keys_are_refused() {
    for (text, expected) in [
        (
            "x: &l\n- server: a\nspec:\n  destinationServiceAccounts: *l\n",
            format!("line 4: {ALIAS}"),
        ),
        (
            "spec:\n  destinationServiceAccounts: &l\n  - server: a\nx: *l\n",
            format!("line 3: {ANCHOR}"),
        ),
        (
            "x: &s\n  destinationServiceAccounts:\n  - server: a\nspec:\n  <<: *s\n  a: 1\n",
            format!("line 5: {MERGED}"),
        ),
        (
            "spec: &s\n  destinationServiceAccounts:\n  - server: a\n",
            format!("line 2: {ANCHOR}"),
        ),
    ] {
        assert_eq!(changed(text, FIRST, add), Err(expected), "{text}");
    }
    // An entry that an alias repeats cannot change; one beside it can be added.
    let text = "spec:\n  destinationServiceAccounts:\n  - &e {server: a}\nx: *e\n";
    assert_eq!(changed(text, FIRST, clear), Err(format!("line 3: {ANCHOR}")));
    assert!(changed(text, FIRST, add).is_ok());
    // A key beside a merge key can be added.
    let text = "x: &s {a: 1}\nspec:\n  <<: *s\n";
    assert!(changed(text, FIRST, add).expect("it is added").starts_with(text));
}

#[test]
fn unsupported_layouts_are_refused() {
    for text in [
        "spec:\n  ? destinationServiceAccounts\n  : - server: a\n",
        "spec:\n  destinationServiceAccounts: !!seq\n  - server: a\n",
    ] {
        assert!(changed(text, FIRST, add).is_err(), "{text}");
    }
}

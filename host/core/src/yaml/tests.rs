use super::{Content, Node, Parsed, parse};

fn documents(text: &str) -> Vec<std::rc::Rc<Node>> {
    let Parsed { documents, problems } = parse(text);
    assert!(problems.is_empty(), "{problems:?}");
    documents
}

fn problems(text: &str) -> Vec<String> {
    parse(text)
        .problems
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message))
        .collect()
}

fn text_line(text: &str) -> (String, u32) {
    let documents = documents(text);
    let node = documents[0].get("a").unwrap();
    (node.scalar().unwrap().text.to_string(), node.text_line)
}

#[test]
fn text_lines_of_every_scalar_style() {
    assert_eq!(text_line("a: plain\n"), ("plain".into(), 1));
    assert_eq!(text_line("a:\n  plain\n"), ("plain".into(), 2));
    assert_eq!(text_line("a: 'single\n  two'\n"), ("single two".into(), 1));
    assert_eq!(text_line("a: \"x\\ny\"\n"), ("x\ny".into(), 1));
    assert_eq!(text_line("a: |\n  one\n  two\n"), ("one\ntwo\n".into(), 2));
    assert_eq!(
        text_line("x: 1\na: |-  # comment\n\n\n  one\n  two\n\nb: 2\n"),
        ("\n\none\ntwo".into(), 3)
    );
    assert_eq!(text_line("a: |2\n   one\n  two\n"), (" one\ntwo\n".into(), 2));
    assert_eq!(text_line("a:\n  |\n  one\n"), ("one\n".into(), 3));
    assert_eq!(text_line("a: >\n\n  one\n  two\n"), ("\none two\n".into(), 2));
    assert_eq!(text_line("a: &anchor !!str |\n  one\n"), ("one\n".into(), 2));
    assert_eq!(text_line("a: |\r\n  one\r\n  two\r\n"), ("one\ntwo\n".into(), 2));
    assert_eq!(text_line("\u{feff}a: |\n  one\n"), ("one\n".into(), 2));
}

#[test]
fn json_with_tabs_is_read() {
    let documents = documents("{\n\t\"a\": [\n\t\t{\"b\": \"c\\n\\u00e9\"}\n\t],\n\t\"d\": true\n}\n");
    let item = &documents[0].get("a").unwrap().items().unwrap()[0];
    assert_eq!(&*item.get("b").unwrap().scalar().unwrap().text, "c\né");
    assert_eq!(item.line, 3);
}

#[test]
fn every_document_is_read_and_empty_ones_are_left_out() {
    let documents = documents("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n");
    assert_eq!(documents.len(), 2);
    assert_eq!(documents[1].line, 6);
}

#[test]
fn mistakes_of_several_documents_are_all_reported() {
    let parsed = parse("a: 1\nb: [1, 2\n---\nc: 1\n---\nd: 1\nd: 2\n---\ne: \"x\n");
    let lines: Vec<u32> = parsed.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(parsed.problems.len(), 3, "{:?}", parsed.problems);
    assert!(lines[0] <= 3 && lines[1] == 7 && lines[2] >= 9, "{lines:?}");
    assert!(
        parsed.problems[1]
            .message
            .contains("`d` stands twice in one mapping, first on line 6")
    );
    assert!(parsed.documents.iter().any(|document| document.get("c").is_some()));
}

#[test]
fn aliases_and_merge_keys_are_followed() {
    let documents = documents("base: &b {x: 1, y: 2}\nuse:\n  y: 3\n  <<: *b\n  z: 4\nagain: *b\n");
    let used = documents[0].get("use").unwrap();
    let read = |key: &str| used.get(key).unwrap().scalar().unwrap().text.to_string();
    assert_eq!((read("x"), read("y"), read("z")), ("1".into(), "3".into(), "4".into()));
    assert_eq!(documents[0].get("again").unwrap().entries().unwrap().len(), 2);
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let inner = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    let found = problems(&text);
    assert!(
        found
            .iter()
            .any(|problem| problem.contains("aliases expand to more than 100000 values")),
        "{found:?}"
    );
}

/// SECURITY: aliases could repeat a long text thousands of times.
#[test]
fn long_texts_repeated_by_aliases_count_against_the_limit() {
    for long in [
        format!("a: &a {}\n", "x".repeat(100_000)),
        format!("a: &a {{{}: 1}}\n", "x".repeat(1_000)),
    ] {
        let text = |aliases: usize| format!("{long}b: [{}]\n", "*a, ".repeat(aliases));
        assert!(problems(&text(200)).is_empty());
        let found = problems(&text(50_000));
        assert!(
            found.iter().any(|problem| problem.contains("aliases expand to more")),
            "{found:?}"
        );
    }
}

#[test]
fn deep_nesting_is_refused() {
    assert!(!problems(&format!("{}{}", "[".repeat(500), "]".repeat(500))).is_empty());
    let mut chain = String::from("a0: &a0 [x]\n");
    for level in 1..100 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(
        problems(&chain)
            .iter()
            .any(|problem| problem.contains("aliases nest deeper than 64 levels"))
    );
}

#[test]
fn an_alias_inside_its_own_anchor_is_refused() {
    assert_eq!(problems("a: &a [*a]\n"), ["1:8 an alias stands inside its own anchor"]);
}

#[test]
fn keys_must_be_text() {
    assert_eq!(problems("? [a]\n: b\n"), ["1:3 a key must be text, found a list"]);
}

#[test]
fn debug_output_and_errors_never_show_values() {
    let parsed = parse("password: hunter2\ntoken: \"hunter3\n");
    let shown = format!("{parsed:?}");
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(!parsed.problems.is_empty());
}

#[test]
fn plain_scalars_have_the_type_of_the_core_schema() {
    use super::ScalarType::{Boolean, Null, Number, Text};
    for (text, meaning) in [
        ("a: ", Null),
        ("a: ~", Null),
        ("a: null", Null),
        ("a: ''", Text),
        ("a: true", Boolean(true)),
        ("a: False", Boolean(false)),
        ("a: yes", Text),
        ("a: 12", Number),
        ("a: -1.5e3", Number),
        ("a: 0x1F", Number),
        ("a: 0o17", Number),
        ("a: .5", Number),
        ("a: .inf", Number),
        ("a: 1.2.3", Text),
        ("a: e5", Text),
        ("a: '12'", Text),
        ("a: !!str 12", Text),
        ("a: 10s", Text),
    ] {
        let documents = parse(text).documents;
        let Content::Mapping(entries) = &documents.first().unwrap_or_else(|| panic!("{text}")).content else {
            panic!()
        };
        let scalar = entries[0].value.scalar().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(scalar.scalar_type(), meaning, "{text}");
    }
}

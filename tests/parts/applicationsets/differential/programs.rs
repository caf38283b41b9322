//! Whole templates: blocks, variables, comments, blanks that are trimmed, and letters that
//! were struck or added by mistake.

use serde_json::{Value, json};
use tollgate_applicationset::MissingKey;

use super::Pair;
use super::calls::{TEXTS, call, literal, missing_key, parameters};
use super::chance::Chance;

/// Nodes of one template.
const NODES: usize = 4;
/// Letters that a mistake puts in.
const LETTERS: &[&str] = &[
    "{",
    "}",
    "{{",
    "}}",
    "-",
    " -",
    "- ",
    "/*",
    "*/",
    "\"",
    "`",
    "'",
    ".",
    "|",
    "(",
    ")",
    "$",
    ",",
    ":=",
    "=",
    "\\",
    " ",
    "\n",
    "\t",
    "\r",
    "\u{a0}",
    "\u{2028}",
    "é",
    "0",
    "1",
    "x",
    "_",
    "end",
    "else",
    "if",
    "with",
    "range",
    "nil",
    "true",
    "break",
    "define \"x\"",
    "\\x41",
    "\u{0}",
];

/// One template.
pub(super) fn draw(chance: &mut Chance) -> Pair {
    let mut scope = Scope::default();
    let mut text = nodes(chance, &mut scope, 3);
    if chance.percent(30) {
        for _ in 0..=chance.below(2) {
            text = mistaken(chance, &text);
        }
    }
    Pair {
        text,
        parameters: parameters(chance),
        missing_key: missing_key(chance),
        is_fast: false,
    }
}

/// What is declared, and where.
#[derive(Clone, Default)]
struct Scope {
    variables: usize,
    in_range: bool,
}

fn nodes(chance: &mut Chance, scope: &mut Scope, depth: usize) -> String {
    (0..=chance.below(NODES)).map(|_| node(chance, scope, depth)).collect()
}

fn node(chance: &mut Chance, scope: &mut Scope, depth: usize) -> String {
    let blocks = if depth == 0 { 0 } else { 5 };
    match chance.below(12 + blocks) {
        0..=3 => plain(chance),
        4..=7 => {
            let value = value(chance, scope);
            action(chance, &value)
        }
        8 => {
            let value = value(chance, scope);
            let declared = scope.variables;
            scope.variables += 1;
            action(chance, &format!("$v{declared} := {value}"))
        }
        9 if scope.variables > 0 => {
            let name = chance.below(scope.variables);
            let value = value(chance, scope);
            action(chance, &format!("$v{name} = {value}"))
        }
        10 => chance
            .pick(&[
                "{{/* c */}}",
                "{{- /* c */ -}}",
                "{{/* c */ -}}",
                "{{- /* c */}}",
                "{{/*\n}}*/}}",
                "{{ /* c */ }}",
            ])
            .to_owned(),
        11 if scope.in_range => {
            let word = chance.pick(&["break", "continue"]);
            let condition = value(chance, scope);
            format!(
                "{}{}{}",
                action(chance, &format!("if {condition}")),
                action(chance, word),
                action(chance, "end")
            )
        }
        9 | 11 => plain(chance),
        12..=14 => branch(chance, scope, depth),
        _ => range(chance, scope, depth),
    }
}

/// Text between actions.
fn plain(chance: &mut Chance) -> String {
    let text = chance.pick(TEXTS);
    match chance.below(4) {
        0 => format!(" {text}\n"),
        1 => format!("\n  {text} "),
        2 => "-".to_owned(),
        _ => text.replace("{{", "{"),
    }
}

fn action(chance: &mut Chance, inside: &str) -> String {
    let open = chance.pick(&["{{ ", "{{ ", "{{", "{{- ", "{{-\n", "{{\t"]);
    let close = chance.pick(&[" }}", " }}", "}}", " -}}", "\n-}}", "  -}}"]);
    format!("{open}{inside}{close}")
}

/// A value: a parameter, a variable, a literal or a call.
fn value(chance: &mut Chance, scope: &Scope) -> String {
    let one = match chance.below(8) {
        0 => chance
            .pick(&[".", "$", ".s0", "$.s1", ".m0", ".l0", ".nil", ".missing"])
            .to_owned(),
        1 => chance
            .pick(&[
                ".m0.a",
                "$.m0.k.a",
                ".m1.b.c",
                "(index .l0 0).a",
                "(dict \"a\" .s0).a",
                "(.m0).a.b",
            ])
            .to_owned(),
        2 if scope.variables > 0 => {
            let name = chance.below(scope.variables);
            let fields = chance.pick(&["", "", ".a", ".k.a"]);
            format!("$v{name}{fields}")
        }
        3 => literal(chance.pick(TEXTS)).unwrap_or_else(|| "`raw\n\\x`".to_owned()),
        4 => chance
            .pick(&["1", "-7", "0", "true", "false", "nil", "`raw \"x\" {{ . }}`", "12345"])
            .to_owned(),
        _ => call(chance, 1),
    };
    match chance.below(12) {
        0 => format!("{one} | toString"),
        1 => format!("{one}|quote"),
        2 => format!("{one} | default \"d\" | toString\n|upper"),
        3 => format!("( {one} )"),
        4 if scope.variables > 0 => format!("{one} | printf \"%v-%v\" $v0"),
        _ => one,
    }
}

fn branch(chance: &mut Chance, scope: &Scope, depth: usize) -> String {
    let keyword = chance.pick(&["if", "if", "with"]);
    let mut inner = scope.clone();
    let condition = declared(chance, &mut inner);
    let mut text = action(chance, &format!("{keyword} {condition}"));
    text.push_str(&nodes(chance, &mut inner.clone(), depth - 1));
    for _ in 0..chance.below(3) {
        let condition = declared(chance, &mut inner);
        text.push_str(&action(chance, &format!("else {keyword} {condition}")));
        text.push_str(&nodes(chance, &mut inner.clone(), depth - 1));
    }
    if chance.percent(50) {
        text.push_str(&action(chance, "else"));
        text.push_str(&nodes(chance, &mut inner.clone(), depth - 1));
    }
    text + &action(chance, "end")
}

/// A value, in a variable at times.
fn declared(chance: &mut Chance, scope: &mut Scope) -> String {
    let value = value(chance, scope);
    if !chance.percent(15) {
        return value;
    }
    let name = scope.variables;
    scope.variables += 1;
    format!("$v{name} := {value}")
}

fn range(chance: &mut Chance, scope: &Scope, depth: usize) -> String {
    // Never what may be a large number: Argo CD's side has no bound of its own.
    let over = match chance.below(3) {
        0 => chance
            .pick(&[
                "until 3",
                "3",
                "list 1 \"a\" true",
                ".missing",
                "splitList \",\" .s0",
                ".s0",
                ".n0",
                "(dict \"b\" 1 \"a\" .nil)",
            ])
            .to_owned(),
        _ => chance.pick(&[".l0", ".l1", ".l2", ".m0", ".", "$.m1"]).to_owned(),
    };
    let mut inner = Scope {
        in_range: true,
        ..scope.clone()
    };
    let first = inner.variables;
    let declared = match chance.below(4) {
        0 => {
            inner.variables += 1;
            format!("$v{first} := ")
        }
        1 => {
            inner.variables += 2;
            format!("$v{first}{}$v{} := ", chance.pick(&[", ", ",", " , "]), first + 1)
        }
        2 if first > 0 && chance.percent(20) => "$v0 = ".to_owned(),
        _ => String::new(),
    };
    let mut text = action(chance, &format!("range {declared}{over}"));
    text.push_str(&nodes(chance, &mut inner, depth - 1));
    if chance.percent(40) {
        text.push_str(&action(chance, "else"));
        text.push_str(&nodes(chance, &mut scope.clone(), depth - 1));
    }
    text + &action(chance, "end")
}

/// The text with one letter left out, doubled, or put in.
fn mistaken(chance: &mut Chance, text: &str) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    if letters.is_empty() {
        return "{{".to_owned();
    }
    let at = chance.below(letters.len());
    match chance.below(4) {
        0 => {
            letters.remove(at);
        }
        1 => letters.insert(at, letters[at]),
        _ => {
            let put: Vec<char> = chance.pick(LETTERS).chars().collect();
            letters.splice(at..at, put);
        }
    }
    letters.into_iter().collect()
}

/// Braces of the engine that knows parameters alone.
pub(super) fn draw_fast(chance: &mut Chance) -> Pair {
    const PARTS: &[&str] = &[
        "{{a}}",
        "{{ b }}",
        "{{",
        "}}",
        "{",
        "}",
        "{{ path.basename }}",
        "{{path[0]}}",
        "{{missing}}",
        "{{n}}",
        "{{ }}",
        "{{}}",
        "{{\u{a0}a\u{2003}}}",
        "{{\na}}",
        "\n",
        " ",
        "x",
        "é",
        "{{{a}}}",
        "{{.a}}",
        "{{ \u{85}é }}",
        "{{a}",
        "{a}}",
        "\u{0}",
        "{{a b}}",
        "-",
        "{{\u{feff}a}}",
        "\r",
    ];
    let text: String = (0..=chance.below(6)).map(|_| chance.pick(PARTS)).collect();
    let parameters: Value = json!({
        "a": chance.pick(TEXTS), "b": chance.pick(TEXTS), "path.basename": chance.pick(TEXTS), "path[0]": "first",
        "é": chance.pick(TEXTS), "n": 1, "": "empty", "a b": "two",
    });
    Pair {
        text,
        parameters,
        missing_key: MissingKey::Default,
        is_fast: true,
    }
}

//! Draws whole templates: blocks, variables, comments and trim markers. Some of them get mistakes:
//! characters are removed, doubled or inserted.

use serde_json::{Value, json};
use tollgate_applicationset::MissingKey;

use super::Pair;
use super::calls::{TEXTS, call, literal, missing_key, parameters};
use crate::differential::random::Random;

/// The most nodes in one block.
const NODES: usize = 4;
/// Texts that a mistake inserts.
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

/// A template in Go's syntax.
pub(super) fn draw(random: &mut Random) -> Pair {
    let mut scope = Scope::default();
    let mut text = nodes(random, &mut scope, 3);
    if random.chance(30) {
        for _ in 0..=random.below(2) {
            text = mistaken(random, &text);
        }
    }
    Pair {
        text,
        parameters: parameters(random),
        missing_key: missing_key(random),
        is_fast: false,
    }
}

/// What the surrounding template declares.
#[derive(Clone, Default)]
struct Scope {
    variables: usize,
    in_range: bool,
}

fn nodes(random: &mut Random, scope: &mut Scope, depth: usize) -> String {
    (0..=random.below(NODES)).map(|_| node(random, scope, depth)).collect()
}

fn node(random: &mut Random, scope: &mut Scope, depth: usize) -> String {
    let blocks = if depth == 0 { 0 } else { 5 };
    match random.below(12 + blocks) {
        0..=3 => plain(random),
        4..=7 => {
            let value = value(random, scope);
            action(random, &value)
        }
        8 => {
            let value = value(random, scope);
            let declared = scope.variables;
            scope.variables += 1;
            action(random, &format!("$v{declared} := {value}"))
        }
        9 if scope.variables > 0 => {
            let name = random.below(scope.variables);
            let value = value(random, scope);
            action(random, &format!("$v{name} = {value}"))
        }
        10 => random
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
            let word = random.pick(&["break", "continue"]);
            let condition = value(random, scope);
            format!(
                "{}{}{}",
                action(random, &format!("if {condition}")),
                action(random, word),
                action(random, "end")
            )
        }
        9 | 11 => plain(random),
        12..=14 => branch(random, scope, depth),
        _ => range(random, scope, depth),
    }
}

/// Text between actions.
fn plain(random: &mut Random) -> String {
    let text = random.pick(TEXTS);
    match random.below(4) {
        0 => format!(" {text}\n"),
        1 => format!("\n  {text} "),
        2 => "-".to_owned(),
        _ => text.replace("{{", "{"),
    }
}

fn action(random: &mut Random, inside: &str) -> String {
    let open = random.pick(&["{{ ", "{{ ", "{{", "{{- ", "{{-\n", "{{\t"]);
    let close = random.pick(&[" }}", " }}", "}}", " -}}", "\n-}}", "  -}}"]);
    format!("{open}{inside}{close}")
}

/// A value: a parameter, a variable, a literal or a call.
fn value(random: &mut Random, scope: &Scope) -> String {
    let one = match random.below(8) {
        0 => random
            .pick(&[".", "$", ".s0", "$.s1", ".m0", ".l0", ".nil", ".missing"])
            .to_owned(),
        1 => random
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
            let name = random.below(scope.variables);
            let fields = random.pick(&["", "", ".a", ".k.a"]);
            format!("$v{name}{fields}")
        }
        3 => literal(random.pick(TEXTS)).unwrap_or_else(|| "`raw\n\\x`".to_owned()),
        4 => random
            .pick(&["1", "-7", "0", "true", "false", "nil", "`raw \"x\" {{ . }}`", "12345"])
            .to_owned(),
        _ => call(random, 1),
    };
    match random.below(12) {
        0 => format!("{one} | toString"),
        1 => format!("{one}|quote"),
        2 => format!("{one} | default \"d\" | toString\n|upper"),
        3 => format!("( {one} )"),
        4 if scope.variables > 0 => format!("{one} | printf \"%v-%v\" $v0"),
        _ => one,
    }
}

fn branch(random: &mut Random, scope: &Scope, depth: usize) -> String {
    let keyword = random.pick(&["if", "if", "with"]);
    let mut inner = scope.clone();
    let condition = declared(random, &mut inner);
    let mut text = action(random, &format!("{keyword} {condition}"));
    text.push_str(&nodes(random, &mut inner.clone(), depth - 1));
    for _ in 0..random.below(3) {
        let condition = declared(random, &mut inner);
        text.push_str(&action(random, &format!("else {keyword} {condition}")));
        text.push_str(&nodes(random, &mut inner.clone(), depth - 1));
    }
    if random.chance(50) {
        text.push_str(&action(random, "else"));
        text.push_str(&nodes(random, &mut inner.clone(), depth - 1));
    }
    text + &action(random, "end")
}

/// A value, sometimes assigned to a new variable.
fn declared(random: &mut Random, scope: &mut Scope) -> String {
    let value = value(random, scope);
    if !random.chance(15) {
        return value;
    }
    let name = scope.variables;
    scope.variables += 1;
    format!("$v{name} := {value}")
}

fn range(random: &mut Random, scope: &Scope, depth: usize) -> String {
    // Never a value that may be a large number, because Argo CD does not bound loops.
    let over = match random.below(3) {
        0 => random
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
        _ => random.pick(&[".l0", ".l1", ".l2", ".m0", ".", "$.m1"]).to_owned(),
    };
    let mut inner = Scope {
        in_range: true,
        ..scope.clone()
    };
    let first = inner.variables;
    let declared = match random.below(4) {
        0 => {
            inner.variables += 1;
            format!("$v{first} := ")
        }
        1 => {
            inner.variables += 2;
            format!("$v{first}{}$v{} := ", random.pick(&[", ", ",", " , "]), first + 1)
        }
        2 if first > 0 && random.chance(20) => "$v0 = ".to_owned(),
        _ => String::new(),
    };
    let mut text = action(random, &format!("range {declared}{over}"));
    text.push_str(&nodes(random, &mut inner, depth - 1));
    if random.chance(40) {
        text.push_str(&action(random, "else"));
        text.push_str(&nodes(random, &mut scope.clone(), depth - 1));
    }
    text + &action(random, "end")
}

/// The text with one character removed or doubled, or one of [`LETTERS`] inserted.
fn mistaken(random: &mut Random, text: &str) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    if letters.is_empty() {
        return "{{".to_owned();
    }
    let at = random.below(letters.len());
    match random.below(4) {
        0 => {
            letters.remove(at);
        }
        1 => letters.insert(at, letters[at]),
        _ => {
            let put: Vec<char> = random.pick(LETTERS).chars().collect();
            letters.splice(at..at, put);
        }
    }
    letters.into_iter().collect()
}

/// A template for the engine of sets without `goTemplate`, which only replaces parameters.
pub(super) fn draw_fast(random: &mut Random) -> Pair {
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
    let text: String = (0..=random.below(6)).map(|_| random.pick(PARTS)).collect();
    let parameters: Value = json!({
        "a": random.pick(TEXTS), "b": random.pick(TEXTS), "path.basename": random.pick(TEXTS), "path[0]": "first",
        "é": random.pick(TEXTS), "n": 1, "": "empty", "a b": "two",
    });
    Pair {
        text,
        parameters,
        missing_key: MissingKey::Default,
        is_fast: true,
    }
}

//! Calls of functions: each with arguments of each type, right ones most of the time.

use serde_json::{Map, Value, json};
use tollgate_applicationset::MissingKey;

use super::Pair;
use super::chance::Chance;

/// Texts that are odd in one way or another.
pub(super) const TEXTS: &[&str] = &[
    "",
    "a",
    "dev",
    "prod",
    "prod-eu-1",
    "engineering-dev",
    "é",
    "Grüße",
    "世界",
    "ß",
    "İ",
    "\u{212a}",
    "ſ",
    "ŉ",
    "ǰ",
    "Ǆ",
    "e\u{301}",
    "𝔘𝟙",
    "\u{fffd}",
    "\u{feff}x",
    "\u{a0}x\u{a0}",
    "\u{2028}",
    "\u{85}",
    "\u{0}",
    "\u{7f}",
    "\u{1b}[0m",
    " x ",
    "a b",
    "  two  words ",
    "\t",
    "\n",
    "a\nb\n",
    "a\r\nb",
    "a\n\nb",
    "x\n",
    "0",
    "1",
    "-1",
    "+5",
    "007",
    "0x1F",
    "0o17",
    "0b11",
    "1_0",
    "_1",
    "1__0",
    "0_7",
    "0x_1",
    "1e3",
    "1.0",
    "1.",
    "1.5",
    ".0",
    "1.0.0",
    "00",
    "-0",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "true",
    "false",
    "null",
    "~",
    "yes",
    "no",
    "on",
    "y",
    "n",
    "NaN",
    ".inf",
    "a: b",
    "a:b",
    "- a",
    "#x",
    "a #b",
    "&a",
    "*a",
    "!x",
    "|",
    ">",
    "%x",
    "@x",
    "`x`",
    "'x'",
    "\"x\"",
    "it's",
    "{a}",
    "[a]",
    "a,b,,c",
    "{{ .s0 }}",
    "}}",
    "{{",
    "<a>&\"'",
    "\\",
    "\\n",
    "$1",
    "${1}",
    "%s",
    "%d%%",
    "a/b.txt",
    "a/../b//c",
    "/",
    "//",
    ".",
    "..",
    "../x",
    "/a/b/",
    "a.tar.gz",
    ".hidden",
    "Feature/JIRA_123",
    "--A..b_c--",
    "HTTPServerID1",
    "helloWorld_x-y z",
    "FirstName",
    "_a_b",
    "a--b",
    "x-yz-long-branch-name-that-goes-on-and-on-and-on-for-a-while-longer",
    "2020-01-01",
    "12:30",
    "1:2:3",
    "0o14",
    "=",
    "<<",
    "a\tb",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
];

const KEYS: &[&str] = &["a", "b", "k", "name", "none", "x-y", "é", "", "1", "true"];

/// Functions with their arguments: `t` text, `i` number, `z` a small number, `b` boolean,
/// `l` list, `m` map, `a` anything, `k` key; `*` repeats what is before it.
const FUNCTIONS: &[(&str, &str)] = &[
    ("add", "a*"),
    ("add1", "a"),
    ("adler32sum", "t"),
    ("all", "a*"),
    ("and", "aa*"),
    ("any", "a*"),
    ("append", "la"),
    ("atoi", "t"),
    ("b64enc", "t"),
    ("base", "t"),
    ("biggest", "aa*"),
    ("cat", "a*"),
    ("clean", "t"),
    ("coalesce", "a*"),
    ("compact", "l"),
    ("concat", "ll*"),
    ("contains", "tt"),
    ("default", "aa"),
    ("dict", "ka*"),
    ("dig", "kam"),
    ("dig", "kkam"),
    ("dir", "t"),
    ("div", "aa"),
    ("empty", "a"),
    ("eq", "aa*"),
    ("ext", "t"),
    ("fail", "t"),
    ("first", "l"),
    ("ge", "aa"),
    ("get", "mk"),
    ("gt", "aa"),
    ("has", "al"),
    ("hasKey", "mk"),
    ("hasPrefix", "tt"),
    ("hasSuffix", "tt"),
    ("indent", "zt"),
    ("index", "mk"),
    ("index", "lz"),
    ("index", "ak*"),
    ("initial", "l"),
    ("int", "a"),
    ("int64", "a"),
    ("isAbs", "t"),
    ("join", "ta"),
    ("last", "l"),
    ("le", "aa"),
    ("len", "a"),
    ("list", "a*"),
    ("lower", "t"),
    ("lt", "aa"),
    ("max", "aa*"),
    ("min", "aa*"),
    ("mod", "aa"),
    ("mul", "aa*"),
    ("ne", "aa"),
    ("nindent", "zt"),
    ("normalize", "t"),
    ("not", "a"),
    ("omit", "mk*"),
    ("or", "aa*"),
    ("pick", "mk*"),
    ("pluck", "kmm*"),
    ("plural", "tti"),
    ("prepend", "la"),
    ("print", "a*"),
    ("printf", "fa*"),
    ("push", "la"),
    ("quote", "a*"),
    ("repeat", "zt"),
    ("replace", "ttt"),
    ("rest", "l"),
    ("reverse", "l"),
    ("seq", "zz"),
    ("seq", "zzz"),
    ("sha1sum", "t"),
    ("sha256sum", "t"),
    ("sha512sum", "t"),
    ("slugify", "t"),
    ("slugify", "zt"),
    ("slugify", "zbt"),
    ("sortAlpha", "l"),
    ("split", "tt"),
    ("splitList", "tt"),
    ("splitn", "tit"),
    ("squote", "a*"),
    ("sub", "aa"),
    ("substr", "iit"),
    ("swapcase", "t"),
    ("ternary", "aab"),
    ("title", "t"),
    ("toJson", "a"),
    ("toString", "a"),
    ("toStrings", "a"),
    ("toYaml", "a"),
    ("trim", "t"),
    ("trimAll", "tt"),
    ("trimPrefix", "tt"),
    ("trimSuffix", "tt"),
    ("trimall", "tt"),
    ("trunc", "it"),
    ("tuple", "a*"),
    ("uniq", "l"),
    ("until", "z"),
    ("untilStep", "zzz"),
    ("untitle", "t"),
    ("upper", "t"),
    ("without", "la*"),
];

/// Calls that are refused for what they are.
const OTHERS: &[&str] = &[
    "regexMatch \"a\" .s0",
    "fromJson .s0",
    "fromYaml .s0",
    "now",
    "semver .s0",
    "set .m0 \"a\" \"b\"",
    "unset .m0 \"a\"",
    "merge .m0 .m1",
    "keys .m0",
    "values .m0",
    "typeOf .s0",
    "kindOf .s0",
    "urlParse .s0",
    "b64dec .s0",
    "round 1.5 1",
    "float64 .s0",
    "deepCopy .m0",
    "slice .l0 1",
    "chunk 2 .l0",
    "html .s0",
    "js .s0",
    "urlquery .s0",
    "call .s0",
    "unknown .s0",
    "genCA \"a\" 1",
    "env \"HOME\"",
    "toPrettyJson .m0",
    "abbrev 5 .s0",
    "wrap 3 .s0",
    "nospace .s0",
    "camelcase .s0",
    "snakecase .s0",
    "kebabcase .s0",
    "initials .s0",
    "println .s0",
    "duration 5",
    "len \"\\xff\"",
    "len (substr 0 1 \"é\")",
    "int 1.5",
    "upper 'a'",
    "print 0x10 1_0 1e3",
    "len \"\\u00e9\"",
    "printf \"%x\" .s0",
    "printf \"%[2]s\" 1 2",
    "printf .s0 .s1",
    "fromYamlArray .s0",
];

const FORMATS: &[&str] = &[
    "%s", "%d", "%v", "%q", "%t", "%%", "%s-%s", "%5s|", "%-5s|", "%05d", "%02d", "%.2s", "%8.3s", "%s%%%d", "x",
    "%5v", "%-8q|", "%3t", "%.3d", "%5.3d", "%v %v %v", "é%sé", "%.1v", "%10d", "%.0s", "%5%", "%",
];

/// One call with what surrounds it.
pub(super) fn draw(chance: &mut Chance) -> Pair {
    let call = if chance.percent(4) {
        chance.pick(OTHERS).to_owned()
    } else {
        call(chance, 2)
    };
    let text = match chance.below(9) {
        0 => format!("{{{{ {call} | toJson }}}}"),
        1 => format!("{{{{ {call} | printf \"%v\" }}}}"),
        2 => format!("{{{{ if {call} }}}}yes{{{{ else }}}}no{{{{ end }}}}"),
        3 => format!("{{{{ range $k, $v := {call} }}}}{{{{ $k }}}}={{{{ $v }}}};{{{{ else }}}}none{{{{ end }}}}"),
        4 => format!("{{{{ $x := {call} }}}}{{{{ len (toString $x) }}}}{{{{ $x | quote }}}}"),
        _ => format!("{{{{ {call} }}}}"),
    };
    Pair {
        text,
        parameters: parameters(chance),
        missing_key: missing_key(chance),
        is_fast: false,
    }
}

pub(super) fn missing_key(chance: &mut Chance) -> MissingKey {
    chance.pick(&[
        MissingKey::Default,
        MissingKey::Default,
        MissingKey::Zero,
        MissingKey::Error,
    ])
}

/// A function and its arguments, some of them calls.
pub(super) fn call(chance: &mut Chance, depth: usize) -> String {
    let (name, signature) = chance.pick(FUNCTIONS);
    let mut kinds: Vec<char> = Vec::new();
    for kind in signature.chars() {
        match (kind, kinds.last().copied()) {
            ('*', Some(last)) => {
                // A map has pairs.
                let group = if name == "dict" { vec!['k', 'a'] } else { vec![last] };
                for _ in 0..chance.below(3) {
                    kinds.extend(&group);
                }
                if chance.percent(8) {
                    kinds.pop();
                }
            }
            (kind, _) => kinds.push(kind),
        }
    }
    if chance.percent(1) {
        // One too many; of sizes another size, for the number of them may vary.
        kinds.push(if kinds.contains(&'z') { 'z' } else { 'a' });
    }
    let mut arguments: Vec<String> = kinds.iter().map(|kind| argument(chance, *kind, depth)).collect();
    let is_piped = name != "printf" && !arguments.is_empty() && chance.percent(25);
    let piped = arguments.pop_if(|_| is_piped);
    let call = match arguments.is_empty() {
        true => name.to_owned(),
        false => format!("{name} {}", arguments.join(" ")),
    };
    match piped {
        Some(piped) => format!("{piped} | {call}"),
        None => call,
    }
}

fn argument(chance: &mut Chance, kind: char, depth: usize) -> String {
    if depth > 0 && kind != 'z' && kind != 'f' && chance.percent(15) {
        return format!("({})", call(chance, depth - 1));
    }
    // Sizes are always small: Argo CD's side has no bound of its own.
    let kind = match kind {
        'z' | 'f' => kind,
        'a' => chance.pick(&['t', 't', 'i', 'b', 'l', 'm', 'n']),
        _ if chance.percent(6) => chance.pick(&['t', 'i', 'b', 'l', 'm', 'n']),
        kind => kind,
    };
    match kind {
        'z' => (i64::try_from(chance.below(16)).unwrap() - 2).to_string(),
        'i' => match chance.below(4) {
            0 => chance.pick(&[".n0", ".n1", ".n2"]).to_owned(),
            1 => chance
                .pick(&["9223372036854", "-1", "1000000", "123456789012345678"])
                .to_owned(),
            _ => (i64::try_from(chance.below(14)).unwrap() - 3).to_string(),
        },
        'b' => chance.pick(&["true", "false", ".yes", ".no"]).to_owned(),
        'l' => chance.pick(&[".l0", ".l1", ".l2"]).to_owned(),
        'm' => chance.pick(&[".m0", ".m1", "."]).to_owned(),
        'n' => chance
            .pick(&[".nil", ".missing", "nil", ".m0.none", ".m0.none.deeper"])
            .to_owned(),
        'f' => literal(chance.pick(FORMATS)).unwrap(),
        'k' if chance.percent(80) => literal(chance.pick(KEYS)).unwrap(),
        _ => text(chance),
    }
}

fn text(chance: &mut Chance) -> String {
    if chance.percent(50) {
        return chance.pick(&[".s0", ".s1", ".s2", ".m0.a"]).to_owned();
    }
    literal(chance.pick(TEXTS)).unwrap_or_else(|| ".s0".to_owned())
}

/// A text as a template writes it; none where it would take an escape that is refused.
pub(super) fn literal(text: &str) -> Option<String> {
    if text
        .chars()
        .any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t' | '\r'))
    {
        return None;
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    Some(quoted)
}

/// A value for a parameter.
pub(super) fn value(chance: &mut Chance, depth: usize) -> Value {
    match chance.below(if depth == 0 { 7 } else { 10 }) {
        0..=3 => json!(chance.pick(TEXTS)),
        4 | 5 => number(chance),
        6 => chance.pick(&[json!(true), json!(false), Value::Null]),
        7 | 8 => list(chance, depth - 1),
        _ => map(chance, depth - 1),
    }
}

fn number(chance: &mut Chance) -> Value {
    chance.pick(&[
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(7),
        json!(42),
        json!(3.75),
        json!(-2.5),
        json!(0.1),
        json!(1e6),
        json!(1e21),
        json!(1e-7),
        json!(123_456_789),
        json!(12_345_678_901_i64),
        json!(9e18),
        json!(1e19),
        json!(0.5),
    ])
}

fn list(chance: &mut Chance, depth: usize) -> Value {
    (0..chance.below(5)).map(|_| value(chance, depth)).collect()
}

fn map(chance: &mut Chance, depth: usize) -> Value {
    let mut fields = Map::new();
    for _ in 0..chance.below(5) {
        fields.insert(chance.pick(KEYS).to_owned(), value(chance, depth));
    }
    Value::Object(fields)
}

pub(super) fn parameters(chance: &mut Chance) -> Value {
    let texts: Vec<&str> = (0..chance.below(5)).map(|_| chance.pick(TEXTS)).collect();
    json!({
        "s0": chance.pick(TEXTS), "s1": chance.pick(TEXTS), "s2": chance.pick(TEXTS),
        "n0": number(chance), "n1": number(chance), "n2": number(chance),
        "l0": list(chance, 1), "l1": texts, "l2": list(chance, 2),
        "m0": map(chance, 2), "m1": map(chance, 1),
        "yes": true, "no": false, "nil": null,
    })
}

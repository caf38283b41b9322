//! Draws templates that call functions, with arguments of every type. Most arguments have the type
//! that the function takes.

use serde_json::{Map, Value, json};
use tollgate_applicationset::MissingKey;

use super::Pair;
use crate::differential::random::Random;

/// Texts on which implementations tend to differ.
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

/// Functions with the types of their arguments: `t` text, `i` number, `z` small number, `b`
/// boolean, `l` list, `m` map, `a` anything, `k` key, `f` format. `*` repeats the type before it.
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

/// Calls that the gateway may refuse because of the function or the form of an argument.
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

/// A template with one call, which may be piped, tested, looped over or assigned.
pub(super) fn draw(random: &mut Random) -> Pair {
    let call = if random.chance(4) {
        random.pick(OTHERS).to_owned()
    } else {
        call(random, 2)
    };
    let text = match random.below(9) {
        0 => format!("{{{{ {call} | toJson }}}}"),
        1 => format!("{{{{ {call} | printf \"%v\" }}}}"),
        2 => format!("{{{{ if {call} }}}}yes{{{{ else }}}}no{{{{ end }}}}"),
        3 => format!("{{{{ range $k, $v := {call} }}}}{{{{ $k }}}}={{{{ $v }}}};{{{{ else }}}}none{{{{ end }}}}"),
        4 => format!("{{{{ $x := {call} }}}}{{{{ len (toString $x) }}}}{{{{ $x | quote }}}}"),
        _ => format!("{{{{ {call} }}}}"),
    };
    Pair {
        text,
        parameters: parameters(random),
        missing_key: missing_key(random),
        is_fast: false,
    }
}

pub(super) fn missing_key(random: &mut Random) -> MissingKey {
    random.pick(&[
        MissingKey::Default,
        MissingKey::Default,
        MissingKey::Zero,
        MissingKey::Error,
    ])
}

/// A call of a random function. Some of its arguments are calls.
pub(super) fn call(random: &mut Random, depth: usize) -> String {
    let (name, signature) = random.pick(FUNCTIONS);
    let mut kinds: Vec<char> = Vec::new();
    for kind in signature.chars() {
        match (kind, kinds.last().copied()) {
            ('*', Some(last)) => {
                // `dict` takes pairs of a key and a value.
                let group = if name == "dict" { vec!['k', 'a'] } else { vec![last] };
                for _ in 0..random.below(3) {
                    kinds.extend(&group);
                }
                if random.chance(8) {
                    kinds.pop();
                }
            }
            (kind, _) => kinds.push(kind),
        }
    }
    if random.chance(1) {
        // One argument too many. It must be small for functions that take sizes, because the extra
        // argument may itself be a size.
        kinds.push(if kinds.contains(&'z') { 'z' } else { 'a' });
    }
    let mut arguments: Vec<String> = kinds.iter().map(|kind| argument(random, *kind, depth)).collect();
    let is_piped = name != "printf" && !arguments.is_empty() && random.chance(25);
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

fn argument(random: &mut Random, kind: char, depth: usize) -> String {
    if depth > 0 && kind != 'z' && kind != 'f' && random.chance(15) {
        return format!("({})", call(random, depth - 1));
    }
    // Sizes are always small, because Argo CD's functions do not bound them.
    let kind = match kind {
        'z' | 'f' => kind,
        'a' => random.pick(&['t', 't', 'i', 'b', 'l', 'm', 'n']),
        _ if random.chance(6) => random.pick(&['t', 'i', 'b', 'l', 'm', 'n']),
        kind => kind,
    };
    match kind {
        'z' => (i64::try_from(random.below(16)).unwrap() - 2).to_string(),
        'i' => match random.below(4) {
            0 => random.pick(&[".n0", ".n1", ".n2"]).to_owned(),
            1 => random
                .pick(&["9223372036854", "-1", "1000000", "123456789012345678"])
                .to_owned(),
            _ => (i64::try_from(random.below(14)).unwrap() - 3).to_string(),
        },
        'b' => random.pick(&["true", "false", ".yes", ".no"]).to_owned(),
        'l' => random.pick(&[".l0", ".l1", ".l2"]).to_owned(),
        'm' => random.pick(&[".m0", ".m1", "."]).to_owned(),
        'n' => random
            .pick(&[".nil", ".missing", "nil", ".m0.none", ".m0.none.deeper"])
            .to_owned(),
        'f' => literal(random.pick(FORMATS)).unwrap(),
        'k' if random.chance(80) => literal(random.pick(KEYS)).unwrap(),
        _ => text(random),
    }
}

fn text(random: &mut Random) -> String {
    if random.chance(50) {
        return random.pick(&[".s0", ".s1", ".s2", ".m0.a"]).to_owned();
    }
    literal(random.pick(TEXTS)).unwrap_or_else(|| ".s0".to_owned())
}

/// The text as a quoted string of a template. `None` if it needs an escape that we refuse.
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

/// A random value of a parameter.
pub(super) fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 7 } else { 10 }) {
        0..=3 => json!(random.pick(TEXTS)),
        4 | 5 => number(random),
        6 => random.pick(&[json!(true), json!(false), Value::Null]),
        7 | 8 => list(random, depth - 1),
        _ => map(random, depth - 1),
    }
}

fn number(random: &mut Random) -> Value {
    random.pick(&[
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

fn list(random: &mut Random, depth: usize) -> Value {
    (0..random.below(5)).map(|_| value(random, depth)).collect()
}

fn map(random: &mut Random, depth: usize) -> Value {
    let mut fields = Map::new();
    for _ in 0..random.below(5) {
        fields.insert(random.pick(KEYS).to_owned(), value(random, depth));
    }
    Value::Object(fields)
}

pub(super) fn parameters(random: &mut Random) -> Value {
    let texts: Vec<&str> = (0..random.below(5)).map(|_| random.pick(TEXTS)).collect();
    json!({
        "s0": random.pick(TEXTS), "s1": random.pick(TEXTS), "s2": random.pick(TEXTS),
        "n0": number(random), "n1": number(random), "n2": number(random),
        "l0": list(random, 1), "l1": texts, "l2": list(random, 2),
        "m0": map(random, 2), "m1": map(random, 1),
        "yes": true, "no": false, "nil": null,
    })
}
